//! Serves a driver and its registration on unix sockets.

use std::io;
use std::path::Path;

use hyper::body::Incoming;
use kubelet_volume::csi::v1::identity_server::IdentityServer;
use kubelet_volume::csi::v1::node_server::NodeServer;
use tokio_util::sync::CancellationToken;
use tonic::codegen::{Service as _, http};

use super::MemoryCsi;
use super::node_service::Service;
use crate::served_plugin::{Answering, Routes, ServedPlugin};

/// A driver that is served. When it is stopped or dropped, its sockets go and its connections break; the driver keeps its
/// volumes, and can be served again.
pub struct ServedCsi {
    service: Service,
    plugin: ServedPlugin,
}

impl ServedCsi {
    pub(super) fn start(driver: MemoryCsi, socket: &Path) -> io::Result<Self> {
        let dies = CancellationToken::new();
        let service = Service {
            driver,
            dies: dies.clone(),
        };
        let plugin = ServedPlugin::start(dies, socket, Services::new(&service), None)?;
        Ok(Self { service, plugin })
    }

    /// Also serves the registration of the driver on this socket, below a kubelet's `plugins_registry`.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created.
    pub fn register(&mut self, socket: &Path, versions: &[&str]) -> io::Result<()> {
        let (services, name) = (Services::new(&self.service), self.service.driver.name());
        self.plugin
            .register(socket, services, kubelet_plugins::CSI_PLUGIN, name, versions)
    }

    /// Waits until the agent has sent how the registration ended, and returns that. Cancel safe.
    ///
    /// # Errors
    ///
    /// The agent's message, if it refused the driver.
    pub async fn registered(&self) -> Result<(), String> {
        self.plugin.registered().await
    }

    /// Returns when the driver has died of a fault, or was stopped. Cancel safe.
    pub async fn died(&self) {
        self.plugin.died().await;
    }

    /// Removes the sockets and breaks the connections.
    pub async fn stop(self) {
        self.plugin.stop().await;
    }
}

#[derive(Clone)]
struct Services {
    identity: IdentityServer<Service>,
    node: NodeServer<Service>,
}

impl Services {
    fn new(service: &Service) -> Self {
        Self {
            identity: IdentityServer::new(service.clone()),
            node: NodeServer::new(service.clone()),
        }
    }
}

impl Routes for Services {
    fn route(&self, request: http::Request<Incoming>) -> Answering {
        match request.uri().path().starts_with("/csi.v1.Identity/") {
            true => self.identity.clone().call(request),
            false => self.node.clone().call(request),
        }
    }
}
