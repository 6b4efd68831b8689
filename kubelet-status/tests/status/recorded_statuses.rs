//! The status function against recordings of kubelet v1.36.2: 1,500 pods with random specs, runtime states,
//! start failures and earlier statuses, and the API status that the kubelet made of each.
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::{
    ContainerState, ContainerStatus, PodStatus, SandboxState, SandboxStatus, SyncFailure,
};
use kubelet_core::{ContainerId, PodExt, PodStatusInput, ProbeResult, ProbeResults};
use kubelet_status::{NodeFacts, generate_api_pod_status};
use serde_json::Value;

/// Cases that are known to differ, each with the reason. They must differ: what was fixed is to be taken out.
const MISSES: &[(u64, &str)] = &[];

#[test]
fn every_recorded_status_is_the_same_field_for_field() {
    let mut text = String::new();
    GzDecoder::new(&include_bytes!("../data/pod-status.jsonl.gz")[..])
        .read_to_string(&mut text)
        .unwrap();

    let mut cases = 0;
    let mut differing = Vec::new();
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let number = case["case"].as_u64().unwrap();
        let expected: ApiPodStatus = serde_json::from_value(case["status"].clone()).unwrap();
        let actual = generate(&case);
        if actual != expected {
            if differing.is_empty() {
                eprintln!(
                    "case {number}: {line}\nexpected {}\nactual   {}",
                    serde_json::to_string_pretty(&expected).unwrap(),
                    serde_json::to_string_pretty(&actual).unwrap()
                );
            }
            differing.push(number);
        }
        cases += 1;
    }
    assert_eq!(cases, 1500);
    let known: Vec<u64> = MISSES.iter().map(|(number, _)| *number).collect();
    assert_eq!(differing, known, "{} of {cases} cases differ", differing.len());
}

fn generate(case: &Value) -> ApiPodStatus {
    let pod: Arc<Pod> = Arc::new(serde_json::from_value(case["pod"].clone()).unwrap());
    let previous: ApiPodStatus = serde_json::from_value(case["previous_status"].clone()).unwrap();
    let runtime = runtime_status(&pod, &case["runtime_status"]);
    let start_failures: BTreeMap<String, SyncFailure> = case["start_failures"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(container, failure)| {
            let failure = SyncFailure {
                reason: string(&failure["reason"]),
                message: string(&failure["message"]),
                back_off_until: None,
            };
            (container.clone(), failure)
        })
        .collect();
    let probes = RecordedProbes::of(&case["runtime_status"]);
    let mut input = PodStatusInput::new(&pod, &runtime);
    input.start_failures = Some(&start_failures);
    input.probes = &probes;
    input.terminal = case["pod_is_terminal"].as_bool().unwrap();

    let mut node = NodeFacts::default();
    node.host_ips = vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
    // The recording kubelet started long after the containers did.
    let started_at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    generate_api_pod_status(&input, &previous, &node, started_at)
}

fn runtime_status(pod: &Pod, recorded: &Value) -> PodStatus {
    let mut status = PodStatus::empty(pod.uid(), pod.key(), tokio::time::Instant::now());
    status.ips = list(&recorded["ips"]).iter().map(string).collect();
    status.sandboxes = list(&recorded["sandboxes"])
        .iter()
        .map(|sandbox| SandboxStatus {
            id: string(&sandbox["id"]),
            state: match sandbox["state"].as_str().unwrap() {
                "READY" => SandboxState::Ready,
                _ => SandboxState::NotReady,
            },
            attempt: 0,
            created_at: time(&sandbox["created_at_s"]),
            ips: sandbox["ip"].as_str().into_iter().map(str::to_owned).collect(),
            network_reported: true,
            host_network: pod.host_network(),
            runtime_handler: String::new(),
        })
        .collect();
    // The recording took all containers for those of the present sandbox, even one that is not ready; here that
    // is one that is ready and yet not the one the pod needs.
    if let Some(newest) = status.sandboxes.first_mut()
        && newest.state == SandboxState::NotReady
    {
        newest.state = SandboxState::Ready;
        newest.host_network = !newest.host_network;
    }
    let newest = status
        .sandboxes
        .first()
        .map_or(String::new(), |sandbox| sandbox.id.clone());
    status.containers = list(&recorded["containers"])
        .iter()
        .map(|recorded| {
            let state = match recorded["state"].as_str().unwrap() {
                "created" => ContainerState::Created,
                "running" => ContainerState::Running,
                "exited" => ContainerState::Exited,
                _ => ContainerState::Unknown,
            };
            let id = ContainerId::new("containerd", string(&recorded["id"]));
            let mut status = ContainerStatus::new(id, string(&recorded["name"]), state);
            status.created_at = time(&recorded["created_at_s"]);
            status.started_at = time(&recorded["started_at_s"]);
            status.finished_at = time(&recorded["finished_at_s"]);
            status.exit_code = i32::try_from(recorded["exit_code"].as_i64().unwrap()).unwrap();
            status.reason = string(&recorded["reason"]);
            status.restart_count = u32::try_from(recorded["restart_count"].as_u64().unwrap()).unwrap();
            status.image = "docker.io/library/busybox:1.36".to_owned();
            status.image_ref = "sha256:aaa".to_owned();
            status.sandbox_id = newest.clone();
            status
        })
        .collect();
    status
}

/// Results that the recording kubelet's result managers held.
struct RecordedProbes {
    readiness: BTreeMap<String, ProbeResult>,
    startup: BTreeMap<String, ProbeResult>,
}

impl RecordedProbes {
    fn of(recorded: &Value) -> Self {
        let results = |kind: &str| {
            list(&recorded["containers"])
                .iter()
                .filter_map(|container| {
                    let result = match container[kind].as_str()? {
                        "success" => ProbeResult::Success,
                        "failure" => ProbeResult::Failure,
                        _ => ProbeResult::Unknown,
                    };
                    Some((string(&container["id"]), result))
                })
                .collect()
        };
        Self {
            readiness: results("readiness"),
            startup: results("startup"),
        }
    }
}

impl ProbeResults for RecordedProbes {
    fn liveness(&self, _: &ContainerId) -> Option<ProbeResult> {
        None
    }
    fn readiness(&self, container: &ContainerId) -> Option<ProbeResult> {
        self.readiness.get(container.id()).copied()
    }
    fn startup(&self, container: &ContainerId) -> Option<ProbeResult> {
        self.startup.get(container.id()).copied()
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn time(seconds: &Value) -> Option<Timestamp> {
    Some(Timestamp::from_second(seconds.as_i64()?).unwrap())
}
