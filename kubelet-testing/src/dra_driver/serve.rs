//! Serves a driver and its registration on unix sockets.

use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use async_trait::async_trait;
use futures::stream::BoxStream;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper_util::rt::TokioIo;
use kubelet_plugins::v1 as registration;
use kubelet_plugins::v1::registration_server::{Registration, RegistrationServer};
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
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::{Service as _, http};
use tonic::{Request, Response, Status};

use super::MemoryDra;

/// A driver that is served. When it is stopped or dropped, its sockets go and its connections break; the driver keeps what is
/// prepared, and can be served again.
pub struct ServedDra {
    driver: MemoryDra,
    sockets: Vec<PathBuf>,
    dies: CancellationToken,
    tasks: TaskTracker,
    registered: watch::Sender<Option<Result<(), String>>>,
}

impl ServedDra {
    pub(super) fn start(driver: MemoryDra, socket: &Path) -> io::Result<Self> {
        let mut served = Self {
            driver,
            sockets: Vec::new(),
            dies: CancellationToken::new(),
            tasks: TaskTracker::new(),
            registered: watch::Sender::new(None),
        };
        served.listen(socket, None)?;
        Ok(served)
    }

    /// Also serves the registration of the driver on this socket, below a kubelet's `plugins_registry`. Versions are
    /// `v1.DRAPlugin` and `v1beta1.DRAPlugin`; both are served.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created.
    pub fn register(&mut self, socket: &Path, versions: &[&str]) -> io::Result<()> {
        let registrar = Registrar {
            info: registration::PluginInfo {
                r#type: kubelet_plugins::DRA_PLUGIN.to_owned(),
                name: self.driver.name().to_owned(),
                endpoint: self.sockets[0].display().to_string(),
                supported_versions: versions.iter().map(ToString::to_string).collect(),
            },
            registered: self.registered.clone(),
        };
        self.listen(socket, Some(registrar))
    }

    /// Waits until the agent has sent how the registration ended, and returns that. Cancel safe.
    ///
    /// # Errors
    ///
    /// The agent's message, if it refused the driver.
    pub async fn registered(&self) -> Result<(), String> {
        let mut receiver = self.registered.subscribe();
        let status = receiver.wait_for(Option::is_some).await;
        status
            .map_err(|error| error.to_string())?
            .clone()
            .unwrap_or(Ok(()))
    }

    /// Removes the sockets and breaks the connections.
    pub async fn stop(self) {
        self.dies.cancel();
        self.tasks.wait().await;
    }

    fn listen(&mut self, socket: &Path, registrar: Option<Registrar>) -> io::Result<()> {
        let listener = UnixListener::bind(socket)?;
        self.sockets.push(socket.to_owned());
        let service = Service(self.driver.clone());
        let services = Services {
            v1: v1_server::DraPluginServer::new(service.clone()),
            v1beta1: v1beta1_server::DraPluginServer::new(service.clone()),
            health: DraResourceHealthServer::new(service),
            registration: registrar.map(RegistrationServer::new),
        };
        let (dies, tasks) = (self.dies.clone(), self.tasks.clone());
        let socket = socket.to_owned();
        self.tasks.close();
        let executor = Connections {
            dies: dies.clone(),
            tasks: tasks.clone(),
        };
        tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    biased;
                    () = dies.cancelled() => break,
                    accepted = listener.accept() => accepted,
                };
                let Ok((stream, _)) = accepted else { break };
                let connection = http2::Builder::new(executor.clone())
                    .serve_connection(TokioIo::new(stream), services.clone());
                executor.execute(async move {
                    let _ = connection.await;
                });
            }
            drop(listener);
            let _ = fs::remove_file(socket);
        });
        Ok(())
    }
}

impl Drop for ServedDra {
    fn drop(&mut self) {
        self.dies.cancel();
    }
}

/// Runs connections and calls until the driver is stopped.
#[derive(Clone)]
struct Connections {
    dies: CancellationToken,
    tasks: TaskTracker,
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Connections {
    fn execute(&self, task: F) {
        let dies = self.dies.clone();
        self.tasks.spawn(async move {
            let _ = dies.run_until_cancelled_owned(task).await;
        });
    }
}

#[derive(Clone)]
struct Services {
    v1: v1_server::DraPluginServer<Service>,
    v1beta1: v1beta1_server::DraPluginServer<Service>,
    health: DraResourceHealthServer<Service>,
    registration: Option<RegistrationServer<Registrar>>,
}

type Answer = http::Response<tonic::body::Body>;

impl hyper::service::Service<http::Request<Incoming>> for Services {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let path = request.uri().path();
        if path.starts_with("/k8s.io.kubelet.pkg.apis.dra.v1beta1.") {
            return self.v1beta1.clone().call(request);
        }
        if path.starts_with("/v1alpha1.DRAResourceHealth/") {
            return self.health.clone().call(request);
        }
        match &self.registration {
            Some(registration) if path.starts_with("/pluginregistration.") => {
                registration.clone().call(request)
            }
            _ => self.v1.clone().call(request),
        }
    }
}

#[derive(Clone)]
struct Service(MemoryDra);

#[async_trait]
impl v1_server::DraPlugin for Service {
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

#[async_trait]
impl v1beta1_server::DraPlugin for Service {
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

#[derive(Clone)]
struct Registrar {
    info: registration::PluginInfo,
    registered: watch::Sender<Option<Result<(), String>>>,
}

#[async_trait]
impl Registration for Registrar {
    async fn get_info(
        &self,
        _: Request<registration::InfoRequest>,
    ) -> Result<Response<registration::PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> Result<Response<registration::RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.registered.send_replace(Some(match status.plugin_registered {
            true => Ok(()),
            false => Err(status.error),
        }));
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}
