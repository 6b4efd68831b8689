//! Shutdowns of the host: before the host goes down, the pods end in the order of their priority.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubelet_config::flags::KubeletServer;
use kubelet_core::{EventRecorder, KubeletHandle, NodeEventRecorder};
use kubelet_node::NodeStatusHandle;
use kubelet_node::shutdown::{
    KubeletPods, Logind, NodeShutdown, ShutdownGracePeriods, ShutdownManager, ShutdownParts, ShutdownTrigger,
};
use tokio_util::sync::CancellationToken;

use crate::settings::time;

/// Where systemd shows that it runs the host (`sd_booted`).
const SYSTEMD: &str = "/run/systemd/system";
/// The address of the bus, if it is not the usual one.
const BUS: &str = "DBUS_SYSTEM_BUS_ADDRESS";

/// The shutdown of the host: its settings, its state, and a way to start it on a host without systemd.
#[derive(Clone, Debug)]
pub(crate) struct HostShutdown {
    periods: ShutdownGracePeriods,
    /// Makes the node not ready, and rejects pods.
    pub(crate) state: NodeShutdown,
    trigger: ShutdownTrigger,
}

/// What ends the pods, and reports it.
pub(crate) struct Parts {
    pub(crate) kubelet: KubeletHandle,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    pub(crate) node_recorder: Arc<dyn NodeEventRecorder>,
    /// Sends the node's status at once; `None` without an API server.
    pub(crate) status: Option<NodeStatusHandle>,
    pub(crate) root_dir: PathBuf,
}

impl HostShutdown {
    /// With the settings of a kubelet. Somebody else may keep the trigger.
    pub(crate) fn new(server: &KubeletServer, trigger: ShutdownTrigger) -> Self {
        Self { periods: grace_periods(server), state: NodeShutdown::new(), trigger }
    }

    /// Ends the pods when the host shuts down, until `ends`. Systemd reports shutdowns, or else the trigger.
    pub(crate) async fn run(self, parts: Parts, ends: CancellationToken) {
        let Parts { kubelet, recorder, node_recorder, status, root_dir } = parts;
        let pods = Arc::new(KubeletPods::new(kubelet, recorder));
        let parts = ShutdownParts::new(pods, node_recorder).state_folder(root_dir);
        let parts = match status {
            Some(status) => parts.sync_node_status(move || status.sync()),
            None => parts,
        };
        let manager = ShutdownManager::new(self.periods, parts, self.state);
        if has_logind() {
            return manager.run(Logind::new(), ends).await;
        }
        manager.run(self.trigger, ends).await;
    }
}

/// Whether systemd reports shutdowns of this host.
pub(crate) fn has_logind() -> bool {
    Path::new(SYSTEMD).is_dir() || std::env::var_os(BUS).is_some()
}

/// Whether the settings delay the shutdown of the host.
pub(crate) fn is_delayed(server: &KubeletServer) -> bool {
    !grace_periods(server).is_off()
}

fn grace_periods(server: &KubeletServer) -> ShutdownGracePeriods {
    let KubeletServer { configuration: config, feature_gates: gates, .. } = server;
    if !gates.enabled("GracefulNodeShutdown") {
        return ShutdownGracePeriods::default();
    }
    let [whole, critical] =
        [config.shutdown_grace_period, config.shutdown_grace_period_critical_pods].map(time);
    let by_priority = config.shutdown_grace_period_by_pod_priority.iter().map(|group| {
        let seconds = u64::try_from(group.shutdown_grace_period_seconds).unwrap_or_default();
        (group.priority, Duration::from_secs(seconds))
    });
    ShutdownGracePeriods::new(whole, critical).by_pod_priority(by_priority)
}
