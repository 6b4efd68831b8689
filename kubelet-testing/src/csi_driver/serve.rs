//! Serves a driver and its registration on unix sockets.

use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use async_trait::async_trait;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper_util::rt::TokioIo;
use kubelet_plugins::v1 as registration;
use kubelet_plugins::v1::registration_server::{Registration, RegistrationServer};
use kubelet_volume::csi::v1::identity_server::IdentityServer;
use kubelet_volume::csi::v1::node_server::NodeServer;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::{Service as _, http};
use tonic::{Request, Response, Status};

use super::MemoryCsi;
use super::node_service::Service;

/// A driver that is served. When it is stopped or dropped, its sockets go and its connections break; the driver keeps its
/// volumes, and can be served again.
pub struct ServedCsi {
    service: Service,
    sockets: Vec<PathBuf>,
    tasks: TaskTracker,
    registered: watch::Sender<Option<Result<(), String>>>,
}

impl ServedCsi {
    pub(super) fn start(driver: MemoryCsi, socket: &Path) -> io::Result<Self> {
        let mut served = Self {
            service: Service {
                driver,
                dies: CancellationToken::new(),
            },
            sockets: Vec::new(),
            tasks: TaskTracker::new(),
            registered: watch::Sender::new(None),
        };
        let services = Services {
            identity: IdentityServer::new(served.service.clone()),
            node: NodeServer::new(served.service.clone()),
            registration: None,
        };
        served.listen(socket, services)?;
        Ok(served)
    }

    /// Also serves the registration of the driver on this socket, below a kubelet's `plugins_registry`.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created.
    pub fn register(&mut self, socket: &Path, versions: &[&str]) -> io::Result<()> {
        let registrar = Registrar {
            info: registration::PluginInfo {
                r#type: kubelet_plugins::CSI_PLUGIN.to_owned(),
                name: self.service.driver.name().to_owned(),
                endpoint: self.sockets[0].display().to_string(),
                supported_versions: versions.iter().map(ToString::to_string).collect(),
            },
            registered: self.registered.clone(),
        };
        let services = Services {
            identity: IdentityServer::new(self.service.clone()),
            node: NodeServer::new(self.service.clone()),
            registration: Some(RegistrationServer::new(registrar)),
        };
        self.listen(socket, services)
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

    /// Returns when the driver has died of a fault, or was stopped. Cancel safe.
    pub async fn died(&self) {
        self.service.dies.cancelled().await;
        self.tasks.wait().await;
    }

    /// Removes the sockets and breaks the connections.
    pub async fn stop(self) {
        self.service.dies.cancel();
        self.tasks.wait().await;
    }

    fn listen(&mut self, socket: &Path, services: Services) -> io::Result<()> {
        let listener = UnixListener::bind(socket)?;
        self.sockets.push(socket.to_owned());
        let (dies, tasks) = (self.service.dies.clone(), self.tasks.clone());
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

impl Drop for ServedCsi {
    fn drop(&mut self) {
        self.service.dies.cancel();
    }
}

/// Runs connections and calls until the driver dies.
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
    identity: IdentityServer<Service>,
    node: NodeServer<Service>,
    registration: Option<RegistrationServer<Registrar>>,
}

type Answer = http::Response<tonic::body::Body>;

impl hyper::service::Service<http::Request<Incoming>> for Services {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let path = request.uri().path();
        if path.starts_with("/csi.v1.Identity/") {
            return self.identity.clone().call(request);
        }
        match &self.registration {
            Some(registration) if path.starts_with("/pluginregistration.") => {
                registration.clone().call(request)
            }
            _ => self.node.clone().call(request),
        }
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
