//! Watches the node's own object.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube_client::core::{ObjectList, WatchEvent};
use kube_client::{Client, Error as ClientError};
use kubelet_core::Jitter;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{NodeInformerHandle, NodeRequest};
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

impl NodeInformer {
    /// An informer for the node `node_name` on the API server of `client`.
    pub fn new(client: Client, node_name: impl Into<String>) -> Self {
        let requests = Requests {
            client,
            node_name: node_name.into().into(),
        };
        Self {
            jitter: Jitter::default(),
            handle: NodeInformerHandle::new(requests.node_name.clone(), Arc::new(requests.clone())),
            requests,
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

    /// One watch until it ends. The list before it streams or, if the server refuses that, is a request of its own
    /// (`ListAndWatch` of client-go). A server whose etcd is older than 3.5 answers status 200 and then refuses with an event.
    async fn watch(&self) -> Result<()> {
        let events = match self.watch_list().await {
            Ok(Some(events)) => events,
            Ok(None) => return Ok(()),
            Err(error) if is_passing(&error) => return Err(error),
            Err(error) => {
                tracing::debug!(node = %self.requests.node_name, %error, "the server streams no list, listing the node");
                let (node, version) = self.requests.list().await?;
                self.handle.see(node);
                self.open(Some(version)).await?
            }
        };
        self.follow(events).await
    }

    /// Gets the node through a watch that then continues with its changes; `None` if the watch ended before.
    async fn watch_list(&self) -> Result<Option<Events>> {
        let mut events = self.open(None).await?;
        let mut listed = None;
        while let Some(event) = events.next().await? {
            match event {
                // The initial events count once all of them have arrived.
                Event::Node(node) => listed = node,
                Event::Bookmark { ends_list: false } => {}
                Event::Bookmark { ends_list: true } => {
                    self.handle.see(listed);
                    return Ok(Some(events));
                }
            }
        }
        Ok(None)
    }

    async fn open(&self, from: Option<String>) -> Result<Events> {
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
        Ok(Events {
            events: events.boxed(),
            deadline,
            what,
        })
    }

    async fn follow(&self, mut events: Events) -> Result<()> {
        while let Some(event) = events.next().await? {
            if let Event::Node(node) = event {
                self.handle.see(node);
            }
        }
        Ok(())
    }
}

/// Whether the same request may succeed later: the server is overloaded or does not answer (`isWatchErrorRetriable`).
fn is_passing(error: &Error) -> bool {
    error.code().is_none_or(|code| code == 429)
}

/// The events of a watch that goes on.
struct Events {
    events: BoxStream<'static, Result<WatchEvent<Value>, ClientError>>,
    deadline: Instant,
    what: String,
}

enum Event {
    /// The node as it is now; `None` if it was deleted.
    Node(Option<Arc<Node>>),
    /// A sign that the watch goes on; `ends_list` after the initial events.
    Bookmark { ends_list: bool },
}

impl Events {
    /// The next event; `None` if the watch is over.
    async fn next(&mut self) -> Result<Option<Event>> {
        let what = &self.what;
        let next = timeout_at(self.deadline.min(Instant::now() + SILENCE), self.events.next());
        let event = match next.await {
            Ok(Some(event)) => event.map_err(|error| Error::api(what, error))?,
            Ok(None) => return Ok(None),
            Err(_) if Instant::now() >= self.deadline => return Ok(None),
            Err(_) => {
                let what = what.clone();
                return Err(Error::Timeout { what, after: SILENCE });
            }
        };
        Ok(Some(match event {
            WatchEvent::Added(node) | WatchEvent::Modified(node) => Event::Node(Some(decode(what, node)?)),
            WatchEvent::Deleted(_) => Event::Node(None),
            WatchEvent::Bookmark(bookmark) => Event::Bookmark {
                ends_list: bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END),
            },
            WatchEvent::Error(status) => return Err(Error::api(what, ClientError::Api(status))),
        }))
    }
}

fn decode(what: &str, node: Value) -> Result<Arc<Node>> {
    let node = serde_json::from_value(node);
    node.map(Arc::new)
        .map_err(|error| Error::api(what, ClientError::SerdeError(error)))
}

/// The requests for one node.
#[derive(Clone)]
struct Requests {
    client: Client,
    node_name: Arc<str>,
}

#[async_trait]
impl NodeRequest for Requests {
    async fn get(&self) -> Result<Node> {
        let what = format!("get node {}", self.node_name);
        let request = Request::get(format!("/api/v1/nodes/{}", self.node_name)).body(Vec::new());
        let request = request.map_err(|error| Error::api(&what, ClientError::HttpError(error)))?;
        within(what, self.client.request(request)).await
    }
}

impl Requests {
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
