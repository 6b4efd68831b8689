//! The CRI runtime in memory holds to the clauses, in virtual time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;
use kubelet_cri::verbs::ErrorClass;
use kubelet_testing::Run;
use kubelet_testing::conformance::{Fixture, FixtureError, Opened, Program, Subject, Time, Workload};
use kubelet_testing::memory_cri::{ExecReply, Latency, MemoryCri};

const IMAGE: &str = "docker.io/library/busybox:1.36";

struct Memory {
    runtime: MemoryCri,
    clock: Clock,
}

/// What a container does that is asked for a program by its words.
fn run(program: &Program) -> Run {
    match program {
        Program::Exits(code) => Run::exits(*code).after(Duration::from_millis(50)),
        Program::Missing => Run::fails_to_start(ErrorClass::Permanent, "no such program"),
        Program::Prints => Run::exits(0).prints("one\ntwo\n").complains("three\n"),
        Program::Counts => (1..600_u32).fold(Run::forever(), |run, number| {
            run.prints_after(number * Duration::from_millis(50), format!("{number}\n"))
        }),
        Program::Heeds(code) => Run::forever()
            .stop_takes(Duration::from_secs(1), *code)
            .prints("ready\n"),
        Program::Ignores => Run::forever().ignores_stop().prints("ready\n"),
        _ => Run::forever(),
    }
}

/// What the same comes to as a command in a container.
fn reply(program: &Program) -> ExecReply {
    match program {
        Program::Exits(code) => ExecReply::exits(*code),
        Program::Prints => ExecReply::exits(0).stdout("one\ntwo\n").stderr("three\n"),
        Program::Missing => ExecReply::no_such_program(),
        _ => ExecReply::hangs(),
    }
}

#[async_trait]
impl Fixture for Memory {
    async fn open(dir: &Path) -> Opened<Self> {
        let clock = Clock::starting_at(Timestamp::from_second(1_700_000_000)?);
        let runtime = MemoryCri::builder(clock)
            .latency(Latency::containerd())
            .write_logs_below(dir)
            .build();
        runtime.add_image(IMAGE);
        Ok(Some(Self { runtime, clock }))
    }

    fn subject(&self) -> Subject {
        Subject::cri(Arc::new(self.runtime.clone()))
    }

    /// The runtime crashes and is there again; its containers run on.
    async fn reopen(&mut self) -> Result<(), FixtureError> {
        self.runtime.crash();
        self.runtime.come_back();
        Ok(())
    }

    fn workload(&self, program: &Program) -> Workload {
        let words = program.words();
        let (command, exec) = (words.clone(), words.clone());
        self.runtime.script_where(
            move |planned| planned.container.command == command,
            [run(program)],
        );
        self.runtime
            .script_exec_where(move |_, command| command == exec, [reply(program)]);
        Workload::new(IMAGE, words)
    }

    fn time() -> Time {
        Time::Paused
    }

    fn clock(&self) -> Clock {
        self.clock
    }
}

kubelet_testing::conformance!(cri: Memory, offers: [signals, restart, logs, exec, stats, events]);
