//! The engines beside the pod lifecycle: logs, images, the cgroup of all pods, health.

#[cfg(feature = "healthz")]
use std::net::SocketAddr;

use std::sync::Arc;

use kubelet_config::KubeletConfiguration;
use kubelet_core::{EventType, HealthChecks};
#[cfg(feature = "logs")]
use kubelet_kuberuntime::logs::ContainerLogManager;
use kubelet_kuberuntime::{CriRuntime, ImageGcManager};

use crate::configured;
use crate::context::Context;
use crate::dynamic::Engines;
use crate::error::Problems;
#[cfg(feature = "healthz")]
use crate::error::{address, port};
use crate::runtime::RuntimeRoom;
use crate::stats::StatsRoom;
use crate::tasks::Tasks;
use crate::{Result, Settings};

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    #[cfg(feature = "healthz")]
    if settings.configuration.healthz_port > 0 {
        problems.note(address(
            "healthzBindAddress",
            &settings.configuration.healthz_bind_address,
        ));
        problems.note(port("healthzPort", settings.configuration.healthz_port));
    }
    #[cfg(not(feature = "healthz"))]
    let _ = (settings, problems);
}

/// For a runtime of containers: rotates their logs, and collects images that are not used. Both can change while they run.
pub(crate) fn of_containers(
    context: &Context,
    runtime: &RuntimeRoom,
    stats: &StatsRoom,
    dynamic: &mut Engines,
    tasks: &mut Tasks,
) -> Result<Option<ImageGcManager>> {
    let config = &context.settings.configuration;
    let Some(manager) = &runtime.manager else {
        return Ok(None);
    };
    #[cfg(feature = "logs")]
    if let Some(services) = &runtime.services {
        let services = services.clone();
        let (policy, mut policies) = tokio::sync::watch::channel(configured::log_rotation(config)?);
        let (clock, disk) = (context.clock, context.disk);
        dynamic.logs = Some(policy);
        // A changed policy is for a new manager; the present one completes its rotations first.
        tasks.add_fallible("container logs", move |shutdown| async move {
            while !shutdown.is_cancelled() {
                let policy = *policies.borrow_and_update();
                let (ends, logs) = (
                    shutdown.child_token(),
                    ContainerLogManager::new(services.clone(), policy)?,
                );
                let changed = async {
                    if policies.changed().await.is_err() {
                        shutdown.cancelled().await;
                    }
                    ends.cancel();
                };
                let running = logs.clock(clock).disk(disk).run(ends.clone());
                tokio::pin!(running);
                tokio::select! {
                    () = &mut running => {}
                    () = changed => running.await,
                }
            }
            Ok(())
        });
    }
    check_resolv_conf(context, manager.clone(), tasks);
    let policy = configured::image_gc(config);
    let image_fs = stats.image_fs.clone().unwrap_or_else(|| manager.clone());
    let images = ImageGcManager::new(manager.clone(), policy, image_fs, context.node_recorder.clone())?;
    if let Some(of_node) = &runtime.of_node {
        of_node.set_images(images.clone());
    }
    let collector = images.clone();
    tasks.add("images", |shutdown| collector.run(shutdown));
    dynamic.images = Some(images.clone());
    Ok(Some(images))
}

/// Emits an event if the search domains of the host leave no room for those of pods (`CheckLimitsForResolvConf`). Like the
/// kubelet, it checks them once.
fn check_resolv_conf(context: &Context, manager: Arc<CriRuntime>, tasks: &mut Tasks) {
    let (disk, events) = (context.disk, context.node_recorder.clone());
    tasks.add("resolv.conf", move |_| async move {
        let check = move || Ok(manager.node_settings().check_resolv_conf());
        if let Ok(Err(problem)) = disk.run(check).await {
            events.record_node(EventType::Warning, "CheckLimitsForResolvConf", problem);
        }
    });
}

/// Limits the cgroup of all pods to what the node can allocate.
#[cfg(feature = "apiserver")]
pub(crate) fn bound_of_all_pods(
    context: &Context,
    runtime: &RuntimeRoom,
    node: &crate::node::NodeRoom,
    tasks: &mut Tasks,
) {
    let Some(cgroups) = runtime.cgroups.clone() else {
        return;
    };
    let bound = node
        .local
        .bound_of_all_pods(&context.settings.configuration.enforce_node_allocatable);
    let events = context.node_recorder.clone();
    tasks.add("allocatable", |shutdown| async move {
        let bounds = cgroups.enforce_node_allocatable(&bound, &*events);
        shutdown.run_until_cancelled(bounds).await;
    });
}

/// Serves `/healthz`, and notifies systemd.
pub(crate) fn health(config: &KubeletConfiguration, health: &HealthChecks, tasks: &mut Tasks) -> Result<()> {
    #[cfg(feature = "healthz")]
    if config.healthz_port > 0 {
        let host = address("healthzBindAddress", &config.healthz_bind_address)?;
        let at = SocketAddr::new(host, port("healthzPort", config.healthz_port)?);
        let checks = health.clone();
        tasks.add("healthz", move |shutdown| {
            kubelet_node::HealthzServer::serve(at, checks, shutdown)
        });
    }
    #[cfg(all(feature = "systemd", target_os = "linux"))]
    {
        let (notifier, checks) = (kubelet_node::SystemdNotifier::from_env()?, health.clone());
        tasks.add("systemd", |shutdown| notifier.run(checks, shutdown));
    }
    let _ = (config, health, tasks);
    Ok(())
}
