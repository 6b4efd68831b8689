//! The services of the driver: recording, faults, work.

use std::future::pending;
use std::path::Path;

use async_trait::async_trait;
use kubelet_volume::csi::v1::identity_server::Identity;
use kubelet_volume::csi::v1::node_server::Node;
use kubelet_volume::csi::v1::node_service_capability::rpc::Type as Capability;
use kubelet_volume::csi::v1::{self, node_service_capability, volume_capability};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::mounts::Mounts;
use super::volumes::Volumes;
use super::{CsiCall, CsiMethod, CsiRequest, CsiTrouble, MemoryCsi};

type Answer<T> = Result<Response<T>, Status>;

/// The driver as one server serves it.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) driver: MemoryCsi,
    /// Ends the server with all its connections.
    pub(super) dies: CancellationToken,
}

impl Service {
    async fn serve<T>(
        &self,
        method: CsiMethod,
        request: CsiRequest,
        work: impl FnOnce(&MemoryCsi) -> Result<T, Status> + Send,
    ) -> Answer<T> {
        let call = CsiCall::new(method, request);
        let trouble = self
            .driver
            .inner
            .faults
            .lock()
            .iter_mut()
            .find_map(|fault| fault.of(&call));
        self.driver.inner.calls.record(call);
        match trouble {
            None => work(&self.driver).map(Response::new),
            Some(CsiTrouble::Fails(code, message)) => Err(Status::new(code, message)),
            Some(CsiTrouble::Slow(delay)) => {
                sleep(delay).await;
                work(&self.driver).map(Response::new)
            }
            Some(CsiTrouble::Hangs) => pending().await,
            Some(CsiTrouble::HangsAfterWork) => {
                work(&self.driver)?;
                pending().await
            }
            Some(CsiTrouble::AnswerLost) => {
                work(&self.driver)?;
                Err(Status::unavailable("the answer is lost"))
            }
            Some(CsiTrouble::Dies) => {
                self.dies.cancel();
                pending().await
            }
            Some(CsiTrouble::DiesAfterWork) => {
                work(&self.driver)?;
                self.dies.cancel();
                pending().await
            }
        }
    }

    async fn on_volumes<T: Default>(
        &self,
        method: CsiMethod,
        request: CsiRequest,
        work: impl FnOnce(&mut Volumes, &[Capability], &Mounts) -> Result<(), Status> + Send,
    ) -> Answer<T> {
        let work = |driver: &MemoryCsi| {
            let mut state = driver.inner.state.lock();
            let capabilities = state.capabilities.clone();
            work(&mut state.volumes, &capabilities, &driver.inner.mounts)?;
            Ok(T::default())
        };
        self.serve(method, request, work).await
    }
}

#[async_trait]
impl Identity for Service {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Answer<v1::GetPluginInfoResponse> {
        let work = |driver: &MemoryCsi| {
            Ok(v1::GetPluginInfoResponse {
                name: driver.inner.name.clone(),
                vendor_version: "1.0.0".into(),
                manifest: Default::default(),
            })
        };
        self.serve(CsiMethod::GetPluginInfo, CsiRequest::None, work).await
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Answer<v1::GetPluginCapabilitiesResponse> {
        let work = |_: &MemoryCsi| Ok(Default::default());
        self.serve(CsiMethod::GetPluginCapabilities, CsiRequest::None, work)
            .await
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Answer<v1::ProbeResponse> {
        let work = |_: &MemoryCsi| Ok(v1::ProbeResponse { ready: Some(true) });
        self.serve(CsiMethod::Probe, CsiRequest::None, work).await
    }
}

#[async_trait]
impl Node for Service {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        let request = request.into_inner();
        let (volume, path) = (request.volume_id.clone(), request.staging_target_path.clone());
        self.on_volumes(
            CsiMethod::NodeStageVolume,
            CsiRequest::Stage(request),
            |volumes, _, mounts| volumes.stage(&volume, Path::new(&path), mounts),
        )
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        let request = request.into_inner();
        let (volume, path) = (request.volume_id.clone(), request.staging_target_path.clone());
        self.on_volumes(
            CsiMethod::NodeUnstageVolume,
            CsiRequest::Unstage(request),
            |volumes, _, mounts| volumes.unstage(&volume, Path::new(&path), mounts),
        )
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        let request = request.into_inner();
        let (volume, target) = (request.volume_id.clone(), request.target_path.clone());
        let is_staged = !request.staging_target_path.is_empty();
        let access = request
            .volume_capability
            .as_ref()
            .and_then(|it| it.access_type.as_ref());
        let is_block = matches!(access, Some(volume_capability::AccessType::Block(_)));
        self.on_volumes(
            CsiMethod::NodePublishVolume,
            CsiRequest::Publish(request),
            |volumes, capabilities, mounts| {
                let must_be_staged = is_staged && capabilities.contains(&Capability::StageUnstageVolume);
                volumes.publish(&volume, Path::new(&target), must_be_staged, is_block, mounts)
            },
        )
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        let request = request.into_inner();
        let (volume, target) = (request.volume_id.clone(), request.target_path.clone());
        let recorded = CsiRequest::Unpublish(request);
        self.on_volumes(CsiMethod::NodeUnpublishVolume, recorded, |volumes, _, mounts| {
            volumes.unpublish(&volume, Path::new(&target), mounts)
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Answer<v1::NodeGetVolumeStatsResponse> {
        let work = |driver: &MemoryCsi| Ok(driver.inner.state.lock().stats.clone());
        let request = CsiRequest::Stats(request.into_inner());
        self.serve(CsiMethod::NodeGetVolumeStats, request, work).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Answer<v1::NodeExpandVolumeResponse> {
        let request = request.into_inner();
        let capacity_bytes = request
            .capacity_range
            .as_ref()
            .map_or(0, |range| range.required_bytes);
        let work = move |_: &MemoryCsi| Ok(v1::NodeExpandVolumeResponse { capacity_bytes });
        self.serve(CsiMethod::NodeExpandVolume, CsiRequest::Expand(request), work)
            .await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        let work = |driver: &MemoryCsi| {
            let state = driver.inner.state.lock();
            let capabilities = state
                .capabilities
                .iter()
                .map(|capability| v1::NodeServiceCapability {
                    r#type: Some(node_service_capability::Type::Rpc(node_service_capability::Rpc {
                        r#type: (*capability).into(),
                    })),
                });
            Ok(v1::NodeGetCapabilitiesResponse {
                capabilities: capabilities.collect(),
            })
        };
        self.serve(CsiMethod::NodeGetCapabilities, CsiRequest::None, work)
            .await
    }

    async fn node_get_info(&self, _: Request<v1::NodeGetInfoRequest>) -> Answer<v1::NodeGetInfoResponse> {
        let work = |driver: &MemoryCsi| Ok(driver.inner.state.lock().info.clone());
        self.serve(CsiMethod::NodeGetInfo, CsiRequest::None, work).await
    }
}
