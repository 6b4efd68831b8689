//! What cannot work is reported before anything is done, all of it together.

use kubelet_core::admission::SysctlAllowlist;

use crate::error::{Error, Problems, Result};
use crate::parts::Parts;
use crate::refused;
use crate::rooms::{
    cgroups, cluster, console, container_logs, eviction, host, http, node, own_api, resources, server,
};
use crate::settings::Settings;

/// Reports all problems of the settings.
pub(crate) fn check(parts: &Parts) -> Result<()> {
    let (mut problems, settings) = (Problems::default(), &parts.settings);
    let joins = parts.joins();
    problems.note(settings.hostname());
    problems.note(sysctls(settings));
    refused::check(settings, &mut problems);
    host::check(settings, &mut problems);
    http::check(settings, &mut problems);
    cluster::check(settings, &parts.cluster, &mut problems);
    own_api::check(settings, &parts.own_api, joins, &mut problems);
    cgroups::check(settings, &mut problems);
    resources::check(settings, &mut problems);
    node::check(settings, &mut problems);
    eviction::check(settings, &mut problems);
    container_logs::check(settings, &mut problems);
    server::check(settings, joins || parts.own_api.is_wanted(), &mut problems);
    console::check(&parts.console, parts.serves_node_api(), &mut problems);
    problems.into_result()
}

/// The sysctls that pods may set.
pub(crate) fn sysctls(settings: &Settings) -> Result<SysctlAllowlist> {
    let allowed = SysctlAllowlist::linux_host(&settings.configuration.allowed_unsafe_sysctls);
    allowed.map_err(|error| Error::Misconfigured {
        problems: vec![error.to_string()],
    })
}
