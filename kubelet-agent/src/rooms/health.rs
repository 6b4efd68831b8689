//! The room of health: who asks whether the agent works.

use kubelet_core::HealthChecks;

use super::http;
use crate::context::Context;
use crate::error::Result;
use crate::tasks::Tasks;

/// Serves `/healthz`, and notifies systemd.
pub(crate) fn start(context: &Context, health: &HealthChecks, tasks: &mut Tasks) -> Result<()> {
    http::healthz(context, health, tasks)?;
    #[cfg(all(feature = "systemd", target_os = "linux"))]
    {
        let (notifier, checks) = (kubelet_node::SystemdNotifier::from_env()?, health.clone());
        tasks.add("systemd", |shutdown| notifier.run(checks, shutdown));
    }
    Ok(())
}
