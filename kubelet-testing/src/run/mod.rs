//! The script of a container.

mod life;

use std::sync::Arc;
use std::time::Duration;

use kubelet_cri::verbs::ErrorClass;

pub(crate) use self::life::{Ending, Life};

/// One run of a container, from its start to its end. Times are on tokio's clock.
///
/// ```
/// use std::time::Duration;
/// use kubelet_testing::Run;
///
/// Run::forever();                                    // until it is stopped
/// Run::exits(1).after(Duration::from_secs(2));       // runs 2 s, then exits with code 1
/// Run::oom_killed().after(Duration::from_secs(60));  // runs 1 min, then lacks memory
/// Run::forever().start_takes(Duration::from_secs(5)).ignores_stop(); // slow, and must be killed
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Run {
    pub(crate) start: Start,
    pub(crate) ends: Option<(Duration, Ending)>,
    pub(crate) stop: Stop,
    pub(crate) output: Vec<Output>,
    pub(crate) termination_message: Option<String>,
    pub(crate) usage: Usage,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Start {
    Takes(Duration),
    Hangs,
    Fails(ErrorClass, String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stop {
    /// Exits with this code, this long after SIGTERM.
    Ends(Duration, i32),
    /// Only SIGKILL ends it.
    Ignored,
    /// SIGKILL does not end it, either.
    Hangs,
}

/// Its output, and how long after its start it writes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Output {
    pub(crate) after: Duration,
    pub(crate) stream: &'static str,
    pub(crate) text: String,
}

/// Its usage while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_millis: u64,
    pub(crate) memory_bytes: u64,
}

/// The exit code after SIGTERM.
const SIGTERM_CODE: i32 = 128 + 15;

impl Run {
    /// Starts at once and runs until it is stopped. Then it ends at once with code 143, like a process without a
    /// handler for SIGTERM.
    pub fn forever() -> Self {
        Self {
            start: Start::Takes(Duration::ZERO),
            ends: None,
            stop: Stop::Ends(Duration::ZERO, SIGTERM_CODE),
            output: Vec::new(),
            termination_message: None,
            usage: Usage {
                cpu_millis: 10,
                memory_bytes: 20 << 20,
            },
        }
    }

    /// Exits by itself with this code, immediately after the start unless [`after`](Self::after) is set.
    pub fn exits(code: i32) -> Self {
        Self {
            ends: Some((Duration::ZERO, Ending::exit(code))),
            ..Self::forever()
        }
    }

    /// The kernel kills it because it runs out of memory: code 137, and on CRI the reason `OOMKilled`. This happens
    /// immediately after the start unless [`after`](Self::after) is set.
    pub fn oom_killed() -> Self {
        Self {
            ends: Some((Duration::ZERO, Ending::oom_killed())),
            ..Self::forever()
        }
    }

    /// Its start fails with an error of this class.
    pub fn fails_to_start(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            start: Start::Fails(class, message.into()),
            ..Self::forever()
        }
    }

    /// Sets how long it runs before it exits by itself; with code 0 unless [`exits`](Self::exits) sets another.
    pub fn after(mut self, runs: Duration) -> Self {
        let ending = self.ends.map_or(Ending::exit(0), |(_, ending)| ending);
        self.ends = Some((runs, ending));
        self
    }

    /// Its start takes this long. A start that is dropped earlier starts nothing.
    pub fn start_takes(mut self, time: Duration) -> Self {
        self.start = Start::Takes(time);
        self
    }

    /// Its start hangs, and starts nothing.
    pub fn start_hangs(mut self) -> Self {
        self.start = Start::Hangs;
        self
    }

    /// After SIGTERM it takes this time and exits with this code. If the grace period is shorter, it is killed with
    /// 137.
    pub fn stop_takes(mut self, time: Duration, code: i32) -> Self {
        self.stop = Stop::Ends(time, code);
        self
    }

    /// It ignores SIGTERM, and is killed with 137 at the end of its grace period.
    pub fn ignores_stop(mut self) -> Self {
        self.stop = Stop::Ignored;
        self
    }

    /// Its stop hangs, and it continues to run.
    pub fn stop_hangs(mut self) -> Self {
        self.stop = Stop::Hangs;
        self
    }

    /// Writes these lines to standard output when it starts. Needs a runtime with logs: `MemoryCri`.
    pub fn prints(self, lines: impl Into<String>) -> Self {
        self.prints_after(Duration::ZERO, lines)
    }

    /// Writes these lines to standard output this long after its start, if it still runs then.
    pub fn prints_after(mut self, after: Duration, lines: impl Into<String>) -> Self {
        self.push_output(after, "stdout", lines.into());
        self
    }

    /// Writes these lines to standard error when it starts.
    pub fn complains(mut self, lines: impl Into<String>) -> Self {
        self.push_output(Duration::ZERO, "stderr", lines.into());
        self
    }

    /// Leaves this termination message when it ends. Needs a runtime that mounts files: `MemoryCri`.
    pub fn leaves_message(mut self, message: impl Into<String>) -> Self {
        self.termination_message = Some(message.into());
        self
    }

    /// Sets its statistics while it runs: thousandths of a core, bytes of memory. The defaults are 10 and 20 MiB.
    /// Needs a runtime with statistics: `MemoryCri`.
    pub fn uses(mut self, cpu_millis: u64, memory_bytes: u64) -> Self {
        self.usage = Usage {
            cpu_millis,
            memory_bytes,
        };
        self
    }

    fn push_output(&mut self, after: Duration, stream: &'static str, text: String) {
        self.output.push(Output { after, stream, text });
        // A stable sort: lines of the same time stay in order.
        self.output.sort_by_key(|output| output.after);
    }
}

type Condition<C> = Arc<dyn Fn(&C) -> bool + Send + Sync>;

/// The scripts of containers. `C` is the information that a runtime has about a container before it starts.
#[derive(Clone)]
pub(crate) struct Script<C> {
    applies: Condition<C>,
    runs: Vec<Run>,
}

impl<C> Script<C> {
    pub(crate) fn new(
        applies: impl Fn(&C) -> bool + Send + Sync + 'static,
        runs: impl IntoIterator<Item = Run>,
    ) -> Self {
        Self {
            applies: Arc::new(applies),
            runs: runs.into_iter().collect(),
        }
    }

    /// The run with this number, from 0, in the latest script that applies. The last run repeats.
    pub(crate) fn run(scripts: &[Self], container: &C, number: u32) -> Run {
        let script = scripts.iter().rev().find(|script| (script.applies)(container));
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        script
            .and_then(|script| script.runs.get(number).or(script.runs.last()))
            .cloned()
            .unwrap_or_else(Run::forever)
    }
}
