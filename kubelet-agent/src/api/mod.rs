//! An API server in the process of the agent: its objects in a file, its port, its kubeconfig, and its way to the node.

mod private;
mod serve;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kube_client::Client;
use kubelet_apiserver::{ApiServer, FileStorage, NodeDialer, NodeStream, User};
use kubelet_config::KubeletConfiguration;
use kubelet_core::{Clock, Disk};
use tokio::io::{DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use self::serve::OpenFile;
pub(crate) use self::serve::Served;
use crate::builder::Parts;
use crate::error::Problems;
use crate::{Error, Result, Settings};

/// How many changes of each kind the server keeps for watches that resume.
const HISTORY: usize = 64;
/// How many bytes of a log or a stream may be on their way between the API server and the node.
const BUFFER: usize = 64 * 1024;
/// How long a lease of the node lasts. Nobody watches the leases of a cluster of one node, and each renewal is a write to the disk.
const LEASE_SECONDS: i32 = 3600;
/// How old the usage that `kubectl top` shows may be (`--metric-resolution` of metrics-server).
const USAGE_AGE: Duration = Duration::from_secs(15);

/// The API server of an agent that [serves `kubectl`](crate::NodeAgentBuilder::serve_kubectl). Cheap to clone.
#[derive(Clone)]
pub struct OwnApiServer {
    server: ApiServer,
    address: SocketAddr,
    kubeconfig: Arc<Path>,
}

impl OwnApiServer {
    /// The address of its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The kubeconfig of the administrator, for `kubectl`. Only the user of the agent can read the file.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client of the administrator. Its requests stay in the process. They are answered while the agent runs.
    pub fn client(&self) -> Client {
        self.server.client()
    }

    /// The server, e.g. for more users: see [`ApiServer::grant`].
    pub fn server(&self) -> &ApiServer {
        &self.server
    }
}

impl fmt::Debug for OwnApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnApiServer")
            .field("address", &self.address)
            .field("kubeconfig", &self.kubeconfig)
            .finish_non_exhaustive()
    }
}

pub(crate) fn check(parts: &Parts, problems: &mut Problems) {
    if parts.serve_kubectl.is_none() {
        return;
    }
    if parts.client.is_some() || !parts.settings.kubeconfig.as_os_str().is_empty() {
        problems.add("serve_kubectl, and a client or a kubeconfig: a node has one API server");
    }
    if parts.settings.configuration.enable_server {
        problems.add("enableServer: with serve_kubectl the API server reaches the node without a port");
    }
}

/// Settings that only make sense, or only cost, with other nodes.
pub(crate) fn adapt(configuration: &mut KubeletConfiguration) {
    configuration.node_lease_duration_seconds = LEASE_SECONDS;
    // No controller of this API server attaches volumes.
    configuration.enable_controller_attach_detach = false;
}

/// Creates the folder of the agent, which has the secrets of the cluster, or checks that it is this user's alone.
pub(crate) async fn create_folder(root_dir: &Path, disk: Disk) -> Result<()> {
    let root_dir = root_dir.to_owned();
    disk.run(move || Ok(private::folder(&root_dir)))
        .await
        .map_err(no_error)?
}

fn no_error(source: io::Error) -> Error {
    Error::Io {
        what: "the folder of the agent".to_owned(),
        source,
    }
}

/// What connects the API server to the node.
pub(crate) type Connections = mpsc::Receiver<DuplexStream>;

/// Opens the API server of the node on a file in the folder of the agent, listens on `address`, and writes the kubeconfig.
pub(crate) async fn open(
    address: SocketAddr,
    settings: &Settings,
    clock: Clock,
    disk: Disk,
) -> Result<(Served, Connections)> {
    let (root_dir, node_name) = (&settings.root_dir, settings.hostname()?);
    let file = root_dir.join("api.redb");
    let opened = disk.run(move || Ok(open_storage(&file))).await;
    let storage = Arc::new(opened.map_err(no_error)??);
    // Also if the rest fails.
    let file = OpenFile(storage.clone());
    let (dialer, connections) = mpsc::channel(1);
    let server = ApiServer::builder()
        .clock(clock)
        .sign_certificates()
        .bind_pods_to(&node_name)
        .without_account_tokens()
        .node_dialer(Arc::new(ToTheNode(dialer)))
        .history(HISTORY)
        .record_nothing();
    let server = match cfg!(feature = "stats") {
        true => server.metrics_server(USAGE_AGE),
        false => server,
    };
    let server = server.open(storage).await?;
    let failed = |source| Error::Io {
        what: format!("cannot listen on {address}"),
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (kubeconfig, text) = (
        root_dir.join("kubeconfig"),
        server.kubeconfig_tls(address, User::admin()),
    );
    let path = kubeconfig.clone();
    let written = disk.run(move || private::write(&path, &text)).await;
    written.map_err(|source| Error::Io {
        what: format!("cannot write {}", kubeconfig.display()),
        source,
    })?;
    let own = OwnApiServer {
        server,
        address,
        kubeconfig: kubeconfig.into(),
    };
    Ok((Served::new(own, node_name, listener, (file, disk)), connections))
}

fn open_storage(file: &PathBuf) -> Result<FileStorage> {
    private::file(file)?;
    Ok(FileStorage::open(file)?)
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
