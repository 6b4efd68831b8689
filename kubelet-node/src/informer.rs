//! The node as an API server has it, watched.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use http::Request;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kube_client::core::{ObjectList, WatchEvent};
use kube_client::{Client, Error as ClientError};
use kubelet_core::{Jitter, NodeGetter};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{Error, LocalNode, Result};

/// How long the server is asked to watch, at least and at most twice that (`defaultMinWatchTimeout` of client-go).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The API server ends a watch when its time is over. If nothing is heard even then, nobody is there.
const WATCH_MARGIN: Duration = Duration::from_secs(10);
/// An API server says something each minute, at least a bookmark (`defaultBookmarkFrequency`): where nothing was heard for so
/// long, nobody is there.
pub(crate) const SILENCE: Duration = Duration::from_secs(3 * 60);
/// How long any other answer is waited for.
const DEADLINE: Duration = Duration::from_secs(30);
/// The waits after failures, before jitter (`defaultBackoffInit`, `defaultBackoffMax` of client-go).
const FIRST_BACK_OFF: Duration = Duration::from_millis(800);
const MAX_BACK_OFF: Duration = Duration::from_secs(30);
/// The mark of the bookmark that ends the initial events (`metav1.InitialEventsAnnotationKey`).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Watches the agent's own node, the one object of its kind that a kubelet may see. Answers to the kubelet's node
/// informer and to its `nodeLister`.
///
/// All who ask for the node are served from this one watch: the status updates, admission, mirror pods. A watch that
/// ends, after 5 to 10 minutes, or that said nothing for 3, is followed by another that tells the node anew; while the server
/// cannot be reached, the node is as it was.
#[derive(Debug)]
pub struct NodeInformer {
    requests: Requests,
    jitter: Jitter,
    handle: NodeInformerHandle,
}

/// The node as it was seen last. Clones are the same.
#[derive(Clone)]
pub struct NodeInformerHandle {
    requests: Requests,
    seen: Arc<watch::Sender<Seen>>,
    addresses: Arc<watch::Sender<Vec<NodeAddress>>>,
    local: Option<Arc<LocalNode>>,
}

/// Nothing yet, or the node if there is one.
#[derive(Clone, Debug, Default)]
struct Seen {
    synced: bool,
    node: Option<Arc<Node>>,
    /// The version that was last seen of one that is gone.
    gone_at: u64,
}

impl NodeInformer {
    /// The node `node_name` on the API server that `client` talks to.
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
                local: None,
            },
        }
    }

    /// What the agent knows of its node by itself stands in for it as long as the server has not told of it
    /// (`getNodeAnyWay`). To be set before [`handle`](Self::handle) is called.
    #[must_use]
    pub fn with_local_node(mut self, local: Arc<LocalNode>) -> Self {
        self.handle.local = Some(local);
        self
    }

    /// What spreads the requests of many nodes.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Who tells of the node.
    pub fn handle(&self) -> NodeInformerHandle {
        self.handle.clone()
    }

    /// Watches until `shutdown`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch. The handle goes on to tell what was seen.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut back_off = FIRST_BACK_OFF;
        let watching = async {
            loop {
                let begun = Instant::now();
                if let Err(error) = self.watch().await {
                    tracing::warn!(node = %self.requests.node_name, %error, "the node cannot be watched");
                }
                // A watch that went on for a while did not fail.
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

    /// One watch, until it ends: a streaming list, or a list and a watch where the server has none.
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
        // What a streaming list tells counts when it is told whole.
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
    /// The node as the server told of it last; `None` before it did, or where there is none (`nodeLister.Get`).
    pub fn get(&self) -> Option<Arc<Node>> {
        self.seen.borrow().node.clone()
    }

    /// Waits until the server has told whether there is such a node (`nodeHasSynced`): before that, the node's pods are
    /// not to be read either.
    pub fn synced(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut seen = self.seen.subscribe();
        async move {
            // An informer that is gone will not tell any more.
            if seen.wait_for(|seen| seen.synced).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the node is there, registered (`fastStaticPodsRegistration` waits so, too), and gives it.
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

    /// The node's addresses as the server told of them last, and each change of them (`getLastObservedNodeAddresses`): what a
    /// serving certificate is to be for. None as long as there is no node.
    pub fn addresses(&self) -> watch::Receiver<Vec<NodeAddress>> {
        self.addresses.subscribe()
    }

    /// The server just told of the node, by another way than the watch: which may have told of a later version since.
    pub(crate) fn observe(&self, node: Arc<Node>) {
        self.seen.send_if_modified(|seen| {
            let is_newer = version(&node) > seen.node.as_deref().map_or(seen.gone_at, version);
            if is_newer {
                seen.node = Some(node);
            }
            is_newer
        });
        self.tell_addresses();
    }

    fn see(&self, node: Option<Arc<Node>>) {
        self.seen.send_modify(|seen| {
            if let (Some(gone), None) = (&seen.node, &node) {
                seen.gone_at = version(gone);
            }
            (seen.synced, seen.node) = (true, node);
        });
        self.tell_addresses();
    }

    fn tell_addresses(&self) {
        let seen = self.seen.borrow();
        let status = seen.node.as_ref().and_then(|node| node.status.as_ref());
        let now = status
            .and_then(|status| status.addresses.as_deref())
            .unwrap_or_default();
        self.addresses.send_if_modified(|told| {
            let differs = told.as_slice() != now;
            if differs {
                *told = now.to_vec();
            }
            differs
        });
    }
}

/// API servers number their versions, and later ones are greater.
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

/// Asks for one node.
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
