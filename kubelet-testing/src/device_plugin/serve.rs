//! Serves a device plugin on a unix socket, and registers it with a node.

use std::io;
use std::path::Path;

use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kubelet_plugins::v1::PluginInfo;
use kubelet_resources::devices::v1beta1::RegisterRequest;
use kubelet_resources::devices::v1beta1::device_plugin_server::DevicePluginServer;
use kubelet_resources::devices::v1beta1::registration_client::RegistrationClient;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::codegen::{Service as _, http};

use super::{DevicePluginService, MemoryDevicePlugin};
use crate::served_plugin::{Answering, Routes, ServedPlugin};

/// A device plugin that is served on a socket. When it is stopped or dropped, or crashes, its socket goes and its connections break.
pub struct ServedDevicePlugin {
    service: DevicePluginService,
    plugin: ServedPlugin,
}

impl MemoryDevicePlugin {
    /// Serves the plugin on this socket. There it also answers the registration of the plugin watcher.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created.
    pub fn serve(&self, socket: &Path) -> io::Result<ServedDevicePlugin> {
        let service = self.service();
        let info = PluginInfo {
            r#type: kubelet_plugins::DEVICE_PLUGIN.to_owned(),
            name: self.resource().to_owned(),
            endpoint: String::new(),
            supported_versions: vec!["v1beta1".to_owned()],
        };
        let services = Services(DevicePluginServer::new(service.clone()));
        let plugin = ServedPlugin::start(service.dies.child_token(), socket, services, Some(info))?;
        Ok(ServedDevicePlugin { service, plugin })
    }
}

impl ServedDevicePlugin {
    /// Registers the plugin with the node that listens on this socket. The plugin's socket must be in the same folder.
    ///
    /// # Errors
    ///
    /// The node's answer, if it refuses the plugin, or that it cannot be reached.
    pub async fn register(&self, kubelet_socket: &Path, version: &str) -> Result<(), Status> {
        let unavailable = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
        let stream = UnixStream::connect(kubelet_socket).await;
        let mut once = Some(TokioIo::new(stream.map_err(|error| unavailable(&error))?));
        let connector = tower::service_fn(move |_: http::Uri| {
            let stream = once.take();
            std::future::ready(stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
        });
        let endpoint = tonic::transport::Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await;
        let mut client = RegistrationClient::new(channel.map_err(|error| unavailable(&error))?);
        let name = self.plugin.socket().file_name().unwrap_or_default();
        let request = RegisterRequest {
            version: version.to_owned(),
            endpoint: name.to_string_lossy().into_owned(),
            resource_name: self.service.plugin.resource().to_owned(),
            options: None,
        };
        client.register(request).await.map(drop)
    }

    /// Removes the socket and breaks the connections.
    pub async fn stop(self) {
        self.plugin.stop().await;
    }
}

#[derive(Clone)]
struct Services(DevicePluginServer<DevicePluginService>);

impl Routes for Services {
    fn route(&self, request: http::Request<Incoming>) -> Answering {
        self.0.clone().call(request)
    }
}
