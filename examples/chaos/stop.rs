//! The signals that end a run.

use std::fs;
use std::future::pending;
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use crate::folder::folder;

/// A file in the run's folder that ends the chaos.
const END: &str = "end";

/// The signals of the outermost process.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None if it is ignored, as `nohup` wants it.
    hangup: Option<Signal>,
}

impl Signals {
    /// From now on they no longer end this process.
    pub(crate) fn new() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let is_ignored = ignores(&status, SignalKind::hangup());
        Self {
            interrupt: signal(SignalKind::interrupt()).unwrap(),
            terminate: signal(SignalKind::terminate()).unwrap(),
            hangup: (!is_ignored).then(|| signal(SignalKind::hangup()).unwrap()),
        }
    }

    /// Waits until the run must end at once, and returns why: the second Ctrl-C, SIGTERM or SIGHUP. The first Ctrl-C asks the
    /// inside to end the chaos.
    pub(crate) async fn end_at_once(mut self, folder: &Path) -> &'static str {
        let mut is_interrupted = false;
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => hangup.recv().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                _ = self.interrupt.recv() => {
                    // A folder that cannot be written must not keep the run alive.
                    if is_interrupted || fs::write(folder.join(END), "").is_err() {
                        return "SIGINT";
                    }
                    is_interrupted = true;
                }
                _ = self.terminate.recv() => return "SIGTERM",
                _ = hangup => return "SIGHUP",
            }
        }
    }
}

/// Waits, inside, until the chaos should end early.
pub(crate) async fn asked_to_end() {
    while !folder().join(END).exists() {
        sleep(Duration::from_secs(1)).await;
    }
}

/// Whether a process with this `/proc/PID/status` ignores a signal.
fn ignores(status: &str, signal: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal.as_raw_value() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_lists_ignored_signals() {
        let hangup = SignalKind::hangup();
        assert!(ignores("Name:\tchaos\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n", hangup));
        assert!(!ignores("Name:\tchaos\nSigIgn:\t0000000000001002\n", hangup));
        assert!(ignores("SigIgn:\t0000000000001002\n", SignalKind::interrupt()));
        assert!(!ignores("", hangup));
    }
}
