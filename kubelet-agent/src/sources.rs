//! The sources of pods: files, a URL, the API server, and your own.

use kubelet_config::PodConfigBuilder;

use crate::context::Context;
use crate::error::Problems;
use crate::{Result, Settings};

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    let config = &settings.configuration;
    if !config.static_pod_path.is_empty() && cfg!(not(feature = "file")) {
        problems.add("staticPodPath needs the feature `file` of kubelet-agent");
    }
    if !config.static_pod_url.is_empty() && cfg!(not(feature = "http")) {
        problems.add("staticPodURL needs the feature `http` of kubelet-agent");
    }
    #[cfg(feature = "http")]
    if !config.static_pod_url.is_empty() {
        let source = kubelet_config::HttpSource::new(&config.static_pod_url, "");
        problems.note(source.and_then(|source| source.headers(&config.static_pod_url_header)));
    }
}

/// Adds the files and the URL of the configuration.
#[cfg_attr(
    not(any(feature = "file", feature = "http")),
    allow(unused_mut, reason = "what features add to")
)]
pub(crate) fn static_pods(pods: PodConfigBuilder, context: &Context) -> Result<PodConfigBuilder> {
    let mut pods = pods.recorder(context.recorder.clone()).clock(context.clock);
    let config = &context.settings.configuration;
    #[cfg(feature = "file")]
    if !config.static_pod_path.is_empty() {
        let source = kubelet_config::FileSource::new(&config.static_pod_path, &*context.node_name);
        pods = pods.source(source.check_frequency(crate::configured::time(config.file_check_frequency)));
    }
    #[cfg(feature = "http")]
    if !config.static_pod_url.is_empty() {
        let source = kubelet_config::HttpSource::new(&config.static_pod_url, &*context.node_name)?;
        let source = source.headers(&config.static_pod_url_header)?;
        pods = pods.source(source.check_frequency(crate::configured::time(config.http_check_frequency)));
    }
    let _ = config;
    Ok(pods)
}
