//! Serves a plugin, and its registration for the plugin watcher, on unix sockets.

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
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::{Service as _, http};
use tonic::{Request, Response, Status};

/// Resolves to the answer of a gRPC service.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

type Answer = http::Response<tonic::body::Body>;

/// The gRPC services of a plugin.
pub(crate) trait Routes: Clone + Send + Sync + 'static {
    /// Answers a request with the service that its path names.
    fn route(&self, request: http::Request<Incoming>) -> Answering;
}

/// A plugin that is served. When it is stopped or dropped, its sockets go and its connections break.
pub(crate) struct ServedPlugin {
    dies: CancellationToken,
    socket: PathBuf,
    tasks: TaskTracker,
    registered: watch::Sender<Option<Result<(), String>>>,
}

impl ServedPlugin {
    /// Serves a plugin on this socket until `dies` is cancelled; with `info`, also its registration.
    pub(crate) fn start<R: Routes>(
        dies: CancellationToken,
        socket: &Path,
        plugin: R,
        info: Option<registration::PluginInfo>,
    ) -> io::Result<Self> {
        let tasks = TaskTracker::new();
        tasks.close();
        let served = Self {
            dies,
            socket: socket.to_owned(),
            tasks,
            registered: watch::Sender::new(None),
        };
        served.listen(socket, plugin, info)?;
        Ok(served)
    }

    /// Serves the plugin and its registration on one more socket. The agent then connects to the first one.
    pub(crate) fn register<R: Routes>(
        &self,
        socket: &Path,
        plugin: R,
        kind: &str,
        name: &str,
        versions: &[&str],
    ) -> io::Result<()> {
        let info = registration::PluginInfo {
            r#type: kind.to_owned(),
            name: name.to_owned(),
            endpoint: self.socket.display().to_string(),
            supported_versions: versions.iter().map(ToString::to_string).collect(),
        };
        self.listen(socket, plugin, Some(info))
    }

    fn listen<R: Routes>(
        &self,
        socket: &Path,
        plugin: R,
        info: Option<registration::PluginInfo>,
    ) -> io::Result<()> {
        let listener = UnixListener::bind(socket)?;
        let registrar = info.map(|info| Registrar {
            info,
            registered: self.registered.clone(),
        });
        let services = Services {
            plugin,
            registration: registrar.map(RegistrationServer::new),
        };
        let connections = Connections {
            dies: self.dies.clone(),
            tasks: self.tasks.clone(),
        };
        let (dies, socket) = (self.dies.clone(), socket.to_owned());
        self.tasks.spawn(async move {
            while let Some(Ok((stream, _))) = dies.run_until_cancelled(listener.accept()).await {
                let connection = http2::Builder::new(connections.clone())
                    .serve_connection(TokioIo::new(stream), services.clone());
                connections.execute(async move {
                    let _ = connection.await;
                });
            }
            drop(listener);
            let _ = fs::remove_file(socket);
        });
        Ok(())
    }

    /// The socket that it was started on.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits until the agent has sent how the registration ended, and returns that. Cancel safe.
    pub(crate) async fn registered(&self) -> Result<(), String> {
        let mut receiver = self.registered.subscribe();
        let status = receiver.wait_for(Option::is_some).await;
        status
            .map_err(|error| error.to_string())?
            .clone()
            .unwrap_or(Ok(()))
    }

    /// Returns when the plugin has died, or was stopped. Cancel safe.
    pub(crate) async fn died(&self) {
        self.dies.cancelled().await;
        self.tasks.wait().await;
    }

    /// Removes the sockets and breaks the connections.
    pub(crate) async fn stop(self) {
        self.dies.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for ServedPlugin {
    fn drop(&mut self) {
        self.dies.cancel();
    }
}

/// Runs connections and calls until the plugin dies.
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
struct Services<R> {
    plugin: R,
    registration: Option<RegistrationServer<Registrar>>,
}

impl<R: Routes> hyper::service::Service<http::Request<Incoming>> for Services<R> {
    type Response = Answer;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        match &self.registration {
            Some(registration) if request.uri().path().starts_with("/pluginregistration.") => {
                registration.clone().call(request)
            }
            _ => self.plugin.route(request),
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
