//! What the rooms of an agent share while it is built.

use std::sync::Arc;

use kubelet_core::{Clock, Disk, EventRecorder, NodeEventRecorder, RootDir};

use crate::settings::Settings;

/// What every room may use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    /// `settings.root_dir`, absolute.
    pub(crate) root_dir: RootDir,
    pub(crate) node_name: Arc<str>,
    /// Records events about pods.
    pub(crate) recorder: Arc<dyn EventRecorder>,
    /// Records events about the node.
    pub(crate) node_recorder: Arc<dyn NodeEventRecorder>,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    /// Whether the API server is in this process, and this node its only one.
    pub(crate) serves_kubectl: bool,
}

/// Changes a builder of a part before the part is built.
pub(crate) type Change<B> = Vec<Box<dyn FnOnce(B) -> B + Send>>;

/// Applies all changes.
pub(crate) fn changed<B>(changes: Change<B>, builder: B) -> B {
    changes
        .into_iter()
        .fold(builder, |builder, change| change(builder))
}

/// Sets a part if it is there.
pub(crate) fn with<B, T>(builder: B, part: Option<T>, set: impl FnOnce(B, T) -> B) -> B {
    match part {
        Some(part) => set(builder, part),
        None => builder,
    }
}
