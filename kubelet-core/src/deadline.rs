//! One pod, one deadline: a call that hangs ends with an error that names its pod, and is made again later.

use std::time::Duration;

use crate::{Error, PodUid, Result};

/// How long the runtime may take for one answer: `runtimeRequestTimeout`'s default.
pub(crate) const RUNTIME_REQUEST_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Waits for `work` and no longer than `after`.
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
