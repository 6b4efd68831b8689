//! The handle of an agent: its pods, why they wait, their logs and commands, events and health.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_config::KubeletConfiguration;
use kubelet_core::runtime::streaming::{StreamError, StreamErrorKind, StreamingRuntime};
use kubelet_core::runtime::{ContainerLogs, PodLogOptions};
use kubelet_core::{HealthChecks, KubeletHandle, PodExt as _, PodKey, PodUid, Step};
use kubelet_node::shutdown::ShutdownTrigger;
use tokio::sync::{broadcast, watch};

use crate::dynamic::{Dynamic, Reconfigured};
use crate::rooms::events::{AgentEvent, EventFeed};
use crate::rooms::own_api::OwnApiServer;

/// Queries and controls an agent, before and while it runs. Cheap to clone.
#[derive(Clone)]
pub struct AgentHandle {
    pub(crate) kubelet: KubeletHandle,
    pub(crate) logs: Option<Arc<dyn ContainerLogs>>,
    pub(crate) streaming: Option<Arc<dyn StreamingRuntime>>,
    pub(crate) events: EventFeed,
    pub(crate) health: HealthChecks,
    pub(crate) node_name: Arc<str>,
    pub(crate) dynamic: Arc<Dynamic>,
    pub(crate) shutdown: Option<ShutdownTrigger>,
    pub(crate) joins_cluster: bool,
    pub(crate) api_server: Option<OwnApiServer>,
    pub(crate) console: Option<SocketAddr>,
}

impl AgentHandle {
    /// The name of the node.
    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    /// The API server in this process, if the agent [serves `kubectl`](crate::NodeAgentBuilder::serve_kubectl).
    #[cfg(feature = "api")]
    pub fn api_server(&self) -> Option<&OwnApiServer> {
        self.api_server.as_ref()
    }

    /// The address of the console, if it has [one of its own](crate::ConsoleAt::Loopback).
    #[cfg(feature = "server")]
    pub fn console_address(&self) -> Option<SocketAddr> {
        self.console
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

    /// Applies a changed configuration, as far as it can be applied while the agent runs. The README of this crate lists the
    /// fields. Fields that wait for a restart are named, and the present values stay.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`](crate::Error::Misconfigured) with all problems of the configuration. Nothing changes then.
    pub fn reconfigure(&self, configuration: &KubeletConfiguration) -> crate::error::Result<Reconfigured> {
        self.dynamic.apply(configuration)
    }

    /// What became of the last changed configuration: a program can report that a restart is due.
    pub fn reconfigured(&self) -> watch::Receiver<Reconfigured> {
        self.dynamic.notices()
    }

    /// Ends all pods, each within its own grace period or the given one if that is shorter. Returns when all their resources
    /// are released. For an agent whose pods end with it.
    pub async fn end_pods(&self, grace_period: Option<Duration>) {
        self.kubelet.end_pods(grace_period).await;
    }

    /// The host is about to shut down: the node is not ready and rejects pods, and its pods end in the order of their priority, as
    /// `shutdownGracePeriod` and the settings like it define. Returns when the pods have ended or their time is over. For hosts
    /// whose init system is not systemd, and where logind does not answer. Without these settings, or if the agent has ended, it
    /// returns at once; before the agent runs, it waits.
    ///
    /// # Cancel safety
    ///
    /// When the call is dropped, the shutdown goes on.
    pub async fn shut_down(&self) {
        if let Some(trigger) = &self.shutdown {
            trigger.shut_down().await;
        }
    }

    /// The host does not shut down after all: the node is ready again. Pods that have ended stay so.
    pub fn cancel_shut_down(&self) {
        if let Some(trigger) = &self.shutdown {
            trigger.cancel();
        }
    }

    /// Whether the settings delay the shutdown of the host until pods have ended.
    pub fn delays_shut_down(&self) -> bool {
        self.shutdown.is_some()
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

kubelet_core::impl_debug!(AgentHandle: node_name, joins_cluster, api_server, console);
