//! Syncs a pod: carries out its actions (`SyncPod`).

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::runtime::{
    ContainerState, ContainerStatus, PodStatus, PodSyncResult, StartRecord, SyncAction,
};
use kubelet_core::{Event, EventType, PodExt};
use tokio::time::Instant;

use crate::config::{Recorders, add_groups_of_volumes, pod_sandbox_config};
use crate::containers::start::{Start, StartContext};
use crate::containers::{Kind, common_part, describe};
use crate::kill::{Kill, Record, failure};
use crate::pod_actions::{
    KillReason, PodActions, add_resizes, compute_pod_actions, should_all_containers_restart,
};
use crate::read::sandbox_ips;
use crate::runtime::CriRuntime;
use crate::sandbox::user_namespaces::has_user_namespace;
use kubelet_cri::v1;

/// The sync cannot continue; the result has everything so far.
struct Stop;

impl CriRuntime {
    pub(crate) async fn sync(
        &self,
        pod: &Arc<Pod>,
        status: &PodStatus,
        starts: Option<&dyn StartRecord>,
    ) -> PodSyncResult {
        let restart_all = should_all_containers_restart(pod, status);
        let mut actions = compute_pod_actions(pod, status, &*self.probes, restart_all);
        actions.spare_lost(pod, status);
        let actuated = |container: &str| self.actuated.get_or_take_over(pod, container);
        let whole = self.actuated.whole_or_take_over(pod);
        add_resizes(pod, status, &*self.probes, actuated, whole, &mut actions);
        actions.update_pod_resources |= actions.initialized() && self.actuated.is_unfinished(&pod.uid());
        tracing::debug!(pod = %pod.key(), uid = pod.uid_str(), ?actions, "computed pod actions");
        let pull_secrets = self.pull_secrets(pod).await;
        let mut result = PodSyncResult::default();
        // In both cases the result reports everything that was done.
        let _ = self
            .act(pod, status, starts, &actions, &pull_secrets, &mut result)
            .await;
        result
    }

    async fn act(
        &self,
        pod: &Arc<Pod>,
        status: &PodStatus,
        starts: Option<&dyn StartRecord>,
        actions: &PodActions,
        pull_secrets: &[Arc<Secret>],
        result: &mut PodSyncResult,
    ) -> Result<(), Stop> {
        if actions.create_sandbox && actions.sandbox_id.is_some() {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            self.record_pod_event(pod, EventType::Normal, "SandboxChanged", message);
        }
        if actions.kill_pod {
            let killed = self
                .kill_pod_with_result(Some(pod), &self.running_pod(status), None)
                .await;
            let failed = !killed.is_ok();
            result.results.extend(killed.results);
            if failed {
                return Err(Stop);
            }
            if actions.create_sandbox {
                self.remove_init_containers(pod, status, |_, _| true).await;
            }
        } else {
            self.kill_unwanted(pod, actions, result).await?;
            self.reset_containers(pod, starts, actions, result).await?;
        }
        // The newest instance of each is kept. This leaves less work for the garbage collection.
        self.remove_init_containers(pod, status, |instance, kept_before| {
            kept_before && matches!(instance.state, ContainerState::Exited | ContainerState::Unknown)
        })
        .await;

        if actions.starts_nothing() {
            return Ok(());
        }
        let started = self
            .start_all(pod, status, starts, actions, pull_secrets, result)
            .await;
        if actions.create_sandbox && has_user_namespace(pod) && !result.is_ok() {
            metrics::counter!("kubelet_started_user_namespaced_pods_errors_total").increment(1);
        }
        started
    }

    async fn kill_unwanted(
        &self,
        pod: &Pod,
        actions: &PodActions,
        result: &mut PodSyncResult,
    ) -> Result<(), Stop> {
        for container in &actions.containers_to_kill {
            let killed = self.kill_container(Kill {
                pod: Some(pod),
                id: &container.id,
                name: &container.name,
                message: Some(&container.message),
                reason: container.reason.unwrap_or(KillReason::Unknown),
                grace_period: None,
                order: None,
            });
            let failure = killed
                .await
                .err()
                .map(|error| failure("KillContainerError", error));
            let failed = failure.is_some();
            result.record(SyncAction::KillContainer, &container.name, failure);
            if failed {
                return Err(Stop);
            }
        }
        Ok(())
    }

    async fn reset_containers(
        &self,
        pod: &Pod,
        starts: Option<&dyn StartRecord>,
        actions: &PodActions,
        result: &mut PodSyncResult,
    ) -> Result<(), Stop> {
        for container in &actions.containers_to_reset {
            let reset = async {
                if container.kill {
                    let kill = Kill {
                        pod: Some(pod),
                        id: &container.id,
                        name: &container.name,
                        message: Some("killing"),
                        reason: KillReason::RestartAllContainers,
                        grace_period: Some(0),
                        order: None,
                    };
                    let killed = self.kill_container(kill).await;
                    killed.map_err(|error| failure("KillContainerError", error))?;
                }
                if let Some(starts) = starts {
                    let forgotten = starts.about_to_start_over(pod, &container.name).await;
                    forgotten.map_err(|error| {
                        failure(
                            "RemoveContainerError",
                            format!("cannot change the record of the starts: {error}"),
                        )
                    })?;
                }
                // The logs are kept: the restart count is computed from them.
                let removed = self.remove_container(container.id.id(), true).await;
                removed.map_err(|error| failure("RemoveContainerError", error))
            };
            let failure = reset.await.err();
            let failed = failure.is_some();
            result.record(SyncAction::KillContainer, &container.name, failure);
            if failed {
                return Err(Stop);
            }
        }
        Ok(())
    }

    /// Removes init containers that have ended. The argument of `which` is whether a newer one of the same name has
    /// ended (`purgeInitContainers`, `pruneInitContainersBeforeStart`).
    async fn remove_init_containers(
        &self,
        pod: &Pod,
        status: &PodStatus,
        which: impl Fn(&ContainerStatus, bool) -> bool,
    ) {
        let init_containers = pod
            .spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten());
        let names: HashSet<&str> = init_containers.map(|container| container.name.as_str()).collect();
        let mut seen = HashSet::new();
        for instance in &status.containers {
            let name = instance.name.as_str();
            if !names.contains(name) {
                continue;
            }
            let ended = matches!(instance.state, ContainerState::Exited | ContainerState::Unknown);
            if which(instance, seen.contains(name)) {
                let removed = self.remove_container(instance.id.id(), false).await;
                if let Err(error) = removed {
                    tracing::error!(pod = %pod.key(), uid = pod.uid_str(), container = name, error,
                        "cannot remove an init container");
                }
            }
            if ended {
                seen.insert(name);
            }
        }
    }

    async fn start_all(
        &self,
        pod: &Arc<Pod>,
        status: &PodStatus,
        starts: Option<&dyn StartRecord>,
        actions: &PodActions,
        pull_secrets: &[Arc<Secret>],
        result: &mut PodSyncResult,
    ) -> Result<(), Stop> {
        let target = describe(pod);
        let runtime_handler = self.runtime_handler(pod);
        let handler_features = match &runtime_handler {
            Ok(handler) => self.handler_features(handler).await,
            Err(_) => Default::default(),
        };
        let user_namespace = self.user_namespace(pod, &runtime_handler).await;
        let config = pod_sandbox_config(
            &self.node,
            pod,
            actions.attempt,
            user_namespace.clone(),
            Recorders {
                pods: &*self.recorder,
                node: &*self.node_recorder,
            },
        );
        let mut config = config.map_err(|error| error.to_string());
        if let Ok(config) = &mut config {
            add_groups_of_volumes(config, pod, &self.volumes.mounted_volumes(&pod.uid()));
        }

        let mut pod_ips = Cow::Borrowed(status.ips.as_slice());
        let mut sandbox_id = actions.sandbox_id.clone().unwrap_or_default();
        if actions.create_sandbox {
            metrics::counter!("kubelet_started_pods_total").increment(1);
            if has_user_namespace(pod) {
                metrics::counter!("kubelet_started_user_namespaced_pods_total").increment(1);
            }
            if let Some(claims) = &self.dynamic_resources
                && let Err(error) = claims.prepare(pod).await
            {
                let message = format!("Failed to prepare dynamic resources: {error}");
                self.record_pod_event(pod, EventType::Warning, "FailedPrepareDynamicResources", message);
                return Err(Stop);
            }
            let created = self.create_sandbox(&config, &runtime_handler).await;
            sandbox_id = created.map_err(|error| {
                metrics::counter!("kubelet_started_pods_errors_total").increment(1);
                let message = format!("Failed to create pod sandbox: {}", error.cause);
                self.record_pod_event(pod, EventType::Warning, "FailedCreatePodSandBox", message);
                let message = format!("{} for pod {target:?}: {}", error.what, error.cause);
                result.record(
                    SyncAction::CreatePodSandbox,
                    &target,
                    Some(failure("CreatePodSandboxError", message)),
                );
                Stop
            })?;
            result.record(SyncAction::CreatePodSandbox, &target, None);
            self.actuated.made_sandbox(pod, self.pod_cgroups.is_some());
            let created = self.sandbox_after_creation(pod, &sandbox_id).await;
            let created = created.map_err(|error| {
                result.error = Some(error);
                Stop
            })?;
            if !pod.host_network() {
                pod_ips = Cow::Owned(sandbox_ips(&created));
            }
            if let Some(statuses) = &self.statuses {
                statuses.on_pod_sandbox_ready(pod);
            }
        }

        // A RuntimeClass that was removed meanwhile matters only if a sandbox is created.
        let image_handler = match self.images_by_handler {
            true => runtime_handler,
            false => Ok(String::new()),
        };
        let (config, image_handler, user_namespace) = match (config, image_handler, user_namespace) {
            (Ok(config), Ok(handler), Ok(user_namespace)) => (config, handler, user_namespace),
            (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => {
                result.error = Some(format!(
                    "GeneratePodSandboxConfig for pod {target:?} failed: {error}"
                ));
                return Err(Stop);
            }
        };
        let image_volumes = self
            .image_volumes(pod, pull_secrets, &config, &image_handler)
            .await;
        let context = StartContext {
            pod,
            status,
            starts,
            sandbox_id: &sandbox_id,
            sandbox_config: &config,
            image_handler: &image_handler,
            handler_features,
            user_namespace: &user_namespace,
            pod_ips: &pod_ips,
            pull_secrets,
            image_volumes: &image_volumes,
        };
        self.start_containers(&context, actions, result).await
    }

    /// Ephemeral containers come first, so that they start even if an init container cannot.
    async fn start_containers(
        &self,
        context: &StartContext<'_>,
        actions: &PodActions,
        result: &mut PodSyncResult,
    ) -> Result<(), Stop> {
        let Some(spec) = &context.pod.spec else {
            return Ok(());
        };
        let ephemeral = spec.ephemeral_containers.as_deref().unwrap_or_default();
        for container in pick(ephemeral, &actions.ephemeral_containers_to_start) {
            let target = container.target_container_name.as_deref();
            let start = Start {
                kind: Kind::Ephemeral,
                container: Cow::Owned(common_part(container)),
                target: target.filter(|name| !name.is_empty()),
            };
            self.start_and_record(context, &start, result).await;
        }
        let init = spec.init_containers.as_deref().unwrap_or_default();
        for container in pick(init, &actions.init_containers_to_start) {
            let started = self
                .start_and_record(context, &Start::new(Kind::Init, container), result)
                .await;
            if !started && !is_restartable_init_container(container) {
                return Err(Stop);
            }
        }
        Box::pin(self.resize_pod(context.pod, context.sandbox_id, actions, result)).await;
        for container in pick(&spec.containers, &actions.containers_to_start) {
            self.start_and_record(context, &Start::new(Kind::Regular, container), result)
                .await;
        }
        Ok(())
    }

    /// Returns whether it was started.
    async fn start_and_record(
        &self,
        context: &StartContext<'_>,
        start: &Start<'_>,
        result: &mut PodSyncResult,
    ) -> bool {
        // On the heap: most syncs start nothing.
        let failure = Box::pin(self.start_container(context, start)).await.err();
        let started = failure.is_none();
        result.record(SyncAction::StartContainer, &start.container.name, failure);
        started
    }

    /// `createPodSandbox`
    async fn create_sandbox(
        &self,
        config: &Result<v1::PodSandboxConfig, String>,
        runtime_handler: &Result<String, String>,
    ) -> Result<String, SandboxError> {
        let config = config
            .clone()
            .map_err(|cause| SandboxError::new("Failed to generate sandbox config", cause))?;
        let log_directory = config.log_directory.clone();
        let made = self.node.disk.run(move || std::fs::create_dir_all(log_directory));
        made.await.map_err(|error| {
            let cause = format!("mkdir {}: {error}", config.log_directory);
            SandboxError::new("Failed to create log directory", cause)
        })?;
        let runtime_handler = runtime_handler
            .clone()
            .map_err(|cause| SandboxError::new("Failed to create sandbox", cause))?;
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: runtime_handler.clone(),
        };
        let begun = Instant::now();
        let response = self.runtime.run_pod_sandbox(request).await;
        metrics::histogram!("kubelet_run_podsandbox_duration_seconds", "runtime_handler" => runtime_handler.clone())
            .record(begun.elapsed().as_secs_f64());
        if response.is_err() {
            metrics::counter!("kubelet_run_podsandbox_errors_total", "runtime_handler" => runtime_handler)
                .increment(1);
        }
        response
            .map(|response| response.pod_sandbox_id)
            .map_err(|error| SandboxError::new("Failed to create sandbox", error.rpc_text()))
    }

    /// A sandbox has its IPs once it runs.
    async fn sandbox_after_creation(&self, pod: &Pod, id: &str) -> Result<v1::PodSandboxStatus, String> {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        match self.runtime.pod_sandbox_status(request).await {
            Ok(response) => response
                .status
                .ok_or_else(|| "pod sandbox status is nil".to_owned()),
            Err(error) => {
                let error = error.rpc_text();
                let message = format!("Unable to get pod sandbox status: {error}");
                self.record_pod_event(pod, EventType::Warning, "FailedPodSandBoxStatus", message);
                Err(error)
            }
        }
    }

    pub(crate) fn record_pod_event(
        &self,
        pod: &Pod,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.recorder
            .record(Event::about(pod, event_type, reason, message));
    }
}

/// Why no sandbox could be created.
struct SandboxError {
    what: &'static str,
    cause: String,
}

impl SandboxError {
    fn new(what: &'static str, cause: String) -> Self {
        Self { what, cause }
    }
}

impl<'a> Start<'a> {
    fn new(kind: Kind, container: &'a Container) -> Self {
        Self {
            kind,
            container: Cow::Borrowed(container),
            target: None,
        }
    }
}

impl PodActions {
    fn starts_nothing(&self) -> bool {
        !self.create_sandbox
            && self.ephemeral_containers_to_start.is_empty()
            && self.init_containers_to_start.is_empty()
            && self.containers_to_update_memory.is_empty()
            && self.containers_to_update_cpu.is_empty()
            && !self.update_pod_resources
            && !self.update_pod_level_resources
            && self.containers_to_start.is_empty()
    }
}

fn pick<'a, T>(all: &'a [T], indices: &'a [usize]) -> impl Iterator<Item = &'a T> {
    indices.iter().filter_map(|index| all.get(*index))
}
