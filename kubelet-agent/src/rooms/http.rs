//! The room of plain HTTP: pods from a URL, and `/healthz`. Probes over the network are in `kubelet-kuberuntime`.

use std::net::SocketAddr;

use kubelet_config::{HttpSource, PodConfigBuilder};
use kubelet_core::HealthChecks;
use kubelet_node::HealthzServer;

use crate::configured::time;
use crate::context::Context;
use crate::error::{Result, address, port};
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    let config = &settings.configuration;
    if !config.static_pod_url.is_empty() {
        let source = HttpSource::new(&config.static_pod_url, "");
        let headers = &config.static_pod_url_header;
        problems.note("staticPodURL", source.and_then(|source| source.headers(headers)));
    }
    if config.healthz_port > 0 {
        let bind = &config.healthz_bind_address;
        problems.note("healthzBindAddress", address("healthzBindAddress", bind));
        problems.note("healthzPort", port("healthzPort", config.healthz_port));
    }
}

/// Notes an address that this machine does not have.
pub(crate) async fn inspect(inspection: &Inspection<'_>, problems: &mut Problems) {
    let config = &inspection.settings.configuration;
    if config.healthz_port > 0 {
        let address = &config.healthz_bind_address;
        inspection
            .has_address("healthzBindAddress", address, problems)
            .await;
    }
}

/// Adds the URL of the configuration to the sources of pods.
pub(crate) fn pods(pods: PodConfigBuilder, context: &Context) -> Result<PodConfigBuilder> {
    let config = &context.settings.configuration;
    if config.static_pod_url.is_empty() {
        return Ok(pods);
    }
    let source = HttpSource::new(&config.static_pod_url, &*context.node_name)?;
    let source = source.headers(&config.static_pod_url_header)?;
    Ok(pods.source(source.check_frequency(time(config.http_check_frequency))))
}

/// Serves `/healthz`, as configured.
pub(crate) fn healthz(context: &Context, health: &HealthChecks, tasks: &mut Tasks) -> Result<()> {
    let config = &context.settings.configuration;
    if config.healthz_port > 0 {
        let host = address("healthzBindAddress", &config.healthz_bind_address)?;
        let at = SocketAddr::new(host, port("healthzPort", config.healthz_port)?);
        let checks = health.clone();
        tasks.add("healthz", move |shutdown| {
            HealthzServer::serve(at, checks, shutdown)
        });
    }
    Ok(())
}
