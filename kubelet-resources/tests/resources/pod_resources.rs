//! The pod-resources API.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{Disk, PodAdmitAttributes, PodAdmitHandler};
use kubelet_resources::checkpoint::StateStore;
use kubelet_resources::devices::DeviceManager;
use kubelet_resources::pod_resources::v1::pod_resources_lister_server::PodResourcesLister;
use kubelet_resources::pod_resources::v1::{
    AllocatableResourcesRequest, ContainerDevices, ContainerMemory, ContainerResources,
    GetPodResourcesRequest, ListPodResourcesRequest, NumaNode, PodResources as PodMessage, TopologyInfo,
};
use kubelet_resources::pod_resources::{DynamicResourcesProvider, PodResources, SOCKET, v1, v1alpha1};
use kubelet_resources::topology::{TopologyPolicy, TopologyScope};
use kubelet_resources::{NodePods, ResourceManager};
use kubelet_testing::{MemoryDevicePlugin, eventually};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};

use crate::manager::{MemoryStore, Pods, Runtime};
use crate::pods::{GIB, config, container, machine, pod};

const GPU: &str = "example.com/gpu";

struct Claims;

impl DynamicResourcesProvider for Claims {
    fn of_container(
        &self,
        _: &k8s_openapi::api::core::v1::Pod,
        container: &k8s_openapi::api::core::v1::Container,
    ) -> Vec<v1::DynamicResource> {
        vec![v1::DynamicResource {
            claim_name: container.name.clone(),
            ..Default::default()
        }]
    }
}

/// A node with one pod: a sidecar, an init container, and a container with everything.
async fn node() -> (PodResources, Arc<Pods>) {
    let store: Arc<dyn StateStore> = Arc::new(MemoryStore::default());
    let machine = machine(2, 4, 1, 1);
    let builder = DeviceManager::builder("/nowhere", store.clone()).disk(Disk::inline());
    let devices = builder.start(&machine).await.handle();
    let plugin = MemoryDevicePlugin::new(GPU).device("a", [0, 1]).device("b", []);
    devices.connect_in_process(GPU, plugin.service()).await.unwrap();
    eventually!(devices.allocatable_devices(), |devices| devices.contains_key(GPU));
    let resources = ResourceManager::builder(store, Arc::new(Runtime::default()))
        .disk(Disk::inline())
        .plugins(Arc::new(devices.clone()))
        .start(&machine, &config(TopologyPolicy::None, TopologyScope::Container))
        .await
        .unwrap()
        .handle();
    let all = json!({"cpu": "2", "memory": "1Gi", GPU: "2"});
    let small = json!({"cpu": "500m", "memory": "1Gi"});
    let mut sidecar = container("side", &small);
    sidecar["restartPolicy"] = json!("Always");
    let pod = pod(
        "a",
        &[container("init", &small), sidecar],
        &[container("c", &all)],
    );
    resources
        .admit(&PodAdmitAttributes::new(&pod, &[]))
        .await
        .unwrap();
    let pods = Pods::ready(&[pod]);
    let builder = PodResources::builder(pods.clone() as Arc<dyn NodePods>, resources);
    (
        builder
            .devices(devices)
            .dynamic_resources(Arc::new(Claims))
            .build(),
        pods,
    )
}

fn topology(nodes: &[i64]) -> Option<TopologyInfo> {
    let nodes = nodes.iter().map(|id| NumaNode { id: *id }).collect();
    Some(TopologyInfo { nodes })
}

fn device(id: &str, topology: Option<TopologyInfo>) -> ContainerDevices {
    ContainerDevices {
        resource_name: GPU.to_owned(),
        device_ids: vec![id.to_owned()],
        topology,
    }
}

fn memory(kind: &str, size: u64, nodes: &[i64]) -> ContainerMemory {
    ContainerMemory {
        memory_type: kind.to_owned(),
        size,
        topology: topology(nodes),
    }
}

fn claims(container: &str) -> Vec<v1::DynamicResource> {
    vec![v1::DynamicResource {
        claim_name: container.to_owned(),
        ..Default::default()
    }]
}

/// `TestListPodResourcesV1`, `TestListPodResourcesWithInitContainersV1`, `TestGetPodResourcesV1`, `TestAllocatableResources`
#[tokio::test(start_paused = true)]
async fn the_resources_of_pods_are_listed() {
    let (api, _) = node().await;
    let expected = PodMessage {
        name: "a".to_owned(),
        namespace: "default".to_owned(),
        containers: vec![
            ContainerResources {
                name: "side".to_owned(),
                memory: vec![memory("memory", GIB, &[0])],
                dynamic_resources: claims("side"),
                ..Default::default()
            },
            ContainerResources {
                name: "c".to_owned(),
                devices: vec![
                    device("a", topology(&[0])),
                    device("a", topology(&[1])),
                    device("b", None),
                ],
                cpu_ids: vec![1, 2],
                memory: vec![memory("memory", GIB, &[0])],
                dynamic_resources: claims("c"),
            },
        ],
    };
    let listed = api.list(Request::new(ListPodResourcesRequest {})).await.unwrap();
    assert_eq!(listed.into_inner().pod_resources, std::slice::from_ref(&expected));
    let get = |namespace: &str| {
        let request = GetPodResourcesRequest {
            pod_name: "a".to_owned(),
            pod_namespace: namespace.to_owned(),
        };
        api.get(Request::new(request))
    };
    let found = get("default").await.unwrap().into_inner();
    assert_eq!(found.pod_resources, Some(expected));
    let missing = get("other").await.unwrap_err();
    assert_eq!(
        (missing.code(), missing.message()),
        (Code::Unknown, "pod a in namespace other not found")
    );

    let request = Request::new(AllocatableResourcesRequest {});
    let allocatable = api.get_allocatable_resources(request).await.unwrap().into_inner();
    // One CPU is reserved, and 1 GiB of node 0.
    assert_eq!(allocatable.cpu_ids, [1, 2, 3, 4, 5, 6, 7]);
    // A device that is close to no node is not reported, as in the kubelet.
    assert_eq!(
        allocatable.devices,
        [device("a", topology(&[0])), device("a", topology(&[1]))]
    );
    let of_memory = allocatable
        .memory
        .iter()
        .filter(|memory| memory.memory_type == "memory");
    let sizes: Vec<u64> = of_memory.map(|memory| memory.size).collect();
    assert_eq!(sizes, [7 * GIB, 8 * GIB]);
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_had_that_ended_is_not_listed() {
    let (api, pods) = node().await;
    pods.set(&[]);
    let listed = api.list(Request::new(ListPodResourcesRequest {})).await.unwrap();
    assert!(listed.into_inner().pod_resources.is_empty());
}

#[tokio::test(start_paused = true)]
async fn requests_are_limited() {
    let (api, _) = node().await;
    let list = || api.list(Request::new(ListPodResourcesRequest {}));
    for _ in 0..10 {
        list().await.unwrap();
    }
    let refused = list().await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::ResourceExhausted, "rejected by rate limit")
    );
    tokio::time::advance(Duration::from_millis(10)).await;
    list().await.unwrap();
    assert!(list().await.is_err());
}

#[tokio::test]
async fn it_is_served_on_a_socket() {
    let (api, _) = node().await;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("pod-resources").join(SOCKET);
    let shutdown = CancellationToken::new();
    let (path, token) = (socket.clone(), shutdown.clone());
    let serving = tokio::spawn(async move { api.serve(&path, token).await });
    eventually!(socket.exists(), |exists| *exists);
    let endpoint = tonic::transport::Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut client = v1::pod_resources_lister_client::PodResourcesListerClient::new(channel.clone());
    let listed = client
        .list(ListPodResourcesRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.pod_resources.len(), 1);
    // `TestListPodResourcesV1alpha1`: the older version has no sidecars, CPUs, memory and claims.
    let mut client = v1alpha1::pod_resources_lister_client::PodResourcesListerClient::new(channel);
    let listed = client
        .list(v1alpha1::ListPodResourcesRequest {})
        .await
        .unwrap()
        .into_inner();
    let devices = ["a", "a", "b"].map(|id| v1alpha1::ContainerDevices {
        resource_name: GPU.to_owned(),
        device_ids: vec![id.to_owned()],
    });
    let container = v1alpha1::ContainerResources {
        name: "c".to_owned(),
        devices: devices.to_vec(),
    };
    let pod = v1alpha1::PodResources {
        name: "a".to_owned(),
        namespace: "default".to_owned(),
        containers: vec![container],
    };
    assert_eq!(listed.pod_resources, [pod]);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}
