//! What happened, when, and which of it is a fault.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Prints each line with the time since the start, and keeps the faults. Clones share the data.
#[derive(Clone)]
pub(crate) struct Journal {
    begun: Instant,
    faults: Arc<Mutex<Vec<String>>>,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), faults: Arc::default() }
    }

    pub(crate) fn note(&self, line: impl AsRef<str>) {
        // A terminal or pipe that is gone does not end the run.
        let _ = writeln!(stdout(), "{:8.1} {}", self.begun.elapsed().as_secs_f64(), line.as_ref());
    }

    /// A violation. The same one is noted once.
    pub(crate) fn fault(&self, line: impl Into<String>) {
        let line = line.into();
        let mut faults = self.faults.lock();
        if !faults.contains(&line) {
            self.note(format!("FAULT {line}"));
            faults.push(line);
        }
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().clone()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}
