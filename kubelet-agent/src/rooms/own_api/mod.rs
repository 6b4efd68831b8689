//! The room of an API server in the process of the agent: its objects in a file, its port, its kubeconfig, and its way to the node.

mod private;
mod serve;

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

use self::serve::{OpenFile, Served};
use crate::dynamic::Adapt;
use crate::error::{Error, Result};
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

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

kubelet_core::impl_debug!(OwnApiServer: address, kubeconfig);

/// What the builder gathers for the API server.
#[derive(Default)]
pub(crate) struct Parts {
    /// Where it listens; `None`: there is no such API server.
    pub(crate) address: Option<SocketAddr>,
}

impl Parts {
    pub(crate) fn is_wanted(&self) -> bool {
        self.address.is_some()
    }

    /// The fields of the configuration that such an agent decides itself.
    pub(crate) fn adapt(&self) -> Adapt {
        match self.is_wanted() {
            true => adapt,
            false => |_| (),
        }
    }
}

/// `joins` is whether the node joins another cluster.
pub(crate) fn check(settings: &Settings, parts: &Parts, joins: bool, problems: &mut Problems) {
    if !parts.is_wanted() {
        return;
    }
    if joins {
        problems.add(
            "serve_kubectl",
            "serve_kubectl, and a client or a kubeconfig: a node has one API server",
        );
    }
    if settings.configuration.enable_server {
        problems.add(
            "enableServer",
            "with serve_kubectl the API server reaches the node without a port",
        );
    }
}

/// Settings that only make sense, or only cost, with other nodes.
fn adapt(configuration: &mut KubeletConfiguration) {
    configuration.node_lease_duration_seconds = LEASE_SECONDS;
    // No controller of this API server attaches volumes.
    configuration.enable_controller_attach_detach = false;
}

/// What connects the API server to the node.
pub(crate) type Connections = mpsc::Receiver<DuplexStream>;

/// The API server, if there is one.
#[derive(Default)]
pub(crate) struct OwnApiRoom {
    open: Option<(OwnApiServer, Client)>,
    connections: Option<Connections>,
}

impl OwnApiRoom {
    /// Opens the API server of the node on a file in the folder of the agent, listens, and writes the kubeconfig. It ends after the
    /// other parts, which need it.
    pub(crate) async fn open(
        settings: &Settings,
        parts: &Parts,
        (clock, disk): (Clock, Disk),
        tasks: &mut Tasks,
    ) -> Result<Self> {
        let Some(address) = parts.address else {
            return Ok(Self::default());
        };
        let (root_dir, node_name) = (&settings.root_dir, settings.hostname()?);
        create_folder(root_dir, disk).await?;
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
            .record_nothing()
            .metrics_server(USAGE_AGE)
            .open(storage)
            .await?;
        let failed = |source| Error::Io {
            what: format!("cannot listen on {address}"),
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let text = server.kubeconfig_tls(address, User::admin());
        let own = OwnApiServer {
            kubeconfig: write_kubeconfig(root_dir, text, disk).await?,
            server: server.clone(),
            address,
        };
        let client = server.client_as(User::node(&node_name));
        let served = Served::new(server, listener, (file, disk));
        tasks.add_last("API server", |ends, failed| served.run(ends, failed));
        Ok(Self {
            open: Some((own, client)),
            connections: Some(connections),
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The node's client. Its requests stay in the process.
    pub(crate) fn client(&self) -> Option<Client> {
        Some(self.open.as_ref()?.1.clone())
    }

    /// For the handle of the agent.
    pub(crate) fn server(&self) -> Option<OwnApiServer> {
        Some(self.open.as_ref()?.0.clone())
    }

    /// What the API server asks of the node's API.
    pub(crate) fn connections(&mut self) -> Option<Connections> {
        self.connections.take()
    }
}

/// Creates the folder of the agent, which has the secrets of the cluster, or checks that it is this user's alone.
async fn create_folder(root_dir: &Path, disk: Disk) -> Result<()> {
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

async fn write_kubeconfig(root_dir: &Path, text: String, disk: Disk) -> Result<Arc<Path>> {
    let kubeconfig: Arc<Path> = root_dir.join("kubeconfig").into();
    let path = kubeconfig.clone();
    let written = disk.run(move || private::write(&path, &text)).await;
    written.map_err(|source| Error::Io {
        what: format!("cannot write {}", kubeconfig.display()),
        source,
    })?;
    Ok(kubeconfig)
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
