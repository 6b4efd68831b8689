//! Wall-clock time, injected.
//!
//! Delays, deadlines and order depend on `tokio::time` only. Times in API objects and log lines are wall-clock time and
//! come from a [`Clock`]. Under `tokio::time::pause`, a [`Clock::starting_at`] advances with tokio's clock, so a
//! simulated day has a simulated date.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// Reads the wall clock. Cheap to copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// `None`: the operating system's clock.
    origin: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// The operating system's clock. It may jump when the system time is set.
    pub fn system() -> Self {
        Self { origin: None }
    }

    /// A clock that shows `start` now and then advances with tokio's clock, paused or not.
    pub fn starting_at(start: Timestamp) -> Self {
        Self {
            origin: Some((start, Instant::now())),
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        match self.origin {
            None => Timestamp::now(),
            Some((start, origin)) => start.checked_add(origin.elapsed()).unwrap_or(Timestamp::MAX),
        }
    }

    /// The current time in the API's precision: whole seconds.
    pub fn api_now(&self) -> Time {
        api_time(self.now())
    }
}

/// Truncates a timestamp to whole seconds, as the API does (`metav1.Time` has no fractions).
pub fn api_time(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
