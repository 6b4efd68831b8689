//! The kit detects runtimes that break its clauses. Each fault here is one that a real runtime could have.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubelet_core::Clock;
use kubelet_cri::verbs::{
    Container, ContainerKey, ContainerRuntime, ContainerSpec, ContainerState, ErrorClass, Events, Pod,
    PodKey, PodSpec, Pods, Result, RuntimeError,
};
use kubelet_testing::conformance::{Fixture, FixtureError, Opened, Program, Subject, Time, Workload, verbs};
use kubelet_testing::{MemoryRuntime, Run};
use parking_lot::Mutex;
use tokio::time::Instant;

/// What is wrong with a runtime.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// A second start makes a second container, and the first one is lost.
    StartsAnew,
    /// Ended containers leave the list by themselves.
    ForgetsTheEnded,
    /// A removed container can still be inspected.
    RemembersTheRemoved,
    /// A container is in the list twice.
    ListsTwice,
    /// A missing container returns another error than `Gone`.
    UnknownIsTrouble,
    /// Stopping a missing container is an error.
    StopIsStrict,
    /// Removing a missing container is an error.
    RemoveIsStrict,
    /// Stop sends the signal and does not wait.
    StopReturnsAtOnce,
    /// Stop kills without a grace period.
    StopIsAlwaysForce,
    /// Stop always waits for the whole grace period.
    StopSitsOutTheGrace,
    /// Every program exits with 0.
    AllIsWell,
    /// The end time changes with each call.
    TimesMove,
    /// A start that is dropped continues, and its container appears in the list later.
    DroppedStartComesLater,
    /// An attempt returns the container of the previous one.
    AttemptsAreOne,
    /// Pods share their containers.
    PodsAreOne,
    /// After a restart the exits are unknown.
    RestartForgetsTheEnded,
    /// After a restart all times are new.
    RestartForgetsTimes,
    /// It reports the capability `events` and sends none.
    EventsAreSilent,
    /// Its name has more than one word.
    Name,
    /// A missing program exits with 0.
    MissingIsFine,
    /// A pod is in no list.
    HidesPods,
    /// The attempts of a pod are one pod.
    AttemptsOfPodsAreOne,
    /// The containers of a pod run on after its end.
    EndSparesContainers,
    /// The end of a missing pod is an error.
    EndIsStrict,
}

const FAULTS: [(Fault, &[&str]); 24] = [
    (
        Fault::StartsAnew,
        &[
            "idempotence::a_key_started_twice_is_one_container",
            "restart::what_was_found_again_is_not_started_again",
        ],
    ),
    (
        Fault::ForgetsTheEnded,
        &["life_cycle::a_container_that_ended_stays_until_it_is_removed"],
    ),
    (
        Fault::RemembersTheRemoved,
        &["life_cycle::what_is_removed_is_gone"],
    ),
    (
        Fault::ListsTwice,
        &["life_cycle::a_started_container_runs_and_is_listed_once"],
    ),
    (
        Fault::UnknownIsTrouble,
        &["life_cycle::an_unknown_container_is_gone"],
    ),
    (
        Fault::StopIsStrict,
        &["idempotence::stop_of_what_is_not_there_is_a_success"],
    ),
    (
        Fault::RemoveIsStrict,
        &["idempotence::remove_of_what_is_not_there_is_a_success"],
    ),
    (
        Fault::StopReturnsAtOnce,
        &["signals::the_stop_signal_comes_first"],
    ),
    (
        Fault::StopIsAlwaysForce,
        &["signals::the_stop_signal_comes_first"],
    ),
    (
        Fault::StopSitsOutTheGrace,
        &[
            "signals::the_stop_signal_comes_first",
            "idempotence::stop_of_what_is_not_there_is_a_success",
        ],
    ),
    (
        Fault::AllIsWell,
        &[
            "ends::exit_codes_are_the_programs_own",
            "engine::a_container_that_ended_is_restarted",
        ],
    ),
    (Fault::TimesMove, &["life_cycle::times_are_in_order_and_stay"]),
    (
        Fault::DroppedStartComesLater,
        &["cancellation::a_start_cut_short_can_be_cleaned_up"],
    ),
    (
        Fault::AttemptsAreOne,
        &["life_cycle::a_restart_is_a_container_of_its_own"],
    ),
    (
        Fault::PodsAreOne,
        &["concurrency::containers_of_the_same_name_in_two_pods_are_two"],
    ),
    (
        Fault::RestartForgetsTheEnded,
        &["restart::ended_containers_are_found_again_as_they_ended"],
    ),
    (
        Fault::RestartForgetsTimes,
        &["restart::running_containers_are_found_again"],
    ),
    (Fault::EventsAreSilent, &["events::an_end_is_an_event"]),
    (Fault::Name, &["life_cycle::the_runtime_has_a_name"]),
    (
        Fault::MissingIsFine,
        &["life_cycle::a_start_that_fails_leaves_nothing_running"],
    ),
    (
        Fault::HidesPods,
        &[
            "pods::a_pod_that_began_is_listed_until_it_ends",
            "pods::a_key_begun_twice_is_one_pod",
            "pods::a_begin_cut_short_can_be_ended",
        ],
    ),
    (
        Fault::AttemptsOfPodsAreOne,
        &["pods::the_next_attempt_is_a_pod_of_its_own"],
    ),
    (
        Fault::EndSparesContainers,
        &[
            "pods::an_end_kills_what_still_runs",
            "pods::an_end_cut_short_can_be_tried_again",
        ],
    ),
    (
        Fault::EndIsStrict,
        &["pods::end_of_what_is_not_there_is_a_success"],
    ),
];

/// A runtime with a fault, around one without.
struct Bent {
    fault: Fault,
    sound: MemoryRuntime,
    clock: Clock,
    /// How often it was reopened.
    reopened: Arc<AtomicU32>,
    /// Starts that were dropped.
    dropped: Mutex<Vec<(ContainerSpec, Instant)>>,
    removed: Mutex<Vec<Container>>,
    pods: Mutex<BTreeSet<PodKey>>,
}

impl Bent {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn was_reopened(&self) -> bool {
        self.reopened.load(Ordering::SeqCst) > 0
    }

    /// The key that the sound runtime uses.
    fn key(&self, key: &ContainerKey) -> ContainerKey {
        let mut key = key.clone();
        match self.fault {
            Fault::AttemptsAreOne => key.attempt = 0,
            Fault::PodsAreOne => key.pod = "one".into(),
            _ => {}
        }
        key
    }

    /// Its version of a container; `None` hides it.
    fn bend(&self, mut container: Container) -> Option<Container> {
        let reopened = self.was_reopened();
        match &mut container.state {
            ContainerState::Exited(_) if self.has(Fault::ForgetsTheEnded) => return None,
            ContainerState::Exited(_) if self.has(Fault::RestartForgetsTheEnded) && reopened => return None,
            ContainerState::Exited(exit) if self.has(Fault::AllIsWell) => exit.code = 0,
            ContainerState::Exited(exit) if self.has(Fault::TimesMove) => exit.finished_at = self.clock.now(),
            ContainerState::Running { started_at } if self.has(Fault::RestartForgetsTimes) && reopened => {
                *started_at += SignedDuration::from_secs(1);
            }
            _ => {}
        }
        Some(container)
    }

    /// Starts the containers whose start was dropped a while ago.
    async fn late_starts(&self) {
        let late: Vec<_> = {
            let mut dropped = self.dropped.lock();
            let is_late =
                |dropped: &mut (ContainerSpec, Instant)| dropped.1.elapsed() > Duration::from_millis(30);
            dropped.extract_if(.., is_late).collect()
        };
        for (spec, _) in late {
            self.sound.start(&spec).await.unwrap();
        }
    }
}

#[async_trait]
impl ContainerRuntime for Bent {
    fn name(&self) -> &str {
        if self.has(Fault::Name) {
            "my runtime"
        } else {
            "bent"
        }
    }

    async fn list(&self) -> Result<Vec<Container>> {
        self.late_starts().await;
        let mut list: Vec<_> = self
            .sound
            .list()
            .await?
            .into_iter()
            .filter_map(|c| self.bend(c))
            .collect();
        if self.has(Fault::ListsTwice) {
            list.extend(list.clone());
        }
        Ok(list)
    }

    async fn inspect(&self, key: &ContainerKey) -> Result<Container> {
        self.late_starts().await;
        if self.has(Fault::RemembersTheRemoved)
            && let Some(removed) = self.removed.lock().iter().find(|container| container.key == *key)
        {
            return Ok(removed.clone());
        }
        let found = self.sound.inspect(&self.key(key)).await;
        let gone = || RuntimeError::gone(key, "no such container");
        match found.and_then(|container| self.bend(container).ok_or_else(gone)) {
            Err(error) if self.has(Fault::UnknownIsTrouble) => {
                Err(RuntimeError::transient(key, error.message))
            }
            answer => answer,
        }
    }

    async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
        let mut spec = spec.clone();
        spec.key = self.key(&spec.key);
        if self.has(Fault::StartsAnew) {
            self.sound.stop(&spec.key, Duration::ZERO).await?;
            self.sound.remove(&spec.key).await?;
        }
        if self.has(Fault::DroppedStartComesLater) {
            let mut late = Late {
                dropped: &self.dropped,
                spec: Some(spec.clone()),
            };
            let answer = self.sound.start(&spec).await;
            late.spec = None;
            return answer;
        }
        if self.has(Fault::MissingIsFine) && spec.command == Program::Missing.words() {
            let mut fine = Container::running(spec.key, self.clock.now());
            fine.exited(0, self.clock.now());
            self.removed.lock().push(fine.clone());
            return Ok(fine);
        }
        let started = self.sound.start(&spec).await?;
        Ok(self.bend(started.clone()).unwrap_or(started))
    }

    async fn stop(&self, key: &ContainerKey, grace: Duration) -> Result<()> {
        let key = &self.key(key);
        match self.fault {
            Fault::StopIsStrict => drop(self.sound.inspect(key).await?),
            Fault::StopReturnsAtOnce => {
                // Signalled, but not awaited.
                let _ = self
                    .sound
                    .stop(key, grace.max(Duration::from_secs(1)))
                    .now_or_never();
                return Ok(());
            }
            Fault::StopIsAlwaysForce => return self.sound.stop(key, Duration::ZERO).await,
            Fault::StopSitsOutTheGrace => {
                tokio::time::sleep(grace).await;
                return self.sound.stop(key, Duration::ZERO).await;
            }
            _ => {}
        }
        self.sound.stop(key, grace).await
    }

    async fn remove(&self, key: &ContainerKey) -> Result<()> {
        let key = &self.key(key);
        match self.fault {
            Fault::RemoveIsStrict => drop(self.sound.inspect(key).await?),
            Fault::RemembersTheRemoved => {
                if let Ok(container) = self.sound.inspect(key).await {
                    self.removed.lock().push(container);
                }
            }
            _ => {}
        }
        self.sound.remove(key).await
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(self)
    }

    fn pods(&self) -> Option<&dyn Pods> {
        Some(self)
    }
}

#[async_trait]
impl Pods for Bent {
    async fn list(&self) -> Result<Vec<Pod>> {
        let pods = self.pods.lock().clone();
        Ok(pods
            .into_iter()
            .filter(|_| !self.has(Fault::HidesPods))
            .map(Pod::new)
            .collect())
    }

    async fn begin(&self, spec: &PodSpec) -> Result<Pod> {
        tokio::task::yield_now().await;
        self.pods.lock().insert(spec.key.clone());
        Ok(Pod::new(spec.key.clone()))
    }

    async fn end(&self, key: &PodKey) -> Result<()> {
        if self.has(Fault::EndIsStrict) {
            Pods::inspect(self, key).await?;
        }
        if !self.has(Fault::EndSparesContainers) {
            for container in self.sound.list().await? {
                if container.key.pod == key.uid {
                    self.sound.stop(&container.key, Duration::ZERO).await?;
                }
            }
        }
        let is_one = self.has(Fault::AttemptsOfPodsAreOne);
        self.pods
            .lock()
            .retain(|pod| pod.uid != key.uid || (pod != key && !is_one));
        Ok(())
    }
}

impl Events for Bent {
    fn watch(&self) -> BoxStream<'static, ContainerKey> {
        if self.has(Fault::EventsAreSilent) {
            return futures::stream::pending().boxed();
        }
        Events::watch(&self.sound)
    }
}

/// Remembers a start that is dropped.
struct Late<'a> {
    dropped: &'a Mutex<Vec<(ContainerSpec, Instant)>>,
    spec: Option<ContainerSpec>,
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        if let Some(spec) = self.spec.take() {
            self.dropped.lock().push((spec, Instant::now()));
        }
    }
}

/// The fault with this number; one beyond the last is none.
struct Faulty<const NUMBER: usize>(Arc<Bent>);

#[async_trait]
impl<const NUMBER: usize> Fixture for Faulty<NUMBER> {
    async fn open(_: &Path) -> Opened<Self> {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        Ok(Some(Self(Arc::new(Bent {
            fault: FAULTS.get(NUMBER).map_or(Fault::None, |(fault, _)| *fault),
            sound: MemoryRuntime::new(clock),
            clock,
            reopened: Arc::default(),
            dropped: Mutex::default(),
            removed: Mutex::default(),
            pods: Mutex::default(),
        }))))
    }

    fn subject(&self) -> Subject {
        Subject::verbs(self.0.clone())
    }

    async fn reopen(&mut self) -> std::result::Result<(), FixtureError> {
        self.0.reopened.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn workload(&self, program: &Program) -> Workload {
        let words = program.words();
        let run = match program {
            Program::Exits(code) => Run::exits(*code).after(Duration::from_millis(50)),
            Program::Missing => Run::fails_to_start(ErrorClass::Permanent, "no such program"),
            Program::Heeds(code) => Run::forever().stop_takes(Duration::from_secs(1), *code),
            Program::Ignores => Run::forever().ignores_stop(),
            _ => Run::forever().start_takes(Duration::from_millis(20)),
        };
        let command = words.clone();
        self.0
            .sound
            .script_where(move |spec| spec.command == command, [run]);
        Workload::new("busybox:1.36", words)
    }

    fn time() -> Time {
        Time::Paused
    }

    fn clock(&self) -> Clock {
        self.0.clock
    }
}

const OFFERS: &[&str] = &["signals", "restart", "events", "pods"];

fn catches<const NUMBER: usize>() {
    let (fault, clauses) = FAULTS[NUMBER];
    for clause in clauses {
        let (group, name) = clause.split_once("::").unwrap();
        let sound = verbs::check::<Faulty<{ FAULTS.len() }>>(group, name, OFFERS);
        assert!(sound.is_ok(), "without a fault: {sound:?}");
        let broken = match verbs::check::<Faulty<NUMBER>>(group, name, OFFERS) {
            Err(broken) => broken,
            Ok(()) => panic!("{fault:?} passes {clause}"),
        };
        assert_eq!(broken.clause, *clause);
        assert!(!broken.sentence.is_empty() && !broken.seen.is_empty(), "{broken}");
    }
}

macro_rules! catch {
    ($($name:ident $number:literal)*) => {
        $(#[test] fn $name() { catches::<$number>() })*

        #[test]
        fn each_fault_is_tried() {
            assert_eq!([$($number),*].to_vec(), (0..FAULTS.len()).collect::<Vec<_>>());
        }
    };
}

catch! {
    a_start_that_is_not_idempotent 0
    ended_containers_that_leave_the_list 1
    an_inspection_of_what_was_removed 2
    a_list_that_has_each_twice 3
    trouble_in_place_of_gone 4
    a_strict_stop 5
    a_strict_removal 6
    a_stop_that_does_not_wait 7
    a_stop_that_does_not_ask 8
    a_stop_that_waits_too_long 9
    codes_that_are_always_0 10
    times_that_move 11
    a_dropped_start_that_comes_later 12
    attempts_that_are_one 13
    pods_that_are_one 14
    a_restart_that_forgets_ends 15
    a_restart_that_forgets_times 16
    events_that_are_silent 17
    a_name_of_two_words 18
    a_missing_program_that_ends_well 19
    pods_that_are_not_listed 20
    attempts_of_a_pod_that_are_one 21
    an_end_of_a_pod_that_spares_its_containers 22
    a_strict_end_of_a_pod 23
}

#[test]
fn a_broken_clause_is_a_readable_error() {
    let broken = verbs::check::<Faulty<10>>("ends", "exit_codes_are_the_programs_own", OFFERS).unwrap_err();
    let told = format!("{broken:?}");
    for part in [
        "ends::exit_codes_are_the_programs_own is broken",
        "The exit code is the program's own.",
        "a program that exits with 1 ended with",
    ] {
        assert!(told.contains(part), "{told}");
    }
}
