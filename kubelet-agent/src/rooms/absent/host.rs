//! The host, where it is not Linux: nothing of it is changed.

use crate::context::Context;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

/// Notes what somebody has set. A kubelet makes its iptables chains by default, so this is only logged.
pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    const NEEDS: &str = "works on Linux only";
    let config = &settings.configuration;
    for (field, is_set) in [
        ("protectKernelDefaults", config.protect_kernel_defaults),
        ("kubeletCgroups", !config.kubelet_cgroups.is_empty()),
        ("systemCgroups", !config.system_cgroups.is_empty()),
    ] {
        if is_set {
            problems.add(field, NEEDS);
        }
    }
    if settings.set_kernel_settings {
        tracing::warn!("setting the kernel's settings {NEEDS}");
    }
    if config.make_iptables_util_chains {
        tracing::warn!("makeIPTablesUtilChains {NEEDS}");
    }
}

pub(crate) async fn inspect(_: &Inspection<'_>, _: &mut Problems) {}

/// Starts nothing.
pub(crate) async fn start(_: &Context, _: &mut Tasks) -> Result<()> {
    Ok(())
}
