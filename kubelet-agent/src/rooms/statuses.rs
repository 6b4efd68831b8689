//! Where the statuses of pods go.

use std::sync::Arc;

use kubelet_core::StatusSink;
use kubelet_status::{FanOut, LogSink, StatusManager, StatusManagerConfig};

use super::cluster::ClusterRoom;
use crate::configured::count;
use crate::context::Context;

/// A manager that reports to the API server, if there is one, and to the sinks of the builder; without both, to the log. `beside`
/// gets statuses, too.
pub(crate) fn manager(
    cluster: &ClusterRoom,
    own: Vec<Arc<dyn StatusSink>>,
    beside: Option<Arc<dyn StatusSink>>,
    config: StatusManagerConfig,
) -> StatusManager {
    // It is read, too, and only the first one is.
    let mut sinks: Vec<Arc<dyn StatusSink>> = cluster.sink().into_iter().collect();
    sinks.extend(own);
    if sinks.is_empty() {
        sinks.push(Arc::new(LogSink::new()));
    }
    sinks.extend(beside);
    match sinks.pop() {
        Some(only) if sinks.is_empty() => StatusManager::with_config(only, config),
        last => {
            sinks.extend(last);
            StatusManager::with_config(FanOut::new(sinks), config)
        }
    }
}

/// The limits and the gates of the configuration.
pub(crate) fn config(context: &Context) -> StatusManagerConfig {
    let (config, gates) = (&context.settings.configuration, &context.settings.feature_gates);
    let mut statuses = StatusManagerConfig::default();
    statuses.clock = context.clock;
    statuses.node.stop_signals = gates.enabled("ContainerStopSignals");
    (statuses.qps, statuses.burst) = (count(config.kube_api_qps), count(config.kube_api_burst));
    statuses
}
