//! The API server of a bench: etcd and kube-apiserver as processes of this host, or the one in memory.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use http::Request;
use k8s_openapi::api::core::v1::Namespace;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config};
use kubelet_testing::{ApiServer, User};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longer than a start takes on a busy machine.
const GUARD: Duration = Duration::from_secs(180);
/// The bearer token of the administrator.
const ADMIN: &str = "admin";

/// The API server of a bench.
pub(crate) struct ControlPlane {
    /// A client with all rights.
    pub(crate) client: Client,
    address: SocketAddr,
    serves: Serves,
    dir: TempDir,
}

enum Serves {
    Memory {
        server: ApiServer,
        _stop: DropGuard,
    },
    Processes {
        api_server: Box<Child>,
        etcd: Box<Child>,
    },
}

impl ControlPlane {
    /// The program that `KUBE_APISERVER` names, with `etcd` of the path; without the variable, the API server in memory. It knows
    /// this node.
    pub(crate) async fn start(node: &str) -> Self {
        // Its disk would be a part of each figure.
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let plane = match std::env::var("KUBE_APISERVER") {
            Ok(program) => Self::processes(&program, node, dir).await,
            Err(_) => Self::memory(dir).await,
        };
        let begun = Instant::now();
        while Api::<Namespace>::all(plane.client.clone())
            .get("default")
            .await
            .is_err()
        {
            assert!(
                begun.elapsed() < GUARD,
                "the API server is not ready: {}",
                plane.last_words()
            );
            sleep(Duration::from_millis(200)).await;
        }
        plane
    }

    async fn memory(dir: TempDir) -> Self {
        let server = ApiServer::builder().record_reads().build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let (serving, token) = (server.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, token).await.unwrap() });
        Self {
            client: server.client(),
            address,
            serves: Serves::Memory {
                server,
                _stop: stop.drop_guard(),
            },
            dir,
        }
    }

    async fn processes(program: &str, node: &str, dir: TempDir) -> Self {
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(path("tls.crt"), certified.cert.pem()).unwrap();
        fs::write(path("tls.key"), certified.signing_key.serialize_pem()).unwrap();
        let accounts = rcgen::KeyPair::generate().unwrap();
        fs::write(path("accounts.key"), accounts.serialize_pem()).unwrap();
        fs::write(path("accounts.pub"), accounts.public_key_pem()).unwrap();
        let tokens = format!("{ADMIN},admin,1,system:masters\n{node},system:node:{node},2,system:nodes\n");
        fs::write(path("tokens"), tokens).unwrap();
        fs::write(path("audit.yaml"), AUDIT).unwrap();
        let (store, peers, address) = (free_port().await, free_port().await, free_port().await);
        let etcd = spawn(
            "etcd",
            dir.path(),
            &[
                format!("--data-dir={}", path("etcd")),
                format!("--listen-client-urls=http://{store}"),
                format!("--advertise-client-urls=http://{store}"),
                format!("--listen-peer-urls=http://{peers}"),
                "--quota-backend-bytes=4294967296".to_owned(),
            ],
        );
        let api_server = spawn(
            program,
            dir.path(),
            &[
                format!("--etcd-servers=http://{store}"),
                "--bind-address=127.0.0.1".to_owned(),
                // An address that the host needs not have: no service is used.
                "--advertise-address=192.0.2.1".to_owned(),
                format!("--secure-port={}", address.port()),
                format!("--tls-cert-file={}", path("tls.crt")),
                format!("--tls-private-key-file={}", path("tls.key")),
                format!("--service-account-key-file={}", path("accounts.pub")),
                format!("--service-account-signing-key-file={}", path("accounts.key")),
                "--service-account-issuer=https://kubernetes".to_owned(),
                format!("--token-auth-file={}", path("tokens")),
                "--authorization-mode=Node,RBAC".to_owned(),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
                format!("--audit-policy-file={}", path("audit.yaml")),
                format!("--audit-log-path={}", path("audit.log")),
                // etcd before 3.4.25 reports no progress, which these lists wait for.
                "--feature-gates=WatchList=false".to_owned(),
            ],
        );
        let mut plane = Self {
            // Replaced below: its configuration needs the address.
            client: ApiServer::new().client(),
            address,
            serves: Serves::Processes {
                api_server: Box::new(api_server),
                etcd: Box::new(etcd),
            },
            dir,
        };
        let kubeconfig = Kubeconfig::from_yaml(&plane.kubeconfig_of(ADMIN, plane.address)).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        plane.client = Client::try_from(config).unwrap();
        plane
    }

    /// Writes the kubeconfig of the node.
    pub(crate) fn node_kubeconfig(&self, node: &str) -> PathBuf {
        self.node_kubeconfig_at(node, self.address)
    }

    /// Writes a kubeconfig of the node for another address, which leads to this API server.
    pub(crate) fn node_kubeconfig_at(&self, node: &str, address: SocketAddr) -> PathBuf {
        let text = match &self.serves {
            Serves::Memory { server, .. } => server.kubeconfig(address, User::node(node)),
            Serves::Processes { .. } => self.kubeconfig_of(node, address),
        };
        self.written("node.kubeconfig", &text)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes the kubeconfig of the administrator; `None` of the API server in memory.
    pub(crate) fn admin_kubeconfig(&self) -> Option<PathBuf> {
        match &self.serves {
            Serves::Memory { .. } => None,
            Serves::Processes { .. } => {
                Some(self.written("admin.kubeconfig", &self.kubeconfig_of(ADMIN, self.address)))
            }
        }
    }

    fn written(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn kubeconfig_of(&self, token: &str, address: SocketAddr) -> String {
        let authority = self.dir.path().join("tls.crt");
        format!(
            "apiVersion: v1
kind: Config
current-context: bench
clusters: [{{name: bench, cluster: {{server: 'https://{address}', certificate-authority: '{}'}}}}]
users: [{{name: bench, user: {{token: {token}}}}}]
contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]
",
            authority.display()
        )
    }

    /// What a kubelet's configuration needs for this API server.
    pub(crate) fn settings(&self) -> &'static str {
        match &self.serves {
            // The Go kubelet's default is protobuf, which the API server in memory does not read.
            Serves::Memory { .. } => "contentType: application/json\n",
            Serves::Processes { .. } => "",
        }
    }

    /// How many requests this node has made. A watch counts when it ends.
    pub(crate) fn requests_of(&self, node: &str) -> usize {
        let user = format!("system:node:{node}");
        match &self.serves {
            Serves::Memory { server, .. } => server
                .calls()
                .all()
                .iter()
                .filter(|call| call.user == user)
                .count(),
            Serves::Processes { .. } => {
                let log = fs::read(self.dir.path().join("audit.log")).unwrap_or_default();
                memchr::memmem::find_iter(&log, format!("\"username\":\"{user}\"").as_bytes()).count()
            }
        }
    }

    /// The processes of kube-apiserver and of etcd.
    pub(crate) fn processes_of(&self) -> Option<[u32; 2]> {
        match &self.serves {
            Serves::Memory { .. } => None,
            Serves::Processes { api_server, etcd } => Some([api_server.id()?, etcd.id()?]),
        }
    }

    /// The sum of a counter of kube-apiserver over all its series whose labels contain this text.
    pub(crate) async fn counter(&self, name: &str, labels: &str) -> f64 {
        let request = Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.client.request_text(request).await.unwrap();
        let lines = text
            .lines()
            .filter(|line| line.starts_with(name) && line.contains(labels));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    fn last_words(&self) -> String {
        let logs = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let logs = logs.filter(|path| path.extension().is_some_and(|it| it == "log"));
        let last = |path: PathBuf| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .lines()
                .last()
                .map(str::to_owned)
        };
        logs.filter_map(last).collect::<Vec<_>>().join("\n")
    }
}

/// Counts the requests of nodes.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, userGroups: ['system:nodes']}
- {level: None}
";

fn spawn(program: &str, dir: &Path, arguments: &[String]) -> Child {
    let name = Path::new(program)
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let log = File::create(dir.join(format!("{name}.log"))).unwrap();
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{program} does not start: {error}"))
}

async fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
}
