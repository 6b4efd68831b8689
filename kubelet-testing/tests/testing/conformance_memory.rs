//! The runtime in memory fulfils the clauses, in virtual time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;
use kubelet_cri::verbs::ErrorClass;
use kubelet_testing::conformance::{Fixture, FixtureError, Opened, Program, Subject, Time, Workload};
use kubelet_testing::{MemoryRuntime, Run};

struct Memory {
    runtime: MemoryRuntime,
    clock: Clock,
}

/// The run of a container, by its program's words.
fn run(program: &Program) -> Run {
    match program {
        Program::Exits(code) => Run::exits(*code).after(Duration::from_millis(50)),
        Program::Missing => Run::fails_to_start(ErrorClass::Permanent, "no such program"),
        Program::Heeds(code) => Run::forever().stop_takes(Duration::from_secs(1), *code),
        Program::Ignores => Run::forever().ignores_stop(),
        // Slow, so that a start can be interrupted at an await.
        _ => Run::forever().start_takes(Duration::from_millis(20)),
    }
}

#[async_trait]
impl Fixture for Memory {
    async fn open(_: &Path) -> Opened<Self> {
        let clock = Clock::starting_at(Timestamp::from_second(1_700_000_000)?);
        Ok(Some(Self {
            runtime: MemoryRuntime::new(clock),
            clock,
        }))
    }

    fn subject(&self) -> Subject {
        Subject::verbs(Arc::new(self.runtime.clone()))
    }

    /// The agent ends; the runtime's state in memory stays.
    async fn reopen(&mut self) -> Result<(), FixtureError> {
        Ok(())
    }

    fn workload(&self, program: &Program) -> Workload {
        let words = program.words();
        let command = words.clone();
        self.runtime
            .script_where(move |spec| spec.command == command, [run(program)]);
        Workload::new("busybox:1.36", words)
    }

    fn time() -> Time {
        Time::Paused
    }

    fn clock(&self) -> Clock {
        self.clock
    }
}

mod verbs {
    use super::*;

    kubelet_testing::conformance!(verbs: Memory, offers: [signals, restart, events]);
}

/// Through `CriAdapter`.
mod cri {
    use super::*;

    kubelet_testing::conformance!(cri: Memory, offers: [signals, restart, events]);
}
