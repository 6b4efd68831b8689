//! The handle of an agent: its pods, why they wait, their logs and commands, events and health.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::runtime::streaming::{StreamError, StreamErrorKind, StreamingRuntime};
use kubelet_core::runtime::{ContainerLogs, PodLogOptions};
use kubelet_core::{HealthChecks, KubeletHandle, PodExt as _, PodKey, PodUid, Step};
use tokio::sync::broadcast;

use crate::events::{AgentEvent, EventFeed};

/// Queries and controls an agent, before and while it runs. Cheap to clone.
#[derive(Clone)]
pub struct AgentHandle {
    kubelet: KubeletHandle,
    logs: Option<Arc<dyn ContainerLogs>>,
    streaming: Option<Arc<dyn StreamingRuntime>>,
    events: EventFeed,
    health: HealthChecks,
    node_name: Arc<str>,
}

impl AgentHandle {
    pub(crate) fn new(
        kubelet: KubeletHandle,
        logs: Option<Arc<dyn ContainerLogs>>,
        streaming: Option<Arc<dyn StreamingRuntime>>,
        events: EventFeed,
        health: HealthChecks,
        node_name: Arc<str>,
    ) -> Self {
        Self {
            kubelet,
            logs,
            streaming,
            events,
            health,
            node_name,
        }
    }

    /// The name of the node.
    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    /// The desired pods, of all sources.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.kubelet.pods().pods()
    }

    /// The pod with this namespace and name.
    pub fn pod(&self, key: &PodKey) -> Option<Arc<Pod>> {
        self.kubelet.pods().pod_by_key(key)
    }

    /// The status of a pod that was reported last.
    pub fn status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.kubelet.pod_status(uid)
    }

    /// Explains the state of a pod: what it has passed and what it waits for, in order.
    pub fn explain(&self, uid: &PodUid) -> Vec<Step> {
        self.kubelet.explain(uid)
    }

    /// The log of a container, in pieces (`kubectl logs`).
    ///
    /// # Errors
    ///
    /// If the pod or the container does not exist, has not started yet, or the runtime cannot read logs.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time, as may the stream.
    pub async fn logs(
        &self,
        pod: &PodKey,
        container: &str,
        options: PodLogOptions,
    ) -> Result<BoxStream<'static, Result<Vec<u8>, StreamError>>, StreamError> {
        let logs = self.logs.as_deref().ok_or_else(|| unsupported("logs"))?;
        let pod = self.pod(pod).ok_or_else(|| not_found(pod))?;
        let reported = self.status(&pod.uid());
        let status = reported
            .as_deref()
            .or(pod.status.as_ref())
            .cloned()
            .unwrap_or_default();
        logs.container_logs(&pod, &status, container, options).await
    }

    /// Runs a command in a container, and returns its output (`kubectl exec` without input).
    ///
    /// # Errors
    ///
    /// If the pod or the container does not exist, the command fails or exceeds `timeout`, or the runtime cannot run commands.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, the runtime ends the command.
    pub async fn exec(
        &self,
        pod: &PodKey,
        container: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<Vec<u8>, StreamError> {
        let streaming = self.streaming.as_deref().ok_or_else(|| unsupported("exec"))?;
        self.pod(pod).ok_or_else(|| not_found(pod))?;
        streaming.run_in_container(pod, container, command, timeout).await
    }

    /// The events about pods and the node from now on. A receiver that is more than 256 events behind loses the oldest.
    pub fn events(&self) -> broadcast::Receiver<AgentEvent> {
        self.events.watch()
    }

    /// The health checks of the agent: its sync loop and its PLEG.
    pub fn health(&self) -> &HealthChecks {
        &self.health
    }

    /// Ends all pods, each within its own grace period or the given one if that is shorter. Returns when all their resources
    /// are released. For an agent whose pods end with it.
    pub async fn end_pods(&self, grace_period: Option<Duration>) {
        self.kubelet.end_pods(grace_period).await;
    }

    /// The handle of the pod lifecycle engine, for more.
    pub fn kubelet(&self) -> &KubeletHandle {
        &self.kubelet
    }
}

fn unsupported(what: &str) -> StreamError {
    StreamError::new(
        StreamErrorKind::Unimplemented,
        format!("the runtime does not support {what}"),
    )
}

fn not_found(pod: &PodKey) -> StreamError {
    StreamError::not_found(format!("pod {pod} not found"))
}

impl fmt::Debug for AgentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHandle")
            .field("node_name", &self.node_name)
            .finish_non_exhaustive()
    }
}
