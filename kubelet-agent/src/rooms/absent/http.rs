//! No HTTP: pods from files, and no `/healthz`.

use kubelet_config::PodConfigBuilder;
use kubelet_core::HealthChecks;

use crate::context::Context;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    let config = &settings.configuration;
    if !config.static_pod_url.is_empty() {
        problems.add(
            "staticPodURL",
            "staticPodURL needs the feature `http` of kubelet-agent",
        );
    }
    if config.healthz_port > 0 {
        problems.add(
            "healthzPort",
            "healthzPort needs the feature `http` of kubelet-agent",
        );
    }
}

pub(crate) async fn inspect(_: &Inspection<'_>, _: &mut Problems) {}

pub(crate) fn pods(pods: PodConfigBuilder, _: &Context) -> Result<PodConfigBuilder> {
    Ok(pods)
}

pub(crate) fn healthz(_: &Context, _: &HealthChecks, _: &mut Tasks) -> Result<()> {
    Ok(())
}
