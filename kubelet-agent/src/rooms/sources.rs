//! The sources of pods: files, a URL, the API server, and your own.

use kubelet_config::{FileSource, PodConfigBuilder};

use super::cluster::ClusterRoom;
use super::http;
use crate::configured::time;
use crate::context::Context;
use crate::error::Result;

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
