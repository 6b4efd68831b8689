//! The older version of the pod-resources API (protobuf package `v1alpha1`): only devices of device plugins.

#[rustfmt::skip]
#[allow(missing_docs, clippy::all, rustdoc::all)]
mod messages;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod grpc_client;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod grpc_server;

use async_trait::async_trait;
pub use grpc_client::pod_resources_lister_client;
pub use grpc_server::pod_resources_lister_server;
use k8s_openapi::api::core::v1::Pod;
pub use messages::*;
use tonic::{Request, Response, Status};

use super::metrics;
use super::{PodResources as Api, v1};

#[async_trait]
impl pod_resources_lister_server::PodResourcesLister for Api {
    /// All pods, also those that have ended.
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.allow()?;
        metrics::count_pod_resources_v1alpha1();
        let pods = self.shared.pods.pods();
        let found = self.shared.current(&pods);
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: pods
                .iter()
                .zip(found)
                .map(|(pod, found)| devices(pod, found))
                .collect(),
        }))
    }
}

fn devices(pod: &Pod, found: v1::PodResources) -> PodResources {
    let is_sidecar = |name: &str| {
        let mut init = pod
            .spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten());
        init.any(|container| container.name == name)
    };
    let containers = found
        .containers
        .into_iter()
        .filter(|found| !is_sidecar(&found.name));
    PodResources {
        name: found.name,
        namespace: found.namespace,
        containers: containers
            .map(|found| ContainerResources {
                name: found.name,
                devices: found
                    .devices
                    .into_iter()
                    .map(|devices| ContainerDevices {
                        resource_name: devices.resource_name,
                        device_ids: devices.device_ids,
                    })
                    .collect(),
            })
            .collect(),
    }
}
