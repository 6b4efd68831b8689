//! The API server in the agent, with its objects in a file.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use kube_client::Client;
use kubelet_apiserver::{ApiServer, FileStorage, NodeDialer, NodeStream, User};
use kubelet_core::Disk;
use tokio::io::{DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::agent::Error;
use crate::private;

/// How many changes of each kind the server keeps for watches that resume.
const HISTORY: usize = 64;
/// How many bytes of a log or a stream may be on their way between the API server and the node.
const BUFFER: usize = 64 * 1024;

/// The API server of one node.
pub(crate) struct Cluster {
    server: ApiServer,
    node_name: String,
    connections: Mutex<Option<mpsc::Receiver<DuplexStream>>>,
}

impl Cluster {
    /// Opens the API server on a file in `root_dir`.
    pub(crate) async fn open(root_dir: &Path, node_name: &str) -> Result<Self, Error> {
        let file = root_dir.join("api.redb");
        private::file(&file)?;
        let open = move || FileStorage::open(&file).map_err(io::Error::other);
        let storage = Disk::default().run(open).await?;
        let (dialer, connections) = mpsc::channel(1);
        let server = ApiServer::builder()
            .sign_certificates()
            .bind_pods_to(node_name)
            .without_account_tokens()
            .node_dialer(Arc::new(ToTheNode(dialer)))
            .history(HISTORY)
            .record_nothing();
        let server = server.open(Arc::new(storage)).await?;
        Ok(Self { server, node_name: node_name.to_owned(), connections: Mutex::new(Some(connections)) })
    }

    /// The node's client. Its requests stay in the process.
    pub(crate) fn node_client(&self) -> Client {
        self.server.client_as(User::node(&self.node_name))
    }

    /// The API server's connections to the node, for logs, commands and ports. They can be taken once.
    pub(crate) async fn connections(&self) -> Option<mpsc::Receiver<DuplexStream>> {
        self.connections.lock().await.take()
    }

    /// Starts to serve `kubectl`, and to write to the file.
    pub(crate) async fn serve(&self, address: SocketAddr) -> Result<Served, Error> {
        let listener =
            TcpListener::bind(address).await.map_err(|error| format!("--api {address}: {error}"))?;
        let address = listener.local_addr()?;
        let stopping = [CancellationToken::new(), CancellationToken::new()];
        let (server, stop) = (self.server.clone(), stopping[0].clone());
        let listening = tokio::spawn(async move { server.serve_tls(listener, stop).await });
        let (server, stop) = (self.server.clone(), stopping[1].clone());
        let writing = tokio::spawn(async move { server.run(stop).await });
        let listening = Some(listening);
        Ok(Served { server: self.server.clone(), address, stopping, listening, writing })
    }
}

/// The API server on its port.
pub(crate) struct Served {
    server: ApiServer,
    address: SocketAddr,
    stopping: [CancellationToken; 2],
    /// `None` once it has ended.
    listening: Option<JoinHandle<io::Result<()>>>,
    writing: JoinHandle<kubelet_apiserver::Result<()>>,
}

impl Served {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes the administrator's kubeconfig, readable for this user only.
    pub(crate) fn write_kubeconfig(&self, path: &Path) -> Result<(), Error> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let text = self.server.kubeconfig_tls(self.address, User::admin());
        let new = path.with_extension("new");
        // What a killed agent left.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create_new(true).write(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        Ok(std::fs::rename(new, path)?)
    }

    /// Waits until the port fails.
    pub(crate) async fn failed(&mut self) -> Error {
        let ended = match &mut self.listening {
            Some(listening) => listening.await,
            None => std::future::pending().await,
        };
        self.listening = None;
        match ended {
            Ok(Ok(())) => "the API server closed its port".into(),
            Ok(Err(error)) => format!("the API server cannot accept connections: {error}").into(),
            Err(error) => error.into(),
        }
    }

    /// Closes the port, then writes what is left.
    pub(crate) async fn end(self) -> Result<(), Error> {
        let [listening, writing] = self.stopping;
        listening.cancel();
        let closed = match self.listening {
            Some(listening) => listening.await,
            None => Ok(Ok(())),
        };
        writing.cancel();
        self.writing.await??;
        Ok(closed??)
    }
}

/// Connects the API server to the node in this process.
#[derive(Debug)]
struct ToTheNode(mpsc::Sender<DuplexStream>);

#[async_trait]
impl NodeDialer for ToTheNode {
    async fn dial(&self, _: &str) -> io::Result<Box<dyn NodeStream>> {
        let (here, there) = duplex(BUFFER);
        let sent = self.0.send(there).await;
        sent.map_err(|_| io::Error::new(io::ErrorKind::ConnectionRefused, "the node ends"))?;
        Ok(Box::new(here))
    }
}
