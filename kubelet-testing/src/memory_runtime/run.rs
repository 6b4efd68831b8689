//! What a container does, as a test scripts it.

use std::sync::Arc;
use std::time::Duration;

use kubelet_cri::verbs::{ContainerSpec, ErrorClass};

/// One life of a container, from its start to its end. Times are on tokio's clock.
///
/// ```
/// use std::time::Duration;
/// use kubelet_testing::Run;
///
/// Run::forever();                                    // until it is stopped
/// Run::exits(1).after(Duration::from_secs(2));       // runs 2 s, then exits with code 1
/// Run::forever().start_takes(Duration::from_secs(5)).ignores_stop(); // slow, and must be killed
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Run {
    pub(super) start: Start,
    pub(super) ends: Option<(Duration, i32)>,
    pub(super) stop: Stop,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Start {
    Takes(Duration),
    Hangs,
    Fails(ErrorClass, String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stop {
    /// With this code, so long after it was asked to.
    Ends(Duration, i32),
    /// Only force ends it.
    Ignored,
    /// Not even force does.
    Hangs,
}

/// What a process comes to that SIGTERM ends.
const SIGTERM_CODE: i32 = 128 + 15;

impl Run {
    /// Starts at once, runs until it is stopped, and then ends at once with code 143, as a process that has no handler
    /// of SIGTERM.
    pub fn forever() -> Self {
        Self {
            start: Start::Takes(Duration::ZERO),
            ends: None,
            stop: Stop::Ends(Duration::ZERO, SIGTERM_CODE),
        }
    }

    /// Ends by itself with this code, as soon as it was started unless [`after`](Self::after) is given.
    pub fn exits(code: i32) -> Self {
        Self {
            ends: Some((Duration::ZERO, code)),
            ..Self::forever()
        }
    }

    /// Does not start: the start fails with an error of this class.
    pub fn fails_to_start(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            start: Start::Fails(class, message.into()),
            ..Self::forever()
        }
    }

    /// How long it runs before it ends by itself; with code 0 unless made by [`exits`](Self::exits).
    pub fn after(mut self, runs: Duration) -> Self {
        let code = self.ends.map_or(0, |(_, code)| code);
        self.ends = Some((runs, code));
        self
    }

    /// Its start takes this long. A start dropped before that leaves nothing.
    pub fn start_takes(mut self, time: Duration) -> Self {
        self.start = Start::Takes(time);
        self
    }

    /// Its start never comes to an end, and starts nothing.
    pub fn start_hangs(mut self) -> Self {
        self.start = Start::Hangs;
        self
    }

    /// Asked to stop, it ends after this time with this code; killed with 137 if its grace is over before.
    pub fn stop_takes(mut self, time: Duration, code: i32) -> Self {
        self.stop = Stop::Ends(time, code);
        self
    }

    /// Asked to stop, it does nothing, and is killed with 137 when its grace is over.
    pub fn ignores_stop(mut self) -> Self {
        self.stop = Stop::Ignored;
        self
    }

    /// Its stop never comes to an end, and it runs on.
    pub fn stop_hangs(mut self) -> Self {
        self.stop = Stop::Hangs;
        self
    }
}

type Condition = Arc<dyn Fn(&ContainerSpec) -> bool + Send + Sync>;

/// Which containers do what, first, second and so on.
#[derive(Clone)]
pub(super) struct Script {
    pub(super) applies: Condition,
    pub(super) runs: Vec<Run>,
}

impl Script {
    /// What the try of this number does, from 0; the last run goes on and on.
    pub(super) fn run(&self, number: u32) -> Option<&Run> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        self.runs.get(number).or(self.runs.last())
    }
}
