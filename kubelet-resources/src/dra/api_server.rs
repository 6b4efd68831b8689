//! Claims and slices of an API server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube_client::api::{Api, DeleteParams, ListParams};
use kube_client::{Client, Error as ClientError};
use tokio::time::timeout;

use super::ClaimObjects;
use crate::BoxError;

/// How long an answer is waited for.
const DEADLINE: Duration = Duration::from_secs(10);

/// The objects of an API server, for one node.
#[derive(Clone)]
pub struct ApiServerClaims {
    client: Client,
    node_name: Arc<str>,
}

impl ApiServerClaims {
    /// The objects of the API server of `client`, for the node `node_name`.
    pub fn new(client: Client, node_name: impl AsRef<str>) -> Self {
        Self {
            client,
            node_name: Arc::from(node_name.as_ref()),
        }
    }
}

#[async_trait]
impl ClaimObjects for ApiServerClaims {
    async fn claim(&self, namespace: &str, name: &str) -> Result<ResourceClaim, BoxError> {
        let claims = Api::<ResourceClaim>::namespaced(self.client.clone(), namespace);
        within(claims.get(name))
            .await
            .map_err(|failure| failure.text.into())
    }

    async fn delete_slices(&self, driver: Option<&str>) -> Result<(), BoxError> {
        let of_node = format!("spec.nodeName={}", self.node_name);
        let selector = match driver {
            Some(driver) => format!("spec.driver={driver},{of_node}"),
            None => of_node,
        };
        let slices = Api::<ResourceSlice>::all(self.client.clone());
        let which = ListParams::default().fields(&selector);
        match within(slices.delete_collection(&DeleteParams::default(), &which)).await {
            Ok(_) => {
                tracing::debug!(selector, "Deleted ResourceSlices");
                Ok(())
            }
            Err(failure) if failure.is_not_found => Ok(()),
            Err(failure) => Err(failure.text.into()),
        }
    }
}

struct Failure {
    is_not_found: bool,
    /// The message of the API server, where it answered.
    text: String,
}

async fn within<T>(request: impl Future<Output = Result<T, ClientError>>) -> Result<T, Failure> {
    let (is_not_found, text) = match timeout(DEADLINE, request).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(ClientError::Api(status))) => (status.code == 404, status.message.clone()),
        Ok(Err(error)) => (false, error.to_string()),
        Err(_) => (false, format!("no answer from the API server after {DEADLINE:?}")),
    };
    Err(Failure { is_not_found, text })
}
