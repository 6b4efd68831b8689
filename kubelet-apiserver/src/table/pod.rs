//! Pods as `kubectl get pods` shows them.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::super::objects::Fields;
use super::{NONE, or, since};

pub(super) fn cells(pod: &Value, age: &str, now: Timestamp) -> Value {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let sidecars: Vec<&str> = spec
        .list("initContainers")
        .iter()
        .filter(|container| container.text("restartPolicy") == "Always")
        .map(|container| container.text("name"))
        .collect();
    let is_sidecar = |status: &Value| sidecars.contains(&status.text("name"));
    let (inits, containers) = (
        status.list("initContainerStatuses"),
        status.list("containerStatuses"),
    );
    let initializing = initializing(spec, inits, &is_sidecar);
    let counted = |statuses: &[&Value]| {
        let restarts: i64 = statuses
            .iter()
            .filter_map(|status| status.number("restartCount"))
            .sum();
        let last = statuses
            .iter()
            .filter_map(|status| status.pointer("/lastState/terminated/finishedAt")?.as_str())
            .max();
        match last {
            Some(last) if restarts > 0 => format!("{restarts} ({} ago)", since(&json!(last), now)),
            _ => restarts.to_string(),
        }
    };
    let running: Vec<&Value> = containers
        .iter()
        .chain(inits.iter().filter(|status| is_sidecar(status)))
        .collect();
    let restarts = match &initializing {
        Some(_) => counted(&inits.iter().collect::<Vec<_>>()),
        None => counted(&running),
    };
    let ready = running
        .iter()
        .filter(|status| {
            status.flag("ready")
                && (status["state"].has("running") || is_sidecar(status) && status.flag("started"))
        })
        .count();
    let total = spec.list("containers").len() + sidecars.len();
    let mut reason = match initializing {
        Some(reason) => reason,
        None => main_reason(pod),
    };
    if pod["metadata"].has("deletionTimestamp") {
        if status.text("reason") == "NodeLost" {
            reason = "Unknown".into();
        } else if !matches!(status.text("phase"), "Failed" | "Succeeded") {
            reason = "Terminating".into();
        }
    }
    let gates = spec.list("readinessGates");
    let passed = gates
        .iter()
        .filter(|gate| condition(status, gate.text("conditionType")) == Some("True"))
        .count();
    let gates = match gates.len() {
        0 => NONE.to_owned(),
        count => format!("{passed}/{count}"),
    };
    json!([
        pod["metadata"].text("name"),
        format!("{ready}/{total}"),
        reason,
        restarts,
        age,
        or(status["podIPs"][0].text("ip"), NONE),
        or(spec.text("nodeName"), NONE),
        or(status.text("nominatedNodeName"), NONE),
        gates,
    ])
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = status.list("conditions").iter();
    let mut found = conditions.filter(|condition| condition.text("type") == kind);
    found.next().map(|condition| condition.text("status"))
}

/// The status of the first init container that blocks the pod, if there is one.
fn initializing(spec: &Value, inits: &[Value], is_sidecar: &dyn Fn(&Value) -> bool) -> Option<String> {
    for (index, status) in inits.iter().enumerate() {
        let state = &status["state"];
        if state["terminated"].number("exitCode") == Some(0) || is_sidecar(status) && status.flag("started") {
            continue;
        }
        if let Some(ended) = state.field("terminated") {
            return Some(format!("Init:{}", end(ended)));
        }
        let waits = state["waiting"].text("reason");
        if !matches!(waits, "" | "PodInitializing") {
            return Some(format!("Init:{waits}"));
        }
        return Some(format!("Init:{index}/{}", spec.list("initContainers").len()));
    }
    None
}

fn end(ended: &Value) -> String {
    match (ended.text("reason"), ended.number("signal").unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", ended.number("exitCode").unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// The reason of the first container that has one, else the phase.
fn main_reason(pod: &Value) -> String {
    let status = &pod["status"];
    let mut reason = or(status.text("reason"), status.text("phase")).to_owned();
    let gated = status.list("conditions").iter().any(|condition| {
        condition.text("type") == "PodScheduled" && condition.text("reason") == "SchedulingGated"
    });
    if gated {
        reason = "SchedulingGated".into();
    }
    let mut has_running = false;
    for container in status.list("containerStatuses").iter().rev() {
        let state = &container["state"];
        let waits = state["waiting"].text("reason");
        if !waits.is_empty() {
            reason = waits.to_owned();
        } else if let Some(ended) = state.field("terminated") {
            reason = end(ended);
        } else if container.flag("ready") && state.has("running") {
            has_running = true;
        }
    }
    if reason == "Completed" && has_running {
        reason = if condition(status, "Ready") == Some("True") {
            "Running".into()
        } else {
            "NotReady".into()
        };
    }
    reason
}
