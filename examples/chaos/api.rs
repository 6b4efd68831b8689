//! The requests of an administrator, on a connection that is never cut.

use std::path::Path;
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::api::core::v1::Pod;
use kube_client::api::ListParams;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::time::timeout;

/// The namespace of all pods.
pub(crate) const NAMESPACE: &str = "chaos";
/// How long a request may take.
const WITHIN: Duration = Duration::from_secs(10);

/// The API server. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Administrator {
    pub(crate) client: Client,
}

impl Administrator {
    pub(crate) async fn new(kubeconfig: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        Self { client: Client::try_from(config).unwrap() }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", content)
            .body(body)
            .map_err(|error| error.to_string())?;
        match timeout(WITHIN, self.client.request::<Value>(request)).await {
            Ok(answer) => answer.map_err(|error| format!("{path}: {error}")),
            Err(_) => Err(format!("{path}: no answer within {WITHIN:?}")),
        }
    }

    /// Creates an object in a collection, such as `apis/apps/v1/deployments`.
    pub(crate) async fn create(&self, collection: &str, object: &Value) -> Result<Value, String> {
        self.send(Method::POST, &in_namespace(collection), "application/json", Some(object)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, String> {
        self.send(Method::GET, path, "application/json", None).await
    }

    /// The objects of a collection.
    pub(crate) async fn list(&self, collection: &str) -> Result<Vec<Value>, String> {
        let mut list = self.get(&in_namespace(collection)).await?;
        Ok(match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        })
    }

    /// Sends a merge patch to an object.
    pub(crate) async fn patch(&self, collection: &str, name: &str, patch: &Value) -> Result<Value, String> {
        let path = format!("{}/{name}", in_namespace(collection));
        self.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await
    }

    /// Deletes an object and what it owns. A grace period of 0 forces it.
    pub(crate) async fn delete(
        &self,
        collection: &str,
        name: &str,
        grace: Option<u64>,
    ) -> Result<Value, String> {
        let path = format!("{}/{name}", in_namespace(collection));
        let mut options = json!({"propagationPolicy": "Background"});
        if let Some(grace) = grace {
            options["gracePeriodSeconds"] = grace.into();
        }
        self.send(Method::DELETE, &path, "application/json", Some(&options)).await
    }

    pub(crate) async fn pods(&self) -> Result<Vec<Pod>, String> {
        let api = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        match timeout(WITHIN, api.list(&ListParams::default())).await {
            Ok(list) => list.map(|list| list.items).map_err(|error| error.to_string()),
            Err(_) => Err(format!("pods: no answer within {WITHIN:?}")),
        }
    }
}

/// `GROUP/VERSION/RESOURCE` in the namespace. A path stays as it is.
fn in_namespace(collection: &str) -> String {
    if collection.starts_with('/') {
        return collection.to_owned();
    }
    match collection.rsplit_once('/') {
        Some((group, resource)) => format!("/apis/{group}/namespaces/{NAMESPACE}/{resource}"),
        None => format!("/api/v1/namespaces/{NAMESPACE}/{collection}"),
    }
}
