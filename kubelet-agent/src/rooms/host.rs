//! The room of the host: the kernel's settings, iptables chains, and the cgroups of the agent and of the system.

use std::path::Path;

use kubelet_node::host::{Cgroup, Iptables, KernelSettings, ProcessCgroups, UtilChains};

use crate::context::Context;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    let config = &settings.configuration;
    for (field, name) in [
        ("systemCgroups", &config.system_cgroups),
        ("kubeletCgroups", &config.kubelet_cgroups),
    ] {
        if name.split('/').any(|part| matches!(part, "." | "..")) {
            problems.add(
                field,
                format!("{field} {name:?}: the name must not contain . or .."),
            );
        }
    }
    let system = &config.system_cgroups;
    if !system.is_empty() && system.split('/').all(str::is_empty) {
        problems.add("systemCgroups", "system container cannot be root (\"/\")");
    }
}

/// Notes what the host does not have.
pub(crate) async fn inspect(inspection: &Inspection<'_>, problems: &mut Problems) {
    if inspection.settings.configuration.protect_kernel_defaults {
        let looked = inspection
            .look(|| Ok(KernelSettings::of_this_host().check()))
            .await;
        match looked {
            Ok(checked) => problems.note("protectKernelDefaults", checked),
            Err(error) => problems.add("protectKernelDefaults", error.to_string()),
        }
    }
    let settings = inspection.settings.clone();
    let looked = inspection.look(move || Ok(processes(&settings).map(drop))).await;
    match looked {
        Ok(checked) => problems.note("systemCgroups", checked),
        Err(error) => problems.add("systemCgroups", error.to_string()),
    }
}

/// Sets the kernel's settings, and starts what keeps iptables chains and cgroups.
///
/// The kubelet does not start if it may not set the kernel's settings. This agent runs without root, too; whoever needs them uses
/// `protectKernelDefaults`.
pub(crate) async fn start(context: &Context, tasks: &mut Tasks) -> Result<()> {
    let settings = &*context.settings;
    let config = &settings.configuration;
    if settings.set_kernel_settings && !config.protect_kernel_defaults {
        let set = context
            .disk
            .run(|| Ok(KernelSettings::of_this_host().set()))
            .await;
        match set {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot set all settings of the kernel"),
            Err(error) => tracing::warn!(%error, "cannot set the settings of the kernel"),
        }
    }
    if config.make_iptables_util_chains {
        tasks.add("iptables", |shutdown| async move {
            let families = shutdown.run_until_cancelled(Iptables::of_this_host());
            if let Some(families) = families.await {
                UtilChains::new(families).run(shutdown).await;
            }
        });
    }
    let (processes, disk) = (processes(settings)?, context.disk);
    tasks.add("cgroups of processes", move |shutdown| {
        processes.run(disk, shutdown)
    });
    Ok(())
}

/// What moves the agent and the processes of the system.
fn processes(settings: &Settings) -> Result<ProcessCgroups> {
    let (config, host) = (&settings.configuration, Path::new("/"));
    let mut processes = ProcessCgroups::new(host);
    if !config.system_cgroups.is_empty() {
        processes = processes.system(Cgroup::new(host, &config.system_cgroups)?)?;
    }
    if !config.kubelet_cgroups.is_empty() {
        processes = processes.agent(Cgroup::new(host, &config.kubelet_cgroups)?, config.oom_score_adj);
    }
    Ok(processes)
}
