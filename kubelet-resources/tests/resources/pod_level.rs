//! Pods with pod-level resources: one allocation for the pod, divided among its containers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_resources::topology::{TopologyPolicy, TopologyScope};
use kubelet_resources::{Allocator, Error, ResourcesState};
use serde_json::{Value, json};

use crate::pods::{config, container, machine, pod};

const GIB: u64 = 1 << 30;

fn allocator(policy: TopologyPolicy, scope: TopologyScope, enabled: bool) -> Allocator {
    let mut config = config(policy, scope);
    config.gates.pod_level_resource_managers = enabled;
    Allocator::new(&machine(2, 6, 1, 1), &config, ResourcesState::default()).unwrap()
}

fn with_resources(pod: &Arc<Pod>, cpu: &str, memory: &str) -> Arc<Pod> {
    let mut pod = Pod::clone(pod);
    let list = json!({"cpu": cpu, "memory": memory});
    let spec = pod.spec.as_mut().unwrap();
    spec.resources = serde_json::from_value(json!({"requests": list, "limits": list})).unwrap();
    Arc::new(pod)
}

fn exclusive(name: &str, cpu: &str) -> Value {
    container(name, &json!({"cpu": cpu, "memory": "1Gi"}))
}

fn sidecar(mut container: Value) -> Value {
    container["restartPolicy"] = json!("Always");
    container
}

fn shared(name: &str) -> Value {
    json!({"name": name, "image": "image"})
}

/// `TestStaticPolicyAllocatePod` of both managers.
#[test]
fn the_pod_has_a_set_that_its_containers_divide() {
    let mut allocator = allocator(TopologyPolicy::SingleNumaNode, TopologyScope::Pod, true);
    let init = [
        exclusive("init", "3"),
        sidecar(exclusive("side", "1")),
        shared("late"),
    ];
    let apps = [exclusive("own", "2"), shared("x"), shared("y")];
    let pod = with_resources(&pod("a", &init, &apps), "5", "6Gi");
    allocator.admit(&pod, Some(&[])).unwrap();

    let state = allocator.cpu_state();
    assert_eq!(state.pods["a-uid"].len(), 5);
    let cpus = |name: &str| state.allocated("a-uid", name).unwrap().to_string();
    // The five CPUs are those of node 0 but the reserved one. The init container ends before the others need its CPUs.
    let all = ["init", "side", "late", "own", "x", "y"].map(cpus);
    assert_eq!(all, ["1-3", "1", "2-5", "2-3", "4-5", "4-5"]);
    assert_eq!(state.shared.to_string(), "0,6-11");

    let memory = allocator.memory_state();
    let size = |name: &str| memory.blocks("a-uid", name).unwrap()[0].size / GIB;
    assert_eq!(["init", "side", "late", "own", "x"].map(size), [1, 1, 5, 1, 4]);
    assert_eq!(memory.nodes[&0].memory["memory"].reserved, 6 * GIB);

    let spec = pod.spec.as_ref().unwrap();
    assert!(allocator.has_exclusive_cpus(&pod, &spec.containers[0]));
    assert!(!allocator.has_exclusive_cpus(&pod, &spec.containers[1]));

    // Admitted again after a restart, nothing moves.
    let before = (allocator.cpu_state().clone(), allocator.memory_state().clone());
    allocator.admit(&pod, Some(&[])).unwrap();
    assert_eq!(
        (allocator.cpu_state(), allocator.memory_state()),
        (&before.0, &before.1)
    );
    // Then it ends.
    allocator.remove_stale(&[]);
    assert_eq!(allocator.cpu_state().shared.to_string(), "0-11");
    assert_eq!(allocator.memory_state().nodes[&0].memory["memory"].reserved, 0);
}

/// `TestValidatePodScopeResources` of both managers.
#[test]
fn something_must_be_left_for_containers_that_share() {
    let admit = |init: &[Value], apps: &[Value]| -> Error {
        let mut allocator = allocator(TopologyPolicy::BestEffort, TopologyScope::Pod, true);
        let pod = with_resources(&pod("a", init, apps), "2", "2Gi");
        allocator.admit(&pod, Some(&[])).unwrap_err()
    };
    let error = admit(&[], &[exclusive("own", "2"), shared("x")]);
    assert_eq!(error.rejection().reason, "EmptyPodSharedPoolError");
    assert_eq!(
        error.to_string(),
        "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
    );
    let error = admit(&[sidecar(exclusive("side", "2")), shared("late")], &[shared("x")]);
    assert_eq!(
        error.to_string(),
        "pod rejected, pod has shared init containers but no cpus available for them"
    );
    let all_memory = container("own", &json!({"cpu": "1", "memory": "2Gi"}));
    let error = admit(&[], &[all_memory, shared("x")]);
    assert_eq!(
        error.to_string(),
        "pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for shared containers"
    );
}

#[test]
fn a_rejection_says_that_it_is_about_the_pod() {
    let big = with_resources(&pod("a", &[], &[exclusive("own", "6"), shared("x")]), "8", "4Gi");
    for (scope, message) in [
        (
            TopologyScope::Pod,
            "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
        ),
        (
            TopologyScope::Container,
            "Pod Scope pod with pod-level resources failed admission with a container-level topology manager",
        ),
    ] {
        let mut allocator = allocator(TopologyPolicy::SingleNumaNode, scope, true);
        let other = pod("other", &[], &[exclusive("c", "4")]);
        allocator.admit(&other, Some(&[])).unwrap();
        let second = pod("second", &[], &[exclusive("c", "4")]);
        allocator
            .admit(&second, Some(std::slice::from_ref(&other)))
            .unwrap();
        let error = allocator.admit(&big, Some(&[other, second])).unwrap_err();
        let rejection = error.rejection();
        assert_eq!(
            (rejection.reason.as_str(), rejection.message.as_str()),
            ("TopologyAffinityError", message)
        );
    }
}

/// Without the gate, the managers leave such pods alone.
#[test]
fn without_the_gate_nothing_is_allocated() {
    for scope in [TopologyScope::Pod, TopologyScope::Container] {
        let mut allocator = allocator(TopologyPolicy::Restricted, scope, false);
        let pod = with_resources(&pod("a", &[], &[exclusive("own", "2")]), "2", "1Gi");
        allocator.admit(&pod, Some(&[])).unwrap();
        assert_eq!(allocator.cpu_state().allocated(pod.uid_str(), "own"), None);
        assert_eq!(allocator.memory_state().blocks(pod.uid_str(), "own"), None);
    }
}
