//! The sources of pods: files, a URL, the API server, and your own.

use kubelet_config::{FileSource, PodConfigBuilder};

use super::cluster::ClusterRoom;
use super::http;
use crate::configured::time;
use crate::context::Context;
use crate::error::Result;
use crate::problem::Problems;
use crate::settings::Settings;

/// `of_cluster` is whether pods come from an API server.
pub(crate) fn check(settings: &Settings, own: &PodConfigBuilder, of_cluster: bool, problems: &mut Problems) {
    let config = &settings.configuration;
    let of_settings = !config.static_pod_path.is_empty() || !config.static_pod_url.is_empty();
    if !own.has_sources() && !of_settings && !of_cluster {
        let why = "no pod sources: set staticPodPath or staticPodURL, or join a cluster (--kubeconfig)";
        problems.add("staticPodPath", why);
    }
}

/// Adds the files and the URL of the configuration, and the API server of a cluster.
pub(crate) fn open(
    own: PodConfigBuilder,
    context: &Context,
    cluster: &ClusterRoom,
) -> Result<PodConfigBuilder> {
    let mut pods = own.recorder(context.recorder.clone()).clock(context.clock);
    let config = &context.settings.configuration;
    if !config.static_pod_path.is_empty() {
        let source = FileSource::new(&config.static_pod_path, &*context.node_name);
        pods = pods.source(source.check_frequency(time(config.file_check_frequency)));
    }
    Ok(cluster.pods(http::pods(pods, context)?, context))
}
