//! The calls to a driver, as one operation on a volume makes them.

use std::future::Future;
use std::time::Duration;

use kubelet_plugins::Transport;
use kubelet_plugins::grpc_go::code_name;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Response, Status};

use super::status::CallError;
use super::transport::Place;
use super::v1::grpc_client::node_client::NodeClient;
use super::v1::node_service_capability::{self, rpc};
use super::v1::{
    NodeExpandVolumeRequest, NodeGetCapabilitiesRequest, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};

/// How long an operation may take, with all its calls. The kubelet's `csiTimeout`.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// One operation with a driver. It has a connection of its own, as in the kubelet: so a driver that was restarted is
/// reached at once, and calls of other volumes do not share its fate.
pub(crate) struct Session {
    driver: String,
    place: Place,
    migrated: bool,
    deadline: Instant,
    client: Option<NodeClient<Transport>>,
    capabilities: Option<Capabilities>,
}

/// What the driver can do on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) stage: bool,
    pub(crate) stats: bool,
    pub(crate) expand: bool,
    pub(crate) condition: bool,
    pub(crate) single_node_multi_writer: bool,
    pub(crate) mount_group: bool,
}

impl Session {
    pub(crate) fn new(driver: &str, place: Place, migrated: bool) -> Self {
        Self {
            driver: driver.to_owned(),
            place,
            migrated,
            deadline: Instant::now() + OPERATION_TIMEOUT,
            client: None,
            capabilities: None,
        }
    }

    pub(crate) async fn capabilities(&mut self) -> Result<Capabilities, CallError> {
        if let Some(capabilities) = self.capabilities {
            return Ok(capabilities);
        }
        let call = |mut client: NodeClient<Transport>| async move {
            client.node_get_capabilities(NodeGetCapabilitiesRequest {}).await
        };
        let answer = self.call("NodeGetCapabilities", call).await?;
        let mut has = Capabilities::default();
        for capability in answer.capabilities {
            let Some(node_service_capability::Type::Rpc(call)) = capability.r#type else {
                continue;
            };
            match call.r#type() {
                rpc::Type::StageUnstageVolume => has.stage = true,
                rpc::Type::GetVolumeStats => has.stats = true,
                rpc::Type::ExpandVolume => has.expand = true,
                rpc::Type::VolumeCondition => has.condition = true,
                rpc::Type::SingleNodeMultiWriter => has.single_node_multi_writer = true,
                rpc::Type::VolumeMountGroup => has.mount_group = true,
                rpc::Type::Unknown => {}
            }
        }
        self.capabilities = Some(has);
        Ok(has)
    }

    pub(crate) async fn info(&mut self) -> Result<NodeGetInfoResponse, CallError> {
        let call = |mut client: NodeClient<Transport>| async move {
            client.node_get_info(NodeGetInfoRequest {}).await
        };
        self.call("NodeGetInfo", call).await
    }

    pub(crate) async fn stage(&mut self, request: NodeStageVolumeRequest) -> Result<(), CallError> {
        let call = |mut client: NodeClient<Transport>| async move { client.node_stage_volume(request).await };
        self.call("NodeStageVolume", call).await.map(|_| ())
    }

    pub(crate) async fn unstage(&mut self, request: NodeUnstageVolumeRequest) -> Result<(), CallError> {
        let call =
            |mut client: NodeClient<Transport>| async move { client.node_unstage_volume(request).await };
        self.call("NodeUnstageVolume", call).await.map(|_| ())
    }

    pub(crate) async fn publish(&mut self, request: NodePublishVolumeRequest) -> Result<(), CallError> {
        let call =
            |mut client: NodeClient<Transport>| async move { client.node_publish_volume(request).await };
        self.call("NodePublishVolume", call).await.map(|_| ())
    }

    pub(crate) async fn unpublish(&mut self, request: NodeUnpublishVolumeRequest) -> Result<(), CallError> {
        let call =
            |mut client: NodeClient<Transport>| async move { client.node_unpublish_volume(request).await };
        self.call("NodeUnpublishVolume", call).await.map(|_| ())
    }

    pub(crate) async fn expand(&mut self, request: NodeExpandVolumeRequest) -> Result<(), CallError> {
        let call =
            |mut client: NodeClient<Transport>| async move { client.node_expand_volume(request).await };
        self.call("NodeExpandVolume", call).await.map(|_| ())
    }

    pub(crate) async fn stats(
        &mut self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, CallError> {
        let call =
            |mut client: NodeClient<Transport>| async move { client.node_get_volume_stats(request).await };
        self.call("NodeGetVolumeStats", call).await
    }

    /// Makes a call until the deadline, and counts it.
    async fn call<T, F>(
        &mut self,
        method: &'static str,
        call: impl FnOnce(NodeClient<Transport>) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let start = Instant::now();
        let deadline = self.deadline;
        let outcome = timeout_at(deadline, async {
            let client = self.connected().await?;
            Ok(call(client).await?.into_inner())
        });
        let outcome = outcome
            .await
            .unwrap_or_else(|_| Err(CallError::deadline_exceeded()));
        let code = outcome.as_ref().err().map_or(Code::Ok, |error| error.code);
        metrics::histogram!(
            "csi_operations_seconds",
            "driver_name" => self.driver.clone(),
            "method_name" => format!("/csi.v1.Node/{method}"),
            "grpc_status_code" => code_name(code),
            "migrated" => if self.migrated { "true" } else { "false" },
        )
        .record(start.elapsed().as_secs_f64());
        if let Err(error) = &outcome {
            tracing::debug!(driver = %self.driver, method, %error, "a call to a CSI driver failed");
        }
        outcome
    }

    async fn connected(&mut self) -> Result<NodeClient<Transport>, CallError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = NodeClient::new(self.place.connect().await?);
        self.client = Some(client.clone());
        Ok(client)
    }
}
