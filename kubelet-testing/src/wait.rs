//! Waits for conditions.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::{Error, Result};

/// How long the waits of this crate last at most, on tokio's clock. This is longer than any period or back-off of a
/// kubelet. In virtual time it takes a moment.
pub const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// How long they last at most if tokio's clock is the host's.
const REAL_PATIENCE: Duration = Duration::from_secs(180);

/// How often to check a value without change notification, on tokio's clock: often at first, later less so.
const LOOK_PERIODS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Waits until a watched value fulfils a condition. It checks at the start and after each change.
///
/// `what` describes the condition in the error: "web is ready". [`eventually!`](crate::eventually!) also shows the
/// last value.
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
/// assert_eq!(never.unwrap_err().to_string(), "four restarts: not reached within 3600s");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::NotReached`] after [`PATIENCE`], or after three minutes if tokio's clock is not paused; [`Error::Ended`] if
/// the value can never change again.
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

/// Waits until a condition holds, and returns the value that fulfils it. If the condition never holds, it panics with
/// the condition and the last value. Tests need no `sleep`.
///
/// * `eventually!(watch: RECEIVER, |seen| CONDITION)` checks a `tokio::sync::watch` receiver at the start and after
///   each change. The recorders and sinks of these crates have a `watch()` for this. It does not poll, and it may
///   miss a value that is replaced at once.
/// * `eventually!(EXPRESSION, |seen| CONDITION)` is for values without change notification. It evaluates the
///   expression, which may `.await`, every 10 ms of tokio's clock, later every second. In virtual time this costs
///   nothing, because the clock jumps.
///
/// Both take a message after the condition, as `assert!` does. They wait for at most [`PATIENCE`](crate::PATIENCE) of
/// tokio's clock, or for three minutes if that is not paused.
///
/// ```
/// use std::time::Duration;
///
/// use kubelet_core::{Clock, PodUid};
/// use kubelet_cri::verbs::{ContainerKey, ContainerRuntime, ContainerSpec};
/// use kubelet_testing::{MemoryRuntime, Run, eventually};
/// use tokio::sync::watch;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = MemoryRuntime::new(Clock::system());
/// runtime.script("job", [Run::exits(3).after(Duration::from_secs(600))]);
/// let key = ContainerKey::new("8a3f", "job", 0);
/// runtime.start(&ContainerSpec::new(key.clone(), "busybox:1.36")).await?;
///
/// let ended = eventually!(runtime.inspect(&key).await?, |job| !job.is_running(), "the job ends");
/// assert_eq!(ended.exit().map(|exit| exit.code), Some(3));
///
/// let restarts = watch::Sender::new(7);
/// assert_eq!(eventually!(watch: restarts.subscribe(), |restarts| *restarts > 3), 7);
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// Panics if the condition does not hold in time.
#[macro_export]
macro_rules! eventually {
    (watch: $watched:expr, |$seen:pat_param| $condition:expr $(,)?) => {
        $crate::eventually!(watch: $watched, |$seen| $condition, "{}", ::core::stringify!($condition))
    };
    (watch: $watched:expr, |$seen:pat_param| $condition:expr, $($message:tt)+) => {
        match $crate::__wait::watched($watched, &::std::format!($($message)+), |$seen| $condition).await {
            ::core::result::Result::Ok(seen) => seen,
            ::core::result::Result::Err(error) => ::core::panic!("{error}"),
        }
    };
    ($look:expr, |$seen:pat_param| $condition:expr $(,)?) => {
        $crate::eventually!($look, |$seen| $condition, "{}", ::core::stringify!($condition))
    };
    ($look:expr, |$seen:pat_param| $condition:expr, $($message:tt)+) => {{
        let mut patience = $crate::__wait::Patience::begin();
        loop {
            let seen = $look;
            let reached = match &seen { $seen => $condition };
            if reached {
                break seen;
            }
            if let ::core::result::Result::Err(error) =
                patience.look_again(|| ::std::format!($($message)+), &seen).await
            {
                ::core::panic!("{error}");
            }
        }
    }};
}

/// Gives up after [`PATIENCE`], or sooner in real time.
pub(crate) async fn patiently<T>(what: &str, wait: impl Future<Output = T>) -> Result<T> {
    let patience = Patience::begin();
    tokio::select! {
        biased;
        reached = wait => Ok(reached),
        within = patience.ends() => Err(Error::NotReached { what: what.to_owned(), within }),
    }
}

/// As [`wait_until`], but returns the value, and shows the last value in its error.
#[doc(hidden)]
pub async fn watched<T: Clone + fmt::Debug>(
    mut watched: watch::Receiver<T>,
    what: &str,
    reached: impl FnMut(&T) -> bool,
) -> Result<T> {
    let waited = {
        let wait = async { watched.wait_for(reached).await.map(|seen| seen.clone()) };
        let patience = Patience::begin();
        tokio::select! {
            biased;
            seen = wait => Ok(seen),
            within = patience.ends() => Err(within),
        }
    };
    let last = || format!("{:?}", *watched.borrow());
    match waited {
        Ok(Ok(seen)) => Ok(seen),
        Ok(Err(_)) => Err(Error::Ended {
            what: format!("{what}: last value {}", last()),
        }),
        Err(within) => Err(Error::NeverSeen {
            what: what.to_owned(),
            within,
            last: last(),
        }),
    }
}

/// The deadline of a wait.
#[doc(hidden)]
#[derive(Debug)]
pub struct Patience {
    begun: Instant,
    /// There is no way to ask whether tokio's clock is paused. But only tokio's own clock can be paused.
    begun_on_host: std::time::Instant,
}

impl Patience {
    /// Starts now.
    pub fn begin() -> Self {
        Self {
            begun: Instant::now(),
            begun_on_host: std::time::Instant::now(),
        }
    }

    /// How long it has waited, if that is the maximum.
    fn ended(&self) -> Option<Duration> {
        let (waited, on_host) = (self.begun.elapsed(), self.begun_on_host.elapsed());
        if waited >= PATIENCE {
            Some(PATIENCE)
        } else {
            (on_host >= REAL_PATIENCE).then_some(REAL_PATIENCE)
        }
    }

    /// Waits for the deadline and returns how long that was.
    async fn ends(&self) -> Duration {
        loop {
            if let Some(waited) = self.ended() {
                return waited;
            }
            let left = PATIENCE.saturating_sub(self.begun.elapsed());
            sleep(left.min(REAL_PATIENCE)).await;
        }
    }

    /// Waits until the next check.
    pub async fn look_again<T: fmt::Debug>(&mut self, what: impl FnOnce() -> String, last: &T) -> Result<()> {
        if let Some(within) = self.ended() {
            return Err(Error::NeverSeen {
                what: what(),
                within,
                last: format!("{last:?}"),
            });
        }
        sleep(look_period(self.begun.elapsed())).await;
        Ok(())
    }
}

/// The time to the next check, after this time of waiting.
pub(crate) fn look_period(waited: Duration) -> Duration {
    let (first, last) = LOOK_PERIODS;
    (waited / 64).clamp(first, last)
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
            "two: cannot be reached, because the value cannot change any more"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_is_looked_at_and_what_was_seen_is_given() {
        let sender = watch::Sender::new(0);
        let looks = std::cell::Cell::new(0);
        let waiting = async {
            eventually!(watch: sender.subscribe(), |value| {
                looks.set(looks.get() + 1);
                *value == 3
            })
        };
        let counting = async {
            for value in 1..=3 {
                sleep(Duration::from_secs(600)).await;
                sender.send_replace(value);
            }
        };
        let (seen, ()) = tokio::join!(waiting, counting);
        assert_eq!((seen, looks.get()), (3, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_tell_is_looked_at_again_and_again() {
        let begun = Instant::now();
        let seen = eventually!(begun.elapsed(), |elapsed| elapsed.as_secs() >= 600);
        assert_eq!(seen.as_secs(), 600);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_shows_the_wish_and_what_was_seen_last() {
        let sender = watch::Sender::new(7);
        let error = watched(sender.subscribe(), "eight", |value| *value == 8)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "eight: not reached within 3600s; last value: 7"
        );
        drop(sender);

        let failing = tokio::spawn(async { eventually!(Some(7), |value| value.is_none(), "none of {}", 7) });
        let panic = failing.await.unwrap_err().into_panic();
        let message = panic.downcast_ref::<String>().unwrap();
        assert_eq!(
            message,
            "none of 7: not reached within 3600s; last value: Some(7)"
        );
    }
}
