//! Starts one container: back-off, image, create, start, post-start hook (`startContainer`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use kubelet_core::runtime::{ContainerStart, ContainerState, PodStatus, StartRecord, SyncFailure};
use kubelet_core::{PodExt, VolumeLease};
use tracing::Instrument as _;

use crate::config::{
    ContainerInputs, HandlerFeatures, ImageUser, container_amounts, container_config, pod_logs_directory,
};
use crate::containers::back_off::go_seconds;
use crate::containers::image_volumes::{ImageVolumes, count_mounted_images, mounted_images};
use crate::containers::{ContainerEvents, Kind, describe};
use crate::gc::log_files;
use crate::images::WantedImage;
use crate::kill::{Kill, failure};
use crate::pod_actions::KillReason;
use crate::runtime::CriRuntime;
use kubelet_cri::v1;

/// The inputs that all starts of one sync share.
pub(crate) struct StartContext<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) status: &'a PodStatus,
    /// Records each container before it is started.
    pub(crate) starts: Option<&'a dyn StartRecord>,
    pub(crate) sandbox_id: &'a str,
    pub(crate) sandbox_config: &'a v1::PodSandboxConfig,
    /// The runtime handler for images; empty for the default.
    pub(crate) image_handler: &'a str,
    pub(crate) handler_features: HandlerFeatures,
    pub(crate) user_namespace: &'a v1::UserNamespace,
    pub(crate) pod_ips: &'a [String],
    pub(crate) pull_secrets: &'a [Arc<Secret>],
    pub(crate) image_volumes: &'a ImageVolumes,
}

/// A container to start.
pub(crate) struct Start<'a> {
    pub(crate) kind: Kind,
    pub(crate) container: Cow<'a, Container>,
    /// The target container of an ephemeral container.
    pub(crate) target: Option<&'a str>,
}

impl CriRuntime {
    /// Starts a container, unless it must wait.
    pub(crate) async fn start_container(
        &self,
        context: &StartContext<'_>,
        start: &Start<'_>,
    ) -> Result<(), SyncFailure> {
        let label = start.kind.metric_label();
        self.back_off(context, start)?;
        metrics::counter!("kubelet_started_containers_total", "container_type" => label).increment(1);
        let images = mounted_images(
            context.image_volumes,
            &start.container,
            &self.events(context, start),
        )?;
        let span = tracing::info_span!("container", container = start.container.name);
        let started = self
            .create_and_start(context, start, &images)
            .instrument(span)
            .await;
        count_mounted_images(&images, &start.container, &started);
        if let Err(failure) = &started {
            let code = failure.reason.clone();
            metrics::counter!("kubelet_started_containers_errors_total",
                "container_type" => label, "code" => code)
            .increment(1);
            let pod = context.pod;
            // The pod's worker logs each failure of the sync, once.
            tracing::debug!(pod = %pod.key(), uid = pod.uid_str(), container = start.container.name,
                reason = failure.reason, error = failure.message, "{} start failed", start.kind.type_name());
        }
        started
    }

    /// `doBackOff`
    fn back_off(&self, context: &StartContext<'_>, start: &Start<'_>) -> Result<(), SyncFailure> {
        let container = &*start.container;
        let last_exit = context
            .status
            .containers
            .iter()
            .find(|status| status.name == container.name && status.state == ContainerState::Exited);
        let Some(last_exit) = last_exit else {
            return Ok(());
        };
        let Err(waiting) = self.crash_loop.try_start(context.pod, container, last_exit) else {
            return Ok(());
        };
        let pod = describe(context.pod);
        let name = &container.name;
        self.events(context, start).warning(
            "BackOff",
            format!("Back-off restarting failed container {name} in pod {pod}"),
        );
        let wait = go_seconds(waiting.wait);
        Err(SyncFailure {
            reason: "CrashLoopBackOff".to_owned(),
            message: format!("back-off {wait} restarting failed container={name} pod={pod}"),
            back_off_until: Some(waiting.until),
        })
    }

    async fn create_and_start(
        &self,
        context: &StartContext<'_>,
        start: &Start<'_>,
        image_volumes: &BTreeMap<String, v1::ImageSpec>,
    ) -> Result<(), SyncFailure> {
        let (pod, container) = (context.pod, &*start.container);
        let events = self.events(context, start);
        let wanted = WantedImage {
            pod,
            image: container.image.as_deref().unwrap_or_default(),
            pull_policy: container.image_pull_policy.as_deref(),
            field_path: Some(start.kind.field_path(&container.name)),
            pull_secrets: context.pull_secrets,
            sandbox_config: context.sandbox_config,
            runtime_handler: context.image_handler,
        };
        let image_ref = self
            .images
            .ensure_image_exists(&wanted)
            .await
            .inspect_err(|failure| events.warning("Failed", format!("Error: {}", failure.reason)))?;

        // From before the mounts are prepared until the runtime has started the container.
        let lease = self.volumes.lease(&pod.uid());
        let config = self
            .config_of(context, start, &image_ref, image_volumes, &lease)
            .await
            .map_err(|error| {
                events.warning("Failed", format!("Error: {error}"));
                failure("CreateContainerConfigError", error)
            })?;
        if let Ok(amounts) = container_amounts(pod, container) {
            self.actuated.set(&pod.uid(), &container.name, amounts);
        }
        let log_path = Path::new(&context.sandbox_config.log_directory).join(&config.log_path);
        let attempt = config.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: context.sandbox_id.to_owned(),
            config: Some(config),
            sandbox_config: Some(context.sandbox_config.clone()),
        };
        let created = self.runtime.create_container(request).await.map_err(|error| {
            events.warning("Failed", format!("Error: {}", error.message()));
            failure("CreateContainerError", error.message())
        })?;
        let id = created.container_id;
        let resources = &self.container_resources;
        resources.container_starts(pod, &container.name).await;
        events.normal("Created", "Container created");

        if let Some(starts) = context.starts {
            let start = ContainerStart {
                name: container.name.clone(),
                id: self.container_id(&id),
                attempt,
            };
            starts.about_to_start(pod, &start).await.map_err(|error| {
                let message = format!("cannot write the record of the start: {error}");
                events.warning_without_id("Failed", format!("Error: {message}"), &id);
                failure("RunContainerError", message)
            })?;
        }
        let request = v1::StartContainerRequest {
            container_id: id.clone(),
        };
        let runtime = self.runtime.clone();
        let call = Box::pin(async move {
            let started = runtime.start_container(request).await;
            drop(lease);
            started.map(|_| ())
        });
        let started = self.unfinished_starts.call(pod.uid(), id.clone(), call);
        started.await.map_err(|error| {
            events.warning_without_id("Failed", format!("Error: {}", error.message()), &id);
            failure("RunContainerError", error.message())
        })?;
        events.normal("Started", "Container started");
        self.link_log(pod, container, &id, &log_path).await;

        let post_start = container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref());
        let Some(hook) = post_start else {
            return Ok(());
        };
        let Err(message) = self.run_hook(pod, container, &id, hook).await else {
            return Ok(());
        };
        // The hook's output may be secret.
        events.warning("FailedPostStartHook", "PostStartHook failed");
        let id = self.container_id(&id);
        let killed = Box::pin(self.kill_in_span(Kill {
            pod: Some(pod),
            id: &id,
            name: &container.name,
            message: Some("FailedPostStartHook"),
            reason: KillReason::FailedPostStartHook,
            grace_period: None,
            order: None,
        }));
        if let Err(error) = killed.await {
            tracing::error!(pod = %pod.key(), uid = pod.uid_str(), container = container.name, error,
                "cannot kill a container whose post-start hook failed");
        }
        Err(failure("PostStartHookError", message))
    }

    async fn config_of(
        &self,
        context: &StartContext<'_>,
        start: &Start<'_>,
        image_ref: &str,
        image_volumes: &BTreeMap<String, v1::ImageSpec>,
        lease: &VolumeLease,
    ) -> Result<v1::ContainerConfig, String> {
        let (pod, container) = (context.pod, &*start.container);
        let restart_count = match context.status.container(&container.name) {
            Some(status) => status.restart_count.saturating_add(1),
            None => self.restart_count_by_logs(pod, &container.name).await,
        };
        let target = match start.target {
            None => None,
            Some(name) => {
                let status = context.status.container(name);
                Some(
                    status
                        .ok_or_else(|| format!("unable to find target container {name}"))?
                        .id
                        .id(),
                )
            }
        };
        let mut additions = self.container_resources.additions(pod, container).await?;
        if let Some(claims) = &self.dynamic_resources {
            let devices = claims
                .cdi_devices(pod, container)
                .map_err(|error| error.to_string())?;
            additions.cdi_devices.splice(..0, devices);
        }
        let inputs = ContainerInputs {
            pod,
            container,
            restart_count,
            pod_ips: context.pod_ips,
            image_ref,
            image_user: &self.image_user(container).await?,
            volumes: &self.volumes.mounted_volumes(&pod.uid()),
            lease,
            image_volumes,
            services: &*self.services,
            config_objects: &*self.config_objects,
            target,
            handler: context.handler_features,
            user_namespace: context.user_namespace,
            additions: &additions,
        };
        container_config(&self.node, &inputs)
            .await
            .map_err(|error| error.to_string())
    }

    /// Some runtimes lose their containers when the node restarts, but the logs stay.
    async fn restart_count_by_logs(&self, pod: &Pod, container: &str) -> u32 {
        let dir = pod_logs_directory(&self.node.pod_logs_dir, pod).join(container);
        let counted = self.node.disk.run(move || log_files::restart_count_by_logs(&dir));
        match counted.await {
            Ok(count) => count,
            Err(error) => {
                tracing::warn!(pod = %pod.key(), uid = pod.uid_str(), container, %error,
                    "cannot count restarts by the log files");
                0
            }
        }
    }

    /// `getImageUser`
    async fn image_user(&self, container: &Container) -> Result<ImageUser, String> {
        let request = v1::ImageStatusRequest {
            image: Some(v1::ImageSpec {
                image: container.image.clone().unwrap_or_default(),
                ..Default::default()
            }),
            verbose: false,
        };
        let response = self.image_service.image_status(request).await;
        let image = response
            .map_err(|error| error.rpc_text())?
            .image
            .unwrap_or_default();
        Ok(match image.uid {
            Some(uid) => ImageUser {
                uid: Some(uid.value),
                username: String::new(),
            },
            None => ImageUser {
                uid: None,
                username: image.username,
            },
        })
    }

    /// Creates a link for log collectors that read `/var/log/containers`.
    async fn link_log(&self, pod: &Pod, container: &Container, id: &str, log: &Path) {
        let Some(dir) = &self.container_log_links else {
            return;
        };
        let link = dir.join(log_files::link_name(id, &container.name, &pod.key()));
        let (dir, log, new_link) = (dir.clone(), log.to_owned(), link.clone());
        let linked = self.node.disk.run(move || match log.try_exists() {
            // A runtime that logs elsewhere creates no file. Then there is no link either.
            Ok(false) => Ok(()),
            Ok(true) | Err(_) => {
                std::fs::create_dir_all(dir).and_then(|()| std::os::unix::fs::symlink(log, new_link))
            }
        });
        if let Err(error) = linked.await {
            tracing::error!(pod = %pod.key(), uid = pod.uid_str(), container = container.name,
                link = %link.display(), %error, "cannot link a container's log");
        }
    }

    fn events<'a>(&'a self, context: &StartContext<'a>, start: &'a Start<'_>) -> ContainerEvents<'a> {
        ContainerEvents {
            recorder: &*self.recorder,
            pod: context.pod,
            kind: start.kind,
            name: &start.container.name,
        }
    }
}
