//! The actions of 1,500 pods that `computePodActions` of kubelet v1.36.2 computed, and cases that the recording does
//! not have.

use std::collections::BTreeMap;
use std::io::Read;

use k8s_openapi::api::core::v1::{ContainerRestartRule, ContainerRestartRuleOnExitCodes, Pod};
use kubelet_core::runtime::{ContainerState, ContainerStatus, PodStatus, SandboxState, SandboxStatus};
use kubelet_core::{ContainerId, NoProbes, PodExt, ProbeResult, ProbeResults};
use kubelet_kuberuntime::pod_actions::{KillReason, compute_pod_actions};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

const RECORDING: &[u8] = include_bytes!("../data/pod-actions.jsonl.gz");

#[derive(Deserialize)]
struct Case {
    case: u32,
    pod: Pod,
    runtime_status: Runtime,
    actions: Value,
}

#[derive(Deserialize)]
struct Runtime {
    sandboxes: Option<Vec<Sandbox>>,
    containers: Option<Vec<Container>>,
}

#[derive(Deserialize)]
struct Sandbox {
    id: String,
    state: String,
    attempt: u32,
    #[serde(default)]
    ip: String,
}

#[derive(Deserialize)]
struct Container {
    id: String,
    name: String,
    state: String,
    exit_code: i32,
    #[serde(default)]
    reason: String,
    restart_count: u32,
    hash: String,
    liveness: Option<String>,
    startup: Option<String>,
}

#[derive(Default)]
struct Probes {
    liveness: BTreeMap<ContainerId, ProbeResult>,
    startup: BTreeMap<ContainerId, ProbeResult>,
}

impl ProbeResults for Probes {
    fn liveness(&self, container: &ContainerId) -> Option<ProbeResult> {
        self.liveness.get(container).copied()
    }
    fn readiness(&self, _: &ContainerId) -> Option<ProbeResult> {
        None
    }
    fn startup(&self, container: &ContainerId) -> Option<ProbeResult> {
        self.startup.get(container).copied()
    }
}

#[test]
fn decides_as_recorded() {
    let mut text = String::new();
    flate2::read::GzDecoder::new(RECORDING)
        .read_to_string(&mut text)
        .unwrap();
    let (mut cases, mut different) = (0, Vec::new());
    for line in text.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let (status, probes) = read(&case);
        let decided = to_json(&case.pod, &status, &probes);
        cases += 1;
        if decided != normalized(case.actions.clone()) {
            different.push(format!("case {}:\n  {decided}\n  {}", case.case, case.actions));
        }
    }
    assert_eq!(cases, 1500);
    let count = different.len();
    different.truncate(5);
    assert!(different.is_empty(), "{count} differ:\n{}", different.join("\n"));
}

fn read(case: &Case) -> (PodStatus, Probes) {
    let mut status = PodStatus::empty(case.pod.uid(), case.pod.key(), Instant::now());
    let mut probes = Probes::default();
    for sandbox in case.runtime_status.sandboxes.iter().flatten() {
        status.sandboxes.push(SandboxStatus {
            id: sandbox.id.clone(),
            state: match sandbox.state.as_str() {
                "READY" => SandboxState::Ready,
                _ => SandboxState::NotReady,
            },
            attempt: sandbox.attempt,
            created_at: None,
            ips: [&sandbox.ip]
                .into_iter()
                .filter(|ip| !ip.is_empty())
                .cloned()
                .collect(),
            network_reported: true,
            host_network: case.pod.host_network(),
            runtime_handler: String::new(),
        });
    }
    // Newest first, as in a status; the recording is sorted.
    for container in case.runtime_status.containers.iter().flatten() {
        let id = ContainerId::new("test", container.id.as_str());
        let state = match container.state.as_str() {
            "running" => ContainerState::Running,
            "exited" => ContainerState::Exited,
            "created" => ContainerState::Created,
            "unknown" => ContainerState::Unknown,
            other => panic!("{other}"),
        };
        let mut converted = ContainerStatus::new(id.clone(), &container.name, state);
        converted.exit_code = container.exit_code;
        converted.reason.clone_from(&container.reason);
        converted.restart_count = container.restart_count;
        converted.hash = u64::from_str_radix(&container.hash, 16).unwrap();
        status.containers.push(converted);
        let result = |text: &Option<String>| {
            text.as_deref().map(|text| match text {
                "success" => ProbeResult::Success,
                "failure" => ProbeResult::Failure,
                _ => ProbeResult::Unknown,
            })
        };
        probes
            .liveness
            .extend(result(&container.liveness).map(|result| (id.clone(), result)));
        probes
            .startup
            .extend(result(&container.startup).map(|result| (id, result)));
    }
    (status, probes)
}

fn to_json(pod: &Pod, status: &PodStatus, probes: &Probes) -> Value {
    let actions = compute_pod_actions(pod, status, probes, false);
    let kills = actions.containers_to_kill.iter().map(|kill| {
        json!({
            "id": kill.id.id(),
            "name": kill.name,
            "message": kill.message,
            "reason": kill.reason.map_or("", KillReason::as_str),
        })
    });
    normalized(json!({
        "attempt": actions.attempt,
        "containers_to_kill": kills.collect::<Vec<_>>(),
        "containers_to_start": actions.containers_to_start,
        "create_sandbox": actions.create_sandbox,
        "ephemeral_containers_to_start": actions.ephemeral_containers_to_start,
        "init_containers_to_start": actions.init_containers_to_start,
        "kill_pod": actions.kill_pod,
        "sandbox_id": actions.sandbox_id.unwrap_or_default(),
    }))
}

/// A missing list equals an empty list, and kills have no order.
fn normalized(mut actions: Value) -> Value {
    for (name, value) in actions.as_object_mut().unwrap() {
        if value.is_null() {
            *value = json!([]);
        }
        if name == "containers_to_kill" {
            value
                .as_array_mut()
                .unwrap()
                .sort_by_key(|kill| kill["id"].to_string());
        }
    }
    actions
}

/// A pod with the containers `a` and `b`, which ran once and exited with these codes.
fn ended_pod(codes: [i32; 2]) -> (Pod, PodStatus) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "p", "namespace": "ns", "uid": "u" },
        "spec": { "restartPolicy": "Never", "containers": [ { "name": "a" }, { "name": "b" } ] },
    }))
    .unwrap();
    let mut status = PodStatus::empty(pod.uid(), pod.key(), Instant::now());
    status.sandboxes.push(SandboxStatus {
        id: "s".to_owned(),
        state: SandboxState::Ready,
        attempt: 0,
        created_at: None,
        ips: Vec::new(),
        network_reported: false,
        host_network: false,
        runtime_handler: String::new(),
    });
    for (name, code) in ["a", "b"].into_iter().zip(codes) {
        let mut container =
            ContainerStatus::new(ContainerId::new("test", name), name, ContainerState::Exited);
        container.exit_code = code;
        status.containers.push(container);
    }
    (pod, status)
}

#[test]
fn a_runtime_that_tells_no_network_lost_none() {
    let (pod, mut status) = ended_pod([0, 0]);
    assert!(!compute_pod_actions(&pod, &status, &NoProbes, false).create_sandbox);
    assert!(compute_pod_actions(&pod, &status, &NoProbes, false).kill_pod);
    status.sandboxes[0].network_reported = true;
    status.containers.clear();
    let actions = compute_pod_actions(&pod, &status, &NoProbes, false);
    assert_eq!((actions.create_sandbox, actions.attempt), (true, 1));
}

#[test]
fn a_pod_that_moved_to_the_hosts_network_gets_a_new_sandbox() {
    let (mut pod, mut status) = ended_pod([0, 0]);
    pod.spec.as_mut().unwrap().host_network = Some(true);
    status.containers.clear();
    let actions = compute_pod_actions(&pod, &status, &NoProbes, false);
    assert!(actions.create_sandbox && actions.kill_pod);
    assert_eq!((actions.attempt, actions.sandbox_id), (1, None));
    assert_eq!(actions.containers_to_start, [0, 1]);
}

#[test]
fn rules_on_exit_codes_come_before_policies() {
    let rule = |action: &str, operator: &str, codes: &[i32]| ContainerRestartRule {
        action: action.to_owned(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: operator.to_owned(),
            values: Some(codes.to_vec()),
        }),
    };
    for (rule, code, restarted) in [
        (rule("Restart", "In", &[3, 4]), 4, true),
        (rule("Restart", "In", &[3, 4]), 5, false),
        (rule("Restart", "NotIn", &[3, 4]), 5, true),
        (rule("Restart", "NotIn", &[3, 4]), 3, false),
        (rule("RestartAllContainers", "In", &[3]), 3, true),
        (rule("Restart", "Like", &[3]), 3, false),
    ] {
        let (mut pod, status) = ended_pod([code, 0]);
        let container = &mut pod.spec.as_mut().unwrap().containers[0];
        container.restart_policy = Some("Never".to_owned());
        container.restart_policy_rules = Some(vec![rule.clone()]);
        let actions = compute_pod_actions(&pod, &status, &NoProbes, false);
        assert_eq!(actions.containers_to_start == [0], restarted, "{rule:?} {code}");
    }
}

#[test]
fn to_restart_all_resets_the_one_that_asked_last() {
    let (mut pod, mut status) = ended_pod([3, 0]);
    status.containers[1].state = ContainerState::Running;
    let container = &mut pod.spec.as_mut().unwrap().containers[0];
    container.restart_policy_rules = Some(vec![ContainerRestartRule {
        action: "RestartAllContainers".to_owned(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: "In".to_owned(),
            values: Some(vec![3]),
        }),
    }]);
    let actions = compute_pod_actions(&pod, &status, &NoProbes, true);
    let order: Vec<_> = actions
        .containers_to_reset
        .iter()
        .map(|reset| (reset.name.as_str(), reset.kill))
        .collect();
    assert_eq!(order, [("b", true), ("a", false)]);
    assert!(actions.containers_to_start.is_empty() && !actions.kill_pod);
}

#[test]
fn what_an_init_container_did_in_another_sandbox_does_not_count() {
    let (mut pod, mut status) = ended_pod([0, 0]);
    let spec = pod.spec.as_mut().unwrap();
    spec.restart_policy = Some("Always".to_owned());
    spec.init_containers = serde_json::from_value(json!([{ "name": "i0" }, { "name": "i1" }])).unwrap();
    status.containers.clear();
    for (name, sandbox) in [("i1", "before"), ("i0", "s")] {
        let id = ContainerId::new("test", name);
        let mut container = ContainerStatus::new(id, name, ContainerState::Exited);
        container.sandbox_id = sandbox.to_owned();
        status.containers.push(container);
    }
    let actions = compute_pod_actions(&pod, &status, &NoProbes, false);
    assert_eq!(
        actions.init_containers_to_start,
        [1],
        "i1 was to be removed with its sandbox, and was not"
    );
    assert!(actions.containers_to_start.is_empty());
    status.containers[0].sandbox_id = "s".to_owned();
    let actions = compute_pod_actions(&pod, &status, &NoProbes, false);
    assert_eq!(actions.containers_to_start, [0, 1]);
}

/// The answer to its creation was lost, and later the sandbox, too.
#[test]
fn a_container_made_in_another_sandbox_and_never_started_does_not_count() {
    let (mut pod, mut status) = ended_pod([0, 0]);
    let spec = pod.spec.as_mut().unwrap();
    spec.restart_policy = Some("Always".to_owned());
    spec.init_containers =
        serde_json::from_value(json!([{ "name": "i0" }, { "name": "sidecar", "restartPolicy": "Always" }]))
            .unwrap();
    let i0 = ContainerId::new("test", "i0");
    status
        .containers
        .push(ContainerStatus::new(i0, "i0", ContainerState::Running));
    status.containers[0].state = ContainerState::Created;
    for (sandbox, init) in [("before", vec![]), ("s", vec![1])] {
        status.containers[0].sandbox_id = sandbox.to_owned();
        let actions = compute_pod_actions(&pod, &status, &NoProbes, false);
        assert_eq!(
            actions.init_containers_to_start, init,
            "made in sandbox {sandbox}"
        );
        assert_eq!(actions.containers_to_start.is_empty(), sandbox == "before");
    }
}
