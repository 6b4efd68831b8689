//! The room of graceful node shutdown: the host waits until its pods have ended.

#[cfg(feature = "shutdown")]
mod source;

use std::sync::Arc;
#[cfg(feature = "shutdown")]
use std::time::Duration;

use kubelet_core::PodAdmitHandler;
#[cfg(feature = "apiserver")]
use kubelet_node::LocalNodeBuilder;
#[cfg(feature = "shutdown")]
use kubelet_node::shutdown::{
    KubeletPods, NodeShutdown, ShutdownGracePeriods, ShutdownManager, ShutdownParts, ShutdownTrigger,
};

use crate::context::{Built, Context};
use crate::tasks::Tasks;
use crate::{Result, Settings};

/// What delays the shutdown of the host. It is made before the node and the pods.
#[derive(Default)]
pub(crate) struct ShutdownRoom {
    #[cfg(feature = "shutdown")]
    periods: ShutdownGracePeriods,
    #[cfg(feature = "shutdown")]
    state: NodeShutdown,
    #[cfg(feature = "shutdown")]
    trigger: ShutdownTrigger,
}

#[cfg(not(feature = "shutdown"))]
impl ShutdownRoom {
    pub(crate) fn new(_: &Settings) -> Result<Self> {
        Ok(Self::default())
    }

    /// Leaves the node as it is.
    #[cfg(feature = "apiserver")]
    pub(crate) fn ready_check(&self, node: LocalNodeBuilder) -> LocalNodeBuilder {
        node
    }

    /// Rejects nothing.
    pub(crate) fn admission(&self) -> Option<Arc<dyn PodAdmitHandler>> {
        None
    }

    /// Starts nothing.
    pub(crate) async fn start(self, _: &Context, _: &Built, _: &mut Tasks) -> Result<()> {
        Ok(())
    }
}

#[cfg(feature = "shutdown")]
impl ShutdownRoom {
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        Ok(Self {
            periods: grace_periods(settings),
            ..Self::default()
        })
    }

    /// The node is not ready while the host shuts down.
    #[cfg(feature = "apiserver")]
    pub(crate) fn ready_check(&self, node: LocalNodeBuilder) -> LocalNodeBuilder {
        node.ready_check(self.state.clone())
    }

    /// Rejects pods while the host shuts down.
    pub(crate) fn admission(&self) -> Option<Arc<dyn PodAdmitHandler>> {
        Some(Arc::new(self.state.clone()))
    }

    /// Shuts the node down by a call; `None` if the settings do not delay shutdowns.
    pub(crate) fn trigger(&self) -> Option<ShutdownTrigger> {
        (!self.periods.is_off()).then(|| self.trigger.clone())
    }

    /// Starts to wait for the shutdown of the host.
    pub(crate) async fn start(self, context: &Context, built: &Built, tasks: &mut Tasks) -> Result<()> {
        if self.periods.is_off() {
            return Ok(());
        }
        let pods = KubeletPods::new(built.kubelet.clone(), context.recorder.clone());
        let parts = ShutdownParts::new(Arc::new(pods), context.node_recorder.clone())
            .state_folder(context.root_dir.path())
            .clock(context.clock);
        #[cfg(feature = "apiserver")]
        let parts = match built.node.status.clone() {
            Some(status) => parts.sync_node_status(move || status.sync()),
            None => parts,
        };
        let manager = ShutdownManager::new(self.periods, parts, self.state);
        // Callers wait no longer when the agent is dropped, even if it never ran.
        let trigger = self.trigger.served();
        tasks.add("shutdown", |shutdown| source::run(manager, trigger, shutdown));
        Ok(())
    }
}

#[cfg(feature = "shutdown")]
fn grace_periods(settings: &Settings) -> ShutdownGracePeriods {
    let (config, gates) = (&settings.configuration, &settings.feature_gates);
    if !gates.enabled("GracefulNodeShutdown") {
        return ShutdownGracePeriods::default();
    }
    let whole = crate::configured::time(config.shutdown_grace_period);
    let critical = crate::configured::time(config.shutdown_grace_period_critical_pods);
    let by_priority = config.shutdown_grace_period_by_pod_priority.iter().map(|group| {
        let seconds = u64::try_from(group.shutdown_grace_period_seconds).unwrap_or_default();
        (group.priority, Duration::from_secs(seconds))
    });
    ShutdownGracePeriods::new(whole, critical).by_pod_priority(by_priority)
}
