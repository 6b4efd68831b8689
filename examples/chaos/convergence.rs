//! Whether the node is as it should be, once there are no more faults.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_cri::{CriClient, RuntimeService, v1};
use serde_json::Value;

use crate::api::Administrator;
use crate::cluster::{NODE, is_ready};
use crate::pods::CRASHES;
use crate::witness::containers;

/// The label of a container's or sandbox's pod.
const POD_UID: &str = "io.kubernetes.pod.uid";
/// The annotation of a mirror pod with the UID of its static pod.
const STATIC_UID: &str = "kubernetes.io/config.hash";

/// What is not as it should be. Empty when all has converged.
pub(crate) async fn problems(
    administrator: &Administrator,
    runtime: &CriClient,
    static_pods: &[&str],
) -> Vec<String> {
    match look(administrator, runtime, static_pods).await {
        Ok(problems) => problems,
        Err(error) => vec![error],
    }
}

async fn look(
    administrator: &Administrator,
    runtime: &CriClient,
    static_pods: &[&str],
) -> Result<Vec<String>, String> {
    let mut problems = Vec::new();
    let node = administrator.get(&format!("/api/v1/nodes/{NODE}")).await?;
    if !is_ready(&node) {
        problems.push("the node is not ready".to_owned());
    }
    for resource in ["deployments", "statefulsets", "daemonsets"] {
        for object in administrator.list(&format!("apps/v1/{resource}")).await? {
            problems.extend(controller_problem(resource, &object));
        }
    }
    let pods = administrator.pods().await?;
    problems.extend(pods.iter().filter_map(pod_problem));
    let names: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
    for name in ["static-a", "static-b", "static-c"] {
        let (is, should) = (names.contains(format!("{name}-{NODE}").as_str()), static_pods.contains(&name));
        if is != should {
            problems.push(format!(
                "the static pod {name} {}",
                if should { "is missing" } else { "still exists" }
            ));
        }
    }
    let living: BTreeSet<&str> = pods.iter().filter(|pod| !has_ended(pod)).filter_map(uid).collect();
    let (sandboxes, containers) = running(runtime).await?;
    for sandbox in &sandboxes {
        if !living.contains(sandbox.as_str()) {
            problems.push(format!("the runtime runs a sandbox of pod {sandbox}, which has ended or is gone"));
        }
    }
    for (pod, container) in &containers {
        if !living.contains(pod.as_str()) {
            problems.push(format!("the runtime runs {container} of pod {pod}, which has ended or is gone"));
        }
    }
    Ok(problems)
}

fn uid(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref();
    let of_static = annotations.and_then(|annotations| annotations.get(STATIC_UID));
    of_static.or(pod.metadata.uid.as_ref()).map(String::as_str)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn controller_problem(resource: &str, object: &Value) -> Option<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let should = match resource {
        "daemonsets" => number(&status["desiredNumberScheduled"]),
        _ => number(&spec["replicas"]),
    };
    // Of a deployment that crashes, no more than the number of pods can be expected.
    let field = match (resource, name) {
        ("daemonsets", _) => "numberReady",
        (_, "crash") => "replicas",
        _ => "readyReplicas",
    };
    let is = number(&status[field]);
    let is_new = status["observedGeneration"] == object["metadata"]["generation"];
    let is_updated = resource != "deployments" || number(&status["updatedReplicas"]) == should;
    (is != should || !is_new || !is_updated).then(|| format!("{resource} {name}: {is} of {should} ({field})"))
}

fn pod_problem(pod: &Pod) -> Option<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref()?;
    let phase = status.phase.as_deref().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(format!("{name}: deleted and not gone, {phase}"));
    }
    if has_ended(pod) {
        return None;
    }
    if phase != "Running" {
        let waiting = containers(status)
            .filter_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.clone());
        return Some(format!("{name}: {phase} {:?}", waiting.collect::<Vec<_>>()));
    }
    if let Some(crashes) = pod.metadata.labels.as_ref().and_then(|labels| labels.get(CRASHES)) {
        return crash_problem(name, crashes, status);
    }
    // A container that has ended is restarted, or ended well.
    let waiting = status.container_statuses.iter().flatten().find(|container| {
        let state = container.state.as_ref();
        state.is_none_or(|state| {
            state.waiting.is_some() || (state.running.is_none() && state.terminated.is_none())
        })
    });
    if let Some(container) = waiting {
        let reason = container.state.as_ref().and_then(|state| state.waiting.as_ref()?.reason.clone());
        return Some(format!("{name}: {} waits: {reason:?}", container.name));
    }
    let is_ready = status.conditions.iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
    let restarts = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Always");
    (restarts && !is_ready).then(|| format!("{name}: not ready"))
}

/// A container that ends again and again runs or waits for its next start. The others run.
fn crash_problem(pod: &str, crashes: &str, status: &PodStatus) -> Option<String> {
    status.container_statuses.iter().flatten().find_map(|container| {
        let state = container.state.clone().unwrap_or_default();
        let reason = state.waiting.and_then(|waiting| waiting.reason);
        let backs_off = container.name == crashes && reason.as_deref() == Some("CrashLoopBackOff");
        let is_good = state.running.is_some() || backs_off;
        (!is_good).then(|| format!("{pod}: {} does not run: {reason:?}", container.name))
    })
}

/// The UIDs of the pods of sandboxes and containers that run; the latter with the container's name.
pub(crate) async fn running(runtime: &CriClient) -> Result<(Vec<String>, Vec<(String, String)>), String> {
    let of = |labels: &BTreeMap<String, String>| labels.get(POD_UID).cloned().unwrap_or_default();
    let sandboxes = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await;
    let sandboxes = sandboxes.map_err(|error| error.to_string())?.items;
    let sandboxes = sandboxes
        .iter()
        .filter(|sandbox| sandbox.state == v1::PodSandboxState::SandboxReady as i32)
        .map(|sandbox| of(&sandbox.labels))
        .collect();
    let containers = runtime.list_containers(v1::ListContainersRequest::default()).await;
    let containers = containers.map_err(|error| error.to_string())?.containers;
    let containers = containers
        .iter()
        .filter(|container| container.state == v1::ContainerState::ContainerRunning as i32)
        .map(|container| (of(&container.labels), container.metadata.clone().unwrap_or_default().name))
        .collect();
    Ok((sandboxes, containers))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(labels: &Value, restart_policy: &str, status: &Value) -> Option<String> {
        let pod = json!({
            "metadata": {"name": "pod", "labels": labels},
            "spec": {"containers": [], "restartPolicy": restart_policy},
            "status": status,
        });
        pod_problem(&serde_json::from_value(pod).unwrap())
    }

    fn container(name: &str, state: &Value) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 1, "state": state})
    }

    fn waits(reason: &str) -> Value {
        json!({"waiting": {"reason": reason}})
    }

    /// The problem of a pod whose container `main` ends again and again, with a second one.
    fn problem_of_crashing(main: &Value, other: &Value) -> Option<String> {
        let statuses = [container("main", main), container("other", other)];
        let status = json!({"phase": "Running", "containerStatuses": statuses});
        problem(&json!({CRASHES: "main"}), "Always", &status)
    }

    #[test]
    fn a_container_that_crashes_runs_or_backs_off() {
        let runs = json!({"running": {}});
        assert_eq!(problem_of_crashing(&runs, &runs), None);
        assert_eq!(problem_of_crashing(&waits("CrashLoopBackOff"), &runs), None);
        for stuck in [waits("CreateContainerConfigError"), json!({"terminated": {"exitCode": 1}}), json!({})]
        {
            assert!(problem_of_crashing(&stuck, &runs).unwrap().contains("main does not run"), "{stuck}");
        }
    }

    #[test]
    fn the_other_containers_of_a_pod_that_crashes_run() {
        let backs_off = waits("CrashLoopBackOff");
        for stuck in [waits("CreateContainerConfigError"), backs_off.clone(), json!({})] {
            let problem = problem_of_crashing(&backs_off, &stuck);
            assert!(problem.unwrap().contains("other does not run"), "{stuck}");
        }
    }

    #[test]
    fn a_pod_runs_and_is_ready() {
        let status = |ready: &str| {
            json!({
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": ready}],
                "containerStatuses": [container("main", &json!({"running": {}}))],
            })
        };
        assert_eq!(problem(&json!({}), "Always", &status("True")), None);
        assert!(problem(&json!({}), "Always", &status("False")).unwrap().contains("not ready"));
        assert_eq!(problem(&json!({}), "Never", &json!({"phase": "Failed"})), None);
        assert!(problem(&json!({}), "Never", &json!({"phase": "Pending"})).unwrap().contains("Pending"));
    }
}
