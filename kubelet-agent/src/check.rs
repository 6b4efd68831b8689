//! What an agent refuses is found before anything is done, all of it together: by the start, and by whoever only asks.

use kubelet_core::admission::SysctlAllowlist;

use crate::error::{Error, Result};
use crate::inspection::Inspection;
use crate::parts::Parts;
use crate::problem::Problems;
use crate::refused;
use crate::rooms::{
    cgroups, cluster, console, container_logs, eviction, host, http, images, node, own_api, resources,
    runtime, server, sources,
};
use crate::settings::Settings;

/// Notes all problems of the settings, on whatever machine.
pub(crate) fn settings(parts: &Parts, problems: &mut Problems) {
    let (settings, joins) = (&parts.settings, parts.joins());
    problems.note("--hostname-override", settings.hostname());
    for pattern in &settings.configuration.allowed_unsafe_sysctls {
        if let Err(error) = SysctlAllowlist::new([pattern]) {
            problems.add("allowedUnsafeSysctls", error.to_string());
        }
    }
    refused::check(settings, problems);
    host::check(settings, problems);
    http::check(settings, problems);
    cluster::check(settings, &parts.cluster, problems);
    own_api::check(settings, &parts.own_api, joins, problems);
    runtime::check(settings, &parts.runtime, problems);
    cgroups::check(settings, problems);
    resources::check(settings, problems);
    node::check(settings, problems);
    images::check(settings, problems);
    eviction::check(settings, problems);
    container_logs::check(settings, problems);
    sources::check(
        settings,
        &parts.sources,
        joins || parts.own_api.is_wanted(),
        problems,
    );
    server::check(settings, joins || parts.own_api.is_wanted(), problems);
    console::check(&parts.console, parts.serves_node_api(), problems);
}

/// Notes all that this machine lacks for the settings. Leaves nothing behind.
pub(crate) async fn machine(parts: &Parts, problems: &mut Problems) {
    problems.of_machine();
    let inspection = &Inspection {
        settings: &parts.settings,
        clock: parts.clock,
        disk: parts.disk,
        makes_cgroups: parts.runtime.choice.makes_cgroups(),
        by_kubeconfig: parts.cluster.client.is_none() && parts.joins(),
        machine: parts.node.machine.as_ref(),
        numa_nodes: parts.numa_nodes.as_ref(),
    };
    inspection
        .writes("--root-dir", &parts.settings.root_dir, problems)
        .await;
    host::inspect(inspection, problems).await;
    http::inspect(inspection, problems).await;
    cluster::inspect(inspection, problems).await;
    runtime::inspect(inspection, &parts.runtime, problems).await;
    cgroups::inspect(inspection, problems).await;
    node::inspect(inspection, problems).await;
    resources::inspect(inspection, problems).await;
    server::inspect(inspection, problems).await;
}

/// Reports all problems at once.
pub(crate) async fn all(parts: &Parts) -> Problems {
    let mut problems = Problems::default();
    settings(parts, &mut problems);
    machine(parts, &mut problems).await;
    problems
}

/// The sysctls that pods may set.
pub(crate) fn sysctls(settings: &Settings) -> Result<SysctlAllowlist> {
    let allowed = SysctlAllowlist::linux_host(&settings.configuration.allowed_unsafe_sysctls);
    allowed.map_err(|error| Error::Misconfigured {
        problems: vec![error.to_string()],
    })
}
