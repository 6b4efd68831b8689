//! Drives a simulation: starts the nodes, and lets users and faults act at their times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube_client::Client;
use kube_client::api::{Api, PostParams};
use kubelet_core::{Clock, PodUid};
use kubelet_cri::v1;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::agent::{
    AgentError, HistoryRecorder, Pace, Shown, SimulatedClient, SimulatedNode, StartAgent, node_object,
};
use super::csi;
use super::history::{History, Journal};
use super::order::Order;
use super::pressure::SimulatedHost;
use super::resources::{self, SimulatedMachine};
use super::restarts::Restart;
use super::static_pods::StaticPods;
use super::storage;
use super::turns::Turns;
use super::witness::Witness;
use super::workload::{Churn, Weather, script};
use super::{FaultPlan, Simulation};
use crate::csi_driver::MemoryCsi;
use crate::memory_cri::{MemoryCri, hash};
use crate::{ApiServer, MemoryMounter, User};

/// The start time of every simulation: 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600;
/// The timeout of calls to a runtime (`runtimeRequestTimeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// How often to check for problems. Each is noted when it happens.
const LOOK: Duration = Duration::from_secs(300);
/// How often the API server sends agents a bookmark.
const BOOKMARKS: Duration = Duration::from_secs(300);
/// How long a node is down after a power loss.
const REBOOT: Duration = Duration::from_secs(30);

pub(super) struct Driver {
    pub(super) rng: fastrand::Rng,
    pub(super) start: Instant,
    pub(super) journal: Journal,
    pub(super) witness: Witness,
    pub(super) api: ApiServer,
    pub(super) admin: Client,
    pub(super) nodes: Vec<Node>,
    agent: StartAgent,
    pub(super) faults: FaultPlan,
    turns: Turns,
    pub(super) churn: Option<Churn>,
    pub(super) weather: Weather,
    pub(super) order: Order,
    /// The actions by time. The number orders actions of the same time.
    pub(super) agenda: BTreeMap<(Instant, u64), Act>,
    acts: u64,
    pub(super) pods_made: u64,
    pub(super) files_changed: u64,
    pub(super) restarts: Vec<Restart>,
    /// What the volumes of pods follow from.
    pub(super) seed: u64,
    pub(super) problems: Vec<String>,
}

pub(super) struct Node {
    pub(super) name: String,
    client: SimulatedClient,
    pub(super) runtime: MemoryCri,
    pub(super) mounter: MemoryMounter,
    pub(super) csi: MemoryCsi,
    pub(super) clock: Clock,
    pub(super) root_dir: PathBuf,
    pub(super) static_pods: StaticPods,
    pub(super) shown: Shown,
    pub(super) running: Option<Running>,
    /// If its agent manages resources.
    pub(super) machine: Option<SimulatedMachine>,
    /// If it can run short of something, or shut down.
    pub(super) host: Option<SimulatedHost>,
}

impl Node {
    /// The host loses power, and its runtime answers again after a while. No container runs, and nothing is mounted.
    pub(super) fn reboot(&self) {
        self.runtime.reboot(REBOOT);
        self.csi.lose_all();
        self.mounter.lose_all();
    }
}

pub(super) struct Running {
    pub(super) agent: JoinHandle<Result<(), AgentError>>,
    pub(super) shutdown: CancellationToken,
    pub(super) since: Instant,
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    Churn,
    /// The pod with this name.
    Delete(String),
    /// All config maps change.
    ChangeFiles,
    /// A static pod, and its node.
    PutBack(usize, Arc<Pod>),
    CrashContainer,
    CrashSandbox,
    KillAgent,
    StopAgent,
    StartAgent(usize),
    Reboot,
    Trouble,
    EndTrouble(usize),
    StopRuntime,
    StopApi,
    Shortage,
    EndShortage(usize),
    ShutDown,
    ChangeDevices,
    /// The driver of claims on this node serves again.
    ServeClaims(usize),
}

impl Driver {
    /// Runs a simulation, and returns its history and its problems.
    pub(super) async fn run(simulation: Simulation, time: Duration) -> (History, Vec<String>) {
        let folder = match folder() {
            Ok(folder) => folder,
            Err(error) => {
                return (
                    History::default(),
                    vec![format!("no folder for the nodes' files: {error}")],
                );
            }
        };
        let tasks_before = alive_tasks();
        let mut witnesses = JoinSet::new();
        let pods = simulation.workload.pods.clone();
        let mut driver = Self::new(simulation, folder.path());
        witnesses.spawn(driver.witness.clone().run(driver.api.clone()));
        driver.prepare(pods).await;
        driver.act_until(driver.start + time).await;
        driver.rest().await;
        driver.replace_agents().await;
        driver.clear().await;
        driver.end().await;
        witnesses.shutdown().await;
        driver.finish(tasks_before).await
    }

    fn new(simulation: Simulation, folder: &Path) -> Self {
        let Simulation {
            seed,
            nodes,
            workload,
            faults,
            turns,
            managed_resources,
            agent,
        } = simulation;
        let start = Instant::now();
        let clock = Clock::starting_at(Timestamp::from_second(START).unwrap_or_default());
        let mut rng = fastrand::Rng::with_seed(seed);
        let api = ApiServer::builder().clock(clock).seed(rng.u64(..));
        let api = api.bookmark_frequency(BOOKMARKS).storage_controllers();
        let api = if managed_resources {
            api.claim_controllers()
        } else {
            api
        };
        let api = api.build();
        let (weather, order) = (Weather::new(start, turns), Order::default());
        let nodes = nodes.into_iter().enumerate().map(|(number, name)| {
            let network = [10, 88, u8::try_from(number).unwrap_or(u8::MAX), 0];
            let runtime = MemoryCri::builder(clock)
                .request_timeout(REQUEST_TIMEOUT)
                .seed(rng.u64(..))
                .pod_cidr(network, 24)
                .build();
            script(&runtime, &weather);
            let mounter = MemoryMounter::new(hash(seed, &name));
            let root_dir = folder.join(&name);
            let machine =
                managed_resources.then(|| SimulatedMachine::drawn(hash(seed, &name), &root_dir, &order));
            if let Some(machine) = &machine {
                machine.watch(&runtime);
                machine.befall(&faults, hash(seed, &name));
            }
            order.watch(&runtime, &mounter, machine.clone());
            let running = runtime.clone();
            mounter.check_unmounts(move |path| storage::users(&running, path));
            faults.befall_runtime(&runtime);
            mounter.set_fault_rate(faults.mounts);
            let csi = MemoryCsi::with_memory_mounts("csi.sim", mounter.clone());
            csi::befall(&csi, faults.mounts, hash(seed, &name));
            let client = SimulatedClient(api.client_as(User::node(&name)));
            Node {
                client,
                mounter,
                csi,
                clock,
                root_dir,
                machine,
                static_pods: StaticPods::default(),
                shown: Shown::default(),
                running: None,
                host: faults
                    .has_pressure()
                    .then(|| SimulatedHost::new(runtime.clone(), clock)),
                runtime,
                name,
            }
        });
        let nodes: Vec<Node> = nodes.collect();
        let runtimes = nodes
            .iter()
            .map(|node| (node.name.clone(), node.runtime.clone()))
            .collect();
        let users = nodes.iter().map(|node| User::node(&node.name).name);
        users.for_each(|user| faults.befall_user(&api, &user));
        let journal = Journal::new(start);
        Self {
            rng,
            start,
            witness: Witness::new(Journal::new(start), order.clone(), runtimes),
            journal,
            admin: api.client(),
            api,
            nodes,
            agent,
            faults,
            turns,
            churn: workload.churn,
            weather,
            order,
            agenda: BTreeMap::new(),
            acts: 0,
            pods_made: 0,
            files_changed: 0,
            restarts: Vec::new(),
            seed,
            problems: Vec::new(),
        }
    }

    /// Creates the nodes, pods and agents of the start.
    async fn prepare(&mut self, pods: Vec<Pod>) {
        let made = storage::create_objects(&self.api);
        self.problems.extend(made);
        if self.nodes.iter().any(|node| node.machine.is_some()) {
            let made = resources::create_objects(&self.api);
            self.problems
                .extend(made.err().map(|error| format!("objects of claims: {error}")));
        }
        for number in 0..self.nodes.len() {
            let name = self.nodes[number].name.clone();
            let made = Api::<k8s_openapi::api::core::v1::Node>::all(self.admin.clone());
            let mut object = node_object(&name);
            if let Some(machine) = &self.nodes[number].machine {
                machine.offer(&mut object);
            }
            let made = made.create(&PostParams::default(), &object).await;
            if let Err(error) = made {
                self.problems.push(format!("node {name}: {error}"));
            }
            self.start_agent(number);
        }
        for mut pod in pods {
            let spec = pod.spec.get_or_insert_default();
            if spec.node_name.is_none() {
                spec.node_name = self.any_number().map(|number| self.nodes[number].name.clone());
            }
            self.create(pod).await;
        }
        if let Some(churn) = self.churn {
            for _ in 0..churn.pods {
                self.make_pod(None).await;
            }
            self.plan_churn();
        }
        for act in [
            Act::CrashContainer,
            Act::CrashSandbox,
            Act::KillAgent,
            Act::StopAgent,
            Act::Reboot,
            Act::Trouble,
            Act::StopRuntime,
            Act::StopApi,
            Act::Shortage,
            Act::ShutDown,
            Act::ChangeDevices,
        ] {
            self.plan_again(act);
        }
    }

    /// Schedules the action again after about this time: half to one and a half of it. Quiet time does not count.
    fn plan(&mut self, act: Act, every: Duration) {
        let after = every.mul_f64(0.5 + self.rng.f64());
        let at = self.turns.after(self.start.elapsed(), after);
        self.plan_at(act, self.start + at);
    }

    pub(super) fn plan_at(&mut self, act: Act, at: Instant) {
        self.acts += 1;
        self.agenda.insert((at, self.acts), act);
    }

    /// Runs everything that is due before `end`.
    async fn act_until(&mut self, end: Instant) {
        while self.problems.is_empty() {
            self.restart_crashed();
            self.look();
            let next = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let now = Instant::now();
            match next {
                Some(at) if at <= now => {
                    if let Some((_, act)) = self.agenda.pop_first() {
                        self.act(act).await;
                    }
                }
                _ if now >= end => return,
                // Check for problems before much else happens.
                next => sleep_until(next.unwrap_or(end).min(end).min(now + LOOK)).await,
            }
        }
    }

    async fn act(&mut self, act: Act) {
        match act.clone() {
            Act::Churn => {
                self.change_a_pod().await;
                self.plan_churn();
            }
            Act::Delete(name) => self.delete_by_name(&name).await,
            Act::ChangeFiles => self.change_files(),
            Act::PutBack(number, pod) => self.put_static_pod(number, pod),
            Act::CrashContainer => self.crash_a_container(),
            Act::CrashSandbox => self.crash_a_sandbox(),
            Act::KillAgent => {
                if let Some(number) = self.any_number() {
                    self.kill_agent(number);
                    self.start_agent_soon(number);
                }
            }
            Act::StopAgent => {
                if let Some(number) = self.any_number() {
                    self.journal
                        .note(format!("{} the agent is asked to end", self.nodes[number].name));
                    self.end_agent(number).await;
                    self.start_agent_soon(number);
                }
            }
            Act::StartAgent(number) => self.start_agent(number),
            Act::Reboot => {
                if let Some(number) = self.any_number() {
                    self.kill_agent(number);
                    let node = &self.nodes[number];
                    self.journal.note(format!("{} loses power", node.name));
                    node.reboot();
                    self.start_agent_soon(number);
                }
            }
            Act::Trouble => self.trouble_a_runtime(),
            Act::EndTrouble(number) => {
                let node = &self.nodes[number];
                node.runtime.set_runtime_trouble(None);
                node.runtime.set_network_trouble(None);
            }
            Act::StopRuntime => {
                if let (Some(number), Some((_, length))) = (self.any_number(), self.faults.runtime_outages) {
                    let node = &self.nodes[number];
                    self.journal.note(format!(
                        "{} the runtime crashes, and is back after {length:?}",
                        node.name
                    ));
                    node.runtime.crash_for(length);
                }
            }
            Act::StopApi => {
                if let Some((_, length)) = self.faults.api_outages {
                    self.journal
                        .note(format!("the API server is away for {length:?}"));
                    self.api.down_for(length);
                }
            }
            Act::Shortage => self.run_short(),
            Act::EndShortage(number) => self.end_shortage(number),
            Act::ShutDown => self.shut_a_host_down().await,
            Act::ChangeDevices => self.change_devices(),
            Act::ServeClaims(number) => {
                if let Some(machine) = &self.nodes[number].machine {
                    machine.serve_claims(true);
                }
            }
        }
        self.plan_again(act);
    }

    /// Turns the faults on again.
    fn plan_again(&mut self, act: Act) {
        let faults = &self.faults;
        let every = match act {
            Act::CrashContainer => faults.container_crashes,
            Act::CrashSandbox => faults.sandbox_crashes,
            Act::KillAgent => faults.agent_restarts,
            Act::StopAgent => faults.agent_stops,
            Act::Reboot => faults.reboots,
            Act::Trouble => faults.not_ready.map(|(every, _)| every),
            Act::StopRuntime => faults.runtime_outages.map(|(every, _)| every),
            Act::StopApi => faults.api_outages.map(|(every, _)| every),
            Act::Shortage => faults.shortages.map(|(every, _)| every),
            Act::ShutDown => faults.shutdowns,
            Act::ChangeDevices => faults
                .device_changes
                .filter(|_| self.nodes.iter().any(|node| node.machine.is_some())),
            Act::Churn
            | Act::Delete(_)
            | Act::ChangeFiles
            | Act::PutBack(..)
            | Act::StartAgent(_)
            | Act::EndTrouble(_)
            | Act::EndShortage(_)
            | Act::ServeClaims(_) => None,
        };
        if let Some(every) = every {
            self.plan(act, every);
        }
    }

    /// Half of the users' actions come soon after the one before.
    fn plan_churn(&mut self) {
        let Some(Churn { every, .. }) = self.churn else {
            return;
        };
        match self.rng.bool() {
            true => self.plan(Act::Churn, every.min(Duration::from_secs(5)) / 2),
            false => self.plan(Act::Churn, every * 2),
        }
    }

    pub(super) fn any_number(&mut self) -> Option<usize> {
        (!self.nodes.is_empty()).then(|| self.rng.usize(..self.nodes.len()))
    }

    fn crash_a_container(&mut self) {
        let Some(number) = self.any_number() else {
            return;
        };
        let node = &self.nodes[number];
        let running: Vec<v1::ContainerStatus> = node
            .runtime
            .containers()
            .into_iter()
            .filter(|container| container.state() == v1::ContainerState::ContainerRunning)
            .collect();
        if running.is_empty() {
            return;
        }
        let container = &running[self.rng.usize(..running.len())];
        let label = |name: &str| container.labels.get(name).map_or("", String::as_str);
        let (pod, name) = (
            label("io.kubernetes.pod.name"),
            label("io.kubernetes.container.name"),
        );
        self.journal
            .note(format!("{} {pod}/{name} is killed from outside", node.name));
        node.runtime
            .end(&PodUid::new(label("io.kubernetes.pod.uid")), name, 137);
    }

    fn crash_a_sandbox(&mut self) {
        let Some(number) = self.any_number() else {
            return;
        };
        let node = &self.nodes[number];
        let mut ready = node.runtime.sandboxes();
        ready.retain(|sandbox| sandbox.state() == v1::PodSandboxState::SandboxReady);
        if ready.is_empty() {
            return;
        }
        let sandbox = &ready[self.rng.usize(..ready.len())];
        let pod = sandbox.metadata.clone().unwrap_or_default();
        self.journal.note(format!(
            "{} the sandbox of {} is killed from outside",
            node.name, pod.name
        ));
        node.runtime.end_sandbox(&PodUid::new(pod.uid));
    }

    fn trouble_a_runtime(&mut self) {
        let (Some(number), Some((_, length))) = (self.any_number(), self.faults.not_ready) else {
            return;
        };
        let of_network = self.rng.bool();
        let node = &self.nodes[number];
        let what = if of_network { "network" } else { "runtime" };
        self.journal
            .note(format!("{} its {what} is not ready for {length:?}", node.name));
        match of_network {
            true => node.runtime.set_network_trouble(Some("drawn")),
            false => node.runtime.set_runtime_trouble(Some("drawn")),
        }
        self.plan_at(Act::EndTrouble(number), Instant::now() + length);
    }

    pub(super) fn start_agent_soon(&mut self, number: usize) {
        let pause = Duration::from_secs(self.rng.u64(1..=10));
        self.plan_at(Act::StartAgent(number), Instant::now() + pause);
    }

    pub(super) fn start_agent(&mut self, number: usize) {
        if self.nodes[number].running.is_none() {
            self.journal
                .note(format!("{} the agent starts", self.nodes[number].name));
            self.run_agent(number);
        }
    }

    pub(super) fn run_agent(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        *node.shown.lock() = None;
        let seed = self.rng.u64(..);
        let given = SimulatedNode {
            name: node.name.clone(),
            client: node.client.clone(),
            runtime: node.runtime.clone(),
            mounter: node.mounter.clone(),
            csi: node.csi.clone(),
            static_pods: node.static_pods.clone(),
            clock: node.clock,
            root_dir: node.root_dir.clone(),
            seed,
            recorder: HistoryRecorder {
                node: node.name.clone(),
                journal: Some(self.journal.clone()),
            },
            shown: node.shown.clone(),
            checkpoints: true,
            machine: node.machine.clone(),
            host: node.host.clone(),
            pace: Pace::drawn(seed, self.turns != Turns::default()),
        };
        let shutdown = CancellationToken::new();
        let agent = tokio::spawn((self.agent)(given, shutdown.clone()));
        if let Some(machine) = &node.machine {
            machine.agent_starts(agent.abort_handle());
        }
        let since = Instant::now();
        node.running = Some(Running {
            agent,
            shutdown,
            since,
        });
    }

    /// Notices the agents that crashed while they wrote their state, and starts them again soon.
    pub(super) fn restart_crashed(&mut self) {
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            let Some(crash) = node.machine.as_ref().and_then(SimulatedMachine::take_crash) else {
                continue;
            };
            self.journal.note(format!("{} {crash}", node.name));
            if let Some(running) = node.running.take() {
                running.agent.abort();
            }
            self.start_agent_soon(number);
        }
    }

    pub(super) fn kill_agent(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if let Some(running) = node.running.take() {
            self.journal.note(format!("{} the agent is killed", node.name));
            running.agent.abort();
        }
    }
}

/// The folder for the nodes' files. It is in memory if possible, since nobody reads it afterwards.
fn folder() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

/// The number of tasks of the tokio runtime that have not ended.
pub(super) fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
