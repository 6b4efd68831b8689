//! Serves a driver and its registration on unix sockets.

use std::io;
use std::path::Path;

use async_trait::async_trait;
use futures::stream::BoxStream;
use hyper::body::Incoming;
use kubelet_resources::dra::DriverPlugin;
use kubelet_resources::dra::health_v1alpha1::dra_resource_health_server::{
    DraResourceHealth, DraResourceHealthServer,
};
use kubelet_resources::dra::health_v1alpha1::{NodeWatchResourcesRequest, NodeWatchResourcesResponse};
use kubelet_resources::dra::v1::dra_plugin_server as v1_server;
use kubelet_resources::dra::v1::{
    NodePrepareResourcesRequest, NodePrepareResourcesResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};
use kubelet_resources::dra::v1beta1::dra_plugin_server as v1beta1_server;
use tokio_util::sync::CancellationToken;
use tonic::codegen::{Service as _, http};
use tonic::{Request, Response, Status};

use super::MemoryDra;
use crate::served_plugin::{Answering, Routes, ServedPlugin};

/// A driver that is served. When it is stopped or dropped, its sockets go and its connections break; the driver keeps what is
/// prepared, and can be served again.
pub struct ServedDra {
    driver: MemoryDra,
    plugin: ServedPlugin,
}

impl ServedDra {
    pub(super) fn start(driver: MemoryDra, socket: &Path) -> io::Result<Self> {
        let plugin = ServedPlugin::start(CancellationToken::new(), socket, Services::new(&driver), None)?;
        Ok(Self { driver, plugin })
    }

    /// Also serves the registration of the driver on this socket, below a kubelet's `plugins_registry`. Versions are
    /// `v1.DRAPlugin` and `v1beta1.DRAPlugin`; both are served.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created.
    pub fn register(&mut self, socket: &Path, versions: &[&str]) -> io::Result<()> {
        let (services, name) = (Services::new(&self.driver), self.driver.name());
        self.plugin
            .register(socket, services, kubelet_plugins::DRA_PLUGIN, name, versions)
    }

    /// Waits until the agent has sent how the registration ended, and returns that. Cancel safe.
    ///
    /// # Errors
    ///
    /// The agent's message, if it refused the driver.
    pub async fn registered(&self) -> Result<(), String> {
        self.plugin.registered().await
    }

    /// Removes the sockets and breaks the connections.
    pub async fn stop(self) {
        self.plugin.stop().await;
    }
}

#[derive(Clone)]
struct Services {
    v1: v1_server::DraPluginServer<Service>,
    v1beta1: v1beta1_server::DraPluginServer<Service>,
    health: DraResourceHealthServer<Service>,
}

impl Services {
    fn new(driver: &MemoryDra) -> Self {
        let service = Service(driver.clone());
        Self {
            v1: v1_server::DraPluginServer::new(service.clone()),
            v1beta1: v1beta1_server::DraPluginServer::new(service.clone()),
            health: DraResourceHealthServer::new(service),
        }
    }
}

impl Routes for Services {
    fn route(&self, request: http::Request<Incoming>) -> Answering {
        let path = request.uri().path();
        if path.starts_with("/k8s.io.kubelet.pkg.apis.dra.v1beta1.") {
            return self.v1beta1.clone().call(request);
        }
        match path.starts_with("/v1alpha1.DRAResourceHealth/") {
            true => self.health.clone().call(request),
            false => self.v1.clone().call(request),
        }
    }
}

#[derive(Clone)]
struct Service(MemoryDra);

/// The versions have the same messages.
macro_rules! serves {
    ($($server:ident)+) => { $(
        #[async_trait]
        impl $server::DraPlugin for Service {
            async fn node_prepare_resources(
                &self,
                request: Request<NodePrepareResourcesRequest>,
            ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
                self.0.prepare(request.into_inner()).await.map(Response::new)
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<NodeUnprepareResourcesRequest>,
            ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
                self.0.unprepare(request.into_inner()).await.map(Response::new)
            }
        }
    )+ };
}

serves!(v1_server v1beta1_server);

#[async_trait]
impl DraResourceHealth for Service {
    type NodeWatchResourcesStream = BoxStream<'static, Result<NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        self.0.watch_health().await.map(Response::new)
    }
}
