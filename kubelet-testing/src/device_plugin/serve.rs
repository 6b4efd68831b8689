//! Serves a device plugin on a unix socket, and registers it with a node.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use async_trait::async_trait;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubelet_plugins::v1 as registration;
use kubelet_plugins::v1::registration_server::{Registration, RegistrationServer};
use kubelet_resources::devices::v1beta1::RegisterRequest;
use kubelet_resources::devices::v1beta1::device_plugin_server::DevicePluginServer;
use kubelet_resources::devices::v1beta1::registration_client::RegistrationClient;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::{Service as _, http};
use tonic::{Request, Response, Status};

use super::{DevicePluginService, MemoryDevicePlugin};

/// A device plugin that is served on a socket. When it is stopped or dropped, or crashes, its socket goes and its connections break.
pub struct ServedDevicePlugin {
    service: DevicePluginService,
    socket: PathBuf,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl MemoryDevicePlugin {
    /// Serves the plugin on this socket. There it also answers the registration of the plugin watcher.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created.
    pub fn serve(&self, socket: &Path) -> io::Result<ServedDevicePlugin> {
        let service = self.service();
        let stop = service.dies.child_token();
        let tasks = TaskTracker::new();
        let listener = UnixListener::bind(socket)?;
        let services = Services {
            plugin: DevicePluginServer::new(service.clone()),
            registration: RegistrationServer::new(Registrar {
                resource: self.resource().to_owned(),
            }),
        };
        let (stopped, connections, path) = (stop.clone(), tasks.clone(), socket.to_owned());
        tasks.spawn(async move {
            while let Some(Ok((stream, _))) = stopped.run_until_cancelled(listener.accept()).await {
                let connection = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), services.clone());
                let stopped = stopped.clone();
                connections.spawn(async move {
                    let _ = stopped.run_until_cancelled(connection).await;
                });
            }
            drop(listener);
            let _ = fs::remove_file(path);
        });
        tasks.close();
        Ok(ServedDevicePlugin {
            service,
            socket: socket.to_owned(),
            tasks,
            stop,
        })
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
        let name = self.socket.file_name().unwrap_or_default();
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
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for ServedDevicePlugin {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(Clone)]
struct Services {
    plugin: DevicePluginServer<DevicePluginService>,
    registration: RegistrationServer<Registrar>,
}

type Answer = http::Response<tonic::body::Body>;

impl hyper::service::Service<http::Request<Incoming>> for Services {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        match request.uri().path().starts_with("/pluginregistration.") {
            true => self.registration.clone().call(request),
            false => self.plugin.clone().call(request),
        }
    }
}

/// The registration that the plugin watcher calls.
#[derive(Clone)]
struct Registrar {
    resource: String,
}

#[async_trait]
impl Registration for Registrar {
    async fn get_info(
        &self,
        _: Request<registration::InfoRequest>,
    ) -> Result<Response<registration::PluginInfo>, Status> {
        Ok(Response::new(registration::PluginInfo {
            r#type: kubelet_plugins::DEVICE_PLUGIN.to_owned(),
            name: self.resource.clone(),
            endpoint: String::new(),
            supported_versions: vec!["v1beta1".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        _: Request<registration::RegistrationStatus>,
    ) -> Result<Response<registration::RegistrationStatusResponse>, Status> {
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}
