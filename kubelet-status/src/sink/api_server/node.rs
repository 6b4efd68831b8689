//! Reads the node from an API server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kube_client::Client;
use kube_client::api::Api;
use kubelet_core::{Error, NodeGetter, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Reads a node from an API server, at most every 10 s unless a fresh one is requested.
///
/// If the server does not answer, the last version is used, or the [initial one](Self::with_initial_node), so that pods
/// are still admitted.
#[derive(Clone)]
pub struct ApiServerNode {
    client: Client,
    name: Arc<str>,
    initial: Option<Arc<Node>>,
    last: Arc<Mutex<Option<Seen>>>,
}

/// When the node was read, and the node.
type Seen = (Instant, Arc<Node>);

/// How long a cached node is used (`nodeStatusUpdateFrequency`: how often the kubelet reads its node).
const KEPT_FOR: Duration = Duration::from_secs(10);
/// The time limit of a request if there is an older version.
const DEADLINE: Duration = Duration::from_secs(2);

impl ApiServerNode {
    /// The node `name` on the API server of `client`.
    pub fn new(client: Client, name: impl AsRef<str>) -> Self {
        Self {
            client,
            name: Arc::from(name.as_ref()),
            initial: None,
            last: Arc::default(),
        }
    }

    /// The agent's own version of the node (`initialNode`). Without it, no pod is admitted before the server has
    /// answered once.
    pub fn with_initial_node(mut self, node: Arc<Node>) -> Self {
        self.initial = Some(node);
        self
    }
}

impl std::fmt::Debug for ApiServerNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServerNode")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl NodeGetter for ApiServerNode {
    async fn node(&self) -> Result<Arc<Node>> {
        let last = self.last.lock().clone();
        if let Some((read_at, node)) = &last
            && read_at.elapsed() < KEPT_FOR
        {
            return Ok(node.clone());
        }
        let older = last.map(|(_, node)| node).or_else(|| self.initial.clone());
        let fresh = tokio::time::timeout(DEADLINE, self.fresh_node()).await;
        match (fresh, older) {
            (Ok(Ok(node)), _) | (Ok(Err(_)) | Err(_), Some(node)) => Ok(node),
            (Ok(Err(error)), None) => Err(error),
            (Err(_), None) => Err(Error::Timeout {
                what: "get node",
                pod: None,
                after: DEADLINE,
            }),
        }
    }

    async fn fresh_node(&self) -> Result<Arc<Node>> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get(&self.name).await;
        let node = Arc::new(node.map_err(|error| Error::Node {
            name: self.name.to_string(),
            source: Arc::new(error),
        })?);
        *self.last.lock() = Some((Instant::now(), node.clone()));
        Ok(node)
    }
}
