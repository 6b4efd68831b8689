//! When and how a container ends, as far as known.

use std::time::Duration;

use tokio::time::Instant;

use super::{Run, Stop};

/// The exit code after SIGKILL.
const SIGKILL_CODE: i32 = 128 + 9;

/// How a container ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) code: i32,
    /// Killed because it ran out of memory.
    pub(crate) oom: bool,
}

/// A started container. It ends by itself, on request or by force, whichever comes first.
#[derive(Debug)]
pub(crate) struct Life {
    ends: Option<(Instant, Ending)>,
    stop: Stop,
    stopping: bool,
}

impl Ending {
    pub(crate) fn exit(code: i32) -> Self {
        Self { code, oom: false }
    }

    pub(crate) fn oom_killed() -> Self {
        Self {
            code: SIGKILL_CODE,
            oom: true,
        }
    }
}

impl Life {
    pub(crate) fn new(run: &Run, started: Instant) -> Self {
        Self {
            ends: run.ends.map(|(after, ending)| (started + after, ending)),
            stop: run.stop.clone(),
            stopping: false,
        }
    }

    /// When and how it ends, if known. This may be in the past.
    pub(crate) fn end(&self) -> Option<(Instant, Ending)> {
        self.ends
    }

    /// Whether SIGKILL has no effect.
    pub(crate) fn stop_hangs(&self) -> bool {
        self.stop == Stop::Hangs
    }

    /// It gets SIGTERM, and SIGKILL after `grace`.
    pub(crate) fn ask_to_stop(&mut self, now: Instant, grace: Duration) {
        if !grace.is_zero() {
            self.terminate(now);
        }
        self.end_by(now + grace, SIGKILL_CODE);
    }

    /// It gets SIGTERM.
    pub(crate) fn terminate(&mut self, now: Instant) {
        if let (Stop::Ends(time, code), false) = (&self.stop, self.stopping) {
            self.end_by(now + *time, *code);
        }
        self.stopping = true;
    }

    /// It gets SIGKILL, and ends if that has an effect.
    pub(crate) fn kill(&mut self, now: Instant) {
        if !self.stop_hangs() {
            self.end_by(now, SIGKILL_CODE);
        }
    }

    /// It ends at this time, unless it ends earlier.
    pub(crate) fn end_by(&mut self, end: Instant, code: i32) {
        if self.ends.is_none_or(|(known, _)| end < known) {
            self.ends = Some((end, Ending::exit(code)));
        }
    }
}
