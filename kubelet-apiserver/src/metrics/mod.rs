//! `metrics.k8s.io`: the usage of nodes and pods, as metrics-server serves it.
//!
//! metrics-server scrapes the nodes at an interval. This server runs no task, so it scrapes them when a client asks.

mod points;
mod scrape;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::time::{self, Instant};

use super::objects::Fields;
use super::resource::{METRICS_GROUP, Resource};
use super::server::{ApiServerBuilder, Shared};
use super::status_error::StatusError;
use super::store::Selection;
use super::write::name_of;
use points::Points;

/// The time between the two scrapes from which the first rates are computed.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// How long a node may take to answer (`--kubelet-request-timeout`).
const KUBELET_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

impl ApiServerBuilder {
    /// Serves `metrics.k8s.io/v1beta1`, so that `kubectl top` and autoscalers work.
    ///
    /// The usage comes from `/metrics/resource` of each node, and is at most `resolution` old (`--metric-resolution`).
    /// The CPU usage of the first request, and of a request after a long pause, is that of one second: the request
    /// takes that long. A node that does not respond within 10 s has no usage, nor have its pods.
    #[must_use]
    pub fn metrics_server(mut self, resolution: Duration) -> Self {
        self.metrics_resolution = Some(resolution);
        self
    }
}

/// What the nodes have answered.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    resolution: Duration,
    scraped: tokio::sync::Mutex<Scraped>,
}

#[derive(Debug, Default)]
struct Scraped {
    at: Option<Instant>,
    points: Points,
}

impl MetricsServer {
    pub(crate) fn new(resolution: Duration) -> Self {
        Self {
            resolution,
            scraped: tokio::sync::Mutex::default(),
        }
    }

    /// Scrapes the nodes, if the last scrape is too old. Requests at the same time share a scrape.
    async fn refresh(&self, shared: &Shared, scraped: &mut Scraped) {
        let age = scraped.at.map(|at| at.elapsed());
        if age.is_some_and(|age| age < self.resolution) {
            return;
        }
        scraped.scrape(shared, self.resolution).await;
        // A rate since the scrape before would be an average of a long time.
        if age.is_none_or(|age| age > 2 * self.resolution) {
            time::sleep(SHORTEST_WINDOW).await;
            scraped.scrape(shared, self.resolution).await;
        }
    }
}

impl Scraped {
    async fn scrape(&mut self, shared: &Shared, resolution: Duration) {
        let nodes = objects_of(shared, "nodes", "");
        let scrapes = nodes.iter().map(|node| async move {
            let name = name_of(node);
            let text = time::timeout(KUBELET_REQUEST_TIMEOUT, scrape::fetch(shared, name)).await;
            let text = text.ok()?.ok()?;
            Some((name.to_owned(), scrape::parse(&text, shared.now())))
        });
        let answered = join_all(scrapes).await.into_iter().flatten();
        self.points.store(answered, resolution);
        self.at = Some(Instant::now());
    }
}

impl Shared {
    /// The usage of a node or pod.
    ///
    /// # Errors
    ///
    /// 404, if there is no such object, or nothing is known of its usage yet.
    pub(crate) async fn metrics_of(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Value>, StatusError> {
        // A node or pod that does not exist is missing in the core group.
        let core = Resource::find("", "v1", resource.plural);
        let object = core.and_then(|core| self.lookup(core, namespace, name));
        let object = object.ok_or_else(|| StatusError::not_found(core.unwrap_or(resource), name))?;
        let unknown = if namespace.is_empty() {
            name.to_owned()
        } else {
            format!("{namespace}/{name}")
        };
        let metrics = self.metrics(resource, &[object]).await.into_iter().next();
        metrics.ok_or_else(|| StatusError::not_found(resource, &unknown))
    }

    /// The usage of the nodes or pods that are selected, as far as it is known.
    pub(crate) async fn metrics_list(&self, resource: &Resource, selection: &Selection) -> Vec<Arc<Value>> {
        let mut objects = objects_of(self, resource.plural, &selection.namespace);
        objects.retain(|object| selection.matches(resource, object));
        self.metrics(resource, &objects).await
    }

    async fn metrics(&self, resource: &Resource, objects: &[Arc<Value>]) -> Vec<Arc<Value>> {
        let Some(server) = &self.metrics_server else {
            return Vec::new();
        };
        let mut scraped = server.scraped.lock().await;
        server.refresh(self, &mut scraped).await;
        let (points, now) = (&scraped.points, self.now());
        let metrics = objects.iter().filter_map(|object| {
            if resource.namespaced {
                let pod = (object["metadata"].text("namespace"), name_of(object));
                let is_running = object["status"].text("phase") == "Running";
                let containers = points.pod(pod.0, pod.1).filter(|_| is_running)?;
                Some(Arc::new(usage::pod_metrics(object, &containers, now)))
            } else {
                let usage = points.node(name_of(object))?;
                Some(Arc::new(usage::node_metrics(object, &usage, now)))
            }
        });
        metrics.collect()
    }
}

/// Whether a resource is served from the usage of nodes.
pub(crate) fn is_metrics(resource: &Resource) -> bool {
    resource.group == METRICS_GROUP
}

fn objects_of(shared: &Shared, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
    let resource = Resource::find("", "v1", plural);
    resource.map_or_else(Vec::new, |resource| {
        shared.with_store(|store| store.objects(resource, namespace))
    })
}
