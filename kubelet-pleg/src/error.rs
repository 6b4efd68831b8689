//! Why a PLEG is not healthy.

use std::time::Duration;

/// Why a PLEG is not healthy. [`PlegHandle::healthy`](kubelet_core::PlegHandle::healthy) bears it as the
/// source of its error; the text is the kubelet's.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The runtime was not listed once yet.
    #[error("pleg has yet to be successful")]
    NotYetListed {
        /// How the last try failed, if one was made.
        #[source]
        last_failure: Option<kubelet_core::Error>,
    },

    /// The runtime was not listed for longer than the threshold.
    #[error("pleg was last seen active {elapsed:?} ago; threshold is {threshold:?}")]
    Stale {
        /// How long ago the last list that succeeded was begun.
        elapsed: Duration,
        /// How long ago it may be.
        threshold: Duration,
        /// How the last try since then failed; none when it has no answer yet.
        #[source]
        last_failure: Option<kubelet_core::Error>,
    },
}
