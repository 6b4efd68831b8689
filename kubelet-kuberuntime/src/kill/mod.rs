//! Stops containers, with pre-stop hook and grace period, and whole pods (`killContainer`, `killPodWithSyncResult`).

pub(crate) mod termination_order;

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Lifecycle, LifecycleHandler, Pod, PodSpec, Probe};
use kubelet_core::runtime::{
    ContainerState, PodStatus, PodSyncResult, RuntimePod, Sandbox, SyncAction, SyncFailure,
};
use kubelet_core::{ContainerId, PodExt};
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;

use crate::config::{AnnotatedContainerInfo, LabeledInfo};
use crate::containers::{self, ContainerEvents, Kind};
use crate::kill::termination_order::TerminationOrder;
use crate::pod_actions::KillReason;
use crate::runtime::CriRuntime;
use kubelet_cri::v1;

/// A container gets at least this many seconds to stop, however long its hook took (`minimumGracePeriodInSeconds`).
const MINIMUM_GRACE_PERIOD: i64 = 2;
/// A hook's command ends with its container. Until then, its result is still read.
const LAST_WORD: Duration = Duration::from_secs(1);

/// A container to stop, with the options.
pub(crate) struct Kill<'a> {
    /// Its pod, if known. Otherwise the container's labels and annotations have the needed data.
    pub(crate) pod: Option<&'a Pod>,
    pub(crate) id: &'a ContainerId,
    pub(crate) name: &'a str,
    /// The message of the event; `Stopping container <name>` if there is none.
    pub(crate) message: Option<&'a str>,
    pub(crate) reason: KillReason,
    /// In seconds; overrides the pod's or probe's.
    pub(crate) grace_period: Option<i64>,
    pub(crate) order: Option<&'a TerminationOrder>,
}

impl CriRuntime {
    /// Stops a container and returns when it has stopped. Succeeds if the container does not exist.
    pub(crate) async fn kill_container(&self, kill: Kill<'_>) -> Result<(), String> {
        let span = tracing::info_span!("container", container = kill.name);
        // On the heap: kills are rare, and the sync of each pod would have room for one.
        Box::pin(self.kill_in_span(kill)).instrument(span).await
    }

    /// The same, in the caller's span.
    pub(crate) async fn kill_in_span(&self, kill: Kill<'_>) -> Result<(), String> {
        let known = kill.pod.and_then(|pod| {
            let (kind, container) = containers::find(pod, kill.name)?;
            Some((Cow::Borrowed(pod), kind, container))
        });
        let (pod, kind, container) = match known {
            Some(known) => known,
            None => match self.restore_spec(kill.id).await? {
                Some((pod, container)) => {
                    let pod = kill.pod.map_or(Cow::Owned(pod), Cow::Borrowed);
                    (pod, Kind::Unlisted, Cow::Owned(container))
                }
                None => return Ok(()),
            },
        };
        let events = ContainerEvents {
            recorder: &*self.recorder,
            pod: &pod,
            kind,
            name: &container.name,
        };
        let message = match kill.message {
            Some(message) => message.to_owned(),
            None => format!("Stopping container {}", container.name),
        };
        events.normal("Killing", message);

        let mut grace_period = kill
            .grace_period
            .unwrap_or_else(|| termination_grace_period(&pod, &container, kill.reason));
        let pre_stop = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref());
        let pre_stop = pre_stop.filter(|_| grace_period > 0);
        let mut hook = pin!(self.run_pre_stop_hook(&pod, &container, kill.id, pre_stop, &events));
        let start = Instant::now();
        let in_time = timeout(seconds(grace_period), &mut hook).await.is_ok();
        if !in_time {
            tracing::warn!(pod = %pod.key(), uid = pod.uid_str(), container = container.name,
                "PreStop hook not completed in grace period");
        }
        if pre_stop.is_some() {
            grace_period -= whole_seconds(start.elapsed());
        }
        if let Some(order) = kill.order
            && grace_period > 0
        {
            let waited = order.wait_for_turn(&container.name, seconds(grace_period)).await;
            grace_period -= whole_seconds(waited);
        }

        let request = v1::StopContainerRequest {
            container_id: kill.id.id().to_owned(),
            timeout: grace_period.max(MINIMUM_GRACE_PERIOD),
        };
        let mut stopping = pin!(self.runtime.stop_container(request));
        // A hook that took too long continues while its container stops.
        let stopped = tokio::select! {
            biased;
            stopped = &mut stopping => {
                if !in_time && pre_stop.is_some_and(|hook| hook.exec.is_some()) {
                    _ = timeout(LAST_WORD, hook).await;
                }
                stopped
            }
            () = &mut hook, if !in_time => stopping.await,
        };
        match stopped {
            Err(error) if !error.is_not_found() => return Err(error.rpc_text()),
            Ok(_) | Err(_) => {}
        }
        if let Some(order) = kill.order {
            order.ended(&container.name);
        }
        Ok(())
    }

    /// Does nothing without a hook (`executePreStopHook`).
    async fn run_pre_stop_hook(
        &self,
        pod: &Pod,
        container: &Container,
        id: &ContainerId,
        hook: Option<&LifecycleHandler>,
        events: &ContainerEvents<'_>,
    ) {
        let Some(hook) = hook else { return };
        if let Err(error) = self.run_hook(pod, container, id.id(), hook).await {
            tracing::error!(pod = %pod.key(), uid = pod.uid_str(), container = container.name, error,
                "PreStop hook failed");
            // The hook's output may be secret.
            events.warning("FailedPreStopHook", "PreStopHook failed");
        }
    }

    /// The data to kill a container whose pod is not known, from its labels and annotations
    /// (`restoreSpecsFromContainerLabels`); `None` if the container does not exist.
    async fn restore_spec(&self, id: &ContainerId) -> Result<Option<(Pod, Container)>, String> {
        let status = self.container_status(None, id.id()).await;
        let Some(status) = status.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let labeled = LabeledInfo::from_labels(&status.labels);
        let annotated = AnnotatedContainerInfo::from_annotations(&status.annotations);
        let mut pod = Pod {
            spec: Some(PodSpec {
                termination_grace_period_seconds: annotated.pod_termination_grace_period,
                ..Default::default()
            }),
            ..Default::default()
        };
        pod.metadata.uid = Some(labeled.uid.to_string());
        pod.metadata.name = Some(labeled.key.name.to_string());
        pod.metadata.namespace = Some(labeled.key.namespace.to_string());
        pod.metadata.deletion_grace_period_seconds = annotated.pod_deletion_grace_period;
        let container = Container {
            name: labeled.container_name,
            ports: Some(annotated.container_ports),
            lifecycle: annotated.pre_stop_handler.map(|pre_stop| Lifecycle {
                pre_stop: Some(pre_stop),
                ..Default::default()
            }),
            ..Default::default()
        };
        Ok(Some((pod, container)))
    }

    /// Stops all containers in parallel, sidecars in their order, and then each sandbox. Starts that a dropped sync left are
    /// completed first.
    pub(crate) async fn kill_pod_with_result(
        &self,
        pod: Option<&Pod>,
        running: &RuntimePod,
        grace_period: Option<i64>,
    ) -> PodSyncResult {
        let mut result = PodSyncResult::default();
        let started = self.unfinished_starts.complete(&running.uid).await;
        let may_run = |container: &&kubelet_core::runtime::Container| {
            matches!(container.state, ContainerState::Running | ContainerState::Unknown)
                || started.iter().any(|id| id == container.id.id())
        };
        let containers: Vec<_> = running.containers.iter().filter(may_run).collect();
        let order =
            pod.and_then(|pod| TerminationOrder::new(pod, containers.iter().map(|c| c.name.as_str())));
        let kills = containers.iter().map(|container| {
            self.kill_container(Kill {
                pod,
                id: &container.id,
                name: &container.name,
                message: None,
                reason: KillReason::Unknown,
                grace_period,
                order: order.as_ref(),
            })
        });
        for (container, killed) in containers.iter().zip(join_all(kills).await) {
            let failure = killed.err().map(|error| failure("KillContainerError", error));
            result.record(SyncAction::KillContainer, &container.name, failure);
        }

        // The garbage collection removes them.
        let mut sandbox_failure = None;
        for sandbox in &running.sandboxes {
            let request = v1::StopPodSandboxRequest {
                pod_sandbox_id: sandbox.id.id().to_owned(),
            };
            match self.runtime.stop_pod_sandbox(request).await {
                Err(error) if !error.is_not_found() => {
                    sandbox_failure = Some(failure("KillPodSandboxError", error.rpc_text()));
                }
                Ok(_) | Err(_) => {}
            }
        }
        result.record(SyncAction::KillPodSandbox, running.uid.as_str(), sandbox_failure);
        result
    }

    /// The running part of a pod, from its status (`ConvertPodStatusToRunningPod`).
    pub(crate) fn running_pod(&self, status: &PodStatus) -> RuntimePod {
        let mut pod = RuntimePod::empty(status.uid.clone(), status.key.clone());
        pod.containers = status
            .running_containers()
            .map(|status| kubelet_core::runtime::Container {
                id: status.id.clone(),
                name: status.name.clone(),
                image: status.image.clone(),
                image_id: status.image_id.clone(),
                image_ref: status.image_ref.clone(),
                image_runtime_handler: status.image_runtime_handler.clone(),
                hash: status.hash,
                state: status.state,
                sandbox_id: status.sandbox_id.clone(),
                created_at: status.created_at,
            })
            .collect();
        pod.sandboxes = status
            .sandboxes
            .iter()
            .map(|sandbox| Sandbox {
                id: self.container_id(&sandbox.id),
                state: sandbox.state,
                attempt: sandbox.attempt,
                created_at: sandbox.created_at,
            })
            .collect();
        pod
    }
}

/// Adds one result to those of a sync.
pub(crate) trait Record {
    fn record(&mut self, action: SyncAction, target: &str, failure: Option<SyncFailure>);
}

impl Record for PodSyncResult {
    fn record(&mut self, action: SyncAction, target: &str, failure: Option<SyncFailure>) {
        match failure {
            Some(failure) => self.failed(action, target, failure),
            None => self.succeeded(action, target),
        }
    }
}

/// A failure without back-off.
pub(crate) fn failure(reason: &str, message: impl Into<String>) -> SyncFailure {
    SyncFailure {
        reason: reason.to_owned(),
        message: message.into(),
        back_off_until: None,
    }
}

/// The grace period in seconds (`setTerminationGracePeriod`): that of the deletion if the pod is being deleted;
/// otherwise that of the failed probe, or else the pod's.
fn termination_grace_period(pod: &Pod, container: &Container, reason: KillReason) -> i64 {
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        return seconds;
    }
    let of_pod = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds);
    let of_probe = |probe: &Option<Probe>| probe.as_ref()?.termination_grace_period_seconds;
    match (of_pod, reason) {
        (None, _) => MINIMUM_GRACE_PERIOD,
        (Some(seconds), KillReason::StartupProbe) => of_probe(&container.startup_probe).unwrap_or(seconds),
        (Some(seconds), KillReason::LivenessProbe) => of_probe(&container.liveness_probe).unwrap_or(seconds),
        (Some(seconds), _) => seconds,
    }
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn whole_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn whose_grace_period_counts() {
        let (probe, none) = (KillReason::LivenessProbe, json!(null));
        // of the deletion, the pod, its probes; why it is killed; the grace period
        let cases: [(Value, Value, Value, KillReason, i64); 9] = [
            (none.clone(), none.clone(), none.clone(), KillReason::Unknown, 2),
            (none.clone(), none.clone(), json!(7), probe, 2),
            (none.clone(), json!(30), none.clone(), KillReason::Unknown, 30),
            (none.clone(), json!(30), json!(7), KillReason::Unknown, 30),
            (none.clone(), json!(30), json!(7), probe, 7),
            (none.clone(), json!(30), json!(7), KillReason::StartupProbe, 8),
            (none.clone(), json!(30), json!(70), probe, 70),
            (none.clone(), json!(30), none.clone(), probe, 30),
            (json!(5), json!(30), json!(7), probe, 5),
        ];
        for (deletion, of_pod, of_probe, reason, expected) in cases {
            let probe = |more: i64| {
                let seconds = of_probe.as_i64().map(|seconds| seconds + more);
                json!({ "terminationGracePeriodSeconds": seconds })
            };
            let container = json!({ "name": "c", "livenessProbe": probe(0), "startupProbe": probe(1) });
            let pod = json!({ "metadata": { "deletionGracePeriodSeconds": deletion },
                "spec": { "terminationGracePeriodSeconds": of_pod, "containers": [container] } });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let container = &pod.spec.as_ref().unwrap().containers[0];
            let found = termination_grace_period(&pod, container, reason);
            assert_eq!(found, expected, "{deletion} {of_pod} {of_probe} {reason:?}");
        }
    }
}
