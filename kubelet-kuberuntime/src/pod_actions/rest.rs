//! Tests that every pod reaches a state without actions, by computing and applying actions repeatedly on a simulated
//! runtime.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, EphemeralContainer, Probe,
};
use kubelet_core::runtime::{SandboxState, SandboxStatus};
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;

/// The most rounds until no actions are left.
const ROUNDS: usize = 120;
/// The exit code that restarts all containers, if a container has such a rule.
const RESTART_ALL: i32 = 42;

/// The planned behaviour of a container.
#[derive(Clone, Debug)]
struct Plan {
    kind: Kind,
    /// How often it fails.
    failures: u32,
    /// Whether its failures restart all containers.
    restarts_all: bool,
    /// Whether it succeeds in the end; otherwise it keeps running. Init containers end, sidecars keep running.
    ends: bool,
    startup_probe: bool,
    own_policy: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Init,
    Sidecar,
    Regular,
    Ephemeral,
}

/// An event from outside. The number chooses the container.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    Nothing,
    LoseSandbox,
    Crash(usize),
    LoseSight(usize),
    FailLiveness(usize),
    ChangeImage(usize),
    CollectGarbage,
}

struct World {
    pod: Pod,
    plans: BTreeMap<String, Plan>,
    status: PodStatus,
    starts: BTreeMap<String, u32>,
    /// Instances that ran for at least one round.
    settled: BTreeSet<ContainerId>,
    failing_liveness: BTreeSet<ContainerId>,
    /// The containers that succeeded or were started since the pod last started over.
    init_done: BTreeSet<String>,
    sidecars_started: BTreeSet<String>,
    regular_started: bool,
    next_id: u32,
    ended: bool,
}

impl ProbeResults for World {
    fn liveness(&self, container: &ContainerId) -> Option<ProbeResult> {
        let failed = self.failing_liveness.contains(container);
        failed.then_some(ProbeResult::Failure)
    }
    fn readiness(&self, _: &ContainerId) -> Option<ProbeResult> {
        None
    }
    fn startup(&self, container: &ContainerId) -> Option<ProbeResult> {
        self.settled.contains(container).then_some(ProbeResult::Success)
    }
}

impl World {
    fn new(policy: &str, plans: Vec<Plan>) -> Self {
        let mut pod = Pod::default();
        pod.metadata.name = Some("p".into());
        pod.metadata.namespace = Some("ns".into());
        pod.metadata.uid = Some("u".into());
        let mut spec = PodSpec {
            restart_policy: Some(policy.into()),
            ..Default::default()
        };
        let mut named = BTreeMap::new();
        for (index, plan) in plans.into_iter().enumerate() {
            let name = format!("c{index}");
            match plan.kind {
                Kind::Init | Kind::Sidecar => spec
                    .init_containers
                    .get_or_insert_default()
                    .push(container(&name, &plan)),
                Kind::Regular => spec.containers.push(container(&name, &plan)),
                Kind::Ephemeral => {
                    let ephemeral = EphemeralContainer {
                        name: name.clone(),
                        ..Default::default()
                    };
                    spec.ephemeral_containers.get_or_insert_default().push(ephemeral);
                }
            }
            named.insert(name, plan);
        }
        pod.spec = Some(spec);
        Self {
            status: PodStatus::empty(pod.uid(), pod.key(), Instant::now()),
            pod,
            plans: named,
            starts: BTreeMap::new(),
            settled: BTreeSet::new(),
            failing_liveness: BTreeSet::new(),
            init_done: BTreeSet::new(),
            sidecars_started: BTreeSet::new(),
            regular_started: false,
            next_id: 0,
            ended: false,
        }
    }

    /// All its containers ended and none is restarted: its phase is terminal.
    fn has_ended(&self) -> bool {
        let spec = self.pod.spec.as_ref().unwrap();
        spec.containers.iter().all(|container| {
            let status = self.status.container(&container.name);
            status.is_some_and(|status| status.state == ContainerState::Exited)
                && !restart::should_be_restarted(container, &self.pod, status)
        })
    }

    /// Computes and applies the actions; returns whether anything changed.
    fn sync(&mut self) -> bool {
        if self.ended || self.has_ended() {
            // It is terminated, and never synced again.
            self.ended = true;
            return self.end_all();
        }
        let restart_all = should_all_containers_restart(&self.pod, &self.status);
        let actions = compute_pod_actions(&self.pod, &self.status, self, restart_all);
        let mut changed = false;
        if actions.kill_pod {
            changed |= self.end_all();
            for sandbox in &mut self.status.sandboxes {
                changed |= sandbox.state == SandboxState::Ready;
                sandbox.state = SandboxState::NotReady;
            }
            if actions.create_sandbox {
                let plans = &self.plans;
                let is_init = |name: &str| matches!(plans[name].kind, Kind::Init | Kind::Sidecar);
                self.status.containers.retain(|status| !is_init(&status.name));
            }
        } else {
            for kill in &actions.containers_to_kill {
                changed |= self.end(&kill.id, 137);
            }
            for reset in &actions.containers_to_reset {
                changed = true;
                self.status.containers.retain(|status| status.id != reset.id);
            }
            if !actions.containers_to_reset.is_empty() {
                self.begin_anew();
            }
        }
        if actions.create_sandbox {
            changed = true;
            self.next_id += 1;
            let mut sandbox = SandboxStatus::new(format!("s{}", self.next_id), SandboxState::Ready);
            sandbox.attempt = actions.attempt;
            self.status.sandboxes.insert(0, sandbox);
            self.begin_anew();
        }
        let spec = self.pod.spec.clone().unwrap();
        let ephemeral = spec.ephemeral_containers.unwrap_or_default();
        for index in &actions.ephemeral_containers_to_start {
            let name = &ephemeral[*index].name;
            if actions.kill_pod {
                // As in the kubelet, the container is created in a sandbox that was just stopped, which a runtime
                // refuses.
                continue;
            }
            assert!(!self.starts.contains_key(name), "{name} is never started again");
            self.start(name, 0);
        }
        let init = spec.init_containers.unwrap_or_default();
        for index in &actions.init_containers_to_start {
            self.check_init_order(&init[..*index], &init[*index].name);
            self.start(&init[*index].name, hash_container(&init[*index]));
        }
        for index in &actions.containers_to_start {
            self.check_initialized(&spec.containers[*index].name);
            self.start(
                &spec.containers[*index].name,
                hash_container(&spec.containers[*index]),
            );
        }
        changed
            || !actions.ephemeral_containers_to_start.is_empty()
            || !actions.init_containers_to_start.is_empty()
            || !actions.containers_to_start.is_empty()
    }

    fn begin_anew(&mut self) {
        self.init_done.clear();
        self.sidecars_started.clear();
        self.regular_started = false;
    }

    fn check_init_order(&self, before: &[Container], name: &str) {
        if self.regular_started {
            return;
        }
        for earlier in before {
            match self.plans[&earlier.name].kind {
                Kind::Init => assert!(
                    self.init_done.contains(&earlier.name),
                    "{name} is started before {} is done",
                    earlier.name
                ),
                _ => assert!(
                    self.sidecars_started.contains(&earlier.name),
                    "{name} is started before the sidecar {}",
                    earlier.name
                ),
            }
        }
    }

    fn check_initialized(&self, name: &str) {
        if self.regular_started {
            return;
        }
        for (other, plan) in &self.plans {
            match plan.kind {
                Kind::Init => assert!(
                    self.init_done.contains(other),
                    "{name} is started before {other} is done"
                ),
                Kind::Sidecar => assert!(
                    self.sidecars_started.contains(other),
                    "{name} is started before the sidecar {other}"
                ),
                Kind::Regular | Kind::Ephemeral => {}
            }
        }
    }

    fn start(&mut self, name: &str, hash: u64) {
        let twice = self.status.containers.iter().any(|status| {
            status.name == name && matches!(status.state, ContainerState::Running | ContainerState::Unknown)
        });
        assert!(!twice, "two of {name}");
        assert_eq!(
            self.status.sandboxes[0].state,
            SandboxState::Ready,
            "{name} has a sandbox"
        );
        match self.plans[name].kind {
            Kind::Sidecar => drop(self.sidecars_started.insert(name.to_owned())),
            Kind::Regular => self.regular_started = true,
            Kind::Init | Kind::Ephemeral => {}
        }
        self.next_id += 1;
        *self.starts.entry(name.to_owned()).or_default() += 1;
        let id = ContainerId::new("test", format!("{name}-{}", self.next_id));
        let mut status = ContainerStatus::new(id, name, ContainerState::Running);
        status.hash = hash;
        self.status.containers.insert(0, status);
    }

    fn end(&mut self, id: &ContainerId, code: i32) -> bool {
        let found = self.status.containers.iter_mut().find(|status| status.id == *id);
        let Some(status) = found.filter(|status| status.state != ContainerState::Exited) else {
            return false;
        };
        status.state = ContainerState::Exited;
        status.exit_code = code;
        if code == 0 && self.plans[&status.name].kind == Kind::Init {
            self.init_done.insert(status.name.clone());
        }
        true
    }

    fn end_all(&mut self) -> bool {
        let all: Vec<ContainerId> = self
            .status
            .containers
            .iter()
            .map(|status| status.id.clone())
            .collect();
        all.iter().filter(|id| self.end(id, 137)).count() > 0
    }

    /// Simulates the containers; returns whether one changed its state.
    fn live(&mut self) -> bool {
        let running = self.status.containers.iter();
        let running = running.filter(|status| status.state == ContainerState::Running);
        let running: Vec<_> = running
            .map(|status| (status.id.clone(), status.name.clone()))
            .collect();
        let mut changed = false;
        for (id, name) in running {
            let plan = &self.plans[&name];
            let fails = self.starts[&name] <= plan.failures;
            let code = match (fails, plan.restarts_all) {
                (true, true) => Some(RESTART_ALL),
                (true, false) => Some(1),
                (false, _) => plan.ends.then_some(0),
            };
            if let Some(code) = code {
                changed |= self.end(&id, code);
            } else {
                changed |= self.settled.insert(id);
            }
        }
        changed
    }

    fn disturb(&mut self, disturbance: Disturbance) {
        let running = self.status.containers.iter();
        let running = running.filter(|status| status.state == ContainerState::Running);
        let running: Vec<ContainerId> = running.map(|status| status.id.clone()).collect();
        let chosen = |number: usize| running.get(number % running.len().max(1)).cloned();
        match disturbance {
            Disturbance::Nothing => {}
            Disturbance::LoseSandbox => {
                if let Some(sandbox) = self.status.sandboxes.first_mut() {
                    sandbox.state = SandboxState::NotReady;
                }
                self.end_all();
            }
            Disturbance::Crash(number) => {
                if let Some(id) = chosen(number) {
                    self.end(&id, 1);
                }
            }
            Disturbance::LoseSight(number) => {
                let id = chosen(number);
                let mut containers = self.status.containers.iter_mut();
                if let Some(status) = containers.find(|status| Some(&status.id) == id.as_ref()) {
                    status.state = ContainerState::Unknown;
                }
            }
            Disturbance::FailLiveness(number) => self.failing_liveness.extend(chosen(number)),
            Disturbance::ChangeImage(number) => {
                let spec = self.pod.spec.as_mut().unwrap();
                let index = number % spec.containers.len();
                let image = spec.containers[index].image.get_or_insert_default();
                image.push('x');
            }
            Disturbance::CollectGarbage => {
                let mut seen = BTreeSet::new();
                self.status.containers.retain(|status| {
                    let newest = seen.insert(status.name.clone());
                    newest || status.state != ContainerState::Exited
                });
            }
        }
    }
}

fn container(name: &str, plan: &Plan) -> Container {
    let rule = ContainerRestartRule {
        action: "RestartAllContainers".into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: "In".into(),
            values: Some(vec![RESTART_ALL]),
        }),
    };
    let policy = match plan.kind {
        Kind::Sidecar => Some("Always"),
        // A rule needs a policy.
        _ if plan.restarts_all => Some(plan.own_policy.unwrap_or("Never")),
        _ => plan.own_policy,
    };
    Container {
        name: name.into(),
        image: Some("i".into()),
        restart_policy: policy.map(str::to_owned),
        restart_policy_rules: plan.restarts_all.then(|| vec![rule]),
        startup_probe: plan.startup_probe.then(Probe::default),
        liveness_probe: Some(Probe::default()),
        ..Default::default()
    }
}

fn plan(kind: Kind, policy: &'static str) -> impl Strategy<Value = Plan> {
    let own = match kind {
        Kind::Regular => prop_oneof![
            3 => Just(None),
            1 => prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")].prop_map(Some),
        ]
        .boxed(),
        _ => Just(None).boxed(),
    };
    let chance = |weight: f64| prop::bool::weighted(weight);
    (0..3_u32, chance(0.15), chance(0.5), chance(0.5), own).prop_map(
        move |(failures, restarts_all, ends, startup_probe, own_policy)| {
            let always = own_policy.unwrap_or(policy) == "Always";
            Plan {
                kind,
                failures: if kind == Kind::Ephemeral { 0 } else { failures },
                restarts_all: restarts_all && matches!(kind, Kind::Regular | Kind::Init),
                ends: match kind {
                    Kind::Init => true,
                    Kind::Sidecar => false,
                    // A container that always restarts and ends never reaches a stable state.
                    Kind::Regular => ends && !always,
                    Kind::Ephemeral => ends,
                },
                startup_probe: startup_probe && kind == Kind::Sidecar,
                own_policy,
            }
        },
    )
}

fn pods() -> impl Strategy<Value = (&'static str, Vec<Plan>)> {
    prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")].prop_flat_map(|policy| {
        let init = prop_oneof![plan(Kind::Init, policy), plan(Kind::Sidecar, policy)];
        let parts = (
            prop::collection::vec(init, 0..4),
            prop::collection::vec(plan(Kind::Regular, policy), 1..4),
            prop::collection::vec(plan(Kind::Ephemeral, policy), 0..2),
        );
        parts.prop_map(move |(mut plans, regular, ephemeral)| {
            plans.extend(regular);
            plans.extend(ephemeral);
            (policy, plans)
        })
    })
}

fn disturbances() -> impl Strategy<Value = Vec<Disturbance>> {
    let number = || 0..8_usize;
    let one = prop_oneof![
        6 => Just(Disturbance::Nothing),
        1 => Just(Disturbance::LoseSandbox),
        1 => number().prop_map(Disturbance::Crash),
        1 => number().prop_map(Disturbance::LoseSight),
        1 => number().prop_map(Disturbance::FailLiveness),
        1 => number().prop_map(Disturbance::ChangeImage),
        1 => Just(Disturbance::CollectGarbage),
    ];
    prop::collection::vec(one, 0..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pod_comes_to_rest((policy, plans) in pods(), disturbances in disturbances()) {
        let mut world = World::new(policy, plans);
        for disturbance in disturbances {
            world.sync();
            world.disturb(disturbance);
            world.live();
        }
        let mut rested = false;
        for _ in 0..ROUNDS {
            let (synced, lived) = (world.sync(), world.live());
            rested = !synced && !lived;
            if rested {
                break;
            }
        }
        prop_assert!(rested, "{:?} is still at work", world.plans);

        // All containers that should run are running, unless the pod may fail.
        if policy == "Always" {
            for (name, plan) in &world.plans {
                let runs = plan.kind == Kind::Sidecar
                    || (plan.kind == Kind::Regular && plan.own_policy.is_none() && !plan.restarts_all);
                let all_may_run = world.plans.values().all(|plan| plan.own_policy.is_none() && !plan.restarts_all);
                if runs && all_may_run {
                    let state = world.status.container(name).map(|status| status.state);
                    prop_assert_eq!(state, Some(ContainerState::Running), "{}", name);
                }
            }
        }
    }
}
