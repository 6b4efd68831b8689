//! The life of a plugin: it registers, its devices fail, it goes and comes back, the agent restarts.

use std::sync::Arc;
use std::time::Duration;

use kubelet_resources::devices::{DEVICE_MANAGER_STATE, STOP_GRACE_PERIOD};
use kubelet_testing::device_plugin::{DevicePluginFault, DevicePluginMethod, DevicePluginTrouble as Trouble};
use kubelet_testing::{MemoryDevicePlugin, eventually};

use super::{GPU, Node, first, four, gpu_pod, ids};

/// The number of devices and of healthy ones. `None`: the node does not offer the resource.
async fn capacity(node: &Node) -> Option<(usize, usize)> {
    node.devices.capacity().await.capacity.get(GPU).copied()
}

fn healthy(node: &Node) -> usize {
    node.devices
        .allocatable_devices()
        .get(GPU)
        .map_or(0, |devices| devices.len())
}

/// `TestUpdateCapacityAllocatable`, `TestGetAllocatableDevicesMultipleResources`
#[tokio::test(start_paused = true)]
async fn a_node_offers_the_devices_of_its_plugins() {
    let node = Node::start().await;
    assert_eq!(capacity(&node).await, None);
    let plugin = four();
    node.register(&plugin).await;
    assert_eq!(capacity(&node).await, Some((4, 4)));
    plugin.set_healthy("a", false);
    eventually!(healthy(&node), |healthy| *healthy == 3);
    assert_eq!(capacity(&node).await, Some((4, 3)));
    plugin.remove("b");
    eventually!(healthy(&node), |healthy| *healthy == 2);
    assert_eq!(capacity(&node).await, Some((3, 2)));
    assert!(
        node.store
            .text(DEVICE_MANAGER_STATE)
            .contains(r#""RegisteredDevices":{"example.com/gpu":["c","d"]}"#)
    );

    // It crashes: its devices are offered no more, and after five minutes they are forgotten.
    plugin.crash();
    eventually!(healthy(&node), |healthy| *healthy == 0);
    assert_eq!(capacity(&node).await, Some((3, 0)));
    tokio::time::advance(STOP_GRACE_PERIOD - Duration::from_secs(1)).await;
    assert_eq!(capacity(&node).await, Some((3, 0)));
    tokio::time::advance(Duration::from_secs(2)).await;
    let last = node.devices.capacity().await;
    assert_eq!(
        (last.capacity.get(GPU), last.removed.as_slice()),
        (None, &[GPU.to_owned()][..])
    );
    assert!(node.devices.capacity().await.removed.is_empty());
    assert!(
        node.store
            .text(DEVICE_MANAGER_STATE)
            .contains(r#""RegisteredDevices":{}"#)
    );

    // It comes back.
    node.register(&plugin).await;
    assert_eq!(capacity(&node).await, Some((3, 2)));
    node.stop().await;
}

/// `TestDevicePluginReRegistration`
#[tokio::test(start_paused = true)]
async fn a_plugin_that_registers_again_replaces_the_one_before() {
    let node = Node::start().await;
    let (before, after) = (four(), MemoryDevicePlugin::new(GPU).device("new", []));
    node.register(&before).await;
    let connected = node.devices.connect_in_process(GPU, after.service());
    connected.await.unwrap();
    eventually!(healthy(&node), |healthy| *healthy == 1);
    // The one before does not count any more, whatever it does.
    before.set_healthy("a", false);
    before.crash();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(capacity(&node).await, Some((1, 1)));
    // One that does not answer replaces none.
    for (trouble, problem) in [
        (
            Trouble::Fails(tonic::Code::Internal, "no options".to_owned()),
            "code = Internal desc = no options",
        ),
        (
            Trouble::Hangs,
            "code = DeadlineExceeded desc = context deadline exceeded",
        ),
    ] {
        let plugin = four();
        plugin.add_fault(DevicePluginFault::new(DevicePluginMethod::Options, trouble));
        let refused = node.devices.connect_in_process(GPU, plugin.service()).await;
        let expected = format!("failed to get device plugin options: rpc error: {problem}");
        assert_eq!(refused.unwrap_err(), expected);
    }
    assert_eq!(capacity(&node).await, Some((1, 1)));
    node.stop().await;
}

/// `TestCheckpoint`, `TestDevicePreStartContainer`, and what the kubelet's tests of restarts on a node check.
#[tokio::test(start_paused = true)]
async fn devices_survive_a_restart_of_the_agent() {
    let plugin = four();
    let node = Node::start().await;
    node.register(&plugin).await;
    let [runs, stands] = ["runs", "stands"].map(|name| gpu_pod(name, 1));
    node.admit(&runs).await.unwrap();
    node.admit(&stands).await.unwrap();
    let before = node.devices.allocated();
    let store = node.stop().await;

    // The plugin has not come back, and the sources have not reported their pods.
    let node = Node::start_with(store, &[("runs-uid", "c")]).await;
    node.pods.set_ready(false);
    assert!(node.devices.had_state());
    assert_eq!(node.devices.allocated(), before);
    assert_eq!(capacity(&node).await, Some((0, 0)));
    // A container that runs has its devices; one that does not must wait for the plugin.
    node.admit(&runs).await.unwrap();
    let rejection = node.admit(&stands).await.unwrap_err();
    assert_eq!(rejection.reason, "UnexpectedAdmissionError");
    assert_eq!(
        rejection.message,
        "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices example.com/gpu, which is \
         unexpected"
    );
    let additions = node.devices.additions(&runs, first(&runs)).await.unwrap();
    assert_eq!(additions.envs, [("DEVICES".to_owned(), "a".to_owned())]);

    // It comes back: a new pod gets what is free.
    node.register(&plugin).await;
    node.admit(&stands).await.unwrap();
    assert_eq!(node.devices.allocated(), before);
    node.pods.set_ready(true);
    let more = gpu_pod("more", 2);
    node.admit(&more).await.unwrap();
    assert_eq!(node.devices_of(&more), ids(&["c", "d"]));
    node.stop().await;
}

/// The plugin of the agent before does not come back.
#[tokio::test(start_paused = true)]
async fn a_resource_without_plugin_is_forgotten_after_a_restart() {
    let node = Node::start().await;
    node.register(&four()).await;
    let node = Node::start_with(node.stop().await, &[]).await;
    assert_eq!(capacity(&node).await, Some((0, 0)));
    tokio::time::advance(STOP_GRACE_PERIOD + Duration::from_secs(1)).await;
    assert_eq!(node.devices.capacity().await.removed, [GPU]);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_damaged_state_file_is_ignored() {
    let store = std::sync::Arc::<crate::manager::MemoryStore>::default();
    store.put(
        DEVICE_MANAGER_STATE,
        &serde_json::json!({"Data": {}, "Checksum": 7}),
    );
    let node = Node::start_with(store, &[]).await;
    assert!(node.devices.had_state() && node.devices.allocated().is_empty());
    node.stop().await;
}

/// The pods of an agent have the handles of its managers. When the agent is dropped, all goes: the pods, the managers and the
/// connections to plugins.
#[tokio::test(start_paused = true)]
async fn a_dropped_agent_frees_its_managers() {
    let node = Node::start().await;
    let plugin = four();
    node.register(&plugin).await;
    let (pods, store) = (Arc::downgrade(&node.pods), Arc::downgrade(&node.store));
    // As the admission handlers of the agent have them.
    *node.pods.kept.lock().unwrap() = Some((node.devices.clone(), node.resources.clone()));
    for task in &node.tasks {
        task.abort();
    }
    drop(node);
    eventually!((pods.strong_count(), store.strong_count()), |counts| *counts
        == (0, 0));
}
