//! Deadlines for calls: a call that hangs fails with an error that names its pod, and is retried later.

use std::time::Duration;

use crate::{Error, PodUid, Result};

/// The time limit for one answer of the runtime: the default of `runtimeRequestTimeout`.
pub(crate) const RUNTIME_REQUEST_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Waits for `work`, at most for `after`.
pub(crate) async fn within<T>(
    what: &'static str,
    pod: Option<&PodUid>,
    after: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(after, work).await.unwrap_or_else(|_| {
        metrics::counter!("kubelet_deadlines_exceeded_total", "operation" => what).increment(1);
        Err(Error::Timeout {
            what,
            pod: pod.cloned(),
            after,
        })
    })
}
