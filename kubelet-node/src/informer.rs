//! Watches the node's own object.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use http::Request;
use k8s_openapi::api::core::v1::{AttachedVolume, Node, NodeAddress};
use kube_client::core::{ObjectList, WatchEvent};
use kube_client::{Client, Error as ClientError};
use kubelet_core::{Jitter, NodeGetter};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{Error, LocalNode, Result};

/// How long a watch lasts: between this and twice this (`defaultMinWatchTimeout` of client-go).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The API server ends a watch after its timeout. This much later the connection counts as dead.
const WATCH_MARGIN: Duration = Duration::from_secs(10);
/// The API server sends at least a bookmark each minute (`defaultBookmarkFrequency`). After this long without
/// any event the connection counts as dead.
pub(crate) const SILENCE: Duration = Duration::from_secs(3 * 60);
/// How long to wait for any other answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// The back-off after failures, before jitter (`defaultBackoffInit`, `defaultBackoffMax` of client-go).
const FIRST_BACK_OFF: Duration = Duration::from_millis(800);
const MAX_BACK_OFF: Duration = Duration::from_secs(30);
/// The annotation of the bookmark that ends the initial events (`metav1.InitialEventsAnnotationKey`).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Watches the agent's own Node object, the only one that a kubelet may read. Answers to the kubelet's node
/// informer and to its `nodeLister`.
///
/// The status updates, admission and mirror pods share this one watch. A watch ends after 5 to 10 minutes, or
/// after 3 minutes without any event. Then a new watch starts and reads the node again. While the API server is
/// unreachable, the last known node is returned.
#[derive(Debug)]
pub struct NodeInformer {
    requests: Requests,
    jitter: Jitter,
    handle: NodeInformerHandle,
}

/// Returns the last seen node. Clones share it.
#[derive(Clone)]
pub struct NodeInformerHandle {
    requests: Requests,
    seen: Arc<watch::Sender<Seen>>,
    addresses: Arc<watch::Sender<Vec<NodeAddress>>>,
    /// How often the attached volumes changed, and what they are.
    attached: Arc<Attached>,
    local: Option<Arc<LocalNode>>,
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

impl NodeInformer {
    /// An informer for the node `node_name` on the API server of `client`.
    pub fn new(client: Client, node_name: impl Into<String>) -> Self {
        let requests = Requests {
            client,
            node_name: node_name.into().into(),
        };
        Self {
            requests: requests.clone(),
            jitter: Jitter::default(),
            handle: NodeInformerHandle {
                requests,
                seen: Arc::default(),
                addresses: Arc::default(),
                attached: Arc::default(),
                local: None,
            },
        }
    }

    /// Uses `local` as the node until the API server has returned one (`getNodeAnyWay`). Call this before
    /// [`handle`](Self::handle).
    #[must_use]
    pub fn with_local_node(mut self, local: Arc<LocalNode>) -> Self {
        self.handle.local = Some(local);
        self
    }

    /// Spreads the requests of many nodes.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// A handle that returns the node.
    pub fn handle(&self) -> NodeInformerHandle {
        self.handle.clone()
    }

    /// Watches until `shutdown`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch. The handle still returns the last seen node.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut back_off = FIRST_BACK_OFF;
        let watching = async {
            loop {
                let begun = Instant::now();
                if let Err(error) = self.watch().await {
                    tracing::warn!(node = %self.requests.node_name, %error, "cannot watch the node");
                }
                // A watch that lasted for a while did not fail.
                if begun.elapsed() >= MAX_BACK_OFF {
                    back_off = FIRST_BACK_OFF;
                    continue;
                }
                sleep(self.jitter.apply(back_off, 1.0)).await;
                back_off = (back_off * 2).min(MAX_BACK_OFF);
            }
        };
        shutdown.run_until_cancelled(watching).await;
    }

    /// One watch until it ends: a streaming list or, if the server has none, a list and a watch.
    async fn watch(&self) -> Result<()> {
        match self.follow(None).await {
            Err(error) if matches!(error.code(), Some(400 | 422)) => {
                let (node, version) = self.requests.list().await?;
                self.handle.see(node);
                self.follow(Some(version)).await
            }
            done => done,
        }
    }

    async fn follow(&self, from: Option<String>) -> Result<()> {
        let lasting = self.jitter.apply(MIN_WATCH_TIMEOUT, 1.0);
        let deadline = Instant::now() + lasting + WATCH_MARGIN;
        let what = format!("watch node {}", self.requests.node_name);
        let request = self.requests.watch(from.as_deref(), lasting);
        let client = &self.requests.client;
        let request = request.map_err(|error| Error::api(&what, ClientError::HttpError(error)))?;
        let events = match timeout_at(deadline, client.request_events::<Value>(request)).await {
            Ok(events) => events.map_err(|error| Error::api(&what, error))?,
            Err(_) => {
                return Err(Error::Timeout { what, after: lasting });
            }
        };
        let mut events = events.boxed();
        // The initial events count once all of them have arrived.
        let mut listed = from.is_none().then_some(None);
        loop {
            let next = timeout_at(deadline.min(Instant::now() + SILENCE), events.next());
            let event = match next.await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(_) if Instant::now() >= deadline => return Ok(()),
                Err(_) => return Err(Error::Timeout { what, after: SILENCE }),
            };
            let node = match event.map_err(|error| Error::api(&what, error))? {
                WatchEvent::Added(node) | WatchEvent::Modified(node) => Some(decode(&what, node)?),
                WatchEvent::Deleted(_) => None,
                WatchEvent::Bookmark(bookmark) => {
                    if bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END)
                        && let Some(node) = listed.take()
                    {
                        self.handle.see(node);
                    }
                    continue;
                }
                WatchEvent::Error(status) => return Err(Error::api(&what, ClientError::Api(status))),
            };
            match &mut listed {
                Some(listed) => *listed = node,
                None => self.handle.see(node),
            }
        }
    }
}

fn decode(what: &str, node: Value) -> Result<Arc<Node>> {
    let node = serde_json::from_value(node);
    node.map(Arc::new)
        .map_err(|error| Error::api(what, ClientError::SerdeError(error)))
}

impl NodeInformerHandle {
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

    /// Waits until the node is registered, and returns it. `fastStaticPodsRegistration` waits for the same.
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
            .field("node", &self.requests.node_name)
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
        match self.requests.get().await {
            Ok(node) => {
                let node = Arc::new(node);
                self.observe(node.clone());
                Ok(node)
            }
            Err(error) => Err(kubelet_core::Error::Node {
                name: self.requests.node_name.to_string(),
                source: Arc::new(error),
            }),
        }
    }
}

/// The requests for one node.
#[derive(Clone)]
struct Requests {
    client: Client,
    node_name: Arc<str>,
}

impl Requests {
    async fn get(&self) -> Result<Node> {
        let what = format!("get node {}", self.node_name);
        let request = Request::get(format!("/api/v1/nodes/{}", self.node_name)).body(Vec::new());
        let request = request.map_err(|error| Error::api(&what, ClientError::HttpError(error)))?;
        within(what, self.client.request(request)).await
    }

    async fn list(&self) -> Result<(Option<Arc<Node>>, String)> {
        let what = format!("list node {}", self.node_name);
        let request = self.select("").body(Vec::new());
        let request = request.map_err(|error| Error::api(&what, ClientError::HttpError(error)))?;
        let list: ObjectList<Value> = within(what.clone(), self.client.request(request)).await?;
        let node = list.items.into_iter().next().map(|node| decode(&what, node));
        Ok((
            node.transpose()?,
            list.metadata.resource_version.unwrap_or_default(),
        ))
    }

    fn watch(&self, from: Option<&str>, lasting: Duration) -> http::Result<Request<Vec<u8>>> {
        let from = match from {
            Some(version) => format!("&resourceVersion={version}"),
            None => "&resourceVersionMatch=NotOlderThan&sendInitialEvents=true".to_owned(),
        };
        let seconds = lasting.as_secs();
        self.select(&format!(
            "&allowWatchBookmarks=true{from}&timeoutSeconds={seconds}&watch=true"
        ))
        .body(Vec::new())
    }

    fn select(&self, rest: &str) -> http::request::Builder {
        let name = &self.node_name;
        Request::get(format!(
            "/api/v1/nodes?fieldSelector=metadata.name%3D{name}{rest}"
        ))
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests")
            .field("node", &self.node_name)
            .finish_non_exhaustive()
    }
}

async fn within<T>(what: String, request: impl Future<Output = Result<T, ClientError>>) -> Result<T> {
    match timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(|error| Error::api(what, error)),
        Err(_) => Err(Error::Timeout {
            what,
            after: DEADLINE,
        }),
    }
}
