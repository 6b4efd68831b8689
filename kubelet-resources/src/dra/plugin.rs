//! A driver's plugin, and how it is reached.

use std::path::Path;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use kubelet_plugins::grpc_go::code_name;
use tonic::Status;

use super::health_v1alpha1::NodeWatchResourcesResponse;
use super::v1::{
    NodePrepareResourcesRequest, NodePrepareResourcesResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};

/// The version of the gRPC service that is used with a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DraService {
    /// `v1.DRAPlugin`
    V1,
    /// `v1beta1.DRAPlugin`
    V1Beta1,
}

impl DraService {
    /// Newest first (`servicesSupportedByKubelet`).
    pub(super) const ALL: [Self; 2] = [Self::V1, Self::V1Beta1];

    /// Its name in the registration of a plugin.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1.DRAPlugin",
            Self::V1Beta1 => "v1beta1.DRAPlugin",
        }
    }

    /// The name of the gRPC service.
    pub(super) fn grpc_name(self) -> &'static str {
        match self {
            Self::V1 => "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
            Self::V1Beta1 => "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
        }
    }
}

/// The calls to a driver's plugin.
///
/// # Cancel safety
///
/// A call is dropped after its time limit, when the plugin deregisters and when the agent stops. The plugin may have done its work or
/// not; the manager repeats the call.
#[async_trait]
pub trait DriverPlugin: Send + Sync {
    /// Prepares claims.
    ///
    /// # Errors
    ///
    /// If no claim was tried. The failure of one claim is part of the answer.
    async fn prepare(
        &self,
        request: NodePrepareResourcesRequest,
    ) -> Result<NodePrepareResourcesResponse, Status>;

    /// Unprepares claims.
    ///
    /// # Errors
    ///
    /// As with [`prepare`](Self::prepare).
    async fn unprepare(
        &self,
        request: NodeUnprepareResourcesRequest,
    ) -> Result<NodeUnprepareResourcesResponse, Status>;

    /// Opens the stream of reports about the health of devices.
    ///
    /// # Errors
    ///
    /// If the plugin has no such service. The call is repeated.
    async fn watch_health(
        &self,
    ) -> Result<BoxStream<'static, Result<NodeWatchResourcesResponse, Status>>, Status>;
}

/// A connection to a plugin.
pub struct Connection {
    /// The calls on it.
    pub plugin: std::sync::Arc<dyn DriverPlugin>,
    /// Ends when the connection breaks. Calls make progress only while it is polled.
    pub closed: BoxFuture<'static, ()>,
}

/// Connects to plugins. [`GrpcDialer`](super::GrpcDialer) does so over their sockets.
#[async_trait]
pub trait Dialer: Send + Sync {
    /// Connects to the plugin at this socket.
    ///
    /// # Errors
    ///
    /// If nothing answers there. The text appears in an event.
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    async fn dial(&self, endpoint: &Path, service: DraService) -> Result<Connection, Status>;
}

/// The error, as grpc-go prints it.
pub(super) fn go_text(status: &Status) -> String {
    format!(
        "rpc error: code = {} desc = {}",
        code_name(status.code()),
        status.message()
    )
}
