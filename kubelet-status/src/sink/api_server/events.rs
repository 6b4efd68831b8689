//! Sends events to an API server.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Event as ApiEvent;
use kube_client::api::{Api, Patch, PatchParams, PostParams};
use kube_client::core::Status;
use kube_client::{Client, Error as ClientError};
use serde_json::Value;

use crate::events::{EventSink, EventSinkError};

/// Creates events on an API server, in the namespace of the pod.
#[derive(Clone)]
pub struct ApiServerEvents {
    client: Client,
}

impl ApiServerEvents {
    /// Sends events with `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn events(&self, event: &ApiEvent) -> Api<ApiEvent> {
        let namespace = event
            .metadata
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty());
        Api::namespaced(self.client.clone(), namespace.unwrap_or("default"))
    }
}

impl std::fmt::Debug for ApiServerEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServerEvents").finish_non_exhaustive()
    }
}

#[async_trait]
impl EventSink for ApiServerEvents {
    async fn create(&self, event: &ApiEvent) -> Result<(), EventSinkError> {
        let made = self.events(event).create(&PostParams::default(), event).await;
        match made {
            // By an earlier attempt, whose answer was lost.
            Err(ClientError::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => Ok(()),
            made => made.map(drop).map_err(failed),
        }
    }

    async fn patch(&self, event: &ApiEvent, patch: &Value) -> Result<(), EventSinkError> {
        let name = event.metadata.name.as_deref().unwrap_or_default();
        let changed = self
            .events(event)
            .patch(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await;
        changed.map(drop).map_err(failed)
    }
}

/// An error response is final, unless the server is busy or fails internally.
fn failed(error: ClientError) -> EventSinkError {
    match error {
        ClientError::Api(status) if status.code == 404 => EventSinkError::NotFound,
        ClientError::Api(status) if is_namespace_terminating(&status) => {
            EventSinkError::NamespaceTerminating(status.message.clone())
        }
        ClientError::Api(status) if status.code != 429 && status.code < 500 => {
            EventSinkError::Refused(status.message)
        }
        error => EventSinkError::NotReached(Box::new(error)),
    }
}

/// The `NamespaceLifecycle` admission rejects new objects in a namespace that is being deleted.
fn is_namespace_terminating(status: &Status) -> bool {
    let details = status.details.iter();
    let mut causes = details.flat_map(|details| &details.causes);
    status.code == 403 && causes.any(|cause| cause.reason == "NamespaceTerminating")
}
