//! Devices of pods: their admission, what their containers get, and what fails.

use std::time::Duration;

use kubelet_core::{AddedDevice, AddedMount};
use kubelet_resources::devices::v1beta1::{CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount};
use kubelet_resources::topology::{TopologyPolicy, TopologyScope};
use kubelet_testing::MemoryDevicePlugin;
use kubelet_testing::device_plugin::{DevicePluginFault, DevicePluginMethod, DevicePluginTrouble as Trouble};
use serde_json::json;
use tonic::Code;

use super::{GPU, Node, first, four, gpu_pod, ids, with_gpus};
use crate::pods::{config, pod};

/// `TestPodContainerDeviceAllocation`
#[tokio::test(start_paused = true)]
async fn devices_are_allocated_and_freed() {
    let plugin = four();
    let node = Node::start().await;
    node.register(&plugin).await;
    let (a, b) = (gpu_pod("a", 3), gpu_pod("b", 1));
    node.admit(&a).await.unwrap();
    node.admit(&b).await.unwrap();
    assert_eq!(node.devices_of(&a), ids(&["a", "b", "c"]));
    assert_eq!(node.devices_of(&b), ids(&["d"]));
    // A second admission changes nothing, and the plugin is not called again.
    node.admit(&a).await.unwrap();
    assert_eq!(
        plugin.calls_of(DevicePluginMethod::Allocate),
        [ids(&["a", "b", "c"]), ids(&["d"])]
    );
    let more = gpu_pod("more", 1);
    let rejection = node.admit(&more).await.unwrap_err();
    assert_eq!(
        rejection.message,
        "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0, \
         which is unexpected"
    );
    // A pod ends: what it had is there for the next one.
    node.pods.set(std::slice::from_ref(&b));
    node.admit(&more).await.unwrap();
    assert_eq!(node.devices_of(&more), ids(&["a"]));
    assert!(node.devices_of(&a).is_empty());
    node.stop().await;
}

/// What goes wrong with a call, and the text of the rejection. `TestPodContainerDeviceAllocation`
#[tokio::test(start_paused = true)]
async fn a_plugin_that_fails_rejects_the_pod() {
    use DevicePluginMethod::{Allocate, PreferredAllocation};
    let fails = || Trouble::Fails(Code::Internal, "no".to_owned());
    let preferred = "device plugin GetPreferredAllocation rpc failed with err: ";
    for (method, trouble, expected) in [
        (
            Allocate,
            fails(),
            "rpc error: code = Internal desc = no".to_owned(),
        ),
        (
            Allocate,
            Trouble::Empty,
            "no containers return in allocation response ".to_owned(),
        ),
        (
            Allocate,
            Trouble::Hangs,
            "rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned(),
        ),
        (
            Allocate,
            Trouble::Dies,
            "rpc error: code = Unavailable desc = error reading from server: EOF".to_owned(),
        ),
        (
            PreferredAllocation,
            fails(),
            format!("{preferred}rpc error: code = Internal desc = no"),
        ),
        (
            PreferredAllocation,
            Trouble::Hangs,
            format!("{preferred}rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
        ),
    ] {
        let plugin = four().preferring(|_| vec!["d".to_owned()]);
        let node = Node::start().await;
        node.register(&plugin).await;
        plugin.add_fault(DevicePluginFault::new(method, trouble).times(1));
        let pod = gpu_pod("a", 1);
        let rejection = node.admit(&pod).await.unwrap_err();
        assert_eq!(rejection.reason, "UnexpectedAdmissionError");
        assert_eq!(
            rejection.message,
            format!("Allocate failed due to {expected}, which is unexpected")
        );
        // Nothing stays allocated.
        assert!(node.devices.allocated().is_empty());
        node.register(&plugin).await;
        let all = gpu_pod("all", 4);
        node.admit(&all).await.unwrap();
        node.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_without_preference_leaves_the_choice() {
    let plugin = four().preferring(|request| {
        assert_eq!(request.allocation_size, 1);
        vec!["d".to_owned(), "unknown".to_owned()]
    });
    let node = Node::start().await;
    node.register(&plugin).await;
    plugin
        .add_fault(DevicePluginFault::new(DevicePluginMethod::PreferredAllocation, Trouble::Empty).times(1));
    let (empty, prefers) = (gpu_pod("empty", 1), gpu_pod("prefers", 1));
    node.admit(&empty).await.unwrap();
    node.admit(&prefers).await.unwrap();
    assert_eq!(node.devices_of(&empty), ids(&["a"]));
    assert_eq!(node.devices_of(&prefers), ids(&["d"]));
    assert_eq!(
        plugin.calls_of(DevicePluginMethod::PreferredAllocation),
        [ids(&["a", "b", "c", "d"]), ids(&["b", "c", "d"])]
    );
    node.stop().await;
}

/// Devices and CPUs are on the same node, and the plugin chooses among those of this node only.
#[tokio::test(start_paused = true)]
async fn devices_and_cpus_are_aligned() {
    for scope in [TopologyScope::Container, TopologyScope::Pod] {
        let config = config(TopologyPolicy::SingleNumaNode, scope);
        let plugin = MemoryDevicePlugin::new(GPU)
            .device("a", [1])
            .device("b", [1])
            .device("z", [1]);
        let plugin = plugin.preferring(|request| vec![request.available_device_i_ds[1].clone()]);
        let node = Node::start_as(std::sync::Arc::default(), &[], config).await;
        node.register(&plugin).await;
        let resources = json!({"cpu": "2", "memory": "1Gi", GPU: "1"});
        let container = json!({"name": "c", "resources": {"requests": resources, "limits": resources}});
        let aligned = pod("a", &[], &[container]);
        node.admit(&aligned).await.unwrap();
        assert_eq!(node.resources.placement("a-uid", "c").cpus, "4-5");
        assert_eq!(node.devices_of(&aligned), ids(&["b"]));
        // More than the node has.
        let rejection = node.admit(&gpu_pod("more", 3)).await.unwrap_err();
        assert_eq!(rejection.reason, "TopologyAffinityError");
        node.stop().await;
    }
}

/// `TestDeviceRunContainerOptions`, `TestDevicePluginResourceUpdates`
#[tokio::test(start_paused = true)]
async fn a_container_gets_what_the_plugins_answer() {
    let answer = |of: &'static str| {
        move |_: &_| ContainerAllocateResponse {
            envs: [("BOTH".into(), of.into()), (of.into(), "yes".into())].into(),
            mounts: vec![
                Mount {
                    container_path: "/both".into(),
                    host_path: format!("/host/{of}"),
                    read_only: true,
                },
                Mount {
                    container_path: format!("/{of}"),
                    host_path: format!("/host/{of}"),
                    read_only: false,
                },
            ],
            devices: vec![DeviceSpec {
                container_path: "/dev/both".into(),
                host_path: format!("/dev/{of}"),
                permissions: "mrw".into(),
            }],
            annotations: [("both".into(), of.into())].into(),
            cdi_devices: ["vendor.com/both=0".to_owned(), format!("vendor.com/{of}=0")]
                .map(|name| CdiDevice { name })
                .into(),
        }
    };
    let first_plugin = MemoryDevicePlugin::new("example.com/a")
        .device("a", [])
        .answering(answer("first"));
    let second_plugin = MemoryDevicePlugin::new("example.com/b")
        .device("b", [])
        .answering(answer("second"));
    let node = Node::start().await;
    node.register(&first_plugin).await;
    node.register(&second_plugin).await;
    let limits = json!({"example.com/a": "1", "example.com/b": "1", "cpu": "1"});
    let both = pod(
        "both",
        &[],
        &[
            json!({"name": "c", "resources": {"limits": limits}}),
            json!({"name": "none"}),
        ],
    );
    node.admit(&both).await.unwrap();

    let additions = node.devices.additions(&both, first(&both)).await.unwrap();
    let env = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        additions.envs,
        [env("BOTH", "first"), env("first", "yes"), env("second", "yes")]
    );
    let mount = |container: &str, host: &str, read_only| AddedMount {
        container_path: container.into(),
        host_path: host.into(),
        read_only,
    };
    assert_eq!(
        additions.mounts,
        [
            mount("/both", "/host/first", true),
            mount("/first", "/host/first", false),
            mount("/second", "/host/second", false)
        ]
    );
    let device = AddedDevice {
        container_path: "/dev/both".into(),
        host_path: "/dev/first".into(),
        permissions: "mrw".into(),
    };
    assert_eq!(additions.devices, [device]);
    assert_eq!(
        additions.annotations,
        [("both".to_owned(), "first".to_owned())].into()
    );
    assert_eq!(
        additions.cdi_devices,
        ["vendor.com/both=0", "vendor.com/first=0", "vendor.com/second=0"]
    );
    let other = &both.spec.as_ref().unwrap().containers[1];
    assert_eq!(
        node.devices.additions(&both, other).await.unwrap(),
        Default::default()
    );
    node.stop().await;
}

/// `TestDevicePreStartContainer`
#[tokio::test(start_paused = true)]
async fn plugins_prepare_devices_before_each_start() {
    let plugin = four().with_pre_start();
    let node = Node::start().await;
    node.register(&plugin).await;
    let pod = gpu_pod("a", 2);
    node.admit(&pod).await.unwrap();
    let additions = || node.devices.additions(&pod, first(&pod));
    additions().await.unwrap();
    additions().await.unwrap();
    assert_eq!(
        plugin.calls_of(DevicePluginMethod::PreStart),
        [ids(&["a", "b"]), ids(&["a", "b"])]
    );
    plugin.add_fault(DevicePluginFault::new(DevicePluginMethod::PreStart, Trouble::Hangs).times(1));
    let started = tokio::time::Instant::now();
    assert_eq!(
        additions().await.unwrap_err().to_string(),
        "device plugin PreStartContainer rpc failed with err: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    );
    assert_eq!(started.elapsed().as_secs(), Duration::from_secs(30).as_secs());
    plugin.crash();
    kubelet_testing::eventually!(node.devices.allocatable_devices(), |devices| devices[GPU]
        .is_empty());
    assert_eq!(
        additions().await.unwrap_err().to_string(),
        "device plugin PreStartContainer rpc failed with err: endpoint example.com/gpu has been stopped"
    );
    node.stop().await;
}

/// The node has restarted: the pod was admitted before its plugin registered, so that its resource was not known.
#[tokio::test(start_paused = true)]
async fn devices_are_allocated_late_if_the_plugin_comes_late() {
    let node = Node::start().await;
    let pod = gpu_pod("a", 1);
    node.admit(&pod).await.unwrap();
    assert!(node.devices_of(&pod).is_empty());
    let plugin = four();
    node.register(&plugin).await;
    let additions = node.devices.additions(&pod, first(&pod)).await.unwrap();
    assert_eq!(additions.envs, [("DEVICES".to_owned(), "a".to_owned())]);
    // Not for a pod that is gone.
    let gone = gpu_pod("gone", 1);
    let additions = node.devices.additions(&gone, first(&gone)).await.unwrap();
    assert_eq!(additions, Default::default());
    node.stop().await;
}

/// `TestInitContainerDeviceAllocation`, `TestRestartableInitContainerDeviceAllocation`
#[tokio::test(start_paused = true)]
async fn containers_reuse_the_devices_of_init_containers() {
    let node = Node::start().await;
    node.register(&four()).await;
    let mut sidecar = with_gpus("sidecar", 1);
    sidecar["restartPolicy"] = json!("Always");
    let pod = pod(
        "a",
        &[with_gpus("init", 2), sidecar],
        &[with_gpus("c", 1), with_gpus("d", 1)],
    );
    node.admit(&pod).await.unwrap();
    let allocated = node.devices.allocated();
    let of = |container: &str| allocated["a-uid"][container][GPU].ids();
    assert_eq!(
        [of("init"), of("sidecar"), of("c"), of("d")],
        [ids(&["a", "b"]), ids(&["a"]), ids(&["b"]), ids(&["c"])]
    );
    node.stop().await;
}

/// `TestDevicesToAllocateConflictWithUpdateAllocatedDevices`: what ended pods had is freed while a plugin is being called.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_admitted_keeps_its_devices() {
    use kubelet_resources::pod_resources::PodResources;
    use kubelet_resources::pod_resources::v1::ListPodResourcesRequest;
    use kubelet_resources::pod_resources::v1::pod_resources_lister_server::PodResourcesLister;

    let plugin = four();
    let node = Node::start().await;
    node.register(&plugin).await;
    let pod = pod("a", &[], &[with_gpus("c", 1), with_gpus("d", 1)]);
    let api = PodResources::builder(node.pods.clone() as _, node.resources.clone());
    let api = api.devices(node.devices.clone()).build();
    let slow = DevicePluginFault::new(
        DevicePluginMethod::Allocate,
        Trouble::Slow(Duration::from_secs(5)),
    );
    plugin.add_fault(slow);
    let (resources, admitted) = (node.resources.clone(), pod.clone());
    let admission = tokio::spawn(async move { crate::manager::admit(&resources, &admitted).await });
    plugin.called(DevicePluginMethod::Allocate, 2).await;
    let listed = api.list(tonic::Request::new(ListPodResourcesRequest {})).await;
    assert!(listed.unwrap().into_inner().pod_resources.is_empty());
    admission.await.unwrap().unwrap();
    assert_eq!(node.devices_of(&pod), ids(&["a", "b"]));
    node.stop().await;
}

/// The kubelet rejects the pod if it cannot write what it allocated.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_is_not_admitted() {
    let node = Node::start().await;
    node.register(&four()).await;
    node.store.crash_at(0);
    let rejection = node.admit(&gpu_pod("a", 1)).await.unwrap_err();
    assert_eq!(
        rejection.message,
        "Allocate failed due to failed to write checkpoint file \"kubelet_internal_checkpoint\": crashed, which is unexpected"
    );
    node.stop().await;
}

/// A claim serves the resource of one container, so no plugin is called for it. `TestAdmitPodWithDRAResources`
#[tokio::test(start_paused = true)]
async fn what_a_claim_serves_is_not_allocated() {
    let plugin = four();
    let node = Node::start().await;
    node.register(&plugin).await;
    let mut claimed = (*pod("claimed", &[], &[with_gpus("c", 9), with_gpus("own", 1)])).clone();
    let status = json!({"extendedResourceClaimStatus": {
        "requestMappings": [{"containerName": "c", "requestName": "request", "resourceName": GPU}],
        "resourceClaimName": "claim",
    }});
    claimed.status = Some(serde_json::from_value(status).unwrap());
    let claimed = std::sync::Arc::new(claimed);
    node.admit(&claimed).await.unwrap();
    assert_eq!(plugin.calls_of(DevicePluginMethod::Allocate), [ids(&["a"])]);
    let added = node.devices.additions(&claimed, first(&claimed)).await.unwrap();
    assert_eq!(added, Default::default());
    assert_eq!(plugin.calls_of(DevicePluginMethod::Allocate).len(), 1);
    node.stop().await;
}
