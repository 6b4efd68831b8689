//! Sends the node's status to the API server.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeStatus};
use kube_client::Error as ClientError;
use kubelet_core::Jitter;
use kubelet_core::quantity::{Amount, Format};
use metrics::gauge;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::NodeStatusHandle;
use crate::node_patch::node_status_patch;
use crate::{Error, HeartbeatClient, LocalNode, NodeInformerHandle, NodeRegistration, Result};

/// How often an update is tried in a row (`nodeStatusUpdateRetry`).
const UPDATE_TRIES: u32 = 5;
/// The jitter of the update period (`JitterUntil`).
const JITTER: f64 = 0.04;
/// How often a starting node is checked, and for how long (`fastStatusUpdateOnce`, `nodeReadyGracePeriod`).
const FAST_LOOK: Duration = Duration::from_millis(100);
const FAST_LOOKS_FOR: Duration = Duration::from_secs(120);

/// When the node's status is computed and sent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeStatusConfig {
    /// How often the status is computed (`nodeStatusUpdateFrequency`, 10 s), plus up to 4 % jitter.
    pub update_frequency: Duration,
    /// How often an unchanged status is sent (`nodeStatusReportFrequency`, 5 min).
    pub report_frequency: Duration,
    /// How often the [ready checks](crate::ReadyCheck) run between updates, 1 s by default. When their result
    /// changes, the status is sent at once. With `None` it is sent with the next update, as in the kubelet.
    pub readiness_look: Option<Duration>,
    /// Spreads the updates of many nodes.
    pub jitter: Jitter,
}

impl Default for NodeStatusConfig {
    fn default() -> Self {
        Self {
            update_frequency: Duration::from_secs(10),
            report_frequency: Duration::from_secs(5 * 60),
            readiness_look: Some(Duration::from_secs(1)),
            jitter: Jitter::default(),
        }
    }
}

/// Registers the node and keeps its status in the API server up to date. Answers to the kubelet's
/// `syncNodeStatus` and `fastStatusUpdateOnce`.
///
/// The status is computed every 10 s. It is sent, as a strategic merge patch of the differences, if it changed
/// or if 5 minutes have passed since it was last sent. A starting node is checked every 100 ms, so that it is
/// reported as ready at once. Each update is tried 5 times in a row; the first try uses the watched node,
/// further tries read the node.
///
/// If the Node object is deleted, it is not created again until the agent restarts.
///
/// ```no_run
/// # async fn make() -> Result<(), Box<dyn std::error::Error>> {
/// use std::path::Path;
/// use std::sync::Arc;
///
/// use kubelet_node::{
///     HeartbeatClient, LocalNode, MachineInfo, NodeConfig, NodeInformer, NodeRegistration, NodeStatusUpdater,
/// };
/// use tokio_util::sync::CancellationToken;
///
/// let config = kube_client::Config::infer().await?;
/// let client = kube_client::Client::try_from(config.clone())?;
/// let heartbeat = HeartbeatClient::new(kube_client::Client::try_from(config)?);
///
/// let machine = MachineInfo::read("/var/lib/kubelet")?;
/// let local = Arc::new(LocalNode::builder(NodeConfig::new("node-1"), machine).build());
/// let informer = NodeInformer::new(client.clone(), "node-1").with_local_node(local.clone());
/// let status = NodeStatusUpdater::new(local.clone(), informer.handle(), heartbeat)
///     .with_registration(NodeRegistration::new(client, local));
///
/// let shutdown = CancellationToken::new();
/// tokio::join!(informer.run(shutdown.clone()), status.run(shutdown));
/// # Ok(())
/// # }
/// ```
pub struct NodeStatusUpdater {
    local: Arc<LocalNode>,
    informer: NodeInformerHandle,
    client: HeartbeatClient,
    registration: Option<NodeRegistration>,
    config: NodeStatusConfig,
    handle: NodeStatusHandle,
    state: State,
}

#[derive(Default)]
struct State {
    /// The last pod CIDRs that the runtime received.
    pod_cidrs: String,
    /// When the status was last sent, and the time until the next report.
    reported: Option<(Instant, Duration)>,
    /// Whether the ready checks passed when they last ran.
    was_ready: bool,
}

/// Waits until other volumes are in use. Returns `false` if that is not observed any longer.
async fn changed(volumes: Option<&mut watch::Receiver<u64>>) -> bool {
    match volumes {
        Some(volumes) => volumes.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}

impl NodeStatusUpdater {
    /// An updater for the node `local`. `informer` provides the object from the API server.
    pub fn new(local: Arc<LocalNode>, informer: NodeInformerHandle, client: HeartbeatClient) -> Self {
        Self {
            local,
            informer,
            client,
            registration: None,
            config: NodeStatusConfig::default(),
            handle: NodeStatusHandle::default(),
            state: State::default(),
        }
    }

    /// Registers the node before the first status. Without this, the node has to be created by other means
    /// (`registerNode: false`).
    #[must_use]
    pub fn with_registration(mut self, registration: NodeRegistration) -> Self {
        self.registration = Some(registration);
        self
    }

    /// Sets when the status is sent.
    #[must_use]
    pub fn with_config(mut self, config: NodeStatusConfig) -> Self {
        self.config = config;
        self
    }

    /// A handle to request updates.
    pub fn handle(&self) -> NodeStatusHandle {
        self.handle.clone()
    }

    /// Registers the node and sends its status until `shutdown`. Run the informer beside it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the running request. The API server keeps the last status.
    pub async fn run(mut self, shutdown: CancellationToken) {
        gauge!("kubelet_node_name", "node" => self.local.name().to_owned()).set(1.0);
        shutdown.run_until_cancelled(self.work()).await;
    }

    async fn work(&mut self) {
        // Check the runtime before the first status.
        self.local.refresh().await;
        let mut next = Instant::now();
        let mut fast_until = Some(next + FAST_LOOKS_FOR);
        let wanted = self.handle.wanted.clone();
        let mut volumes = self.local.volume_changes();
        loop {
            let period = match fast_until {
                Some(_) => Some(FAST_LOOK),
                None => self.config.readiness_look,
            };
            let look = async {
                match period {
                    Some(period) => sleep(period).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = sleep_until(next) => {
                    self.sync().await;
                    next = Instant::now() + self.config.jitter.apply(self.config.update_frequency, JITTER);
                }
                () = wanted.notified() => self.sync().await,
                // A pod waits until the volume is reported as in use.
                is_alive = changed(volumes.as_mut()) => match is_alive {
                    true => self.sync().await,
                    false => volumes = None,
                },
                () = look => match fast_until {
                    None => self.sync_if_readiness_changed().await,
                    Some(until) if Instant::now() >= until => {
                        tracing::error!(node = self.local.name(), "node not becoming ready in time after startup");
                        fast_until = None;
                    }
                    Some(_) if self.reported_ready().await => fast_until = None,
                    Some(_) => {}
                },
            }
        }
    }

    /// (`syncNodeStatus`)
    async fn sync(&mut self) {
        if let Some(registration) = &self.registration {
            let node = registration.register().await.into_node();
            self.informer.observe(node);
            self.registration = None;
        }
        for attempt in 0..UPDATE_TRIES {
            match self.try_update(attempt).await {
                Ok(()) => return,
                Err(error) => {
                    if attempt > 0 {
                        self.client.failed_repeatedly();
                    }
                    tracing::error!(node = self.local.name(), %error, "error updating node status, will retry");
                }
            }
        }
        let node = self.local.name();
        tracing::error!(
            node,
            "unable to update node status: update node status exceeds retry count"
        );
    }

    /// (`tryUpdateNodeStatus`)
    async fn try_update(&mut self, attempt: u32) -> Result<()> {
        let original = match self.informer.get() {
            Some(node) if attempt == 0 => node,
            _ => Arc::new(self.client.get(&self.path()).await?),
        };
        let (node, changed) = self.updated(&original).await;
        let expired = self
            .state
            .reported
            .is_none_or(|(at, due_after)| at.elapsed() >= due_after);
        if !changed && !expired {
            self.local.mark_volumes(&node);
            return Ok(());
        }
        let every = self.config.report_frequency;
        // Spread the reports of nodes that changed at the same time.
        let due_after = if changed || self.state.reported.is_none() {
            self.config.jitter.apply(every / 2, 2.0)
        } else {
            every
        };
        let patched = self.patch(&original, &node).await?;
        self.state.reported = Some((Instant::now(), due_after));
        self.local.mark_volumes(&patched);
        Ok(())
    }

    /// The updated node, and whether it differs from `original` (`updateNode`).
    async fn updated(&mut self, original: &Node) -> (Node, bool) {
        self.state.was_ready = self.local.problems().is_empty();
        let mut node = original.clone();
        let mut changed = self.update_pod_cidrs(original).await;
        let machine = self.local.machine();
        let labels = node.metadata.labels.get_or_insert_default();
        for (label, value) in [
            ("kubernetes.io/os", &machine.operating_system),
            ("kubernetes.io/arch", &machine.architecture),
        ] {
            changed |= labels.insert(label.to_owned(), value.clone()).as_ref() != Some(value);
        }
        self.local.set_status(&mut node).await;
        changed |= comparable(original.status.as_ref()) != comparable(node.status.as_ref());
        (node, changed)
    }

    /// (`updatePodCIDR`)
    async fn update_pod_cidrs(&mut self, node: &Node) -> bool {
        let cidrs = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_ref());
        let cidrs = cidrs.map(|cidrs| cidrs.join(",")).unwrap_or_default();
        if cidrs.is_empty() || cidrs == self.state.pod_cidrs {
            return false;
        }
        if let Err(error) = self.local.runtime().update_pod_cidr(&cidrs).await {
            tracing::error!(node = self.local.name(), %error, "error updating pod CIDR");
            return true;
        }
        tracing::info!(node = self.local.name(), pod_cidrs = cidrs, "updating Pod CIDR");
        self.state.pod_cidrs = cidrs;
        true
    }

    async fn patch(&self, original: &Node, node: &Node) -> Result<Arc<Node>> {
        let path = format!("{}/status", self.path());
        let patch = node_status_patch(original, node)
            .map_err(|error| Error::api(&path, ClientError::SerdeError(error)))?;
        let patched: Node = self.client.strategic_patch(&path, &patch).await?;
        let patched = Arc::new(patched);
        if ready(&patched) == Some(true) {
            self.local.startup(|latency, now| latency.ready(now));
        }
        self.informer.observe(patched.clone());
        Ok(patched)
    }

    /// Checks a starting node, and sends its status if it became ready. Returns whether the node is ready, so
    /// that no further check is needed (`fastNodeStatusUpdate`).
    async fn reported_ready(&mut self) -> bool {
        let Some(original) = self.informer.get() else {
            return false;
        };
        match ready(&original) {
            None => return false,
            Some(true) => return true,
            Some(false) => {}
        }
        self.local.refresh().await;
        if !self.local.problems().is_empty() {
            return false;
        }
        let (node, changed) = self.updated(&original).await;
        if !changed || ready(&node) != Some(true) {
            return false;
        }
        tracing::info!(
            node = self.local.name(),
            "fast updating node status as it just became ready"
        );
        match self.patch(&original, &node).await {
            Ok(_) => {
                let due_after = self
                    .state
                    .reported
                    .map_or(self.config.report_frequency, |(_, due_after)| due_after);
                self.state.reported = Some((Instant::now(), due_after));
            }
            Err(error) => {
                tracing::error!(node = self.local.name(), %error, "error updating node status, will retry");
                self.sync().await;
            }
        }
        true
    }

    async fn sync_if_readiness_changed(&mut self) {
        let is_ready = self.local.problems().is_empty();
        if is_ready != self.state.was_ready {
            // Set it even if the update fails: the update is retried with the next period, not every second.
            self.state.was_ready = is_ready;
            self.sync().await;
        }
    }

    fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.local.name())
    }
}

kubelet_core::impl_debug!(NodeStatusUpdater: local, config);

/// The status of the condition `Ready`, if there is one.
fn ready(node: &Node) -> Option<bool> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some(ready.status == "True")
}

/// The status without insignificant differences: heartbeat times, the order of conditions, the notation of
/// quantities, empty versus missing lists, and the empty name of the default runtime handler, which the API server returns as a text
/// (`nodeStatusHasChanged`).
fn comparable(status: Option<&NodeStatus>) -> Value {
    let mut status = serde_json::to_value(status).unwrap_or_default();
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.remove("lastHeartbeatTime");
        }
        conditions.sort_by(|a, b| a["type"].as_str().cmp(&b["type"].as_str()));
    }
    if let Some(handlers) = status.get_mut("runtimeHandlers").and_then(Value::as_array_mut) {
        for handler in handlers.iter_mut().filter_map(Value::as_object_mut) {
            handler.retain(|field, value| field != "name" || value.as_str() != Some(""));
        }
    }
    for list in ["capacity", "allocatable"] {
        let amounts = status.get_mut(list).and_then(Value::as_object_mut);
        for amount in amounts.into_iter().flat_map(|amounts| amounts.values_mut()) {
            if let Ok(parsed) = amount.as_str().unwrap_or_default().parse::<Amount>() {
                *amount = parsed.write(Format::DecimalSi).into();
            }
        }
    }
    drop_empty(&mut status);
    status
}

/// Drops empty fields at any depth.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|_, value| !is_empty(value));
        }
        Value::Array(list) => list.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_says_the_same_is_the_same() {
        let of = |status: Value| comparable(Some(&serde_json::from_value(status).unwrap()));
        let condition =
            |kind: &str, beat: &str| json!({"type": kind, "status": "True", "lastHeartbeatTime": beat});
        let (nine, ten) = ("2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z");
        for (a, b, same) in [
            (
                json!({"capacity": {"memory": "1024Mi"}}),
                json!({"capacity": {"memory": "1Gi"}}),
                true,
            ),
            (
                json!({"capacity": {"cpu": "2000m"}}),
                json!({"capacity": {"cpu": "2"}}),
                true,
            ),
            (
                json!({"allocatable": {"cpu": "2000m"}}),
                json!({"allocatable": {"cpu": "3"}}),
                false,
            ),
            (json!({"images": []}), json!({}), true),
            (
                json!({"config": {"active": {"configMap": {"name": "", "namespace": "n", "kubeletConfigKey": "k"}}}}),
                json!({}),
                false,
            ),
            (
                json!({"images": [{"names": [], "sizeBytes": 1}]}),
                json!({"images": [{"sizeBytes": 1}]}),
                true,
            ),
            (
                json!({"conditions": [condition("A", nine), condition("B", nine)]}),
                json!({"conditions": [condition("B", ten), condition("A", ten)]}),
                true,
            ),
        ] {
            assert_eq!(of(a.clone()) == of(b.clone()), same, "{a} {b}");
        }
    }

    #[test]
    fn the_default_handler_is_the_same_with_an_empty_name_and_without_one() {
        let of = |status: Value| comparable(Some(&serde_json::from_value(status).unwrap()));
        let features = json!({"userNamespaces": true});
        let ours = of(json!({"runtimeHandlers": [{"features": features}]}));
        let returned = of(json!({"runtimeHandlers": [{"name": "", "features": features}]}));
        let another = of(json!({"runtimeHandlers": [{"name": "runc", "features": features}]}));
        assert_eq!(ours, returned);
        assert_ne!(ours, another);
    }
}
