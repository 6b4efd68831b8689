//! Phase, conditions, IPs, class.

use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::ContainerState;
use kubelet_core::{Eviction, PodStatusInput};
use kubelet_status::generate_api_pod_status;
use serde_json::{Value, json};

use super::case::{Case, condition, one_container};

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

#[test]
fn ips_of_node_and_pod_in_their_order() {
    // the runtime's IPs, the node's, IPv6 first, host network → podIPs, hostIPs
    let table = [
        (
            &["10.0.0.1"][..],
            &["10.99.0.1"][..],
            false,
            false,
            &["10.0.0.1"][..],
            &["10.99.0.1"][..],
        ),
        (
            &["fd00::1", "10.0.0.1", "10.0.0.2"],
            &["10.99.0.1", "fd99::1"],
            false,
            false,
            &["10.0.0.1", "fd00::1"],
            &["10.99.0.1", "fd99::1"],
        ),
        (
            &["10.0.0.1", "fd00::1"],
            &["fd99::1", "10.99.0.1"],
            true,
            false,
            &["fd00::1", "10.0.0.1"],
            &["fd99::1", "10.99.0.1"],
        ),
        // A node has two at most, and a pod none of its own on the host's network.
        (
            &[],
            &["10.99.0.1", "fd99::1", "10.99.0.2"],
            false,
            true,
            &["10.99.0.1", "fd99::1"],
            &["10.99.0.1", "fd99::1"],
        ),
        // What the runtime tells of such a pod stays, and gets a second family beside it.
        (
            &["10.99.0.9"],
            &["10.99.0.1", "fd99::1"],
            false,
            true,
            &["10.99.0.9", "fd99::1"],
            &["10.99.0.1", "fd99::1"],
        ),
        (&["10.0.0.1"], &[], false, false, &["10.0.0.1"], &[]),
        (&[], &["10.99.0.1"], false, false, &[], &["10.99.0.1"]),
    ];
    for (of_runtime, of_node, ipv6_first, host_network, pod_ips, host_ips) in table {
        let mut pod = one_container("Always");
        pod["spec"]["hostNetwork"] = json!(host_network);
        let mut case = Case::new(pod);
        case.runtime.ips = of_runtime.iter().map(|ip| (*ip).to_owned()).collect();
        case.node.host_ips = of_node.iter().map(|ip| ip.parse().unwrap()).collect();
        case.node.ipv6_first = ipv6_first;
        let status = case.generate();
        let list = |ips: &[&str]| match ips {
            [] => Value::Null,
            ips => json!(ips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>()),
        };
        assert_eq!(
            (&status["podIPs"], &status["hostIPs"]),
            (&list(pod_ips), &list(host_ips)),
            "{of_runtime:?} {of_node:?}"
        );
        // The first of each stands alone as well.
        assert_eq!(
            (&status["podIP"], &status["hostIP"]),
            (&json!(pod_ips.first()), &json!(host_ips.first()))
        );
    }
}

#[test]
fn the_qos_class_follows_from_what_is_asked_for() {
    let both = json!({"cpu": "1", "memory": "1Gi"});
    for (a, b, class) in [
        (json!({}), json!({}), "BestEffort"),
        (
            json!({"limits": both, "requests": both}),
            json!({"limits": both}),
            "Burstable",
        ),
        (
            json!({"limits": both, "requests": both}),
            json!({"limits": both, "requests": both}),
            "Guaranteed",
        ),
        (json!({"limits": both, "requests": both}), json!({}), "Burstable"),
        (
            json!({"requests": {"example.com/gpu": "1"}}),
            json!({}),
            "BestEffort",
        ),
    ] {
        let pod = json!({"metadata": {"uid": "u"}, "spec": {"containers": [
            {"name": "a", "image": "i", "resources": a}, {"name": "b", "image": "i", "resources": b}]}});
        assert_eq!(Case::new(pod).generate()["qosClass"], class, "{a} {b}");
    }
}
