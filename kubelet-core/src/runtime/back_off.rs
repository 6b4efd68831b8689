//! Waits after failures, as they are taken over a restart of the agent.

use std::time::Duration;

use tokio::time::Instant;

use crate::ContainerId;

/// A wait of a runtime before it tries again what failed: a container that keeps ending, an image that cannot be
/// pulled. Times are on tokio's clock; whoever writes them down turns them into wall-clock time and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// What waits, in the runtime's own words: one for each in a pod.
    pub key: String,
    /// How long it waits.
    pub wait: Duration,
    /// From when on: it is over at `since + wait`.
    pub since: Instant,
    /// When the wait was set to this length. What goes well for long enough after it waits anew from the first.
    pub set_at: Instant,
    /// The container whose end is waited after, if it is one's.
    pub container: Option<ContainerId>,
    /// What went wrong, if that is to be told while it waits.
    pub message: String,
}
