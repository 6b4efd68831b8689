//! The pod-resources API: which CPUs, memory and devices the containers of a node have. Monitoring agents and device plugins
//! read it on a local socket. Answers to `pkg/kubelet/apis/podresources`.

mod answer;
mod metrics;
pub mod v1;
pub mod v1alpha1;
mod versions;

use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{PodExt, RateLimit};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use self::answer::Snapshot;
use self::metrics::PodResourcesCall;
use self::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use self::v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, DynamicResource, GetPodResourcesRequest,
    GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse,
};
use self::versions::Versions;
use crate::devices::DeviceManagerHandle;
use crate::grpc;
use crate::manager::{NodePods, ResourceManagerHandle};

/// The name of the socket, in the folder `pod-resources` of the kubelet's folder.
pub const SOCKET: &str = "kubelet.sock";

/// How many requests a second are answered (`DefaultQPS`).
pub const QPS: u32 = 100;

/// How many requests may come at once (`DefaultBurstTokens`).
pub const BURST: u32 = 10;

/// The devices of resource claims (`DynamicResourcesProvider`).
pub trait DynamicResourcesProvider: Send + Sync {
    /// Those of the container, one entry for each claim.
    fn of_container(&self, pod: &Pod, container: &Container) -> Vec<DynamicResource>;
}

/// The API in the versions `v1` and `v1alpha1`. Cheap to clone: all clones share the rate limit.
///
/// An answer is made from the states of the managers at one moment, each locked once.
#[derive(Clone)]
pub struct PodResources {
    shared: Arc<Shared>,
}

struct Shared {
    pods: Arc<dyn NodePods>,
    resources: ResourceManagerHandle,
    devices: Option<DeviceManagerHandle>,
    dynamic: Option<Arc<dyn DynamicResourcesProvider>>,
    active_only: bool,
    rate: RateLimit,
}

/// Makes a [`PodResources`].
pub struct PodResourcesBuilder {
    pods: Arc<dyn NodePods>,
    resources: ResourceManagerHandle,
    devices: Option<DeviceManagerHandle>,
    dynamic: Option<Arc<dyn DynamicResourcesProvider>>,
    active_only: bool,
}

impl PodResources {
    /// The API of these pods, with their CPUs and memory.
    pub fn builder(pods: Arc<dyn NodePods>, resources: ResourceManagerHandle) -> PodResourcesBuilder {
        PodResourcesBuilder {
            pods,
            resources,
            devices: None,
            dynamic: None,
            active_only: true,
        }
    }

    /// Serves on a socket until `shutdown`. Makes the folder of the socket, and replaces the socket of an agent that ended.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Dropping it closes all connections.
    pub async fn serve(self, socket: &Path, shutdown: CancellationToken) -> io::Result<()> {
        let listener = grpc::listen(socket)?;
        tracing::info!(socket = %socket.display(), "starting to serve the podresources API");
        let versions = Versions {
            v1: PodResourcesListerServer::new(self.clone()),
            v1alpha1: v1alpha1::pod_resources_lister_server::PodResourcesListerServer::new(self),
        };
        grpc::serve(listener, versions, shutdown).await;
        Ok(())
    }

    fn allow(&self) -> Result<(), Status> {
        match self.shared.rate.try_take() {
            true => Ok(()),
            false => Err(Status::resource_exhausted("rejected by rate limit")),
        }
    }
}

impl PodResourcesBuilder {
    /// Also the devices of device plugins.
    #[must_use]
    pub fn devices(mut self, devices: DeviceManagerHandle) -> Self {
        self.devices = Some(devices);
        self
    }

    /// Also the devices of resource claims.
    #[must_use]
    pub fn dynamic_resources(mut self, dynamic: Arc<dyn DynamicResourcesProvider>) -> Self {
        self.dynamic = Some(dynamic);
        self
    }

    /// Whether `List` leaves out pods that have ended (`KubeletPodResourcesListUseActivePods`). By default, it does.
    #[must_use]
    pub fn active_only(mut self, active_only: bool) -> Self {
        self.active_only = active_only;
        self
    }

    /// The API.
    pub fn build(self) -> PodResources {
        PodResources {
            shared: Arc::new(Shared {
                pods: self.pods,
                resources: self.resources,
                devices: self.devices,
                dynamic: self.dynamic,
                active_only: self.active_only,
                rate: RateLimit::new(QPS, BURST),
            }),
        }
    }
}

impl Shared {
    /// What the pods have after stale devices were freed.
    fn current(&self, pods: &[Arc<Pod>]) -> Vec<v1::PodResources> {
        if let Some(devices) = &self.devices {
            devices.update_allocated();
        }
        self.snapshot(pods)
    }

    fn snapshot(&self, pods: &[Arc<Pod>]) -> Vec<v1::PodResources> {
        let allocator = self.resources.allocator();
        let allocated = self.devices.as_ref().map(DeviceManagerHandle::allocated);
        let snapshot = Snapshot {
            cpus: allocator.cpu_state(),
            memory: allocator.memory_state(),
            devices: allocated.as_ref(),
            dynamic: self.dynamic.as_deref(),
        };
        pods.iter().map(|pod| snapshot.of_pod(pod)).collect()
    }
}

#[async_trait]
impl PodResourcesLister for PodResources {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.allow()?;
        metrics::count_pod_resources(PodResourcesCall::List);
        let pods = match self.shared.active_only {
            true => self.shared.pods.active_pods(),
            false => self.shared.pods.pods(),
        };
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: self.shared.current(&pods),
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.allow()?;
        metrics::count_pod_resources(PodResourcesCall::GetAllocatable);
        let devices = self.shared.devices.as_ref();
        let devices = devices.map(DeviceManagerHandle::allocatable_devices);
        let allocator = self.shared.resources.allocator();
        Ok(Response::new(AllocatableResourcesResponse {
            devices: answer::allocatable_devices(devices.unwrap_or_default()),
            cpu_ids: answer::ids(&allocator.allocatable_cpus()),
            memory: answer::allocatable_memory(allocator.memory_state()),
        }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        self.allow()?;
        metrics::count_pod_resources(PodResourcesCall::Get);
        let GetPodResourcesRequest {
            pod_name,
            pod_namespace,
        } = request.into_inner();
        let pods = self.shared.pods.pods();
        let is_it = |pod: &&Arc<Pod>| {
            let key = pod.key();
            *key.name == *pod_name && *key.namespace == *pod_namespace
        };
        let Some(pod) = pods.iter().find(is_it) else {
            metrics::count_pod_resources_get_error();
            let text = format!("pod {pod_name} in namespace {pod_namespace} not found");
            return Err(Status::unknown(text));
        };
        let found = self.shared.snapshot(std::slice::from_ref(pod));
        Ok(Response::new(GetPodResourcesResponse {
            pod_resources: found.into_iter().next(),
        }))
    }
}
