//! Where the statuses of pods go.

use std::sync::Arc;

use kubelet_core::StatusSink;
use kubelet_status::{FanOut, LogSink, StatusManager, StatusManagerConfig};

use crate::context::Context;

/// A manager that reports to the API server, if there is one, and to these sinks; without both, to the log. `beside` gets
/// statuses, too.
pub(crate) fn manager(
    context: &Context,
    own: Vec<Arc<dyn StatusSink>>,
    beside: Option<Arc<dyn StatusSink>>,
    config: StatusManagerConfig,
) -> StatusManager {
    let mut sinks: Vec<Arc<dyn StatusSink>> = Vec::new();
    // It is read, too, and only the first one is.
    #[cfg(feature = "apiserver")]
    if let Some(client) = &context.client {
        sinks.push(Arc::new(kubelet_status::ApiServerSink::new(client.clone())));
    }
    #[cfg(not(feature = "apiserver"))]
    let _ = context;
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
