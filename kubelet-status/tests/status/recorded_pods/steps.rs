//! What was recorded of a pod, as what its node found, one after the other.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::ContainerId;
use kubelet_core::runtime::{
    AppliedResources, ContainerState, ContainerStatus, ContainerUser, SandboxState, SandboxStatus,
    SyncFailure,
};
use serde_json::Value;

pub(crate) enum Step {
    /// The runtime was asked what there is of the pod.
    Found {
        sandboxes: Vec<SandboxStatus>,
        containers: Vec<ContainerStatus>,
    },
    /// A container could not be started, or is backed off.
    Failed(String, SyncFailure),
    /// A container was started.
    Started(String),
    /// What the startup probe of a container found.
    Startup(ContainerId, bool),
    /// What the readiness probe of a container found.
    Readiness(ContainerId, bool),
    /// The node ends the pod: reason, message.
    Evicted(String, String),
    /// The node does not take the pod: reason, message.
    Rejected(String, String),
    /// Somebody deletes the pod.
    Deleted,
    /// Sandboxes and containers are stopped.
    Killed,
}

/// A pod is inspected by its sandboxes and then its containers; until its next sandbox is asked for it is one inspection.
pub(crate) fn steps(recorded: &[Value]) -> Vec<Step> {
    let mut all = Steps::default();
    for step in recorded {
        match step["call"].as_str().unwrap() {
            "PodSandboxStatus" if step["status"].is_object() => {
                let next = sandbox(&step["status"]);
                if !all.containers.is_empty() {
                    all.inspected();
                }
                // The PLEG reads the IPs first, of the same sandbox.
                if !all.sandboxes.iter().any(|sandbox| sandbox.id == next.id) {
                    all.sandboxes.push(next);
                }
                continue;
            }
            "ContainerStatus" if step["status"].is_object() && !all.sandboxes.is_empty() => {
                let next = container(&step["status"]);
                if !all.containers.iter().any(|container| container.id == next.id) {
                    all.containers.push(next);
                }
                continue;
            }
            _ => all.inspected(),
        }
        let id = || ContainerId::new("containerd", text(&step["id"]));
        let (reason, message) = (text(&step["reason"]), text(&step["message"]));
        all.steps.extend(match step["call"].as_str().unwrap() {
            "kill" => Some(Step::Killed),
            "deleted" => Some(Step::Deleted),
            "started" => Some(Step::Started(text(&step["container"]))),
            "failed" => {
                let failure = SyncFailure {
                    reason,
                    message,
                    back_off_until: None,
                };
                Some(Step::Failed(text(&step["container"]), failure))
            }
            "startup" => Some(Step::Startup(id(), step["success"] == true)),
            "readiness" => Some(Step::Readiness(id(), step["success"] == true)),
            "evicted" => Some(Step::Evicted(reason, message)),
            "rejected" => Some(Step::Rejected(reason, message)),
            _ => None,
        });
    }
    all.inspected();
    all.steps
}

#[derive(Default)]
struct Steps {
    steps: Vec<Step>,
    /// Of the inspection that goes on.
    sandboxes: Vec<SandboxStatus>,
    containers: Vec<ContainerStatus>,
}

impl Steps {
    fn inspected(&mut self) {
        let sandboxes = std::mem::take(&mut self.sandboxes);
        let containers = std::mem::take(&mut self.containers);
        if !sandboxes.is_empty() {
            self.steps.push(Step::Found {
                sandboxes,
                containers,
            });
        }
    }
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
        let mut resources = AppliedResources::default();
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

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text(value: &Value) -> String {
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
