//! The CRI runtime in memory fulfils the clauses, in virtual time; and the kit detects faults in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;
use kubelet_cri::Code;
use kubelet_cri::verbs::ErrorClass;
use kubelet_testing::Run;
use kubelet_testing::conformance::{Fixture, FixtureError, Opened, Program, Subject, Time, Workload, cri};
use kubelet_testing::memory_cri::{Call, ExecReply, Latency, MemoryCri};

const IMAGE: &str = "docker.io/library/busybox:1.36";

/// With the fault of this number; 0 is none.
struct Memory<const FAULT: usize = 0> {
    runtime: MemoryCri,
    clock: Clock,
}

/// The run of a container, by its program's words.
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

/// The same for a command in a container.
fn reply(program: &Program) -> ExecReply {
    match program {
        Program::Exits(code) => ExecReply::exits(*code),
        Program::Prints => ExecReply::exits(0).stdout("one\ntwo\n").stderr("three\n"),
        Program::Missing => ExecReply::no_such_program(),
        _ => ExecReply::hangs(),
    }
}

#[async_trait]
impl<const FAULT: usize> Fixture for Memory<FAULT> {
    async fn open(dir: &Path) -> Opened<Self> {
        let clock = Clock::starting_at(Timestamp::from_second(1_700_000_000)?);
        let runtime = MemoryCri::builder(clock)
            .latency(Latency::containerd())
            .write_logs_below(dir)
            .build();
        runtime.add_image(IMAGE);
        let fails = |call| runtime.faults().on(call).fails(Code::Unknown, "no");
        match FAULT {
            STOPS_FAIL => fails(Call::StopContainer),
            REMOVALS_FAIL => fails(Call::RemoveContainer),
            STATUS_HANGS => runtime.faults().on(Call::ContainerStatus).hangs(),
            SILENT => runtime.faults().on_any_event().lost(),
            SANDBOX_REPLIES_ARE_LOST => runtime.faults().on(Call::RunPodSandbox).reply_lost(),
            _ => {}
        }
        Ok(Some(Self { runtime, clock }))
    }

    fn subject(&self) -> Subject {
        Subject::cri(Arc::new(self.runtime.clone()))
    }

    /// The runtime crashes and comes back; its containers continue to run.
    async fn reopen(&mut self) -> Result<(), FixtureError> {
        match FAULT {
            LOSES_ALL => self.runtime.reboot(Duration::ZERO),
            _ => self.runtime.crash(),
        }
        self.runtime.come_back();
        Ok(())
    }

    fn workload(&self, program: &Program) -> Workload {
        let words = program.words();
        let program = match program {
            Program::Exits(_) if FAULT == ALL_IS_WELL => &Program::Exits(0),
            Program::Heeds(_) if FAULT == DEAF => &Program::Ignores,
            program => program,
        };
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

const ALL_IS_WELL: usize = 1;
const DEAF: usize = 2;
const LOSES_ALL: usize = 3;
const STOPS_FAIL: usize = 4;
const REMOVALS_FAIL: usize = 5;
const STATUS_HANGS: usize = 6;
const SILENT: usize = 7;
const SANDBOX_REPLIES_ARE_LOST: usize = 8;

fn catches<const FAULT: usize>(clauses: &[&str]) {
    for clause in clauses {
        let Some((group, name)) = clause.split_once("::") else {
            panic!("{clause} has no group")
        };
        match cri::check::<Memory<FAULT>>(group, name, CONFORMANCE_OFFERS) {
            Ok(()) => panic!("it passes {clause}"),
            Err(broken) => assert!(broken.clause == *clause && !broken.seen.is_empty(), "{broken}"),
        }
    }
}

#[test]
fn what_is_wrong_is_caught() {
    catches::<ALL_IS_WELL>(&[
        "ends::exit_codes_are_the_programs_own",
        "engine::a_container_that_ended_is_restarted",
    ]);
    catches::<DEAF>(&["signals::the_stop_signal_comes_first"]);
    catches::<LOSES_ALL>(&[
        "restart::what_ran_is_found_again",
        "restart::an_agent_on_the_runtime_opened_again_takes_over_what_runs",
    ]);
    catches::<STOPS_FAIL>(&["idempotence::a_second_stop_of_a_container_changes_nothing"]);
    catches::<REMOVALS_FAIL>(&["containers::what_is_removed_is_not_found"]);
    catches::<STATUS_HANGS>(&["containers::what_is_started_runs"]);
    catches::<SILENT>(&[
        "events::start_end_and_removal_are_events",
        "events::an_end_by_itself_is_an_event",
    ]);
    catches::<SANDBOX_REPLIES_ARE_LOST>(&["sandboxes::a_sandbox_is_ready_once_it_was_run"]);
}
