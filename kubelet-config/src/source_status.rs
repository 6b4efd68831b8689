//! The state of a source.

use k8s_openapi::jiff::Timestamp;

/// The state of a source of pods: whether its list of pods is complete and current.
///
/// Before you clean up a pod, check the status of its own source. The state of another source does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceStatus {
    /// It has not listed all its pods yet. A pod that is missing may still come.
    NotSeen,
    /// Its last list is current.
    Ready,
    /// It cannot be read, or it has ended. Its pods stay as it listed them last.
    Stale {
        /// Since when.
        since: Timestamp,
        /// Why, for humans.
        message: String,
    },
}

impl SourceStatus {
    /// Whether the source has listed all its pods at least once, even if the list is old.
    pub fn is_seen(&self) -> bool {
        !matches!(self, SourceStatus::NotSeen)
    }
}
