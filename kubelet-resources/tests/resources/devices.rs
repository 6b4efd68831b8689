//! Devices: hints, the choice of devices, the state file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;
use kubelet_resources::NumaSet;
use kubelet_resources::devices::{Choice, Device, DeviceState, read_device_state, write_device_state};
use kubelet_resources::topology::TopologyHint;
use serde_json::{Value, json};

use crate::pods;

const GPU: &str = "example.com/gpu";

fn ids(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn nodes(ids: &[usize]) -> NumaSet {
    NumaSet::of(ids.iter().copied()).unwrap()
}

/// Devices by id and their nodes; `!` before the id: unhealthy.
fn devices(list: &[(&str, &[i64])]) -> BTreeMap<String, Device> {
    let device = |(id, nodes): &(&str, &[i64])| {
        let device = Device {
            healthy: !id.starts_with('!'),
            nodes: Some(nodes.to_vec()),
        };
        (id.trim_start_matches('!').to_owned(), device)
    };
    list.iter().map(device).collect()
}

fn state(list: &[(&str, &[i64])]) -> DeviceState {
    let mut state = DeviceState::new(nodes(&[0, 1]));
    state.report(GPU, devices(list));
    state
}

const FOUR: [(&str, &[i64]); 4] = [("a", &[0]), ("b", &[0]), ("c", &[1]), ("d", &[1])];

fn container(name: &str, gpus: u64) -> Value {
    json!({"name": name, "resources": {"limits": {GPU: gpus.to_string()}}})
}

fn pod(name: &str, init: &[Value], containers: &[Value]) -> Arc<Pod> {
    pods::pod(name, init, containers)
}

fn first(pod: &Pod) -> &Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

/// Chooses and allocates without a preference of the plugin.
fn allocate(
    state: &mut DeviceState,
    pod: &Arc<Pod>,
    container: &Container,
    hint: TopologyHint,
) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (resource, count) in state.requests(container) {
        let choice = state
            .choose(pod.uid_str(), &container.name, &resource, count, hint, false)
            .unwrap();
        let chosen = match choice {
            Choice::Devices(chosen) => chosen,
            Choice::Ask(request) => request.answer(&BTreeSet::new()).unwrap(),
            _ => continue,
        };
        state.allocate(
            pod.uid_str(),
            &container.name,
            &resource,
            &chosen,
            b"answer".to_vec(),
        );
        all.extend(chosen);
    }
    state.container_done(pod, container);
    all
}

/// `TestGetTopologyHints`
#[test]
fn hints_are_the_nodes_with_enough_devices() {
    let hints = |state: &DeviceState, gpus| {
        let pod = pod("a", &[], &[container("c", gpus)]);
        state.container_hints(&pod, first(&pod))[GPU].clone()
    };
    let hint = |ids: &[usize], preferred| TopologyHint::new(nodes(ids), preferred);
    let mut four = state(&FOUR);
    assert_eq!(
        hints(&four, 2).unwrap(),
        [hint(&[0], true), hint(&[1], true), hint(&[0, 1], false)]
    );
    assert_eq!(hints(&four, 3).unwrap(), [hint(&[0, 1], true)]);
    assert_eq!(hints(&four, 5).unwrap(), []);
    // Another pod has one: both nodes could serve two, but now only one does.
    let other = pod("other", &[], &[container("c", 1)]);
    allocate(&mut four, &other, first(&other), TopologyHint::any(true));
    assert_eq!(hints(&four, 2).unwrap(), [hint(&[1], true), hint(&[0, 1], false)]);
    assert_eq!(
        four.container_hints(&other, first(&other))[GPU].clone().unwrap(),
        [hint(&[0], true), hint(&[0, 1], false)]
    );
    // The sick one counts for what would be possible.
    let sick = state(&[("a", &[0]), ("!b", &[0]), ("c", &[1])]);
    assert_eq!(hints(&sick, 2).unwrap(), [hint(&[0, 1], false)]);
    // Without nodes there is no preference.
    assert_eq!(hints(&state(&[("a", &[]), ("b", &[])]), 2), None);
    // Nodes without devices do not count.
    assert_eq!(hints(&state(&[("a", &[1])]), 1).unwrap(), [hint(&[1], true)]);
}

/// `TestGetPodTopologyHints`
#[test]
fn hints_of_a_pod_are_for_all_its_containers() {
    let pod = pod("a", &[container("i", 1)], &[container("c", 1), container("x", 2)]);
    let hints = state(&FOUR).pod_hints(&pod);
    assert_eq!(
        hints[GPU].clone().unwrap(),
        [TopologyHint::new(nodes(&[0, 1]), true)]
    );
}

/// `TestTopologyAlignedAllocation`, `TestGetPreferredAllocationParameters`
#[test]
fn devices_near_the_hint_are_taken_first_and_the_plugin_has_a_say() {
    let state = state(&[("a", &[0]), ("b", &[0]), ("c", &[1]), ("d", &[1]), ("e", &[])]);
    let choose = |count, nodes| {
        let hint = TopologyHint {
            nodes,
            preferred: true,
        };
        state.choose("uid", "c", GPU, count, hint, false).unwrap()
    };
    let asked = |choice| match choice {
        Choice::Ask(request) => request,
        choice => panic!("{choice:?}"),
    };
    // Some of those near the hint.
    let request = asked(choose(1, Some(nodes(&[1]))));
    assert_eq!(
        (&request.available, &request.must_include, request.size),
        (&ids(&["c", "d"]), &ids(&[]), 1)
    );
    assert_eq!(request.clone().answer(&ids(&["d"])).unwrap(), ids(&["d"]));
    // It cannot choose others.
    assert_eq!(request.answer(&ids(&["a"])).unwrap(), ids(&["c"]));
    // Exactly those near the hint.
    assert_eq!(choose(2, Some(nodes(&[1]))), Choice::Devices(ids(&["c", "d"])));
    // More than these.
    let request = asked(choose(3, Some(nodes(&[1]))));
    assert_eq!(request.must_include, ids(&["c", "d"]));
    assert_eq!(request.available.len(), 5);
    assert_eq!(
        request.clone().answer(&ids(&["e"])).unwrap(),
        ids(&["c", "d", "e"])
    );
    // Others with nodes go before those without.
    assert_eq!(request.answer(&ids(&[])).unwrap(), ids(&["a", "c", "d"]));
    // Without a hint it chooses among all.
    assert_eq!(asked(choose(1, None)).available.len(), 5);
}

/// `TestPodContainerDeviceToAllocate`, `TestUpdateCapacityAllocatable`
#[test]
fn what_cannot_be_allocated_is_refused() {
    let mut state = state(&[("a", &[0]), ("!b", &[0])]);
    let any = TopologyHint::any(true);
    let refusal = |state: &DeviceState, uid: &str, count| {
        let choice = state.choose(uid, "c", GPU, count, any, false);
        choice.unwrap_err().to_string()
    };
    assert_eq!(state.capacity()[GPU], (2, 1));
    assert_eq!(
        refusal(&state, "a-uid", 2),
        "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1"
    );
    let a = pod("a", &[], &[container("c", 1)]);
    assert_eq!(allocate(&mut state, &a, first(&a), any), ids(&["a"]));
    assert_eq!(
        state.choose("a-uid", "c", GPU, 1, any, false).unwrap(),
        Choice::Nothing
    );
    assert_eq!(
        refusal(&state, "a-uid", 2),
        "pod \"a-uid\" container \"c\" changed request for resource \"example.com/gpu\" from 1 to 2"
    );
    // The other device is healthy now, the one of the pod is not.
    state.report(GPU, devices(&[("!a", &[0]), ("b", &[0])]));
    assert_eq!(
        refusal(&state, "a-uid", 1),
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu"
    );
    state.plugin_gone(GPU);
    assert_eq!(state.capacity()[GPU], (2, 0));
    assert_eq!(
        refusal(&state, "a-uid", 1),
        "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"
    );
    // A container that runs since before the agent started has its devices.
    assert_eq!(
        state.choose("a-uid", "c", GPU, 1, any, true).unwrap(),
        Choice::Nothing
    );
    state.forget(GPU);
    assert_eq!(
        refusal(&state, "a-uid", 1),
        "cannot allocate unregistered device example.com/gpu"
    );
    assert!(state.capacity().is_empty());
    // Its pod ends.
    assert!(state.remove_stale(&[]) && state.allocated().is_empty());
}

#[test]
fn a_plugin_that_goes_before_it_reports_leaves_a_resource_of_which_there_is_none() {
    let mut state = state(&[]);
    state.forget(GPU);
    state.plugin_gone(GPU);
    assert_eq!(state.capacity(), [(GPU.to_owned(), (0, 0))].into());
    assert_eq!(state.registered().count(), 0, "a restart forgets it");
    // It comes back with a device.
    state.report(GPU, devices(&[("a", &[0])]));
    assert_eq!(state.capacity(), [(GPU.to_owned(), (1, 1))].into());
    state.plugin_gone(GPU);
    assert_eq!(state.capacity(), [(GPU.to_owned(), (1, 0))].into());
    // Another one goes at once, and stays away.
    state.plugin_gone("example.com/nic");
    state.forget("example.com/nic");
    assert_eq!(state.capacity().len(), 1);
}

/// `TestInitContainerDeviceAllocation`, `TestRestartableInitContainerDeviceAllocation`
#[test]
fn devices_of_init_containers_are_used_again() {
    let mut state = state(&FOUR);
    let any = TopologyHint::any(true);
    let mut side = container("side", 1);
    side["restartPolicy"] = json!("Always");
    let pod = pod(
        "a",
        &[container("init", 2), side],
        &[container("c", 1), container("x", 1)],
    );
    let chosen: Vec<_> = pod
        .all_containers()
        .map(|container| allocate(&mut state, &pod, container, any))
        .collect();
    assert_eq!(chosen, [ids(&["a", "b"]), ids(&["a"]), ids(&["b"]), ids(&["c"])]);
    // Another pod gets what is left.
    let other = pods::pod("other", &[], &[container("c", 1)]);
    assert_eq!(allocate(&mut state, &other, first(&other), any), ids(&["d"]));
}

/// `TestCheckpoint`, `TestPodContainerDeviceAllocation`
#[test]
fn the_state_survives_a_restart() {
    let mut before = state(&[("a", &[0, 1]), ("b", &[]), ("c", &[1])]);
    let pod = pod("a", &[], &[container("c", 2)]);
    allocate(&mut before, &pod, first(&pod), TopologyHint::any(true));
    let contents = write_device_state(&before).unwrap();
    let file: Value = serde_json::from_slice(&contents).unwrap();
    assert_eq!(
        file["Data"],
        json!({
            "PodDeviceEntries": [{"PodUID": "a-uid", "ContainerName": "c", "ResourceName": GPU,
                "DeviceIDs": {"-1": ["b"], "0": ["a"], "1": ["a"]}, "AllocResp": "YW5zd2Vy"}],
            "RegisteredDevices": {GPU: ["a", "b", "c"]},
        })
    );
    let (pods, registered) = read_device_state(&contents).unwrap();
    let after = DeviceState::new(nodes(&[0, 1])).with_allocated(pods, registered);
    assert_eq!(after.allocated(), before.allocated());
    // Until the plugin is back, the resource has no devices, but still is one.
    assert_eq!(after.capacity()[GPU], (0, 0));
    assert_eq!(after.requests(first(&pod)), [(GPU.to_owned(), 2)].into());

    let mut damaged = file;
    damaged["Data"]["PodDeviceEntries"][0]["PodUID"] = json!("other");
    let error = read_device_state(damaged.to_string().as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "checkpoint is corrupted");

    let empty = write_device_state(&DeviceState::new(nodes(&[0]))).unwrap();
    assert!(
        String::from_utf8(empty.clone())
            .unwrap()
            .contains("\"PodDeviceEntries\":null,\"RegisteredDevices\":{}")
    );
    assert_eq!(read_device_state(&empty).unwrap(), (BTreeMap::new(), Vec::new()));
}
