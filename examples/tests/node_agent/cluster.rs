//! An API server on a port, and a node that joins it.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kubelet_core::PodExt;
use kubelet_cri::process::ProcessRuntime;
use kubelet_cri::{CriAdapter, CriServer, CriSocket};
use kubelet_server::streaming::{StreamServer, StreamServerOptions};
use kubelet_testing::{ApiServer, User};
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::program::program;
use crate::standalone::{Agent, GUARD, free_port, until};

pub(crate) const NODE: &str = "node-1";

/// A test waits for two readings of the usage.
const METRIC_RESOLUTION: Duration = Duration::from_secs(1);

/// How the parts of a cluster know each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Security {
    /// By tokens, without TLS.
    None,
    /// The node has a bootstrap token, and gets certificates of one minute.
    Bootstrap,
    /// By tokens over TLS. The node trusts client certificates of the API server.
    Tls,
}

/// What outlives the agent.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) dir: TempDir,
    endpoint: String,
    healthz: u16,
    /// The port of the node's server.
    port: u16,
    address: SocketAddr,
    tls: bool,
    serving: Option<(CancellationToken, JoinHandle<()>)>,
    runtime: Option<(Arc<ProcessRuntime>, CancellationToken, JoinHandle<()>)>,
}

impl Cluster {
    /// A node that runs pods as processes.
    pub(crate) async fn on_processes() -> Self {
        Self::with_processes(Security::None).await
    }

    /// A node that runs pods as processes, and trusts the API server's authority.
    pub(crate) async fn secure_on_processes() -> Self {
        Self::with_processes(Security::Tls).await
    }

    /// A node with the runtime at this endpoint, which trusts the API server's authority.
    pub(crate) async fn secure_on(dir: TempDir, endpoint: String) -> Self {
        Self::at(dir, endpoint, Security::Tls).await
    }

    /// A node that runs pods as processes and has only a bootstrap token. Its kubeconfig does not exist yet.
    ///
    /// Its certificates are backdated by five minutes and expire in one minute, so it always rotates.
    pub(crate) async fn bootstrapping() -> Self {
        let cluster = Self::with_processes(Security::Bootstrap).await;
        fs::rename(cluster.path("kubeconfig"), cluster.path("bootstrap-kubeconfig")).unwrap();
        cluster
    }

    async fn with_processes(security: Security) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let processes = ProcessRuntime::builder(dir.path().join("processes")).open().await.unwrap();
        let processes = Arc::new(processes);
        let streams = StreamServer::bind(StreamServerOptions::default()).await.unwrap();
        let adapter = CriAdapter::builder(processes.clone()).records_dir(dir.path().join("cri"));
        let adapter = Arc::new(adapter.streaming(Arc::new(streams.handle())).build());
        let socket = dir.path().join("cri.sock");
        let endpoint = format!("unix://{}", socket.display());
        let (server, stop) = (CriServer::new(adapter.clone(), adapter), CancellationToken::new());
        let socket = CriSocket::bind(socket, 0o600).await.unwrap();
        let token = stop.clone();
        let serving = tokio::spawn(async move {
            let (served, ()) = tokio::join!(server.serve(socket, token.clone()), streams.run(token));
            served.unwrap();
        });
        let mut cluster = Self::at(dir, endpoint, security).await;
        cluster.runtime = Some((processes, stop, serving));
        cluster
    }

    /// A node with the runtime at this endpoint.
    pub(crate) async fn on(dir: TempDir, endpoint: String) -> Self {
        Self::at(dir, endpoint, Security::None).await
    }

    async fn at(dir: TempDir, endpoint: String, security: Security) -> Self {
        let server = ApiServer::builder().record_reads().storage_controllers();
        let server = match security {
            Security::Bootstrap => server.sign_certificates().signing_duration(Duration::from_secs(60)),
            Security::Tls => server.sign_certificates().metrics_server(METRIC_RESOLUTION),
            Security::None => server,
        };
        let (server, tls) = (server.build(), security != Security::None);
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (healthz, port) = (free_port(), free_port());
        let mut cluster =
            Self { server, dir, endpoint, healthz, port, address, tls, serving: None, runtime: None };
        let node = match security {
            Security::Bootstrap => User::bootstrapper("abcdef"),
            _ => User::node(NODE),
        };
        if let Some(authority) = cluster.server.certificate_authority() {
            fs::write(cluster.path("ca.crt"), authority).unwrap();
        }
        for (file, user) in [("kubeconfig", node), ("admin", User::admin())] {
            let text = match tls {
                true => cluster.server.kubeconfig_tls(address, user),
                false => cluster.server.kubeconfig(address, user),
            };
            fs::write(cluster.path(file), text).unwrap();
        }
        fs::create_dir(cluster.path("manifests")).unwrap();
        cluster.start_api_server().await;
        cluster
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) async fn start_api_server(&mut self) {
        let (server, stop) = (self.server.clone(), CancellationToken::new());
        let token = stop.clone();
        let bound = async || TcpListener::bind(self.address).await.ok();
        let listener = until("the port of the API server is free", bound).await;
        let tls = self.tls;
        let serving = tokio::spawn(async move {
            match tls {
                true => server.serve_tls(listener, token).await.unwrap(),
                false => server.serve(listener, token).await.unwrap(),
            }
        });
        self.serving = Some((stop, serving));
    }

    /// Breaks all connections and refuses new ones.
    pub(crate) async fn stop_api_server(&mut self) {
        let (stop, serving) = self.serving.take().unwrap();
        stop.cancel();
        serving.await.unwrap();
    }

    /// The command of the agent, without a choice of API server. `config` is added to its configuration file.
    pub(crate) fn command(&self, config: &str) -> Command {
        self.command_of("node-agent", config)
    }

    /// The same with another program that has a kubelet's command line.
    pub(crate) fn command_of(&self, name: &str, config: &str) -> Command {
        let (endpoint, healthz, port) = (&self.endpoint, self.healthz, self.port);
        let authority = match self.tls {
            true => self.path("ca.crt").display().to_string(),
            false => "\"\"".to_owned(),
        };
        // A test must not depend on how full the disk of this host is.
        let eviction = match config.contains("evictionHard") {
            true => "",
            false => "evictionHard: {memory.available: 1Mi}",
        };
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: {endpoint}
staticPodPath: manifests
podLogsDir: logs
healthzPort: {healthz}
port: {port}
authentication:
  x509:
    clientCAFile: {authority}
failCgroupV1: false
makeIPTablesUtilChains: false
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
{eviction}
{config}
"
        );
        fs::write(self.path("config.yaml"), config).unwrap();
        let mut command = Command::new(program(name));
        command.arg("--config").arg(self.path("config.yaml"));
        command.arg("--root-dir").arg(self.path("root"));
        command.arg("--cert-dir").arg(self.path("pki"));
        command.args(["--hostname-override", NODE]);
        command.env_remove("RUST_LOG").env_remove("NOTIFY_SOCKET");
        command
    }

    /// Starts an agent that joins.
    pub(crate) fn start(&self) -> Agent {
        Agent::spawn(self.command("").arg("--kubeconfig").arg(self.path("kubeconfig")))
    }

    /// The agent's preflight output, and whether it found no problem.
    pub(crate) async fn preflight(&self) -> (bool, String) {
        let command = self.command("");
        let mut preflight = Command::new(program("node-agent"));
        preflight.arg("preflight").args(command.as_std().get_args());
        preflight.arg("--kubeconfig").arg(self.path("kubeconfig"));
        let output = preflight.env_remove("RUST_LOG").kill_on_drop(true).output().await.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What `/healthz` answers: its status and its text.
    pub(crate) async fn healthz(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.healthz)).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// What this `kubectl` prints; it must succeed. Spaces are flattened.
    pub(crate) async fn kubectl(&self, program: &Path, args: &[&str]) -> String {
        let mut command = self.kubectl_command(program, args);
        command.stdin(Stdio::null());
        let output = tokio::time::timeout(GUARD, command.output()).await.expect("kubectl hangs");
        let output = output.expect("kubectl starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {text}{error}");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// A `kubectl` for the administrator.
    pub(crate) fn kubectl_command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(self.path("admin")).arg("--cache-dir").arg(self.path("cache"));
        command.args(args).env("HOME", self.dir.path()).kill_on_drop(true);
        command
    }

    /// Waits until the node fulfils the condition.
    pub(crate) async fn node(&self, what: &str, reached: impl Fn(&Node) -> bool) -> Node {
        let look = async || self.server.get::<Node>("", NODE).unwrap().filter(&reached);
        until(&format!("the node {what}"), look).await
    }

    pub(crate) async fn node_is_ready(&self) -> Node {
        self.node("is ready", |node| condition(node, "Ready").as_deref() == Some("True")).await
    }

    /// Creates a pod that is bound to the node.
    pub(crate) fn create(&self, pod: &Pod) -> Pod {
        self.server.create(pod).unwrap()
    }

    /// Waits until a pod fulfils the condition.
    pub(crate) async fn pod(&self, name: &str, what: &str, reached: impl Fn(&Pod) -> bool) -> Pod {
        let look = async || self.server.get::<Pod>("default", name).unwrap().filter(&reached);
        until(&format!("{name} {what}"), look).await
    }

    pub(crate) async fn ready(&self, name: &str) -> Pod {
        self.pod(name, "is ready", |pod| {
            use crate::standalone::StatusExt;
            pod.status.as_ref().is_some_and(|status| status.is_ready())
        })
        .await
    }

    /// Waits until no pod has the UID.
    pub(crate) async fn gone(&self, name: &str, uid: &str) {
        let there = || self.server.get::<Pod>("default", name).unwrap();
        let look = async || there().is_none_or(|pod| pod.uid_str() != uid).then_some(());
        until(&format!("{name} is gone"), look).await;
    }

    /// When the node's lease was renewed last.
    pub(crate) fn renewed(&self) -> Option<MicroTime> {
        self.server.get::<Lease>("kube-node-lease", NODE).unwrap()?.spec?.renew_time
    }

    /// The reasons and messages of the events about an object, oldest first.
    pub(crate) fn events(&self, name: &str) -> Vec<(String, String)> {
        let mut events = self.server.list::<Event>().unwrap();
        events.retain(|event| event.involved_object.name.as_deref() == Some(name));
        events.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let told = |event: Event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        events.into_iter().map(told).collect()
    }

    /// Waits for an event about an object, with this reason and words in its message.
    pub(crate) async fn event(&self, name: &str, reason: &str, words: &str) {
        let is_it = |event: &(String, String)| event.0 == reason && event.1.contains(words);
        let look = async || self.events(name).iter().any(is_it).then_some(());
        until(&format!("an event {reason} {words:?} of {name}"), look).await;
    }

    /// A file of a pod's volume.
    pub(crate) fn volume_file(&self, uid: &str, plugin: &str, volume: &str, file: &str) -> PathBuf {
        let volumes = self.path("root").join("pods").join(uid).join("volumes");
        volumes.join(plugin).join(volume).join(file)
    }

    /// The requests of the node, each once: verb, resource and field selector.
    pub(crate) fn asked(&self) -> BTreeSet<String> {
        let calls = self.server.calls().all().into_iter().filter(|call| call.user == User::node(NODE).name);
        let asked = calls.map(|call| format!("{} {} {}", call.verb, call.resource, call.field_selector));
        asked.map(|asked| asked.trim_end().to_owned()).collect()
    }

    /// Ends what still runs.
    pub(crate) async fn end(mut self) {
        if let Some((processes, stop, serving)) = self.runtime.take() {
            stop.cancel();
            serving.await.unwrap();
            processes.shutdown(Duration::ZERO).await;
        }
        if self.serving.is_some() {
            self.stop_api_server().await;
        }
    }
}

impl Drop for Cluster {
    /// The volumes of running pods are still mounted.
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for path in paths.filter(|path| Path::new(path).starts_with(self.dir.path())) {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    }
}

/// `True`, `False` or `Unknown`.
pub(crate) fn condition(node: &Node, kind: &str) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|condition| condition.type_ == kind)?.status.clone())
}
