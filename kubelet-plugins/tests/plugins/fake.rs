//! A plugin that serves its registration, a handler that records its calls, and a watcher with both.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubelet_plugins::v1::registration_server::{Registration, RegistrationServer};
use kubelet_plugins::v1::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use kubelet_plugins::{
    CSI_PLUGIN, Error, Plugin, PluginHandler, PluginState, PluginWatcher, PluginWatcherHandle, Result,
};
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::codegen::{Service, http};
use tonic::{Request, Response, Status};

/// What the plugin does when it is asked.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Manner {
    Answers,
    /// Never answers `GetInfo`.
    Hangs,
    /// Drops the connection on `NotifyRegistrationStatus`.
    DiesWhenNotified,
}

/// A plugin on a socket. Dropping it removes the socket.
pub(crate) struct FakePlugin {
    socket: PathBuf,
    served: JoinHandle<()>,
    statuses: watch::Receiver<Vec<RegistrationStatus>>,
}

#[derive(Clone)]
struct FakeService {
    info: PluginInfo,
    manner: Manner,
    statuses: Arc<watch::Sender<Vec<RegistrationStatus>>>,
}

impl FakePlugin {
    pub(crate) fn start(socket: &Path, name: &str) -> Self {
        Self::with(socket, name, CSI_PLUGIN, &["1.0.0"], Manner::Answers)
    }

    pub(crate) fn with(
        socket: &Path,
        name: &str,
        plugin_type: &str,
        versions: &[&str],
        manner: Manner,
    ) -> Self {
        let (sender, statuses) = watch::channel(Vec::new());
        let service = FakeService {
            info: PluginInfo {
                r#type: plugin_type.into(),
                name: name.into(),
                endpoint: String::new(),
                supported_versions: versions.iter().map(ToString::to_string).collect(),
            },
            manner,
            statuses: Arc::new(sender),
        };
        let listener = UnixListener::bind(socket).unwrap();
        let served = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = Router(RegistrationServer::new(service.clone()));
                let connection =
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), server);
                tokio::spawn(connection);
            }
        });
        Self {
            socket: socket.to_owned(),
            served,
            statuses,
        }
    }

    /// The first status that the plugin was sent.
    pub(crate) async fn status(&mut self) -> RegistrationStatus {
        let statuses = self.statuses.wait_for(|statuses| !statuses.is_empty()).await;
        statuses.unwrap()[0].clone()
    }

    pub(crate) fn statuses(&self) -> Vec<RegistrationStatus> {
        self.statuses.borrow().clone()
    }
}

impl Drop for FakePlugin {
    fn drop(&mut self) {
        self.served.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[async_trait]
impl Registration for FakeService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        if self.manner == Manner::Hangs {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        if self.manner == Manner::DiesWhenNotified {
            return Err(Status::unavailable("the plugin dies"));
        }
        self.statuses
            .send_modify(|statuses| statuses.push(request.into_inner()));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

struct Router(RegistrationServer<FakeService>);

impl hyper::service::Service<http::Request<Incoming>> for Router {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        self.0.clone().call(request)
    }
}

/// Records its calls as `verb name endpoint`, with the endpoint's file name.
#[derive(Default)]
pub(crate) struct Recorder {
    calls: Mutex<Vec<String>>,
    called: Notify,
    /// The next answers of `register`; `Ok` when empty.
    pub(crate) register_fails: Mutex<VecDeque<String>>,
    /// `register` of this name waits for a permit.
    pub(crate) held: Mutex<Option<(String, Arc<Semaphore>)>>,
}

impl Recorder {
    fn record(&self, verb: &str, plugin: &Plugin) {
        let file = plugin.endpoint.file_name().unwrap().to_str().unwrap();
        self.calls.lock().push(format!("{verb} {} {file}", plugin.name));
        self.called.notify_waiters();
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().clone()
    }

    /// Waits until this many calls were made.
    pub(crate) async fn wait_for_calls(&self, count: usize) -> Vec<String> {
        loop {
            let called = self.called.notified();
            let calls = self.calls();
            if calls.len() >= count {
                return calls;
            }
            called.await;
        }
    }
}

#[async_trait]
impl PluginHandler for Recorder {
    async fn validate(&self, plugin: &Plugin) -> Result<()> {
        self.record("validate", plugin);
        match plugin.versions.iter().any(|version| version.starts_with("1.")) {
            true => Ok(()),
            false => Err(Error::refused(format!(
                "none of the versions {:?} is supported",
                plugin.versions
            ))),
        }
    }

    async fn register(&self, plugin: &Plugin) -> Result<()> {
        self.record("register", plugin);
        let held = self.held.lock().clone();
        if let Some((_, permits)) = held.filter(|(name, _)| *name == plugin.name) {
            permits.acquire().await.unwrap().forget();
        }
        match self.register_fails.lock().pop_front() {
            Some(message) => Err(Error::refused(message)),
            None => Ok(()),
        }
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.record("deregister", plugin);
    }
}

/// A watcher of a folder of its own.
pub(crate) struct Node {
    dir: tempfile::TempDir,
    pub(crate) handler: Arc<Recorder>,
    pub(crate) handle: PluginWatcherHandle,
    pub(crate) shutdown: CancellationToken,
    pub(crate) run: Option<JoinHandle<()>>,
}

impl Node {
    pub(crate) fn start() -> Self {
        let mut node = Self::prepared();
        node.run_watcher();
        node
    }

    /// Without a running watcher.
    pub(crate) fn prepared() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("registry")).unwrap();
        let (handle, _) = Self::watcher(dir.path(), Arc::default());
        Self {
            dir,
            handler: Arc::default(),
            handle,
            shutdown: CancellationToken::new(),
            run: None,
        }
    }

    fn watcher(dir: &Path, handler: Arc<Recorder>) -> (PluginWatcherHandle, PluginWatcher) {
        let watcher = PluginWatcher::builder(dir.join("registry"))
            .handler(CSI_PLUGIN, handler)
            .build()
            .unwrap();
        (watcher.handle(), watcher)
    }

    pub(crate) fn run_watcher(&mut self) {
        let (handle, watcher) = Self::watcher(self.dir.path(), self.handler.clone());
        self.handle = handle;
        self.shutdown = CancellationToken::new();
        self.run = Some(tokio::spawn(watcher.run(self.shutdown.clone())));
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.path().join("registry")
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Waits until the plugins in use have these names, in the order of their sockets.
    pub(crate) async fn wait_for_registered(&mut self, names: &[&str]) -> Vec<PluginState> {
        self.handle
            .wait_for(|plugins| registered(plugins) == names)
            .await
            .unwrap()
    }

    pub(crate) async fn stop(&mut self) {
        self.shutdown.cancel();
        if let Some(run) = self.run.take() {
            run.await.unwrap();
        }
    }
}

pub(crate) fn registered(plugins: &[PluginState]) -> Vec<&str> {
    let names = plugins.iter().filter_map(|plugin| plugin.registered.as_ref());
    names.map(|plugin| plugin.name.as_str()).collect()
}
