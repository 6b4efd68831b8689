//! What holds whatever plugins and pods do: no device belongs to two pods, or to two containers that run at the same time; what is
//! freed comes back; what was admitted survives a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_testing::MemoryDevicePlugin;
use kubelet_testing::device_plugin::{DevicePluginFault, DevicePluginMethod, DevicePluginTrouble};
use proptest::prelude::*;

use super::{GPU, Node, four, with_gpus};
use crate::pods::pod;

#[derive(Clone, Debug)]
enum Step {
    /// A pod comes: the devices of its init containers and of its containers.
    Add(Vec<usize>, Vec<usize>),
    /// The n-th of the pods that were admitted ends.
    Remove(usize),
    /// The health of a device changes.
    Health(usize, bool),
    /// The plugin crashes and comes back.
    PluginRestarts,
    AgentRestarts,
    /// The next call fails.
    Fault(DevicePluginMethod, DevicePluginTrouble),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let counts = || prop::collection::vec(0..3_usize, 0..3);
    let method = prop_oneof![
        Just(DevicePluginMethod::Allocate),
        Just(DevicePluginMethod::PreferredAllocation)
    ];
    let trouble = prop_oneof![
        Just(DevicePluginTrouble::Empty),
        Just(DevicePluginTrouble::Hangs),
        Just(DevicePluginTrouble::Fails(tonic::Code::Internal, "no".to_owned())),
    ];
    let step = prop_oneof![
        4 => (counts(), counts()).prop_map(|(init, containers)| Step::Add(init, containers)),
        3 => (0..8_usize).prop_map(Step::Remove),
        2 => (0..4_usize, any::<bool>()).prop_map(|(device, healthy)| Step::Health(device, healthy)),
        1 => Just(Step::PluginRestarts),
        1 => Just(Step::AgentRestarts),
        1 => (method, trouble).prop_map(|(method, trouble)| Step::Fault(method, trouble)),
    ];
    prop::collection::vec(step, 1..24)
}

fn build(number: usize, init: &[usize], containers: &[usize]) -> Arc<Pod> {
    let of = |kind: &'static str| {
        move |(index, gpus): (usize, &usize)| with_gpus(&format!("{kind}{index}"), *gpus)
    };
    let init: Vec<_> = init.iter().enumerate().map(of("i")).collect();
    let containers: Vec<_> = containers.iter().enumerate().map(of("c")).collect();
    pod(&format!("pod-{number}"), &init, &containers)
}

/// Registers it, and waits for its first report, which may have no healthy device.
async fn register(node: &Node, plugin: &MemoryDevicePlugin) {
    let reports = plugin.calls_of(DevicePluginMethod::ListAndWatch).len();
    node.devices
        .connect_in_process(GPU, plugin.service())
        .await
        .unwrap();
    plugin.called(DevicePluginMethod::ListAndWatch, reports + 1).await;
    settle().await;
}

/// Lets all tasks run until they wait: the clock is paused.
async fn settle() {
    tokio::time::advance(std::time::Duration::from_millis(1)).await;
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

fn check(node: &Node, admitted: &[Arc<Pod>]) {
    let allocated = node.devices.allocated();
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for pod in admitted {
        let none = BTreeMap::new();
        let of_pod = allocated.get(pod.uid_str()).unwrap_or(&none);
        let mut of_apps: Vec<String> = Vec::new();
        for container in pod.all_containers() {
            let wanted: usize = container.resources.as_ref().unwrap().limits.as_ref().unwrap()[GPU]
                .0
                .parse()
                .unwrap();
            let ids = of_pod.get(&container.name).map(|resources| resources[GPU].ids());
            let ids = ids.unwrap_or_default();
            assert_eq!(ids.len(), wanted, "{} of {}", container.name, pod.uid_str());
            for id in ids {
                let owner = *owners.entry(id.clone()).or_insert(pod.uid_str());
                assert_eq!(owner, pod.uid_str(), "{id} belongs to two pods");
                if container.name.starts_with('c') {
                    assert!(!of_apps.contains(&id), "{id} belongs to two containers");
                    of_apps.push(id);
                }
            }
        }
    }
}

async fn run(steps: Vec<Step>) {
    let plugin = four().preferring(|request| request.available_device_i_ds.iter().rev().cloned().collect());
    let mut node = Node::start().await;
    register(&node, &plugin).await;
    let mut admitted: Vec<Arc<Pod>> = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Add(init, containers) => {
                let pod = build(number, &init, &containers);
                if node.admit(&pod).await.is_ok() {
                    admitted.push(pod);
                }
            }
            Step::Remove(which) if which < admitted.len() => {
                admitted.remove(which);
                node.pods.set(&admitted);
            }
            Step::Remove(_) => {}
            Step::Health(device, healthy) => {
                plugin.set_healthy(["a", "b", "c", "d"][device], healthy);
                settle().await;
            }
            Step::PluginRestarts => {
                plugin.crash();
                settle().await;
                register(&node, &plugin).await;
            }
            Step::AgentRestarts => {
                node = Node::start_with(node.stop().await, &[]).await;
                node.pods.set(&admitted);
                register(&node, &plugin).await;
            }
            Step::Fault(method, trouble) => {
                plugin.add_fault(DevicePluginFault::new(method, trouble).times(1))
            }
        }
        check(&node, &admitted);
    }
    // All is free again.
    plugin.clear_faults();
    for id in ["a", "b", "c", "d"] {
        plugin.set_healthy(id, true);
    }
    settle().await;
    node.pods.set(&[]);
    let all = build(1000, &[], &[4]);
    node.admit(&all).await.unwrap();
    check(&node, &[all]);
    node.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn no_device_belongs_to_two(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(steps));
    }
}
