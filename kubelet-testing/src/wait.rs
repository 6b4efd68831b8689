//! Waiting for a thing, not for a time.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::{Error, Result};

/// How long the waits of this crate are patient, on tokio's clock: longer than any period or back-off of a kubelet. In
/// virtual time it passes in a moment.
pub const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// Waits until what is watched is as wanted: looks once at the start and then at each change, never in between.
///
/// `what` names the wish in the error: "web is ready".
///
/// ```
/// use kubelet_testing::wait_until;
/// use tokio::sync::watch;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> kubelet_testing::Result<()> {
/// let restarts = watch::Sender::new(0);
/// let watched = restarts.subscribe();
/// let counting = async { (1..=3).for_each(|count| restarts.send_modify(|restarts| *restarts = count)) };
/// let (reached, ()) = tokio::join!(wait_until(watched, "three restarts", |restarts| *restarts == 3), counting);
/// reached?;
///
/// let never = wait_until(restarts.subscribe(), "four restarts", |restarts| *restarts == 4).await;
/// assert_eq!(never.unwrap_err().to_string(), "four restarts: not within 3600s");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::NotReached`] after [`PATIENCE`], or when nothing can change any more.
///
/// # Cancel safety
///
/// Cancel safe.
pub async fn wait_until<T>(
    mut watched: watch::Receiver<T>,
    what: &str,
    reached: impl FnMut(&T) -> bool,
) -> Result<()> {
    let wait = async { watched.wait_for(reached).await.map(|_| ()) };
    patiently(what, wait).await?.map_err(|_| Error::Ended {
        what: what.to_owned(),
    })
}

/// Gives up after [`PATIENCE`].
pub(crate) async fn patiently<T>(what: &str, wait: impl Future<Output = T>) -> Result<T> {
    let not_reached = |_| Error::NotReached {
        what: what.to_owned(),
        within: PATIENCE,
    };
    timeout(PATIENCE, wait).await.map_err(not_reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ended_is_not_waited_for() {
        let sender = watch::Sender::new(1);
        let watched = sender.subscribe();
        drop(sender);
        assert!(
            wait_until(watched.clone(), "one", |value| *value == 1)
                .await
                .is_ok()
        );
        let error = wait_until(watched, "two", |value| *value == 2).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "two: will not come, since nothing changes any more"
        );
    }
}
