//! The state of the runtime, and its changes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::{Clock, PodUid};
use kubelet_cri::v1;
use tokio::time::Instant;

use super::addresses::AddressRange;
use super::container::{Container, Exited, Planned, Running, State as ContainerState, nanos};
use super::events::Watchers;
use super::exec::ExecScript;
use super::images::Images;
use super::log_file::LogFile;
use super::random::hex64;
use super::sandbox::{Sandbox, is_host_network};
use super::store::Store;
use super::termination_message::leave_message;
use super::{Faults, Subject};
use crate::Tally;
use crate::run::{Ending, Life, Run, Script};

pub(super) struct State {
    pub(super) clock: Clock,
    pub(super) seed: u64,
    pub(super) faults: Faults,
    pub(super) log_root: Option<PathBuf>,
    /// The folder in `ImageFsInfo`.
    pub(super) images_dir: PathBuf,
    pub(super) sandboxes: Store<Sandbox>,
    pub(super) containers: Store<Container>,
    /// The sandboxes of each pod, by number.
    pub(super) pods: BTreeMap<PodUid, BTreeSet<u64>>,
    /// The names of sandboxes and containers, and the ids for which they are reserved.
    pub(super) sandbox_names: BTreeMap<String, String>,
    pub(super) container_names: BTreeMap<String, String>,
    /// Later scripts win.
    pub(super) scripts: Vec<Script<Planned>>,
    pub(super) execs: Vec<ExecScript>,
    pub(super) images: Images,
    /// One network for each address family.
    pub(super) addresses: Vec<AddressRange>,
    pub(super) watchers: Watchers,
    pub(super) tallies: BTreeMap<(PodUid, String), Tally>,
    pub(super) violations: Vec<String>,
    #[cfg(feature = "simulation")]
    pub(super) start_check: Option<super::starts::StartCheck>,
    pub(super) away: Away,
    /// The messages of the conditions that are not ready.
    pub(super) runtime_trouble: Option<String>,
    pub(super) network_trouble: Option<String>,
    /// When a change of a container is due.
    pub(super) due: BTreeSet<(Instant, u64)>,
    pub(super) ids: u64,
    pub(super) pids: u32,
    /// The time of the last creation. No two are equal, so the order of creations is unambiguous.
    pub(super) last_made: i64,
}

/// An id that is formatted only when it is needed.
pub(super) struct NewId {
    seed: u64,
    number: u64,
}

impl NewId {
    pub(super) fn text(&self) -> String {
        hex64(self.seed, format_args!("id {}", self.number))
    }
}

/// Whether the runtime is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Away {
    No,
    Until(Instant),
    UntilCalledBack,
}

impl State {
    pub(super) fn is_away(&self, now: Instant) -> bool {
        match self.away {
            Away::No => false,
            Away::Until(back) => now < back,
            Away::UntilCalledBack => true,
        }
    }

    /// Processes what is due, in the order in which it became due.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some((at, number)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.pop_first();
            self.container_is_due(number, at);
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    fn container_is_due(&mut self, number: u64, at: Instant) {
        let Some(container) = self.containers.get_mut(number) else {
            return;
        };
        container.due = None;
        let ContainerState::Running(running) = &mut container.state else {
            return;
        };
        running.write_until(at);
        match running.life.end() {
            Some((end, ending)) if end <= at => {
                let time = running.time(end);
                let exited = Exited::by(ending, running.started_at, time);
                self.exited(number, end, exited);
            }
            _ => self.schedule(number),
        }
    }

    /// Schedules the next change of a container.
    pub(super) fn schedule(&mut self, number: u64) {
        let Some(container) = self.containers.get_mut(number) else {
            return;
        };
        if let Some(due) = container.due.take() {
            self.due.remove(&(due, number));
        }
        if let ContainerState::Running(running) = &container.state
            && let Some(next) = running.next()
        {
            container.due = Some(next);
            self.due.insert((next, number));
        }
    }

    /// Ends a container and emits the event.
    pub(super) fn exited(&mut self, number: u64, at: Instant, exited: Exited) {
        let Some(container) = self.containers.get_mut(number) else {
            return;
        };
        if let ContainerState::Running(running) = &container.state {
            leave_message(&container.planned, &running.run);
        }
        let time = exited.finished_at;
        container.state = ContainerState::Exited(exited);
        self.schedule(number);
        self.container_event(number, v1::ContainerEventType::ContainerStoppedEvent, at, time);
    }

    /// The run of this attempt.
    pub(super) fn next_run(&mut self, planned: &Planned) -> Run {
        let tally = self.tally_of(planned);
        let number = tally.tries;
        tally.tries += 1;
        Script::run(&self.scripts, planned, number)
    }

    fn tally_of(&mut self, planned: &Planned) -> &mut Tally {
        self.tallies
            .entry((planned.pod_uid(), planned.name().to_owned()))
            .or_default()
    }

    /// Starts a container.
    ///
    /// # Errors
    ///
    /// Its sandbox has ended meanwhile, or its log cannot be written.
    pub(super) fn start(&mut self, number: u64, run: Run, now: Instant) -> Result<(), String> {
        let Some(container) = self.containers.get_mut(number) else {
            return Err("container was removed".to_owned());
        };
        if self
            .sandboxes
            .get(container.sandbox)
            .is_none_or(|sandbox| !sandbox.ready)
        {
            return Err(format!(
                "sandbox container {:?} is not running",
                container.sandbox_id
            ));
        }
        let created_at = Timestamp::from_nanosecond(i128::from(container.created_at)).unwrap_or_default();
        let started_at = self.clock.now().max(created_at);
        let path = PathBuf::from(container.log_path());
        let log = match &self.log_root {
            Some(root) if path.starts_with(root) => {
                let opened = LogFile::open(path.clone());
                Some(opened.map_err(|error| {
                    format!(
                        "failed to create container loggers: open {}: {error}",
                        path.display()
                    )
                })?)
            }
            _ => None,
        };
        self.pids += 1;
        container.pid = self.pids;
        container.starting = false;
        container.state = ContainerState::Running(Running {
            started: now,
            started_at,
            life: Life::new(&run, now),
            run,
            written: 0,
            log,
        });
        let (planned, sandbox) = (container.planned.clone(), container.sandbox);
        self.count_start(&planned, sandbox);
        self.container_event(
            number,
            v1::ContainerEventType::ContainerStartedEvent,
            now,
            started_at,
        );
        self.schedule(number);
        self.settle(now);
        Ok(())
    }

    fn count_start(&mut self, planned: &Planned, sandbox: u64) {
        let (uid, name) = (planned.pod_uid(), planned.name());
        // Counts those in all sandboxes of the pod.
        let at_once: Vec<_> = self
            .containers_of(&uid)
            .filter(|container| container.is_running() && container.planned.name() == name)
            .map(|container| container.planned.attempt().to_string())
            .collect();
        if at_once.len() > 1 {
            self.violations.push(format!(
                "{} runs beside others of its name: attempts {}",
                planned.about(),
                at_once.join(", ")
            ));
        }
        if self.sandboxes.get(sandbox).is_none_or(|sandbox| !sandbox.ready) {
            self.violations
                .push(format!("{} runs in a sandbox that is not ready", planned.about()));
        }
        #[cfg(feature = "simulation")]
        self.check_start(planned, sandbox);
        let tally = self.tally_of(planned);
        tally.starts += 1;
        tally.most_at_once = tally
            .most_at_once
            .max(u32::try_from(at_once.len()).unwrap_or(u32::MAX));
    }

    fn containers_of(&self, uid: &PodUid) -> impl Iterator<Item = &Container> {
        let sandboxes = self.sandboxes_of(uid);
        sandboxes
            .flat_map(|sandbox| &sandbox.containers)
            .filter_map(|number| self.containers.get(*number))
    }

    pub(super) fn sandboxes_of(&self, uid: &PodUid) -> impl Iterator<Item = &Sandbox> {
        let numbers = self.pods.get(uid).into_iter().flatten();
        numbers.filter_map(|number| self.sandboxes.get(*number))
    }

    /// Makes a sandbox ready and assigns its addresses.
    ///
    /// # Errors
    ///
    /// There is no network, or no free address.
    pub(super) fn run_sandbox(&mut self, mut sandbox: Sandbox, now: Instant) -> Result<(), String> {
        let host_network = is_host_network(&sandbox.config);
        if !host_network {
            let id = &sandbox.id;
            if let Some(trouble) = &self.network_trouble {
                return Err(format!("failed to setup network for sandbox {id:?}: {trouble}"));
            }
            for index in 0..self.addresses.len() {
                let Some(address) = self.addresses[index].take() else {
                    let (first, last) = self.addresses[index].bounds();
                    self.give_back(&sandbox);
                    return Err(format!(
                        "failed to setup network for sandbox {id:?}: plugin type=\"bridge\" failed (add): failed to allocate \
                         for range 0: no IP addresses available in range set: {first}-{last}"
                    ));
                };
                sandbox.addresses.push(address);
            }
        }
        sandbox.created_at = self.made_now();
        let (about, uid) = (sandbox.about(), sandbox.pod_uid());
        let number = self.sandboxes.insert(sandbox.id.clone(), sandbox);
        self.pods.entry(uid.clone()).or_default().insert(number);
        let ready = self.sandboxes_of(&uid).filter(|sandbox| sandbox.ready).count();
        if ready > 1 {
            self.violations
                .push(format!("{about} is ready beside another sandbox of its pod"));
        }
        // containerd emits the creation of a sandbox only if it has its own network.
        let time = self.clock.now();
        if !host_network {
            self.sandbox_event(number, v1::ContainerEventType::ContainerCreatedEvent, now, time);
        }
        self.sandbox_event(number, v1::ContainerEventType::ContainerStartedEvent, now, time);
        Ok(())
    }

    /// Ends a sandbox. It keeps its addresses until it is stopped.
    pub(super) fn sandbox_ended(&mut self, number: u64, now: Instant) {
        let Some(sandbox) = self.sandboxes.get_mut(number).filter(|sandbox| sandbox.ready) else {
            return;
        };
        sandbox.ready = false;
        let time = self.clock.now();
        self.sandbox_event(number, v1::ContainerEventType::ContainerStoppedEvent, now, time);
    }

    pub(super) fn tear_down_network(&mut self, number: u64) {
        let Some(sandbox) = self.sandboxes.get_mut(number) else {
            return;
        };
        for address in std::mem::take(&mut sandbox.addresses) {
            self.addresses
                .iter_mut()
                .for_each(|range| range.give_back(address));
        }
    }

    fn give_back(&mut self, sandbox: &Sandbox) {
        for address in &sandbox.addresses {
            self.addresses
                .iter_mut()
                .for_each(|range| range.give_back(*address));
        }
    }

    pub(super) fn remove_sandbox(&mut self, number: u64, now: Instant) {
        let found = self.sandboxes.get(number);
        let Some((id, about)) = found.map(|sandbox| (sandbox.id.clone(), sandbox.about())) else {
            return;
        };
        self.tear_down_network(number);
        let (kind, time) = (v1::ContainerEventType::ContainerDeletedEvent, self.clock.now());
        self.event(&id, number, kind, &about, now, time);
        let Some(sandbox) = self.sandboxes.remove(&id) else {
            return;
        };
        self.sandbox_names.remove(&sandbox.name);
        if let Entry::Occupied(mut pod) = self.pods.entry(sandbox.pod_uid()) {
            pod.get_mut().remove(&number);
            if pod.get().is_empty() {
                pod.remove();
            }
        }
    }

    pub(super) fn create_container(&mut self, mut container: Container, now: Instant) {
        container.created_at = self.made_now();
        let (sandbox, id) = (container.sandbox, container.id.clone());
        let number = self.containers.insert(id, container);
        if let Some(sandbox) = self.sandboxes.get_mut(sandbox) {
            sandbox.containers.insert(number);
        }
        let time = self.clock.now();
        self.container_event(number, v1::ContainerEventType::ContainerCreatedEvent, now, time);
    }

    pub(super) fn remove_container(&mut self, number: u64, now: Instant) {
        let Some(id) = self.containers.get(number).map(|container| container.id.clone()) else {
            return;
        };
        let Some(container) = self.containers.remove(&id) else {
            return;
        };
        if let Some(due) = container.due {
            self.due.remove(&(due, number));
        }
        self.container_names.remove(&container.name);
        if let Some(sandbox) = self.sandboxes.get_mut(container.sandbox) {
            sandbox.containers.remove(&number);
        }
        let kind = v1::ContainerEventType::ContainerDeletedEvent;
        let time = self.clock.now();
        self.event(
            &id,
            container.sandbox,
            kind,
            &container.planned.about(),
            now,
            time,
        );
    }

    /// The target of a call for a container by id.
    pub(super) fn container_subject(&self, id: &str) -> Subject {
        let found = self.containers.find(id).ok();
        let container = found.and_then(|number| self.containers.get(number));
        container.map_or_else(|| Subject::unknown(id), |container| container.planned.about())
    }

    /// The target of a call for a sandbox by id.
    pub(super) fn sandbox_subject(&self, id: &str) -> Subject {
        let found = self.sandboxes.find(id).ok();
        let sandbox = found.and_then(|number| self.sandboxes.get(number));
        sandbox.map_or_else(|| Subject::unknown(id), Sandbox::about)
    }

    pub(super) fn new_id(&mut self) -> String {
        self.next_id().text()
    }

    pub(super) fn next_id(&mut self) -> NewId {
        self.ids += 1;
        NewId {
            seed: self.seed,
            number: self.ids,
        }
    }

    fn made_now(&mut self) -> i64 {
        self.last_made = nanos(self.clock.now()).max(self.last_made.saturating_add(1));
        self.last_made
    }

    fn container_event(&mut self, number: u64, kind: v1::ContainerEventType, at: Instant, time: Timestamp) {
        let Some(container) = self.containers.get(number) else {
            return;
        };
        let (id, sandbox, about) = (container.id.clone(), container.sandbox, container.planned.about());
        self.event(&id, sandbox, kind, &about, at, time);
    }

    fn sandbox_event(&mut self, number: u64, kind: v1::ContainerEventType, at: Instant, time: Timestamp) {
        let Some(sandbox) = self.sandboxes.get(number) else {
            return;
        };
        let (id, about) = (sandbox.id.clone(), sandbox.about());
        self.event(&id, number, kind, &about, at, time);
    }

    fn event(
        &mut self,
        id: &str,
        sandbox: u64,
        kind: v1::ContainerEventType,
        about: &Subject,
        at: Instant,
        time: Timestamp,
    ) {
        if self.watchers.is_empty() {
            return;
        }
        let sandbox = self.sandboxes.get(sandbox);
        let containers = sandbox.into_iter().flat_map(|sandbox| &sandbox.containers);
        let containers = containers.filter_map(|number| self.containers.get(*number));
        let event = v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind as i32,
            created_at: nanos(time),
            pod_sandbox_status: sandbox.map(Sandbox::status),
            containers_statuses: containers
                .map(|container| container.status(&self.images))
                .collect(),
        };
        self.send(&event, about, at);
    }

    fn send(&mut self, event: &v1::ContainerEventResponse, about: &Subject, at: Instant) {
        if self.watchers.is_empty() {
            return;
        }
        let fault = self.faults.of_event(event.container_event_type(), about);
        self.watchers.send(at, event, fault);
    }

    /// All calls fail and all streams break from now on.
    pub(super) fn crash(&mut self, away: Away) {
        self.away = away;
        self.watchers.break_all();
    }

    /// Like a reboot of the host: nothing runs any more, and the runtime missed all ends.
    pub(super) fn power_cut(&mut self, back_at: Timestamp) {
        let running: Vec<_> = self
            .containers
            .iter()
            .filter(|(_, container)| container.is_running())
            .map(|(number, _)| number)
            .collect();
        for number in running {
            if let Some(container) = self.containers.get_mut(number)
                && let ContainerState::Running(running) = &container.state
            {
                container.state = ContainerState::Exited(Exited::unseen(running.started_at, back_at));
            }
            self.schedule(number);
        }
        let sandboxes: Vec<_> = self.sandboxes.iter().map(|(number, _)| number).collect();
        for number in sandboxes {
            if let Some(sandbox) = self.sandboxes.get_mut(number) {
                sandbox.ready = false;
            }
        }
    }

    /// Ends the running containers that match, and returns how many there were.
    pub(super) fn end_where(
        &mut self,
        now: Instant,
        ending: Ending,
        meant: impl Fn(&Container) -> bool,
    ) -> usize {
        let numbers: Vec<_> = self
            .containers
            .iter()
            .filter(|(_, container)| container.is_running() && meant(container))
            .map(|(number, _)| number)
            .collect();
        for number in &numbers {
            if let Some(container) = self.containers.get_mut(*number)
                && let ContainerState::Running(running) = &mut container.state
            {
                running.write_until(now);
                let exited = Exited::by(ending, running.started_at, running.time(now));
                self.exited(*number, now, exited);
            }
        }
        numbers.len()
    }
}
