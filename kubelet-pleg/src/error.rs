//! Why a PLEG is not healthy.

use std::time::Duration;

/// Why a PLEG is not healthy. It is the source of the error that
/// [`PlegHandle::healthy`](kubelet_core::PlegHandle::healthy) returns. The text is the kubelet's.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There was no successful list of the runtime yet.
    #[error("pleg has yet to be successful")]
    NotYetListed {
        /// The error of the last list, if there was one.
        #[source]
        last_failure: Option<kubelet_core::Error>,
    },

    /// The last successful list is older than the threshold.
    #[error("pleg was last seen active {elapsed:?} ago; threshold is {threshold:?}")]
    Stale {
        /// How long ago the last successful list began.
        elapsed: Duration,
        /// How long ago it may have begun.
        threshold: Duration,
        /// The error of the last list since then; `None` if that list has no answer yet.
        #[source]
        last_failure: Option<kubelet_core::Error>,
    },
}
