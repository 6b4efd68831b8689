//! Drives a simulation: starts the nodes, lets users and faults act when their time comes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube_client::Client;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubelet_core::{Clock, PodExt, PodUid};
use kubelet_cri::v1;
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::agent::{AgentError, HistoryRecorder, SimulatedClient, SimulatedNode, StartAgent};
use super::history::{History, Journal};
use super::witness::Witness;
use super::workload::{Churn, random_pod, script};
use super::{FaultPlan, Simulation};
use crate::memory_cri::MemoryCri;
use crate::{ApiServer, User};

/// The date of every simulation's start: 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600;
/// How long calls to a runtime may take (`runtimeRequestTimeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) struct Driver {
    rng: fastrand::Rng,
    pub(super) start: Instant,
    pub(super) journal: Journal,
    pub(super) witness: Witness,
    pub(super) api: ApiServer,
    pub(super) admin: Client,
    pub(super) nodes: Vec<Node>,
    agent: StartAgent,
    faults: FaultPlan,
    churn: Option<Churn>,
    /// What is to be done when; the number keeps those of one moment apart, in order.
    pub(super) agenda: BTreeMap<(Instant, u64), Act>,
    acts: u64,
    pods_made: u64,
    pub(super) problems: Vec<String>,
}

pub(super) struct Node {
    pub(super) name: String,
    client: SimulatedClient,
    pub(super) runtime: MemoryCri,
    pub(super) clock: Clock,
    root_dir: std::path::PathBuf,
    pub(super) running: Option<Running>,
}

pub(super) struct Running {
    pub(super) agent: JoinHandle<Result<(), AgentError>>,
    pub(super) shutdown: CancellationToken,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Churn,
    CrashContainer,
    KillAgent,
    StartAgent(usize),
    StopRuntime,
    StopApi,
}

impl Driver {
    /// Runs a simulation, and says what happened and what should not have.
    pub(super) async fn run(simulation: Simulation, time: Duration) -> (History, Vec<String>) {
        let folder = match tempfile::tempdir() {
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
        witnesses.spawn(driver.witness.clone().run(driver.admin.clone()));
        driver.prepare(pods).await;
        driver.act_until(driver.start + time).await;
        driver.rest().await;
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
            agent,
        } = simulation;
        let start = Instant::now();
        let clock = Clock::starting_at(Timestamp::from_second(START).unwrap_or_default());
        let mut rng = fastrand::Rng::with_seed(seed);
        let api = ApiServer::builder().clock(clock).seed(rng.u64(..)).build();
        let nodes = nodes.into_iter().enumerate().map(|(number, name)| {
            let network = [10, 88, u8::try_from(number).unwrap_or(u8::MAX), 0];
            let runtime = MemoryCri::builder(clock)
                .request_timeout(REQUEST_TIMEOUT)
                .seed(rng.u64(..))
                .pod_cidr(network, 24)
                .build();
            script(&runtime);
            faults.befall_runtime(&runtime);
            let client = SimulatedClient(api.client_as(User::node(&name)));
            Node {
                client,
                runtime,
                clock,
                root_dir: folder.join(&name),
                running: None,
                name,
            }
        });
        let nodes: Vec<Node> = nodes.collect();
        let users = nodes.iter().map(|node| User::node(&node.name).name);
        users.for_each(|user| faults.befall_user(&api, &user));
        let journal = Journal::new(start);
        Self {
            rng,
            start,
            witness: Witness::new(Journal::new(start)),
            journal,
            admin: api.client(),
            api,
            nodes,
            agent,
            faults,
            churn: workload.churn,
            agenda: BTreeMap::new(),
            acts: 0,
            pods_made: 0,
            problems: Vec::new(),
        }
    }

    /// Nodes, pods and agents at the start.
    async fn prepare(&mut self, pods: Vec<Pod>) {
        for number in 0..self.nodes.len() {
            let name = self.nodes[number].name.clone();
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
                "labels": {"kubernetes.io/hostname": name}}});
            let made = Api::<k8s_openapi::api::core::v1::Node>::all(self.admin.clone());
            let made = match serde_json::from_value(node) {
                Ok(node) => made
                    .create(&PostParams::default(), &node)
                    .await
                    .map(drop)
                    .map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = made {
                self.problems.push(format!("node {name}: {error}"));
            }
            self.start_agent(number);
        }
        for mut pod in pods {
            let spec = pod.spec.get_or_insert_default();
            if spec.node_name.is_none() {
                spec.node_name = self.any_node();
            }
            self.create(pod).await;
        }
        if let Some(churn) = self.churn {
            for _ in 0..churn.pods {
                self.make_pod(None).await;
            }
            self.plan(Act::Churn, churn.every);
        }
        let FaultPlan {
            container_crashes,
            agent_restarts,
            runtime_outages,
            api_outages,
            ..
        } = self.faults.clone();
        for (act, every) in [
            (Act::CrashContainer, container_crashes),
            (Act::KillAgent, agent_restarts),
            (Act::StopRuntime, runtime_outages.map(|(every, _)| every)),
            (Act::StopApi, api_outages.map(|(every, _)| every)),
        ] {
            if let Some(every) = every {
                self.plan(act, every);
            }
        }
    }

    /// Once more, after about this time: half to one and a half of it.
    fn plan(&mut self, act: Act, every: Duration) {
        let after = every.mul_f64(0.5 + self.rng.f64());
        self.plan_at(act, Instant::now() + after);
    }

    fn plan_at(&mut self, act: Act, at: Instant) {
        self.acts += 1;
        self.agenda.insert((at, self.acts), act);
    }

    /// Lets all happen that is due before `end`.
    async fn act_until(&mut self, end: Instant) {
        while self.problems.is_empty() {
            self.look();
            let next = self
                .agenda
                .first_key_value()
                .map(|((at, _), _)| *at)
                .filter(|at| *at < end);
            let Some(at) = next else {
                sleep_until(end).await;
                self.look();
                return;
            };
            sleep_until(at).await;
            if let Some((_, act)) = self.agenda.pop_first() {
                self.act(act).await;
            }
        }
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Churn => {
                self.change_a_pod().await;
                if let Some(churn) = self.churn {
                    self.plan(act, churn.every);
                }
            }
            Act::CrashContainer => {
                self.crash_a_container();
                self.plan_again(act, self.faults.container_crashes);
            }
            Act::KillAgent => {
                if let Some(number) = self.any_number() {
                    self.kill_agent(number);
                    let pause = Duration::from_secs(self.rng.u64(1..=10));
                    self.plan_at(Act::StartAgent(number), Instant::now() + pause);
                }
                self.plan_again(act, self.faults.agent_restarts);
            }
            Act::StartAgent(number) => self.start_agent(number),
            Act::StopRuntime => {
                if let (Some(number), Some((_, length))) = (self.any_number(), self.faults.runtime_outages) {
                    let node = &self.nodes[number];
                    self.journal.note(format!(
                        "{} the runtime crashes, and is back after {length:?}",
                        node.name
                    ));
                    node.runtime.crash_for(length);
                }
                self.plan_again(act, self.faults.runtime_outages.map(|(every, _)| every));
            }
            Act::StopApi => {
                if let Some((_, length)) = self.faults.api_outages {
                    self.journal
                        .note(format!("the API server is away for {length:?}"));
                    self.api.down_for(length);
                }
                self.plan_again(act, self.faults.api_outages.map(|(every, _)| every));
            }
        }
    }

    fn plan_again(&mut self, act: Act, every: Option<Duration>) {
        if let Some(every) = every {
            self.plan(act, every);
        }
    }

    fn any_number(&mut self) -> Option<usize> {
        (!self.nodes.is_empty()).then(|| self.rng.usize(..self.nodes.len()))
    }

    fn any_node(&mut self) -> Option<String> {
        let number = self.any_number()?;
        Some(self.nodes[number].name.clone())
    }

    /// A pod of a random kind, under a new name or the given one.
    async fn make_pod(&mut self, name: Option<String>) {
        let Some(node) = self.any_node() else {
            return;
        };
        let name = name.unwrap_or_else(|| {
            self.pods_made += 1;
            format!("pod-{}", self.pods_made)
        });
        match serde_json::from_value(random_pod(&name, &node, &mut self.rng)) {
            Ok(pod) => self.create(pod).await,
            Err(error) => self.problems.push(format!("pod {name}: {error}")),
        }
    }

    async fn create(&mut self, mut pod: Pod) {
        let namespace = pod
            .metadata
            .namespace
            .get_or_insert_with(|| "default".to_owned())
            .clone();
        let name = pod.metadata.name.clone().unwrap_or_default();
        self.journal.note(format!("user creates {namespace}/{name}"));
        let made = self.pods(&namespace).create(&PostParams::default(), &pod).await;
        if let Err(error) = made {
            self.journal
                .note(format!("user cannot create {namespace}/{name}: {error}"));
        }
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    /// What users do: make one, delete one, replace one, change one.
    async fn change_a_pod(&mut self) {
        let churn = self.churn.map_or(0, |churn| churn.pods);
        let pods: Vec<Pod> = self
            .witness
            .pods()
            .into_iter()
            .filter(|pod| !pod.is_deleting())
            .collect();
        let pick = self.rng.usize(..pods.len().max(1));
        let what = self.rng.u8(..8);
        let Some(pod) = pods.get(pick).filter(|_| pods.len() >= churn.div_ceil(2)) else {
            return self.make_pod(None).await;
        };
        let key = pod.key();
        let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
        match what {
            0..=1 if pods.len() < churn * 2 => self.make_pod(None).await,
            0..=3 => {
                let grace = [None, None, Some(0), Some(1), Some(60)][self.rng.usize(..5)];
                self.delete(&namespace, &name, grace).await;
            }
            4..=5 => {
                self.delete(&namespace, &name, Some(0)).await;
                self.make_pod(Some(name)).await;
            }
            _ => {
                let label = self.rng.u16(..).to_string();
                self.journal.note(format!("user labels {key}"));
                let patch = Patch::Merge(json!({"metadata": {"labels": {"drawn": label}}}));
                // It may be gone by now.
                let _ = self
                    .pods(&namespace)
                    .patch(&name, &PatchParams::default(), &patch)
                    .await;
            }
        }
    }

    async fn delete(&mut self, namespace: &str, name: &str, grace: Option<u32>) {
        let shown = grace.map_or_else(String::new, |grace| format!(" with {grace} s of grace"));
        self.journal
            .note(format!("user deletes {namespace}/{name}{shown}"));
        let params = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        // It may be gone by now.
        let _ = self.pods(namespace).delete(name, &params).await;
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

    pub(super) fn start_agent(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.running.is_some() {
            return;
        }
        let given = SimulatedNode {
            name: node.name.clone(),
            client: node.client.clone(),
            runtime: node.runtime.clone(),
            clock: node.clock,
            root_dir: node.root_dir.clone(),
            seed: self.rng.u64(..),
            recorder: HistoryRecorder {
                node: node.name.clone(),
                journal: self.journal.clone(),
            },
        };
        self.journal.note(format!("{} the agent starts", node.name));
        let shutdown = CancellationToken::new();
        let agent = tokio::spawn((self.agent)(given, shutdown.clone()));
        node.running = Some(Running { agent, shutdown });
    }

    fn kill_agent(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if let Some(running) = node.running.take() {
            self.journal.note(format!("{} the agent is killed", node.name));
            running.agent.abort();
        }
    }
}

/// Tasks of the runtime that have not ended.
pub(super) fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
