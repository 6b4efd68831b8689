//! Lives of pods as kubelet v1.36.2 was recorded to tell of them: what its runtime answered goes through the status function
//! and the manager, and gives the statuses that the API server was seen to show, in their order.
//!
//! Left out are the pods whose story is not in the runtime's answers alone: those with probes, those that failed to start or
//! were backed off, those that the node refused, that ran out of their time, that have a gate that another opens, and one
//! that was deleted just when it had ended.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::io::Read;
use std::sync::Arc;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::{
    ContainerResources, ContainerState, ContainerStatus, ContainerUser, PodStatus, SandboxState,
    SandboxStatus,
};
use kubelet_core::{Clock, ContainerId, PodExt, PodStatusInput, PodStatusReporter};
use kubelet_status::{MemorySink, StatusManager, StatusManagerConfig};
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn every_recorded_life_is_told_the_same() {
    let mut text = String::new();
    GzDecoder::new(&include_bytes!("data/pods.jsonl.gz")[..])
        .read_to_string(&mut text)
        .unwrap();
    let (mut lives, mut statuses, mut failures) = (0, 0, Vec::new());
    for line in text.lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        // Before it had a node, others told of it.
        let history = list(&recorded["history"]).iter().map(|entry| &entry["status"]);
        let of_node = history.filter(|status| status["containerStatuses"].is_array());
        let expected = fold(of_node.map(bare));
        let told = fold(replay(&recorded).iter().map(|status| bare(&json!(status))));
        if let Some(difference) = difference(&told, &expected) {
            failures.push(format!("{}: {difference}", recorded["name"]));
        }
        lives += 1;
        statuses += expected.len();
    }
    assert!(
        failures.is_empty(),
        "{} of {lives} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert_eq!((lives, statuses), (56, 284));
}

/// The statuses that the manager held, one after the other.
fn replay(recorded: &Value) -> Vec<ApiPodStatus> {
    let mut pod: Pod = serde_json::from_value(recorded["object"].clone()).unwrap();
    pod.status = Some(ApiPodStatus {
        phase: Some("Pending".to_owned()),
        ..ApiPodStatus::default()
    });
    pod.metadata.deletion_timestamp = None;
    let mut config = StatusManagerConfig::default();
    config.node.host_ips = vec!["10.99.0.1".parse().unwrap()];
    config.clock = Clock::starting_at("2026-11-21T06:00:00Z".parse().unwrap());
    let manager = StatusManager::with_config(MemorySink::new(), config);
    let (handle, mut told) = (manager.handle(), Vec::new());

    let mut runtime = PodStatus::empty(pod.uid(), pod.key(), tokio::time::Instant::now());
    let mut killed = false;
    let mut pod = Arc::new(pod);
    let mut report = |pod: &Arc<Pod>, runtime: &PodStatus, terminal: bool| {
        if runtime.containers.is_empty() && runtime.sandboxes.len() == 1 && !terminal {
            // What is asked of a new sandbox is asked for the containers that come next.
            handle.on_pod_sandbox_ready(pod);
        } else {
            let mut input = PodStatusInput::new(pod, runtime);
            input.terminal = terminal;
            let status = handle.generate(&input);
            handle.set_pod_status(pod, status);
        }
        told.push(ApiPodStatus::clone(&handle.pod_status(&pod.uid()).unwrap()));
    };
    report(&pod, &runtime, false);
    for inspection in inspections(list(&recorded["steps"])) {
        match inspection {
            Inspection::Killed if !killed => {
                killed = true;
                report(&pod, &runtime, false);
                // What has ended by itself is only tidied up.
                if was_deleted_alive(recorded) && runtime.running_containers().next().is_some() {
                    pod = deleted(&pod);
                    report(&pod, &runtime, false);
                }
            }
            Inspection::Killed => {}
            Inspection::Found {
                sandboxes,
                containers,
            } => {
                let ips = std::mem::take(&mut runtime.ips);
                runtime.ips = sandboxes.iter().flat_map(|sandbox| sandbox.ips.clone()).collect();
                // What a stopped sandbox has no more is shown as it was.
                if killed || runtime.ips.is_empty() {
                    runtime.ips = ips;
                }
                (runtime.sandboxes, runtime.containers) = (sandboxes, containers);
                report(&pod, &runtime, killed);
            }
        }
    }
    if !pod.is_deleting() && was_deleted_alive(recorded) {
        // There was nothing to be stopped any more, or yet.
        pod = deleted(&pod);
        report(&pod, &runtime, killed);
    }
    if killed || was_deleted_alive(recorded) {
        report(&pod, &runtime, true);
        handle.terminate_pod(&pod);
        told.push(ApiPodStatus::clone(&handle.pod_status(&pod.uid()).unwrap()));
    }
    told
}

fn deleted(pod: &Pod) -> Arc<Pod> {
    let mut deleted = pod.clone();
    deleted.metadata.generation = pod.metadata.generation.map(|generation| generation + 1);
    deleted.metadata.deletion_timestamp = Some(Time("2026-11-21T06:30:00Z".parse().unwrap()));
    Arc::new(deleted)
}

/// Whether somebody deleted it before it ended by itself.
fn was_deleted_alive(recorded: &Value) -> bool {
    let first = list(&recorded["history"])
        .iter()
        .find(|entry| entry["deleting"] == true);
    first.is_some_and(|entry| !matches!(entry["status"]["phase"].as_str(), Some("Succeeded" | "Failed")))
}

enum Inspection {
    Found {
        sandboxes: Vec<SandboxStatus>,
        containers: Vec<ContainerStatus>,
    },
    Killed,
}

/// A pod is inspected by its sandboxes and then its containers; until its next sandbox is asked for it is one inspection.
fn inspections(steps: &[Value]) -> Vec<Inspection> {
    let mut all = Vec::new();
    let (mut sandboxes, mut containers) = (Vec::<SandboxStatus>::new(), Vec::<ContainerStatus>::new());
    let flush = |sandboxes: &mut Vec<SandboxStatus>,
                 containers: &mut Vec<ContainerStatus>,
                 all: &mut Vec<_>,
                 whole: bool| {
        let (sandboxes, containers) = (std::mem::take(sandboxes), std::mem::take(containers));
        if whole && !sandboxes.is_empty() {
            all.push(Inspection::Found {
                sandboxes,
                containers,
            });
        }
    };
    for step in steps {
        match step["call"].as_str().unwrap() {
            "PodSandboxStatus" if step["status"].is_object() => {
                let next = sandbox(&step["status"]);
                if !containers.is_empty() {
                    flush(&mut sandboxes, &mut containers, &mut all, true);
                }
                // The PLEG reads the IPs first, of the same sandbox.
                if !sandboxes.iter().any(|sandbox| sandbox.id == next.id) {
                    sandboxes.push(next);
                }
            }
            "ContainerStatus" if step["status"].is_object() && !sandboxes.is_empty() => {
                let next = container(&step["status"]);
                if !containers.iter().any(|container| container.id == next.id) {
                    containers.push(next);
                }
            }
            "kill" => {
                flush(&mut sandboxes, &mut containers, &mut all, true);
                all.push(Inspection::Killed);
            }
            _ => flush(&mut sandboxes, &mut containers, &mut all, true),
        }
    }
    flush(&mut sandboxes, &mut containers, &mut all, true);
    all
}

fn sandbox(status: &Value) -> SandboxStatus {
    let ip = status["network"]["ip"].as_str().filter(|ip| !ip.is_empty());
    SandboxStatus {
        id: text(&status["id"]),
        state: match status["state"].as_str() {
            Some("SANDBOX_NOTREADY") => SandboxState::NotReady,
            _ => SandboxState::Ready,
        },
        attempt: number(&status["metadata"]["attempt"]) as u32,
        created_at: time(&status["created_at"]),
        ips: ip.iter().map(|ip| (*ip).to_owned()).collect(),
        network_reported: status["network"].is_object(),
        host_network: status["linux"]["namespaces"]["options"]["network"] == "NODE",
        runtime_handler: String::new(),
    }
}

fn container(status: &Value) -> ContainerStatus {
    let state = match status["state"].as_str() {
        Some("CONTAINER_RUNNING") => ContainerState::Running,
        Some("CONTAINER_EXITED") => ContainerState::Exited,
        Some("CONTAINER_UNKNOWN") => ContainerState::Unknown,
        _ => ContainerState::Created,
    };
    let id = ContainerId::new("containerd", text(&status["id"]));
    let mut converted = ContainerStatus::new(id, text(&status["metadata"]["name"]), state);
    converted.created_at = time(&status["created_at"]);
    if state != ContainerState::Created {
        // What never started did so in 1970.
        converted.started_at = time(&status["started_at"]).or(Some(Timestamp::UNIX_EPOCH));
    }
    if state == ContainerState::Exited {
        converted.finished_at = time(&status["finished_at"]);
        converted.exit_code = number(&status["exit_code"]) as i32;
        (converted.reason, converted.message) = (text(&status["reason"]), text(&status["message"]));
    }
    converted.restart_count = number(&status["restart_count"]) as u32;
    (converted.image, converted.image_ref) = (text(&status["image"]["image"]), text(&status["image_ref"]));
    let linux = &status["resources"]["linux"];
    if linux.is_object() {
        let mut resources = ContainerResources::default();
        let milli = |amount: i64| match amount {
            ..1 => None,
            _ if amount % 1000 == 0 => Some(Quantity((amount / 1000).to_string())),
            _ => Some(Quantity(format!("{amount}m"))),
        };
        resources.cpu_request = milli((number(&linux["cpu_shares"]) * 1000 + 1023) / 1024);
        if number(&linux["cpu_period"]) > 0 {
            resources.cpu_limit = milli(number(&linux["cpu_quota"]) * 1000 / number(&linux["cpu_period"]));
        }
        let memory = number(&linux["memory_limit_in_bytes"]);
        resources.memory_limit = (memory > 0).then(|| Quantity(format!("{}Mi", memory >> 20)));
        converted.resources = Some(resources);
    }
    let user = &status["user"]["linux"];
    if user.is_object() {
        converted.user = Some(ContainerUser {
            uid: number(&user["uid"]),
            gid: number(&user["gid"]),
            supplemental_groups: list(&user["supplemental_groups"]).iter().map(number).collect(),
        });
    }
    converted
}

/// A status without what the runtime's answers do not tell: the times of the node, what a container wrote at its end, and
/// what the pod's cgroup holds.
fn bare(status: &Value) -> Value {
    let mut bare = json!(serde_json::from_value::<ApiPodStatus>(status.clone()).unwrap());
    for field in ["startTime", "resources"] {
        bare.as_object_mut().unwrap().remove(field);
    }
    for condition in bare["conditions"].as_array_mut().into_iter().flatten() {
        condition.as_object_mut().unwrap().remove("lastTransitionTime");
    }
    for kind in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in bare[kind].as_array_mut().into_iter().flatten() {
            for state in ["state", "lastState"] {
                if let Some(end) = container[state]["terminated"].as_object_mut() {
                    end.remove("message");
                }
            }
        }
    }
    bare.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    bare
}

/// Runs of equal ones as one. A terminal phase is told when nothing runs any more: that it comes later than the containers'
/// ends is no other status.
fn fold(statuses: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut folded: Vec<Value> = Vec::new();
    for status in statuses {
        match folded.last_mut() {
            Some(last) if without_phase(last) == without_phase(&status) => *last = status,
            _ => folded.push(status),
        }
    }
    folded
}

fn without_phase(status: &Value) -> Value {
    let mut status = status.clone();
    status.as_object_mut().unwrap().remove("phase");
    status
}

/// Each status that was seen is to be told, in that order. More may be told: a pod worker that is busy skips to the newest
/// inspection.
fn difference(told: &[Value], expected: &[Value]) -> Option<String> {
    let phase = |status: &Value| text(&status["phase"]);
    let may_be = |told: &Value, expected: &Value| {
        let ends = matches!(phase(told).as_str(), "Succeeded" | "Failed");
        without_phase(told) == without_phase(expected) && (ends || phase(told) == phase(expected))
    };
    let mut rest = told;
    for (number, expected) in expected.iter().enumerate() {
        match rest.iter().position(|told| may_be(told, expected)) {
            Some(found) => rest = &rest[found..],
            None => {
                let mut differences = Vec::new();
                compare(
                    "",
                    rest.last().unwrap_or(&Value::Null),
                    expected,
                    &mut differences,
                );
                return Some(format!(
                    "status {number} was not told, but: {}",
                    differences.join("; ")
                ));
            }
        }
    }
    let (last, seen) = (told.last()?, expected.last()?);
    (last != seen).then(|| {
        let mut differences = Vec::new();
        compare("", last, seen, &mut differences);
        format!("the last: {}", differences.join("; "))
    })
}

fn compare(at: &str, told: &Value, expected: &Value, differences: &mut Vec<String>) {
    match (told, expected) {
        (Value::Object(fields), Value::Object(others)) => {
            let mut names: Vec<&String> = fields.keys().chain(others.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                compare(&format!("{at}.{name}"), &told[name], &expected[name], differences);
            }
        }
        (Value::Array(elements), Value::Array(others)) if elements.len() == others.len() => {
            for (index, (told, expected)) in elements.iter().zip(others).enumerate() {
                compare(&format!("{at}[{index}]"), told, expected, differences);
            }
        }
        _ if told != expected => differences.push(format!("{at}: told {told}, seen {expected}")),
        _ => {}
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// JSON of protocol buffers writes long numbers as text.
fn number(value: &Value) -> i64 {
    value
        .as_i64()
        .or_else(|| value.as_str()?.parse().ok())
        .unwrap_or(0)
}

fn time(nanoseconds: &Value) -> Option<Timestamp> {
    let nanoseconds = number(nanoseconds);
    (nanoseconds != 0).then(|| Timestamp::from_nanosecond(nanoseconds.into()).unwrap())
}
