//! How a source stands.

use k8s_openapi::jiff::Timestamp;

/// How a source of pods stands: whether what is known of its pods can be relied on.
///
/// Who cleans up after pods asks about the pod's own source: that one source is silent says nothing of the
/// pods of another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceStatus {
    /// It has not told all its pods yet. That it does not list a pod means nothing.
    NotSeen,
    /// What it said last is what it says.
    Ready,
    /// It cannot be read, or has ended. Its pods stay as it told them last.
    Stale {
        /// Since when.
        since: Timestamp,
        /// Why, for humans.
        message: String,
    },
}

impl SourceStatus {
    /// Whether the source was ever heard in full, be it stale by now.
    pub fn is_seen(&self) -> bool {
        !matches!(self, SourceStatus::NotSeen)
    }
}
