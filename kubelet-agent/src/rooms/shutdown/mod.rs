//! The room of graceful node shutdown: the host waits until its pods have ended.

mod source;

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{KubeletHandle, PodAdmitHandler};
use kubelet_node::shutdown::{
    KubeletPods, NodeShutdown, ShutdownGracePeriods, ShutdownManager, ShutdownParts, ShutdownTrigger,
};
use kubelet_node::{LocalNodeBuilder, NodeStatusHandle};

use crate::configured::time;
use crate::context::Context;
use crate::settings::Settings;
use crate::tasks::Tasks;

/// What delays the shutdown of the host. It is made before the node and the pods.
#[derive(Default)]
pub(crate) struct ShutdownRoom {
    periods: ShutdownGracePeriods,
    state: NodeShutdown,
    trigger: ShutdownTrigger,
}

impl ShutdownRoom {
    pub(crate) fn open(settings: &Settings) -> Self {
        Self {
            periods: grace_periods(settings),
            ..Self::default()
        }
    }

    /// The node is not ready while the host shuts down.
    pub(crate) fn report(&self, node: LocalNodeBuilder) -> LocalNodeBuilder {
        node.ready_check(self.state.clone())
    }

    /// Rejects pods while the host shuts down.
    pub(crate) fn admission(&self) -> Arc<dyn PodAdmitHandler> {
        Arc::new(self.state.clone())
    }

    /// Shuts the node down by a call; `None` if the settings do not delay shutdowns.
    pub(crate) fn trigger(&self) -> Option<ShutdownTrigger> {
        (!self.periods.is_off()).then(|| self.trigger.clone())
    }

    /// Starts to wait for the shutdown of the host. `status` sends the status of the node at once.
    pub(crate) fn start(
        self,
        context: &Context,
        kubelet: &KubeletHandle,
        status: Option<NodeStatusHandle>,
        tasks: &mut Tasks,
    ) {
        if self.periods.is_off() {
            return;
        }
        let pods = KubeletPods::new(kubelet.clone(), context.recorder.clone());
        let parts = ShutdownParts::new(Arc::new(pods), context.node_recorder.clone())
            .state_folder(context.root_dir.path())
            .clock(context.clock);
        let parts = match status {
            Some(status) => parts.sync_node_status(move || status.sync()),
            None => parts,
        };
        let manager = ShutdownManager::new(self.periods, parts, self.state);
        // Callers wait no longer when the agent is dropped, even if it never ran.
        let trigger = self.trigger.served();
        tasks.add("shutdown", |shutdown| source::run(manager, trigger, shutdown));
    }
}

fn grace_periods(settings: &Settings) -> ShutdownGracePeriods {
    let (config, gates) = (&settings.configuration, &settings.feature_gates);
    if !gates.enabled("GracefulNodeShutdown") {
        return ShutdownGracePeriods::default();
    }
    let whole = time(config.shutdown_grace_period);
    let critical = time(config.shutdown_grace_period_critical_pods);
    let by_priority = config.shutdown_grace_period_by_pod_priority.iter().map(|group| {
        let seconds = u64::try_from(group.shutdown_grace_period_seconds).unwrap_or_default();
        (group.priority, Duration::from_secs(seconds))
    });
    ShutdownGracePeriods::new(whole, critical).by_pod_priority(by_priority)
}
