//! The pods that an API server binds to this node.

use std::future::Future;

use futures::future::{self, BoxFuture};
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kube_client::Client;
use kubelet_core::annotations::API_SOURCE;
use kubelet_core::{Jitter, PodExt, PodSource, SourceUpdate};
use serde_json::Value;

use crate::compact_pod::compact;
use crate::reflector::{Change, Listener, Reflector, Requests, Unreadable};
use crate::source_stream::{Words, source_stream};

/// Reads the pods that are bound to this node from an API server. Answers to the kubelet's `sourceApiserver` and
/// the reflector that it runs.
///
/// It sends all pods once, and then only changes. It starts with a streaming list, as the kubelet does, or with a
/// list in pages if the server has no streaming lists. Then it watches. A new watch continues where the last one
/// ended. After `410 Gone` it lists all pods again, and sends them only if something changed. While it cannot reach
/// the server, the source is [`Unavailable`](SourceUpdate::Unavailable) and its pods stay. It retries with the
/// back-off of client-go: after 0.8 to 1.6 seconds at first, after 30 to 60 seconds at most.
///
/// It keeps only the name and the resource version of each pod. It reads no further until its consumer has taken
/// the last update.
///
/// The [`Client`] sets TLS, identity and the timeouts of connections. The source ends a watch that sends nothing,
/// not even a bookmark, for three minutes.
///
/// ```no_run
/// # async fn make() -> Result<(), Box<dyn std::error::Error>> {
/// use kubelet_config::{ApiServerSource, PodConfig};
///
/// let client = kube_client::Client::try_default().await?;
/// let config = PodConfig::builder()
///     .source(ApiServerSource::new(client, "node-1"))
///     .build()?;
/// # Ok(())
/// # }
/// ```
pub struct ApiServerSource {
    client: Client,
    node_name: String,
    node_synced: BoxFuture<'static, ()>,
    jitter: Jitter,
}

impl ApiServerSource {
    /// The pods bound to the node `node_name`.
    pub fn new(client: Client, node_name: impl Into<String>) -> Self {
        Self {
            client,
            node_name: node_name.into(),
            node_synced: Box::pin(future::ready(())),
            jitter: Jitter::default(),
        }
    }

    /// Waits for `node_synced` before it requests pods. Use it to wait until the node was read from the API server,
    /// so that no pod is admitted against an old `Node`. Default: no wait.
    #[must_use]
    pub fn node_synced(mut self, node_synced: impl Future<Output = ()> + Send + 'static) -> Self {
        self.node_synced = Box::pin(node_synced);
        self
    }

    /// What spreads the requests of many nodes. Default: seeded by the operating system.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }
}

impl PodSource for ApiServerSource {
    /// `api`
    fn name(&self) -> &str {
        API_SOURCE
    }

    /// Dropping the stream ends the request under way.
    fn updates(self: Box<Self>) -> BoxStream<'static, SourceUpdate> {
        source_stream(|words| async move {
            let selector = format!("spec.nodeName={}", self.node_name);
            let requests = Requests::new(self.client, "/api/v1/pods", Some(selector));
            tracing::info!(
                source = API_SOURCE,
                "waiting for the node to be read before watching pods"
            );
            self.node_synced.await;
            Reflector::new(requests, self.jitter, words).run().await;
        })
    }
}

impl Listener<Pod> for Words {
    async fn changed(&mut self, change: Change<Pod>) {
        let word = match change {
            Change::All(pods) => SourceUpdate::Snapshot(pods),
            Change::Applied(pod) => SourceUpdate::Applied(pod),
            Change::Deleted(pod) => SourceUpdate::Deleted(pod.uid()),
            Change::Unavailable(message) => SourceUpdate::Unavailable { message },
            Change::Available => SourceUpdate::Available,
            Change::Problem { item, message } => SourceUpdate::Problem { item, message },
        };
        self.say(word).await;
    }

    fn read(&self, pod: Value) -> Result<Pod, Unreadable> {
        let mut pod = serde_path_to_error::deserialize(pod)?;
        compact(&mut pod);
        Ok(pod)
    }
}
