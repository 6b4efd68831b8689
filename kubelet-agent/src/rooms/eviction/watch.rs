//! What the kernel reports, and who is notified of pressure.

#[cfg(target_os = "linux")]
use std::sync::Arc;

#[cfg(target_os = "linux")]
use kubelet_core::NodeEventRecorder;
use kubelet_eviction::{EvictionConfig, NodePressure, ThresholdNotifier};
use kubelet_node::NodeStatusHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;

/// Emits `SystemOOM` events. Without the privilege to read the kernel's log there are none.
#[cfg(target_os = "linux")]
pub(super) async fn oom_kills(recorder: Arc<dyn NodeEventRecorder>, shutdown: CancellationToken) {
    use kubelet_eviction::oom::{Kmsg, OomWatcher};
    match Kmsg::open("/dev/kmsg") {
        Ok(log) => OomWatcher::new(log, recorder).run(shutdown).await,
        Err(error) => tracing::warn!(%error, "cannot watch for OOM kills: there will be no SystemOOM events"),
    }
}

/// Notifies when memory runs short. The kubelet needs `kernelMemcgNotification` for it.
#[cfg(target_os = "linux")]
pub(super) fn notifiers(config: &EvictionConfig, settings: &Settings) -> Vec<Box<dyn ThresholdNotifier>> {
    use kubelet_eviction::notifier::{MemoryHost, memory_notifiers};
    use kubelet_kuberuntime::CgroupDriver;

    let settings = &settings.configuration;
    let driver = CgroupDriver::configured(
        settings.cgroups_per_qos,
        &settings.cgroup_driver,
        &settings.cgroup_root,
    );
    let pods = driver.pods_cgroup().unwrap_or_default();
    memory_notifiers(&config.thresholds, &MemoryHost::new(pods))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn notifiers(_: &EvictionConfig, _: &Settings) -> Vec<Box<dyn ThresholdNotifier>> {
    Vec::new()
}

/// Sends the node's status at once when its pressures change; the kubelet waits for the next time.
pub(super) async fn send_changes(
    pressure: NodePressure,
    status: NodeStatusHandle,
    shutdown: CancellationToken,
) {
    let mut changes = pressure.changes();
    let follow = async {
        while changes.changed().await.is_ok() {
            status.sync();
        }
    };
    shutdown.run_until_cancelled(follow).await;
}
