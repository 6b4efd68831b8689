//! A control plane of the upstream programs, a containerd, a CSI driver and the agent under test, each in its own process.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubelet_cri::CriClient;
use kubelet_testing::Containerd;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::api::{Administrator, NAMESPACE};
use crate::args::Args;
use crate::certificates::Certificates;
use crate::cgroups::cgroup;
use crate::folder::folder;
use crate::journal::Journal;
use crate::namespaces::ADDRESS;
use crate::network::Network;
use crate::service::Service;

pub(crate) const NODE: &str = "node-1";
/// The name of the CSI driver `hostpathplugin`.
pub(crate) const DRIVER: &str = "hostpath.csi.k8s.io";
/// The agent's folder: a kubelet's default.
pub(crate) const ROOT: &str = "/var/lib/kubelet";
/// How long a part may take to start.
const READY_WITHIN: Duration = Duration::from_secs(180);
const API_PORT: u16 = 6443;
/// The agent reaches the API server here.
const PROXY_PORT: u16 = 6444;

/// The processes of a cluster with one node.
pub(crate) struct Cluster {
    pub(crate) administrator: Administrator,
    pub(crate) agent: Service,
    pub(crate) api_server: Service,
    /// The driver and its registrar.
    pub(crate) csi: Option<[Service; 2]>,
    pub(crate) containerd: Arc<Mutex<Containerd>>,
    pub(crate) runtime: CriClient,
    pub(crate) network: Network,
    /// The CSI driver's folder.
    pub(crate) csi_folder: PathBuf,
    _others: Vec<Service>,
}

impl Cluster {
    /// Starts everything, and waits until the node is ready.
    pub(crate) async fn start(args: &Args, journal: &Journal) -> Self {
        let need = |program: &str| {
            args.find(program)
                .unwrap_or_else(|| panic!("{program} is neither in the folders of --programs nor in PATH"))
        };
        let containerd = Containerd::start().await.unwrap().expect("a program is missing");
        let path = |name: &str| folder().join(name).display().to_string();
        let certificates = Certificates::new(folder().join("certificates"));
        certificates.server("api-server", &[ADDRESS, "127.0.0.1", "localhost", "kubernetes.default.svc"]);
        let direct = format!("https://{ADDRESS}:{API_PORT}");
        let admin = certificates.user("admin", "admin", "system:masters", &direct);
        certificates.user("api-server-client", "api-server", "system:masters", &direct);
        let node = format!("system:node:{NODE}");
        let proxied = format!("https://127.0.0.1:{PROXY_PORT}");
        let node = certificates.user("node", &node, "system:nodes", &proxied);
        let start = |name: &str, program: PathBuf, arguments: Vec<String>| {
            Service::start(name, program, arguments, journal)
        };

        let etcd = start("etcd", need("etcd"), etcd(&path("etcd")));
        let api_server = start("kube-apiserver", need("kube-apiserver"), api_server(&certificates));
        let administrator = Administrator::new(&admin).await;
        until("the API server is ready", async || {
            // The answer is not JSON.
            administrator.get("/api/v1/namespaces/default").await.is_ok()
        })
        .await;
        let admin = admin.display().to_string();
        let controllers = start(
            "kube-controller-manager",
            need("kube-controller-manager"),
            controllers(&certificates, &admin),
        );
        let scheduler = vec![
            format!("--kubeconfig={admin}"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
        ];
        let scheduler = start("kube-scheduler", need("kube-scheduler"), scheduler);
        let network = Network::start(
            SocketAddr::from(([127, 0, 0, 1], PROXY_PORT)),
            format!("{ADDRESS}:{API_PORT}").parse().unwrap(),
        )
        .await;
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        administrator.create("/api/v1/namespaces", &namespace).await.unwrap();
        let csi_folder = folder().join("csi");
        let csi = match (args.find("hostpathplugin"), args.find("csi-node-driver-registrar")) {
            (Some(driver), Some(registrar)) => {
                administrator.create("/apis/storage.k8s.io/v1/csidrivers", &csi_driver()).await.unwrap();
                Some([
                    start("csi-driver", driver, driver_arguments(&csi_folder.display().to_string())),
                    start("csi-registrar", registrar, registrar_arguments()),
                ])
            }
            _ => {
                journal.note("no CSI driver: hostpathplugin or csi-node-driver-registrar is missing");
                None
            }
        };

        fs::create_dir_all(path("manifests")).unwrap();
        let config = configuration(&containerd.endpoint(), &certificates.path("ca.crt"), &path("manifests"));
        fs::write(path("agent.yaml"), config).unwrap();
        let mut arguments = vec![
            format!("--config={}", path("agent.yaml")),
            format!("--kubeconfig={}", node.display()),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={ADDRESS}"),
        ];
        arguments.extend(args.agent_arguments.iter().cloned());
        let agent = start("agent", args.agent.canonicalize().expect("no such agent"), arguments);
        let runtime = CriClient::builder(containerd.endpoint()).connect_lazy().unwrap();
        let cluster = Self {
            administrator,
            agent,
            api_server,
            csi,
            containerd: Arc::new(Mutex::new(containerd)),
            runtime,
            network,
            csi_folder,
            _others: vec![etcd, controllers, scheduler],
        };
        let path = format!("/api/v1/nodes/{NODE}");
        until("the node is ready", async || {
            cluster.administrator.get(&path).await.is_ok_and(|node| is_ready(&node))
        })
        .await;
        let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
        until("pods have a service account", async || cluster.administrator.get(&account).await.is_ok())
            .await;
        if cluster.csi.is_some() {
            let path = format!("/apis/storage.k8s.io/v1/csinodes/{NODE}");
            until("the CSI driver is registered", async || {
                let node = cluster.administrator.get(&path).await;
                node.is_ok_and(|node| {
                    node["spec"]["drivers"].as_array().is_some_and(|drivers| !drivers.is_empty())
                })
            })
            .await;
        }
        cluster
    }
}

pub(crate) fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

async fn until(what: &str, reached: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !reached().await {
        assert!(begun.elapsed() < READY_WITHIN, "not within {READY_WITHIN:?}: {what}");
        sleep(Duration::from_millis(250)).await;
    }
}

fn etcd(folder: &str) -> Vec<String> {
    vec![
        format!("--data-dir={folder}"),
        // The machine does not crash.
        "--unsafe-no-fsync".to_owned(),
        "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
        "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
    ]
}

fn api_server(certificates: &Certificates) -> Vec<String> {
    let file = |flag: &str, file: &str| format!("--{flag}={}", certificates.path(file));
    vec![
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        format!("--secure-port={API_PORT}"),
        "--bind-address=0.0.0.0".to_owned(),
        format!("--advertise-address={ADDRESS}"),
        file("client-ca-file", "ca.crt"),
        file("tls-cert-file", "api-server.crt"),
        file("tls-private-key-file", "api-server.key"),
        file("kubelet-client-certificate", "api-server-client.crt"),
        file("kubelet-client-key", "api-server-client.key"),
        file("service-account-key-file", "tokens.pub"),
        file("service-account-signing-key-file", "tokens.key"),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--allow-privileged".to_owned(),
    ]
}

fn controllers(certificates: &Certificates, admin: &str) -> Vec<String> {
    vec![
        format!("--kubeconfig={admin}"),
        format!("--service-account-private-key-file={}", certificates.path("tokens.key")),
        format!("--root-ca-file={}", certificates.path("ca.crt")),
        "--leader-elect=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
    ]
}

fn csi_driver() -> Value {
    json!({"metadata": {"name": DRIVER}, "spec": {
        "attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"],
    }})
}

fn driver_arguments(folder: &str) -> Vec<String> {
    fs::create_dir_all(format!("{ROOT}/plugins/hostpath")).unwrap();
    vec![
        format!("--endpoint=unix://{ROOT}/plugins/hostpath/csi.sock"),
        format!("--nodeid={NODE}"),
        format!("--statedir={folder}"),
        "--v=3".to_owned(),
    ]
}

fn registrar_arguments() -> Vec<String> {
    let socket = format!("{ROOT}/plugins/hostpath/csi.sock");
    fs::create_dir_all(format!("{ROOT}/plugins_registry")).unwrap();
    vec![
        format!("--csi-address={socket}"),
        format!("--kubelet-registration-path={socket}"),
        format!("--plugin-registration-path={ROOT}/plugins_registry"),
    ]
}

fn configuration(endpoint: &str, authority: &str, manifests: &str) -> String {
    let cgroup = cgroup();
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: {endpoint}
staticPodPath: {manifests}
authentication: {{x509: {{clientCAFile: {authority}}}, webhook: {{enabled: true}}, anonymous: {{enabled: false}}}}
authorization: {{mode: Webhook}}
cgroupDriver: cgroupfs
cgroupRoot: {cgroup}
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
serializeImagePulls: false
fileCheckFrequency: 5s
imageGCHighThresholdPercent: 100
evictionHard: {{memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%, imagefs.inodesFree: 1%}}
"
    )
}
