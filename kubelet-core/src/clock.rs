//! Wall-clock time, injected.
//!
//! Delays, deadlines and the order of things are told by `tokio::time` and by nothing else. What is written
//! into an API object or a log line is wall-clock time, and comes from a [`Clock`]; under
//! `tokio::time::pause` a [`Clock::starting_at`] moves with tokio's clock, so that a simulated day has a
//! simulated date.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// Tells the wall-clock time. Cheap to copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// `None`: the operating system's clock.
    origin: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// The operating system's clock, with its steps.
    pub fn system() -> Self {
        Self { origin: None }
    }

    /// A clock that shows `start` now and from then on moves with tokio's, paused or not.
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

    /// The time now, as the API writes it: cut to whole seconds.
    pub fn api_now(&self) -> Time {
        api_time(self.now())
    }
}

/// A timestamp as the API keeps it: cut to whole seconds (`metav1.Time` has no fractions).
pub fn api_time(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
