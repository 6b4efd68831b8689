//! Back-offs after failures, as they are kept over a restart of the agent.

use std::time::Duration;

use tokio::time::Instant;

use crate::ContainerId;

/// A back-off of a runtime before it retries: a container that keeps exiting, an image that cannot be pulled. Times are
/// on tokio's clock; records on disk convert them to wall-clock time and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// The key of the back-off, defined by the runtime and unique in the pod.
    pub key: String,
    /// The length.
    pub wait: Duration,
    /// The start: it ends at `since + wait`.
    pub since: Instant,
    /// When it got this length. After a long enough time without failures the next back-off has the initial length
    /// again.
    pub set_at: Instant,
    /// The container whose exit caused it, if one did.
    pub container: Option<ContainerId>,
    /// The error to report during the back-off, if any.
    pub message: String,
}
