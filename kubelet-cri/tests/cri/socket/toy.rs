//! A runtime with scripted answers, and the socket that serves it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kubelet_cri::v1::*;
use kubelet_cri::{CriClient, CriServer, CriSocket, Error, ImageService, RuntimeService};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::calls::{image_calls, runtime_calls};

/// What the toy does with a call.
#[derive(Clone)]
pub(crate) enum Do {
    /// Answers with this message; a streaming call sends it twice.
    Answer(Vec<u8>),
    Fail(Error),
    /// Never answers.
    Hang,
    /// Streams this message once, then nothing, without an end.
    Endless(Vec<u8>),
}

/// A [`Toy::new`] answers every call with an empty message.
#[derive(Default)]
pub(crate) struct Toy {
    script: Mutex<HashMap<&'static str, Do>>,
    requests: Mutex<Vec<(&'static str, Vec<u8>)>>,
    under_way: AtomicUsize,
    changed: Notify,
}

impl Toy {
    pub(crate) fn new() -> Arc<Self> {
        let toy = Arc::new(Self::default());
        toy.on("Version", Do::Answer(version("v1").encode_to_vec()));
        toy
    }

    pub(crate) fn on(&self, call: &'static str, what: Do) {
        self.script.lock().insert(call, what);
    }

    /// The requests since the last time, in order.
    pub(crate) fn requests(&self) -> Vec<(&'static str, Vec<u8>)> {
        std::mem::take(&mut *self.requests.lock())
    }

    /// Waits until this many calls hang or endless streams are open.
    pub(crate) async fn wait_under_way(&self, count: usize) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.under_way.load(Ordering::SeqCst) == count {
                return;
            }
            changed.await;
        }
    }

    fn told(&self, call: &'static str, request: &impl Message) -> Do {
        self.requests.lock().push((call, request.encode_to_vec()));
        self.script
            .lock()
            .get(call)
            .cloned()
            .unwrap_or_else(|| Do::Answer(Vec::new()))
    }

    async fn unary<R: Message + Default>(
        self: Arc<Self>,
        call: &'static str,
        request: impl Message,
    ) -> Result<R, Error> {
        match self.told(call, &request) {
            Do::Answer(bytes) => Ok(R::decode(bytes.as_slice()).unwrap()),
            Do::Fail(error) => Err(error),
            Do::Hang | Do::Endless(_) => {
                let _under_way = UnderWay::new(self.clone());
                std::future::pending().await
            }
        }
    }

    async fn stream<R: Message + Default + Clone + 'static>(
        self: Arc<Self>,
        call: &'static str,
        request: impl Message,
    ) -> Result<BoxStream<'static, Result<R, Error>>, Error> {
        match self.told(call, &request) {
            Do::Answer(bytes) => {
                let item = R::decode(bytes.as_slice()).unwrap();
                Ok(stream::iter([Ok(item.clone()), Ok(item)]).boxed())
            }
            Do::Fail(error) => Err(error),
            Do::Hang => {
                let _under_way = UnderWay::new(self.clone());
                std::future::pending().await
            }
            Do::Endless(bytes) => {
                let under_way = UnderWay::new(self.clone());
                let first = Ok(R::decode(bytes.as_slice()).unwrap());
                let rest = stream::once(async move {
                    let _under_way = under_way;
                    std::future::pending().await
                });
                Ok(stream::iter([first]).chain(rest).boxed())
            }
        }
    }
}

pub(crate) fn version(runtime_api_version: &str) -> VersionResponse {
    VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "toy".into(),
        runtime_version: "1.2.3".into(),
        runtime_api_version: runtime_api_version.into(),
    }
}

/// Counts while it lives.
struct UnderWay(Arc<Toy>);

impl UnderWay {
    fn new(toy: Arc<Toy>) -> Self {
        toy.under_way.fetch_add(1, Ordering::SeqCst);
        toy.changed.notify_waiters();
        Self(toy)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

/// The toy as a service.
pub(crate) struct ToyService(pub(crate) Arc<Toy>);

macro_rules! implement {
    ($service:ident $($kind:ident $method:ident $call:ident($request:ident) -> $response:ident;)*) => {
        #[async_trait]
        impl $service for ToyService {
            $(
                async fn $method(&self, request: $request) -> Result<implement!(@gives $kind $response), Error> {
                    self.0.clone().$kind(stringify!($call), request).await
                }
            )*
        }
    };
    (@gives unary $response:ident) => { $response };
    (@gives stream $response:ident) => { BoxStream<'static, Result<$response, Error>> };
}

runtime_calls!(implement);
image_calls!(implement);

/// The toy on a socket.
pub(crate) struct Served {
    pub(crate) path: PathBuf,
    pub(crate) shutdown: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Served {
    pub(crate) async fn start(toy: &Arc<Toy>, path: PathBuf) -> Self {
        let service = Arc::new(ToyService(toy.clone()));
        Self::start_services(service.clone(), service, path).await
    }

    pub(crate) async fn start_services(
        runtime: Arc<dyn RuntimeService>,
        images: Arc<dyn ImageService>,
        path: PathBuf,
    ) -> Self {
        let socket = CriSocket::bind(&path, 0o600).await.unwrap();
        let shutdown = CancellationToken::new();
        let server = CriServer::new(runtime, images).shutdown_grace(std::time::Duration::from_millis(50));
        let task = tokio::spawn(server.serve(socket, shutdown.clone()));
        Self { path, shutdown, task }
    }

    /// Drops the server without a shutdown.
    pub(crate) fn abort(self) {
        self.task.abort();
    }

    /// Returns when all tasks of the server have ended.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// A toy, its socket and a client after the handshake.
pub(crate) async fn toy_and_client() -> (tempfile::TempDir, Arc<Toy>, Served, CriClient) {
    let folder = tempfile::tempdir().unwrap();
    let toy = Toy::new();
    let served = Served::start(&toy, folder.path().join("cri.sock")).await;
    let client = CriClient::connect(served.path.to_str().unwrap()).await.unwrap();
    toy.requests();
    (folder, toy, served, client)
}
