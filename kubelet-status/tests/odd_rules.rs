//! Rules of the status function that the recordings do not reach.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus as ApiPodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::{ContainerResources, ContainerState, ContainerStatus, ContainerUser, PodStatus};
use kubelet_core::{ContainerId, Eviction, PodExt, PodStatusInput};
use kubelet_status::{NodeFacts, generate_api_pod_status};
use serde_json::{Value, json};

struct Case {
    pod: Arc<Pod>,
    runtime: PodStatus,
    previous: ApiPodStatus,
    node: NodeFacts,
    eviction: Option<Eviction>,
}

impl Case {
    fn new(pod: Value) -> Self {
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
        Self {
            runtime: PodStatus::empty(pod.uid(), pod.key(), tokio::time::Instant::now()),
            pod,
            previous: ApiPodStatus::default(),
            node: NodeFacts::default(),
            eviction: None,
        }
    }

    fn previous(mut self, previous: Value) -> Self {
        self.previous = serde_json::from_value(previous).unwrap();
        self
    }

    fn container(mut self, id: &str, name: &str, state: ContainerState, exit_code: i32) -> Self {
        let mut status = ContainerStatus::new(ContainerId::new("fake", id), name, state);
        status.exit_code = exit_code;
        status.created_at = Some(Timestamp::UNIX_EPOCH);
        self.runtime.containers.push(status);
        self
    }

    fn generate(&self) -> Value {
        let mut input = PodStatusInput::new(&self.pod, &self.runtime);
        input.eviction = self.eviction.as_ref();
        json!(generate_api_pod_status(
            &input,
            &self.previous,
            &self.node,
            Timestamp::UNIX_EPOCH
        ))
    }
}

fn one_container(policy: &str) -> Value {
    json!({"metadata": {"uid": "u"}, "spec": {"restartPolicy": policy, "containers": [{"name": "a", "image": "i"}]}})
}

fn reported(state: Value, restart_count: i32) -> Value {
    json!({"name": "a", "image": "i", "imageID": "i", "containerID": "fake://old", "ready": true,
        "restartCount": restart_count, "state": state, "lastState": {}})
}

fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    let all = status["conditions"].as_array().unwrap();
    all.iter()
        .find(|condition| condition["type"] == type_)
        .unwrap_or(&Value::Null)
}

#[test]
fn a_terminal_phase_never_leaves_and_keeps_its_reason() {
    let running = |pod| Case::new(pod).container("new", "a", ContainerState::Running, 0);
    let mut of_api = one_container("Always");
    of_api["status"] = json!({"phase": "Failed", "reason": "Evicted"});
    let status = running(of_api).generate();
    assert_eq!(status["phase"], "Failed");

    let status = running(one_container("Always"))
        .previous(json!({"phase": "Succeeded", "reason": "Done", "message": "well"}))
        .generate();
    assert_eq!(
        (&status["phase"], &status["reason"], &status["message"]),
        (&json!("Succeeded"), &json!("Done"), &json!("well"))
    );
    assert_eq!(condition(&status, "Ready")["reason"], "PodCompleted");

    // The reason goes with the phase.
    let status = running(one_container("Always"))
        .previous(json!({"phase": "Pending", "reason": "Slow"}))
        .generate();
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Running"), &Value::Null)
    );
}

#[test]
fn an_evicted_pod_has_failed_and_says_why() {
    let mut case = Case::new(one_container("Always")).container("new", "a", ContainerState::Running, 0);
    case.eviction = Some(Eviction {
        reason: "DeadlineExceeded".to_owned(),
        message: "too long".to_owned(),
    });
    let status = case.generate();
    assert_eq!(
        (&status["phase"], &status["reason"], &status["message"]),
        (&json!("Failed"), &json!("DeadlineExceeded"), &json!("too long"))
    );
    assert_eq!(condition(&status, "ContainersReady")["reason"], "PodFailed");
}

#[test]
fn conditions_of_others_are_kept_and_a_disruption_stays() {
    let mut pod = one_container("Always");
    pod["status"] = json!({"conditions": [
        {"type": "example.com/x", "status": "True"},
        {"type": "Ready", "status": "True", "reason": "Stale"},
        {"type": "DisruptionTarget", "status": "False"}]});
    let status = Case::new(pod)
        .previous(json!({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]}))
        .generate();
    let types: Vec<&str> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| condition["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        types,
        [
            "example.com/x",
            "DisruptionTarget",
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled"
        ]
    );
    assert_eq!(
        condition(&status, "DisruptionTarget")["reason"],
        "TerminationByKubelet"
    );
    assert_eq!(condition(&status, "Ready")["reason"], "ContainersNotReady");
    // Without an IP of the node there is none to say, and without a generation none was observed.
    assert_eq!(status["hostIP"], Value::Null);
    assert_eq!(condition(&status, "Ready")["observedGeneration"], Value::Null);
}

#[test]
fn restart_counts_only_grow_and_an_instance_that_was_removed_is_remembered() {
    let ended = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
    // what was reported; the runtime's new instance → restarts, exit code of the last state
    let table = [
        (
            reported(ended.clone(), 4),
            ContainerState::Running,
            json!(5),
            json!(3),
        ),
        (reported(ended, 4), ContainerState::Created, json!(4), json!(3)),
        (
            reported(json!({"running": {}}), 2),
            ContainerState::Running,
            json!(2),
            Value::Null,
        ),
        (
            reported(json!({"running": {}}), 2),
            ContainerState::Unknown,
            json!(3),
            Value::Null,
        ),
    ];
    for (before, state, restarts, last) in table {
        let status = Case::new(one_container("Always"))
            .previous(json!({"containerStatuses": [before]}))
            .container("new", "a", state, 0)
            .generate();
        let container = &status["containerStatuses"][0];
        assert_eq!(container["restartCount"], restarts, "{state:?} after {before}");
        assert_eq!(
            container["lastState"]["terminated"]["exitCode"], last,
            "{state:?} after {before}"
        );
    }
}

#[test]
fn a_container_that_vanished_has_ended_unseen() {
    let before = json!({"phase": "Running", "containerStatuses": [reported(json!({"running": {}}), 1)]});
    let status = Case::new(one_container("Never"))
        .previous(before.clone())
        .generate();
    let container = &status["containerStatuses"][0];
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 137);
    assert_eq!(
        container["lastState"]["terminated"]["reason"],
        "ContainerStatusUnknown"
    );
    assert_eq!(
        (&container["restartCount"], &status["phase"]),
        (&json!(2), &json!("Failed"))
    );

    let mut deleting = one_container("Never");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let status = Case::new(deleting).previous(before).generate();
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1);
}

#[test]
fn all_containers_start_again_in_place() {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]);
    let pod = || {
        json!({"metadata": {"uid": "u"}, "spec": {"restartPolicy": "Never", "containers": [
            {"name": "a", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules}, {"name": "b", "image": "i"}]}})
    };
    let mut b = reported(json!({"running": {}}), 0);
    b["name"] = json!("b");
    // `a` ended as its rule says, and `b` was removed for it.
    let status = Case::new(pod())
        .container("a1", "a", ContainerState::Exited, 88)
        .previous(json!({"phase": "Running", "containerStatuses": [b]}))
        .generate();
    let all = condition(&status, "AllContainersRestarting");
    assert_eq!(
        (&all["status"], &all["reason"]),
        (&json!("True"), &json!("RestartAllContainersStarted"))
    );
    let b = &status["containerStatuses"][1];
    assert_eq!(b["state"]["waiting"]["reason"], "RestartingAllContainers");
    assert_eq!(
        (&b["lastState"]["terminated"]["exitCode"], &b["restartCount"]),
        (&json!(137), &json!(1))
    );
    assert_eq!(status["phase"], "Running");

    // All are removed: it is done.
    let status = Case::new(pod())
        .previous(json!({"conditions": [{"type": "AllContainersRestarting", "status": "True"}, {"type": "Initialized", "status": "True"}]}))
        .generate();
    assert_eq!(condition(&status, "AllContainersRestarting")["status"], "False");
    assert_eq!(condition(&status, "Initialized")["status"], "True");
}

#[test]
fn volume_mounts_user_and_resources() {
    let pod = json!({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "a", "image": "i",
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [
            {"name": "rw", "mountPath": "/rw"},
            {"name": "ro", "mountPath": "/ro", "readOnly": true},
            {"name": "rro", "mountPath": "/rro", "readOnly": true, "recursiveReadOnly": "IfPossible"}]}]}});
    let mut case = Case::new(pod.clone());
    case.node.recursive_read_only = true;
    let status = case.generate();
    let mounts = status["containerStatuses"][0]["volumeMounts"].clone();
    assert_eq!(
        mounts,
        json!([
            {"name": "rw", "mountPath": "/rw"},
            {"name": "ro", "mountPath": "/ro", "readOnly": true, "recursiveReadOnly": "Disabled"},
            {"name": "rro", "mountPath": "/rro", "readOnly": true, "recursiveReadOnly": "Enabled"}])
    );
    assert_eq!(status["allocatedResources"], json!({"cpu": "100m"}));
    assert_eq!(
        status["resources"],
        json!({"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}})
    );
    assert_eq!(status["qosClass"], "Burstable");

    // Once it runs the mounts stay as they were reported, and who it runs as is told.
    let mut case = Case::new(pod)
        .previous(status)
        .container("a1", "a", ContainerState::Running, 0);
    case.runtime.containers[0].user = Some(ContainerUser {
        uid: 7,
        gid: 8,
        supplemental_groups: vec![9],
    });
    let status = case.generate();
    let container = &status["containerStatuses"][0];
    assert_eq!(container["volumeMounts"], mounts);
    assert_eq!(
        container["user"],
        json!({"linux": {"uid": 7, "gid": 8, "supplementalGroups": [9]}})
    );
    assert_eq!(container["allocatedResources"], json!({"cpu": "100m"}));
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}})
    );
}

#[test]
fn a_resize_shows_between_others_conditions_and_the_kubelets_own() {
    let resize: Vec<PodCondition> = serde_json::from_value(json!([
        {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "no room", "observedGeneration": 5},
        {"type": "PodResizeInProgress", "status": "True", "observedGeneration": 4}]))
    .unwrap();
    let mut pod = one_container("Always");
    pod["metadata"]["generation"] = json!(6);
    pod["status"] = json!({"conditions": [
        {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "of an earlier spec"},
        {"type": "example.com/x", "status": "True"}]});
    let case = Case::new(pod);
    let mut input = PodStatusInput::new(&case.pod, &case.runtime);
    let shown = |input: &PodStatusInput<'_>| {
        json!(generate_api_pod_status(
            input,
            &case.previous,
            &case.node,
            Timestamp::UNIX_EPOCH
        ))
    };
    // What the API server shows of resizes is the kubelet's own word of before.
    assert_eq!(condition(&shown(&input), "PodResizePending"), &Value::Null);
    input.resize_conditions = &resize;
    let status = shown(&input);
    let first: Vec<&Value> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["type"])
        .take(4)
        .collect();
    assert_eq!(
        first,
        [
            "example.com/x",
            "PodResizePending",
            "PodResizeInProgress",
            "PodReadyToStartContainers"
        ]
    );
    // It is about the spec that it was asked for, and all else about the newest.
    let generation = |type_| condition(&status, type_)["observedGeneration"].clone();
    assert_eq!(
        [
            generation("PodResizePending"),
            generation("PodResizeInProgress"),
            generation("Ready")
        ],
        [5, 4, 6]
    );
    assert_eq!(condition(&status, "PodResizePending")["reason"], "Deferred");
}

#[test]
fn a_resized_container_shows_what_it_is_allocated_and_what_it_has() {
    let resources = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}});
    let pod = json!({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "a", "image": "i", "resources": resources("2", "2Gi")}]},
        "status": {"phase": "Running"}});
    let mut before = reported(json!({"running": {}}), 0);
    before["containerID"] = json!("fake://a1");
    before["resources"] = resources("1", "1Gi");
    let previous =
        json!({"phase": "Running", "containerStatuses": [before], "resources": resources("1", "1Gi")});
    // It is allocated more, and the runtime has not applied it yet.
    let mut case = Case::new(pod)
        .previous(previous)
        .container("a1", "a", ContainerState::Running, 0);
    let quantity = |amount: &str| Some(Quantity(amount.to_owned()));
    let mut applied = ContainerResources::default();
    (applied.cpu_request, applied.cpu_limit, applied.memory_limit) =
        (quantity("1"), quantity("1"), quantity("1Gi"));
    case.runtime.containers[0].resources = Some(applied.clone());
    let status = case.generate();
    let shown = &status["containerStatuses"][0];
    assert_eq!(shown["allocatedResources"], json!({"cpu": "2", "memory": "2Gi"}));
    assert_eq!(shown["resources"], resources("1", "1Gi"));
    assert_eq!(status["allocatedResources"], json!({"cpu": "2", "memory": "2Gi"}));
    // Then it has.
    (applied.cpu_request, applied.cpu_limit, applied.memory_limit) =
        (quantity("2"), quantity("2"), quantity("2Gi"));
    applied.memory_request = quantity("2Gi");
    case.runtime.containers[0].resources = Some(applied);
    assert_eq!(
        case.generate()["containerStatuses"][0]["resources"],
        resources("2", "2Gi")
    );
    // A container that does not run shows what it will be given.
    case.runtime.containers[0].state = ContainerState::Exited;
    assert_eq!(
        case.generate()["containerStatuses"][0]["resources"],
        resources("2", "2Gi")
    );
}

#[test]
fn readiness_gates_are_read_from_the_conditions_of_others() {
    // the gate's condition → Ready, reason, message; ContainersReady
    for (gate, ready, reason, message) in [
        (
            None,
            "False",
            json!("ReadinessGatesNotReady"),
            json!("corresponding condition of pod readiness gate \"example.com/g\" does not exist."),
        ),
        (
            Some("False"),
            "False",
            json!("ReadinessGatesNotReady"),
            json!("the status of pod readiness gate \"example.com/g\" is not \"True\", but False"),
        ),
        (
            Some("Unknown"),
            "False",
            json!("ReadinessGatesNotReady"),
            json!("the status of pod readiness gate \"example.com/g\" is not \"True\", but Unknown"),
        ),
        (Some("True"), "True", Value::Null, Value::Null),
    ] {
        let mut pod = one_container("Always");
        pod["spec"]["readinessGates"] = json!([{"conditionType": "example.com/g"}]);
        let conditions: Vec<Value> = gate
            .iter()
            .map(|status| json!({"type": "example.com/g", "status": status}))
            .collect();
        pod["status"] = json!({"conditions": conditions});
        let status = Case::new(pod)
            .container("a1", "a", ContainerState::Running, 0)
            .generate();
        let is_ready = condition(&status, "Ready");
        assert_eq!(
            (&is_ready["status"], &is_ready["reason"], &is_ready["message"]),
            (&json!(ready), &reason, &message)
        );
        assert_eq!(condition(&status, "ContainersReady")["status"], "True");
    }
}
