//! What is said of each container.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::{AppliedResources, ContainerState, ContainerUser, SyncFailure};
use serde_json::{Value, json};

use super::case::{Case, condition, one_container, reported};

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
fn a_container_that_never_ran_is_remembered_when_it_was_removed() {
    let mut before = reported(json!({"waiting": {}}), 1);
    before["lastState"] = json!({"waiting": {}});
    let last_state = |id: &str, before: &Value| {
        let status = Case::new(one_container("Always"))
            .container(id, "a", ContainerState::Running, 0)
            .previous(json!({"phase": "Running", "containerStatuses": [before]}))
            .generate();
        status["containerStatuses"][0]["lastState"].clone()
    };
    assert_eq!(last_state("old", &before), json!({"waiting": {}}));
    assert_eq!(last_state("new", &before), json!({}));
    before["lastState"] = json!({"terminated": {"exitCode": 3}, "waiting": {}});
    assert_eq!(last_state("old", &before), json!({"terminated": {"exitCode": 3}}));
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
    case.recursive_read_only = true;
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
    let mut applied = AppliedResources::default();
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
fn what_was_never_started_waits_and_says_for_what() {
    use ContainerState::{Created, Exited, Running};
    let with_init = || {
        json!({"metadata": {"uid": "u"}, "spec": {"restartPolicy": "Always", "initContainers": [{"name": "i", "image": "i"}],
            "containers": [{"name": "a", "image": "i"}]}})
    };
    let waits = |reason: &str| json!({"waiting": {"reason": reason}});
    // pod; containers: name, state, exit code; how `a` failed to start → state of `a`, its last exit code
    let table = [
        (
            one_container("Always"),
            &[][..],
            None,
            waits("ContainerCreating"),
            Value::Null,
        ),
        (
            with_init(),
            &[("i", Running, 0)],
            None,
            waits("PodInitializing"),
            Value::Null,
        ),
        (
            one_container("Always"),
            &[("a", Created, 0)],
            None,
            json!({"waiting": {}}),
            Value::Null,
        ),
        (
            one_container("Always"),
            &[],
            Some("ImagePullBackOff"),
            waits("ImagePullBackOff"),
            Value::Null,
        ),
        (
            one_container("Always"),
            &[("a", Exited, 3)],
            Some("CrashLoopBackOff"),
            waits("CrashLoopBackOff"),
            json!(3),
        ),
        // What runs, or will not be started again, waits for nothing.
        (
            one_container("Always"),
            &[("a", Running, 0)],
            Some("CrashLoopBackOff"),
            json!({"running": {}}),
            Value::Null,
        ),
        (
            one_container("Never"),
            &[("a", Exited, 3)],
            Some("CrashLoopBackOff"),
            json!({"terminated": {"containerID": "fake://a0", "exitCode": 3}}),
            Value::Null,
        ),
    ];
    for (pod, containers, failure, state, last) in table {
        let mut case = Case::new(pod);
        for (name, state, exit_code) in containers {
            case = case.container(&format!("{name}0"), name, *state, *exit_code);
        }
        if let Some(reason) = failure {
            let failure = SyncFailure {
                reason: reason.to_owned(),
                message: String::new(),
                back_off_until: None,
            };
            case.start_failures.insert("a".to_owned(), failure);
        }
        let container = &case.generate()["containerStatuses"][0];
        assert_eq!(container["state"], state, "{containers:?} {failure:?}");
        assert_eq!(
            container["lastState"]["terminated"]["exitCode"], last,
            "{containers:?} {failure:?}"
        );
        assert_eq!(
            container["ready"],
            state["running"].is_object(),
            "{containers:?} {failure:?}"
        );
    }
}

#[test]
fn an_end_that_was_told_with_that_of_the_pod_stands() {
    use ContainerState::{Created, Exited, Running, Unknown};
    let unseen = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}});
    let waits = json!({"waiting": {"reason": "RunContainerError"}});
    let is = |exit_code: i32| json!({"terminated": {"containerID": "fake://old", "exitCode": exit_code}});
    let runs = json!({"running": {}});
    // phase and container as they were told; the runtime's instance → its state
    let table = [
        ("Failed", &unseen, Some(("old", Created)), &unseen),
        ("Failed", &unseen, Some(("old", Unknown)), &unseen),
        ("Failed", &unseen, Some(("old", Exited)), &unseen),
        ("Failed", &is(3), Some(("old", Exited)), &is(3)),
        // What still ran when the pod's end was told has ended since.
        ("Failed", &runs, Some(("old", Running)), &runs),
        ("Failed", &unseen, Some(("old", Running)), &runs),
        // Nobody told of it, or the pod goes on.
        ("Failed", &unseen, Some(("new", Created)), &waits),
        ("Failed", &waits, Some(("old", Created)), &waits),
        ("Running", &unseen, Some(("old", Created)), &waits),
        // The runtime has forgotten it.
        ("Failed", &unseen, None, &unseen),
    ];
    for (phase, told, instance, state) in table {
        let mut before = reported(told.clone(), 0);
        before["containerID"] = json!(instance.map(|_| "fake://old"));
        let mut case = Case::new(one_container("Always"))
            .previous(json!({"phase": phase, "containerStatuses": [before]}));
        if let Some((id, state)) = instance {
            case = case.container(id, "a", state, 3);
        }
        let failure = SyncFailure {
            reason: "RunContainerError".to_owned(),
            message: String::new(),
            back_off_until: None,
        };
        case.start_failures.insert("a".to_owned(), failure);
        let status = case.generate();
        assert_eq!(
            &status["containerStatuses"][0]["state"], state,
            "{phase} {told} {instance:?}"
        );
    }
}

#[test]
fn an_init_container_that_was_removed_has_done_its_work() {
    use ContainerState::{Exited, Running, Unknown};
    // its restart policy, the regular container → how it ended
    for (policy, regular, state, reason) in [
        (Value::Null, Some(Running), "terminated", "Completed"),
        (Value::Null, Some(Exited), "terminated", "Completed"),
        (Value::Null, Some(Unknown), "waiting", "PodInitializing"),
        (Value::Null, None, "waiting", "PodInitializing"),
        // A sidecar starts again.
        (json!("Always"), Some(Running), "waiting", "PodInitializing"),
    ] {
        let mut case = Case::new(
            json!({"metadata": {"uid": "u"}, "spec": {"restartPolicy": "Always",
            "initContainers": [{"name": "i", "image": "i", "restartPolicy": policy}], "containers": [{"name": "a", "image": "i"}]}}),
        );
        if let Some(regular) = regular {
            case = case.container("a0", "a", regular, 0);
        }
        let shown = &case.generate()["initContainerStatuses"][0];
        assert_eq!(shown["state"][state]["reason"], reason, "{policy} {regular:?}");
        assert_eq!(shown["ready"], state == "terminated", "{policy} {regular:?}");
    }
}

#[test]
fn ephemeral_containers_have_statuses_of_their_own() {
    let mut pod = one_container("Always");
    pod["spec"]["ephemeralContainers"] =
        json!([{"name": "z", "image": "debug"}, {"name": "d", "image": "debug"}]);
    let status = Case::new(pod)
        .container("a0", "a", ContainerState::Running, 0)
        .container("z0", "z", ContainerState::Exited, 3)
        .generate();
    let all = status["ephemeralContainerStatuses"].as_array().unwrap();
    let states: Vec<_> = all.iter().map(|s| (&s["name"], &s["state"])).collect();
    let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
    let ended = json!({"terminated": {"containerID": "fake://z0", "exitCode": 3}});
    assert_eq!(states, [(&json!("d"), &waiting), (&json!("z"), &ended)]);
    // Whatever becomes of them, they are no part of the pod's work.
    assert_eq!(
        (&status["phase"], &condition(&status, "Ready")["status"]),
        (&json!("Running"), &json!("True"))
    );
}

#[test]
fn what_is_not_told_is_not_shown() {
    let mut case = Case::new(one_container("Never")).container("a0", "a", ContainerState::Exited, 128);
    case.runtime.containers[0].stop_signal = Some("SIGUSR1".to_owned());
    // It could not be started, and has ended all the same.
    case.runtime.containers[0].started_at = Some(Timestamp::UNIX_EPOCH);
    case.runtime.containers[0].finished_at = Some("2026-01-01T00:00:01.5Z".parse().unwrap());
    let shown = &case.generate()["containerStatuses"][0];
    assert_eq!(
        shown["state"]["terminated"],
        json!({"containerID": "fake://a0", "exitCode": 128,
        "startedAt": "1970-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"})
    );
    // Who runs it, what it has, and what stops it: only if the runtime tells, and the last only behind its gate.
    assert_eq!(
        (&shown["user"], &shown["resources"], &shown["stopSignal"]),
        (&Value::Null, &json!({}), &Value::Null)
    );
    case.node.stop_signals = true;
    assert_eq!(case.generate()["containerStatuses"][0]["stopSignal"], "SIGUSR1");
}

#[test]
fn read_only_mounts_are_so_all_the_way_down_where_that_can_be() {
    // asked for, propagation, the runtime can → shown
    for (asked, propagation, can, shown) in [
        (Value::Null, Value::Null, true, "Disabled"),
        (json!("Disabled"), Value::Null, true, "Disabled"),
        (json!("IfPossible"), Value::Null, true, "Enabled"),
        (json!("IfPossible"), Value::Null, false, "Disabled"),
        (json!("Enabled"), json!("None"), true, "Enabled"),
        (json!("Enabled"), Value::Null, false, "Disabled"),
        (json!("IfPossible"), json!("HostToContainer"), true, "Disabled"),
    ] {
        let mut pod = one_container("Always");
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v", "readOnly": true,
            "recursiveReadOnly": asked, "mountPropagation": propagation}]);
        let mut case = Case::new(pod);
        case.recursive_read_only = can;
        let mount = &case.generate()["containerStatuses"][0]["volumeMounts"][0];
        assert_eq!(mount["recursiveReadOnly"], shown, "{asked} {propagation} {can}");
    }
}
