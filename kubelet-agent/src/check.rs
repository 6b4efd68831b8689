//! What cannot work is reported before anything is done, all of it together.

use kubelet_core::admission::SysctlAllowlist;

#[cfg(feature = "api")]
use crate::api;
use crate::builder::Parts;
#[cfg(feature = "apiserver")]
use crate::cluster;
#[cfg(feature = "console")]
use crate::console;
use crate::error::Problems;
#[cfg(feature = "apiserver")]
use crate::node;
#[cfg(feature = "server")]
use crate::server;
use crate::{Error, Result, Settings, cgroups, engines, eviction, host, refused, runtime, sources};

/// Reports all problems of the settings.
pub(crate) fn check(parts: &Parts) -> Result<()> {
    let (mut problems, settings) = (Problems::default(), &parts.settings);
    problems.note(settings.hostname());
    #[cfg(feature = "apiserver")]
    cluster::check(settings, parts.client.as_ref(), &mut problems);
    #[cfg(feature = "apiserver")]
    node::check(settings, &mut problems);
    #[cfg(feature = "api")]
    api::check(parts, &mut problems);
    #[cfg(feature = "console")]
    console::check(parts, &mut problems);
    runtime::check(settings, &mut problems);
    cgroups::check(settings, &mut problems);
    sources::check(settings, &mut problems);
    host::check(settings, &mut problems);
    refused::check(settings, &mut problems);
    eviction::check(settings, parts.stats.summaries.is_some(), &mut problems);
    problems.note(sysctls(settings));
    #[cfg(feature = "server")]
    {
        let in_cluster = parts.in_cluster();
        server::check(settings, in_cluster, &mut problems);
    }
    #[cfg(feature = "resources")]
    crate::resources::check(settings, &mut problems);
    engines::check(settings, &mut problems);
    problems.into_result()
}

/// The sysctls that pods may set.
pub(crate) fn sysctls(settings: &Settings) -> Result<SysctlAllowlist> {
    let allowed = SysctlAllowlist::linux_host(&settings.configuration.allowed_unsafe_sysctls);
    allowed.map_err(|error| Error::Misconfigured {
        problems: vec![error.to_string()],
    })
}
