//! The gRPC service of a device plugin in memory.

use std::collections::BTreeSet;
use std::pin::Pin;

use async_trait::async_trait;
use futures::Stream;
use futures::stream;
use kubelet_resources::devices::v1beta1::device_plugin_server::DevicePlugin;
use kubelet_resources::devices::v1beta1::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, DevicePluginOptions, Empty,
    ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{DevicePluginCall, DevicePluginMethod, DevicePluginTrouble, MemoryDevicePlugin};

/// The service of a [`MemoryDevicePlugin`], until that crashes.
#[derive(Clone)]
pub struct DevicePluginService {
    pub(super) plugin: MemoryDevicePlugin,
    pub(super) dies: CancellationToken,
}

/// Whether the answer is to be empty.
type IsEmpty = bool;

#[cfg(feature = "simulation")]
impl DevicePluginService {
    /// Waits until the plugin has crashed. Cancel safe.
    pub(crate) async fn crashed(&self) {
        self.dies.cancelled().await;
    }
}

impl DevicePluginService {
    /// Notes the call, and lets it meet its fault.
    async fn called(
        &self,
        method: DevicePluginMethod,
        devices: impl IntoIterator<Item = String>,
    ) -> Result<IsEmpty, Status> {
        let devices: BTreeSet<String> = devices.into_iter().collect();
        let call = DevicePluginCall { method, devices };
        self.plugin.state.calls.send_modify(|calls| calls.push(call));
        let trouble = self
            .plugin
            .state
            .inner
            .lock()
            .faults
            .iter_mut()
            .find_map(|fault| fault.of(method));
        let met = self.dies.run_until_cancelled(self.meet(trouble)).await;
        met.unwrap_or_else(|| Err(Status::unavailable("error reading from server: EOF")))
    }

    async fn meet(&self, trouble: Option<DevicePluginTrouble>) -> Result<IsEmpty, Status> {
        match trouble {
            None => {}
            Some(DevicePluginTrouble::Fails(code, message)) => return Err(Status::new(code, message)),
            Some(DevicePluginTrouble::Empty) => return Ok(true),
            Some(DevicePluginTrouble::Hangs) => std::future::pending().await,
            Some(DevicePluginTrouble::Slow(time)) => tokio::time::sleep(time).await,
            Some(DevicePluginTrouble::Dies) => {
                self.plugin.crash();
                std::future::pending().await
            }
        }
        Ok(false)
    }

    fn report(&self) -> ListAndWatchResponse {
        let devices = self.plugin.state.devices.borrow();
        ListAndWatchResponse {
            devices: devices.values().cloned().collect(),
        }
    }
}

#[async_trait]
impl DevicePlugin for DevicePluginService {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        self.called(DevicePluginMethod::Options, []).await?;
        Ok(Response::new(self.plugin.state.inner.lock().options))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let mut changes = self.plugin.state.devices.subscribe();
        changes.mark_changed();
        self.called(DevicePluginMethod::ListAndWatch, []).await?;
        let service = self.clone();
        let reports = stream::unfold((service, changes), |(service, mut changes)| async move {
            let dies = service.dies.clone();
            match dies.run_until_cancelled(changes.changed()).await {
                Some(Ok(())) => {
                    let report = service.report();
                    Some((Ok(report), (service, changes)))
                }
                _ => None,
            }
        });
        Ok(Response::new(Box::pin(reports)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let devices = requests
            .iter()
            .flat_map(|request| request.available_device_i_ds.clone());
        let empty = self
            .called(DevicePluginMethod::PreferredAllocation, devices)
            .await?;
        let prefer = self.plugin.state.inner.lock().prefer.clone();
        let answers = requests.iter().filter(|_| !empty);
        let container_responses = answers.map(|request| ContainerPreferredAllocationResponse {
            device_i_ds: prefer(request),
        });
        Ok(Response::new(PreferredAllocationResponse {
            container_responses: container_responses.collect(),
        }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let devices = requests.iter().flat_map(|request| request.devices_ids.clone());
        let empty = self.called(DevicePluginMethod::Allocate, devices).await?;
        let respond = self.plugin.state.inner.lock().respond.clone();
        let answers = requests.into_iter().filter(|_| !empty);
        let container_responses = answers.map(|request| respond(&request.devices_ids.into_iter().collect()));
        Ok(Response::new(AllocateResponse {
            container_responses: container_responses.collect(),
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let devices = request.into_inner().devices_ids;
        self.called(DevicePluginMethod::PreStart, devices).await?;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
