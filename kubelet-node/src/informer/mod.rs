//! The node's own object, as the other parts of an agent see it.

#[cfg(feature = "apiserver")]
pub(crate) mod follow;

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{AttachedVolume, Node, NodeAddress};
use kubelet_core::NodeGetter;
use parking_lot::Mutex;
use tokio::sync::watch;

#[cfg(feature = "apiserver")]
pub use self::follow::NodeInformer;
use crate::{LocalNode, Result};

/// Returns the last seen node. Clones share it.
#[derive(Clone)]
pub struct NodeInformerHandle {
    node_name: Arc<str>,
    request: Arc<dyn NodeRequest>,
    seen: Arc<watch::Sender<Seen>>,
    addresses: Arc<watch::Sender<Vec<NodeAddress>>>,
    /// How often the attached volumes changed, and what they are.
    attached: Arc<Attached>,
    local: Option<Arc<LocalNode>>,
}

/// Reads the node from the API server.
#[async_trait]
trait NodeRequest: Send + Sync {
    async fn get(&self) -> Result<Node>;
}

/// The volumes that the controller has attached to the node.
#[derive(Default)]
struct Attached {
    changes: watch::Sender<u64>,
    last: Mutex<Vec<AttachedVolume>>,
}

/// The state of the watch: whether it has synced, and the node if it exists.
#[derive(Clone, Debug, Default)]
struct Seen {
    synced: bool,
    node: Option<Arc<Node>>,
    /// The last known version of a node that was deleted.
    gone_at: u64,
}

impl NodeInformerHandle {
    fn new(node_name: Arc<str>, request: Arc<dyn NodeRequest>) -> Self {
        Self {
            node_name,
            request,
            seen: Arc::default(),
            addresses: Arc::default(),
            attached: Arc::default(),
            local: None,
        }
    }

    /// The last seen node; `None` before the first answer, or if the node does not exist (`nodeLister.Get`).
    pub fn get(&self) -> Option<Arc<Node>> {
        self.seen.borrow().node.clone()
    }

    /// Waits until the API server has reported whether the node exists (`nodeHasSynced`). Do not read the
    /// node's pods before.
    pub fn synced(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut seen = self.seen.subscribe();
        async move {
            // The informer is gone, so no further news will come.
            if seen.wait_for(|seen| seen.synced).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the node is registered, and returns it.
    pub async fn registered(&self) -> Arc<Node> {
        let mut seen = self.seen.subscribe();
        loop {
            if let Some(node) = seen.borrow_and_update().node.clone() {
                return node;
            }
            if seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The last seen addresses of the node, and each change of them (`getLastObservedNodeAddresses`). Serving
    /// certificates are requested for these. Empty as long as the node does not exist.
    pub fn addresses(&self) -> watch::Receiver<Vec<NodeAddress>> {
        self.addresses.subscribe()
    }

    /// Changes whenever `status.volumesAttached` has changed. A pod that waits for a volume then looks again.
    pub fn volumes_attached_changes(&self) -> watch::Receiver<u64> {
        self.attached.changes.subscribe()
    }

    /// Records a node that another request returned. The watch may have seen a newer version already.
    pub(crate) fn observe(&self, node: Arc<Node>) {
        self.seen.send_if_modified(|seen| {
            let is_newer = version(&node) > seen.node.as_deref().map_or(seen.gone_at, version);
            if is_newer {
                seen.node = Some(node);
            }
            is_newer
        });
        self.publish();
    }

    fn see(&self, node: Option<Arc<Node>>) {
        self.seen.send_modify(|seen| {
            if let (Some(gone), None) = (&seen.node, &node) {
                seen.gone_at = version(gone);
            }
            (seen.synced, seen.node) = (true, node);
        });
        self.publish();
    }

    /// Reports what has changed to those who wait for it.
    fn publish(&self) {
        let seen = self.seen.borrow();
        let status = seen.node.as_ref().and_then(|node| node.status.as_ref());
        let now = status
            .and_then(|status| status.addresses.as_deref())
            .unwrap_or_default();
        self.addresses.send_if_modified(|published| {
            let differs = published.as_slice() != now;
            if differs {
                *published = now.to_vec();
            }
            differs
        });
        let now = status
            .and_then(|status| status.volumes_attached.as_deref())
            .unwrap_or_default();
        let mut last = self.attached.last.lock();
        if last.as_slice() != now {
            *last = now.to_vec();
            self.attached
                .changes
                .send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

/// Resource versions are numbers, and newer ones are greater.
fn version(node: &Node) -> u64 {
    let version = node.metadata.resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

impl std::fmt::Debug for NodeInformerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeInformerHandle")
            .field("node", &self.node_name)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl NodeGetter for NodeInformerHandle {
    async fn node(&self) -> kubelet_core::Result<Arc<Node>> {
        match (self.get(), &self.local) {
            (Some(node), _) => Ok(node),
            (None, Some(local)) => Ok(local.stand_in().await),
            (None, None) => self.fresh_node().await,
        }
    }

    async fn fresh_node(&self) -> kubelet_core::Result<Arc<Node>> {
        match self.request.get().await {
            Ok(node) => {
                let node = Arc::new(node);
                self.observe(node.clone());
                Ok(node)
            }
            Err(error) => Err(kubelet_core::Error::Node {
                name: self.node_name.to_string(),
                source: Arc::new(error),
            }),
        }
    }

    async fn registered(&self) {
        Self::registered(self).await;
    }
}
