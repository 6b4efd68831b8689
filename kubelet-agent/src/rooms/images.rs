//! The room of images: the collection of those that no container uses.

use kubelet_kuberuntime::ImageGcManager;

use super::runtime::RuntimeRoom;
use super::stats::StatsRoom;
use crate::configured;
use crate::context::Context;
use crate::error::Result;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    let policy = configured::image_gc(&settings.configuration);
    if let Err(error) = policy.check() {
        problems.note("imageGCHighThresholdPercent", Err::<(), _>(error));
    }
}

/// Collects images that are not used, for a runtime of containers.
pub(crate) fn start(
    context: &Context,
    runtime: &RuntimeRoom,
    stats: &StatsRoom,
    tasks: &mut Tasks,
) -> Result<Option<ImageGcManager>> {
    let Some(manager) = &runtime.manager else {
        return Ok(None);
    };
    let policy = configured::image_gc(&context.settings.configuration);
    let image_fs = stats.image_fs.clone().unwrap_or_else(|| manager.clone());
    let images = ImageGcManager::new(manager.clone(), policy, image_fs, context.node_recorder.clone())?;
    if let Some(of_node) = &runtime.of_node {
        of_node.set_images(images.clone());
    }
    let collector = images.clone();
    tasks.add("images", |shutdown| collector.run(shutdown));
    Ok(Some(images))
}
