//! The health of devices in the statuses of pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kubelet_core::{PodExt as _, ResourceHealth as _, ResourceUpdates};
use kubelet_testing::{MemoryDevicePlugin, eventually};

use super::{GPU, Node, four, gpu_pod, with_gpus};
use crate::pods::pod;

/// `CONTAINER: RESOURCE ID=HEALTH …` for each container with devices.
pub(super) fn shown(node: &Node, pod: &Pod) -> Vec<String> {
    let containers = pod.spec.as_ref().unwrap().containers.iter();
    let statuses = containers.map(|container| ContainerStatus {
        name: container.name.clone(),
        ..ContainerStatus::default()
    });
    let mut status = PodStatus {
        container_statuses: Some(statuses.collect()),
        ..PodStatus::default()
    };
    node.devices.update_allocated_resources_status(pod, &mut status);
    let containers = status.container_statuses.unwrap().into_iter();
    containers
        .flat_map(|container| {
            let all = container.allocated_resources_status.unwrap_or_default();
            all.into_iter().map(move |resource| {
                let devices = resource.resources.unwrap().into_iter();
                let devices = devices.map(|device| {
                    assert_eq!(device.message, None);
                    format!("{}={}", device.resource_id, device.health.unwrap())
                });
                let devices: Vec<String> = devices.collect();
                format!("{}: {} {}", container.name, resource.name, devices.join(" "))
            })
        })
        .collect()
}

/// What happens to plugin and agent, and what the status then shows.
#[tokio::test]
async fn a_status_shows_what_the_plugin_reported_last() {
    enum Step {
        Reports(&'static str, bool),
        Removes(&'static str),
        Crashes,
        IsBack,
        /// The state file stays; the plugin does not come back by itself.
        AgentRestarts,
    }
    use Step::{AgentRestarts, Crashes, IsBack, Removes, Reports};
    let table: &[(&str, &[Step], &str)] = &[
        ("all is well", &[], "a=Healthy"),
        ("unhealthy", &[Reports("a", false)], "a=Unhealthy"),
        ("another one", &[Reports("b", false)], "a=Healthy"),
        (
            "healthy again",
            &[Reports("a", false), Reports("a", true)],
            "a=Healthy",
        ),
        // As in the kubelet, a device that nobody reports is healthy.
        ("not reported any more", &[Removes("a")], "a=Healthy"),
        (
            "unhealthy, then not reported",
            &[Reports("a", false), Removes("a")],
            "a=Healthy",
        ),
        // The node offers no device then, but the last report stays.
        ("the plugin is gone", &[Crashes], "a=Healthy"),
        (
            "unhealthy, then the plugin is gone",
            &[Reports("a", false), Crashes],
            "a=Unhealthy",
        ),
        (
            "unhealthy, the plugin was gone",
            &[Reports("a", false), Crashes, IsBack],
            "a=Unhealthy",
        ),
        (
            "it changed while the plugin was gone",
            &[Crashes, Reports("a", false), IsBack],
            "a=Unhealthy",
        ),
        (
            "the plugin is not back after a restart",
            &[Reports("a", false), AgentRestarts],
            "a=Healthy",
        ),
        (
            "it is back after a restart",
            &[Reports("a", false), AgentRestarts, IsBack],
            "a=Unhealthy",
        ),
    ];
    for (case, steps, expected) in table {
        let (plugin, pod) = (MemoryDevicePlugin::new(GPU).device("a", []), gpu_pod("train", 1));
        let mut node = Node::start().await;
        node.register(&plugin).await;
        node.admit(&pod).await.unwrap();
        let plugin = plugin.device("b", []);
        let mut healthy: BTreeSet<&str> = ["a", "b"].into();
        let (mut connected, mut reported) = (true, 2);
        for step in *steps {
            match step {
                Reports(id, is_healthy) => {
                    plugin.set_healthy(id, *is_healthy);
                    match is_healthy {
                        true => healthy.insert(id),
                        false => healthy.remove(id),
                    };
                }
                Removes(id) => {
                    plugin.remove(id);
                    healthy.remove(id);
                    reported -= 1;
                }
                Crashes => {
                    plugin.crash();
                    connected = false;
                }
                IsBack => {
                    node.register(&plugin).await;
                    connected = true;
                }
                AgentRestarts => {
                    let store = node.stop().await;
                    node = Node::start_with(store, &[]).await;
                    node.pods.add(&pod);
                    connected = false;
                }
            }
            // The number of devices, and the healthy ones.
            let known = async || {
                let capacity = node.devices.capacity().await.capacity;
                let devices = node.devices.allocatable_devices().remove(GPU);
                let healthy = Vec::from_iter(devices.unwrap_or_default().into_keys());
                (capacity.get(GPU).map_or(0, |(total, _)| *total), healthy)
            };
            match connected {
                true => {
                    let healthy = || healthy.iter().map(ToString::to_string);
                    eventually!(known().await, |known| known.0 == reported
                        && known.1.iter().cloned().eq(healthy()));
                }
                false => drop(eventually!(known().await, |known| known.1.is_empty())),
            }
        }
        assert_eq!(shown(&node, &pod), [format!("c: {GPU} {expected}")], "{case}");
        node.stop().await;
    }
}

#[tokio::test]
async fn each_container_has_the_health_of_its_own_devices() {
    let (node, plugin) = (Node::start().await, four());
    node.register(&plugin).await;
    let pod: Arc<Pod> = pod(
        "train",
        &[with_gpus("init", 1)],
        &[
            with_gpus("first", 2),
            with_gpus("none", 0),
            with_gpus("second", 1),
        ],
    );
    node.admit(&pod).await.unwrap();
    plugin.set_healthy("b", false);
    let expected = [
        format!("first: {GPU} a=Healthy b=Unhealthy"),
        format!("second: {GPU} c=Healthy"),
    ];
    eventually!(shown(&node, &pod), |shown| *shown == expected);
    // Another pod of the same name has none.
    let other = gpu_pod("other", 1);
    assert!(shown(&node, &other).is_empty());
    node.stop().await;
}

/// Only the pod with the device is synced, and only when what its status shows changed.
#[tokio::test]
async fn a_change_syncs_the_pods_with_the_device() {
    let updates = ResourceUpdates::new();
    let (node, plugin) = (Node::start_reporting(updates.clone()).await, four());
    node.register(&plugin).await;
    let (first, second) = (gpu_pod("first", 1), gpu_pod("second", 2));
    node.admit(&first).await.unwrap();
    node.admit(&second).await.unwrap();
    // Nobody has this one.
    plugin.set_healthy("d", false);
    plugin.set_healthy("b", false);
    assert_eq!(updates.next().await, second.uid());
    plugin.set_healthy("a", false);
    assert_eq!(updates.next().await, first.uid());
    // The plugin comes back with the same devices: nothing to do. Then one of them changes.
    plugin.crash();
    node.register(&plugin).await;
    plugin.set_healthy("b", true);
    assert_eq!(updates.next().await, second.uid());
    assert_eq!(shown(&node, &second), [format!("c: {GPU} b=Healthy c=Healthy")]);
    node.stop().await;
}
