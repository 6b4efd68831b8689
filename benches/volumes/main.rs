//! The volumes of a node: 110 pods with four volumes each, and a config map that all of them mount.
//!
//! `cargo bench -p benches --bench volumes -- PROGRAM…` needs root. A program must accept a kubelet's command line; for
//! example, a release build of the example `node-agent`. With two programs, the bench prints the ratio of the first to the
//! second. The Go kubelet needs up to five minutes.
//!
//! Each program joins an API server in memory and runs its pods on a CRI runtime in memory, so the figures have no
//! containers in them. CPU is the user and system time of the program's process.
//!
//! | measured | how |
//! |---|---|
//! | mounted | from the creation of the first pod until the files of all 440 volumes are there |
//! | idle | CPU time in a second, with 440 volumes mounted |
//! | changed | from the change of a config map until its file in each pod is new: the median and the last pod |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

#[path = "../member.rs"]
mod member;
#[allow(dead_code, reason = "memory is not measured here")]
#[path = "../process.rs"]
mod process;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubelet_core::{Clock, PodExt};
use kubelet_cri::{CriServer, CriSocket};
use kubelet_testing::{ApiServer, MemoryCri, User};
use rustix::mount::{UnmountFlags, unmount};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::member::{NODE, configuration, is_ready};
use crate::process::cpu_seconds;

const PODS: usize = 110;
/// Longer than anything here takes.
const GUARD: Duration = Duration::from_secs(600);
/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The time for the effects of a change to settle.
const SETTLING: Duration = Duration::from_secs(20);
const IDLE: Duration = Duration::from_secs(30);
const CHANGES: usize = 3;

fn of<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn config(version: &str) -> ConfigMap {
    of(json!({"metadata": {"name": "config", "namespace": "default"}, "data": {"version": version}}))
}

fn pod(number: usize) -> Pod {
    let fields = json!([{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]);
    let volumes = json!([
        {"name": "config", "configMap": {"name": "config"}},
        {"name": "secret", "secret": {"secretName": "secret"}},
        {"name": "all", "projected": {"sources": [{"secret": {"name": "secret"}}, {"downwardAPI": {"items": fields}}]}},
        {"name": "scratch", "emptyDir": {}},
    ]);
    let names = ["config", "secret", "all", "scratch"];
    let mounts: Value = names
        .iter()
        .map(|name| json!({"name": name, "mountPath": format!("/{name}")}))
        .collect();
    of(
        json!({"metadata": {"name": format!("pod-{number}"), "namespace": "default"}, "spec": {
        "nodeName": NODE, "hostNetwork": true, "automountServiceAccountToken": false, "volumes": volumes,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent",
            "volumeMounts": mounts}]}}),
    )
}

/// A node that a program runs, and its API server.
struct Node {
    server: ApiServer,
    process: Child,
    dir: TempDir,
    stop: CancellationToken,
}

impl Node {
    /// Waits until the node is ready.
    async fn start(program: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (server, stop) = (ApiServer::new(), CancellationToken::new());
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .unwrap();
        let kubeconfig = server.kubeconfig(listener.local_addr().unwrap(), User::node(NODE));
        fs::write(path("kubeconfig"), kubeconfig).unwrap();
        let (serving, token) = (server.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, token).await.unwrap() });

        let runtime = Arc::new(MemoryCri::new(Clock::system()));
        let socket = CriSocket::bind(path("cri.sock"), 0o600).await.unwrap();
        let (cri, token) = (CriServer::new(runtime.clone(), runtime), stop.clone());
        tokio::spawn(async move { cri.serve(socket, token).await.unwrap() });
        let settings = configuration(&format!("unix://{}", path("cri.sock")), &path("logs"))
            // The Go kubelet's default is protobuf, which this API server does not read.
            + "contentType: application/json\n"
            + "enableServer: false\nevictionHard: {nodefs.available: 1%}\n";
        fs::write(path("config.yaml"), settings).unwrap();
        let log = File::create(path("log")).unwrap();
        let process = Command::new(program)
            .args(["--config", &path("config.yaml")])
            .args(["--kubeconfig", &path("kubeconfig")])
            .args(["--root-dir", &path("root")])
            .args(["--cert-dir", &path("pki")])
            .args(["--hostname-override", NODE])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the program does not start");
        let node = Self {
            server,
            process,
            dir,
            stop,
        };
        node.until("the node is ready", || is_ready(&node.server)).await;
        node
    }

    async fn until(&self, what: &str, reached: impl Fn() -> bool) {
        let begun = Instant::now();
        while !reached() {
            if begun.elapsed() > GUARD {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(20).collect();
                panic!("never: {what}; the log ends with {last:#?}");
            }
            sleep(LOOK).await;
        }
    }

    fn volume(&self, pod: &Pod, volume: &str) -> PathBuf {
        let pods = self.dir.path().join("root/pods");
        pods.join(pod.uid_str()).join("volumes").join(volume)
    }

    fn cpu(&self) -> f64 {
        cpu_seconds(self.process.id().expect("the program has ended"))
    }

    /// Changes the config map, and returns when each pod has the new file.
    async fn change(&self, pods: &[Pod], version: &str) -> Vec<f64> {
        let mut changed: ConfigMap = self.server.get("default", "config").unwrap().unwrap();
        changed.data = config(version).data;
        self.server.replace(&changed).unwrap();
        let begun = Instant::now();
        let mut waiting: Vec<&Pod> = pods.iter().collect();
        let mut took = Vec::new();
        while !waiting.is_empty() {
            assert!(
                begun.elapsed() < GUARD,
                "{} pods have the old file",
                waiting.len()
            );
            let now = begun.elapsed().as_secs_f64();
            waiting.retain(|pod| {
                let file = self.volume(pod, "kubernetes.io~configmap/config").join("version");
                let is_new = fs::read_to_string(file).is_ok_and(|text| text == version);
                if is_new {
                    took.push(now);
                }
                !is_new
            });
            sleep(LOOK).await;
        }
        took
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for path in paths.filter(|path| Path::new(path).starts_with(self.dir.path())) {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    }
}

/// A measured value.
struct Figure {
    what: &'static str,
    value: f64,
    unit: &'static str,
}

async fn measure(program: &str) -> Vec<Figure> {
    println!("{program}:");
    let mut figures = Vec::new();
    let mut add = |what, value, unit| {
        println!("| {what} | {value:.2} {unit} |");
        figures.push(Figure { what, value, unit });
    };
    let node = Node::start(program).await;
    node.server.create(&config("0")).unwrap();
    let secret =
        json!({"metadata": {"name": "secret", "namespace": "default"}, "stringData": {"key": "word"}});
    node.server.create(&of::<Secret>(secret)).unwrap();

    let (cpu, begun) = (node.cpu(), Instant::now());
    let pods: Vec<Pod> = (0..PODS)
        .map(|number| node.server.create(&pod(number)).unwrap())
        .collect();
    let files = [
        "kubernetes.io~configmap/config/version",
        "kubernetes.io~secret/secret/key",
        "kubernetes.io~projected/all/name",
        "kubernetes.io~empty-dir/scratch",
    ];
    let is_mounted = || {
        pods.iter()
            .all(|pod| files.iter().all(|file| node.volume(pod, file).exists()))
    };
    node.until("all volumes are mounted", is_mounted).await;
    add("440 volumes mounted", begun.elapsed().as_secs_f64(), "s");
    add("440 volumes mounted: CPU", node.cpu() - cpu, "s");

    sleep(SETTLING).await;
    let (cpu, begun) = (node.cpu(), Instant::now());
    sleep(IDLE).await;
    let idle = (node.cpu() - cpu) / begun.elapsed().as_secs_f64();
    add("440 volumes, idle: CPU a second", idle * 1e3, "ms");

    let (mut medians, mut last) = (Vec::new(), Vec::new());
    for change in 1..=CHANGES {
        let took = node.change(&pods, &change.to_string()).await;
        println!(
            "change {change}: the median pod has it after {:.2} s",
            took[took.len() / 2]
        );
        medians.push(took[took.len() / 2]);
        last.extend(took.last().copied());
    }
    let middle = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    add("changed config map: the median pod", middle(&mut medians), "s");
    add("changed config map: the last pod", middle(&mut last), "s");
    figures
}

fn main() {
    let programs: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    if programs.is_empty() || !rustix::process::geteuid().is_root() {
        println!("needs root, and programs with a kubelet's command line as arguments");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut all = Vec::new();
        for program in &programs {
            all.push(measure(program).await);
        }
        if let [first, second, ..] = all.as_slice() {
            println!("the first to the second:");
            for (first, second) in first.iter().zip(second) {
                let Figure { what, value, unit } = first;
                println!(
                    "| {what} | {value:.2} {unit} | {:.2} {unit} | {:.3} |",
                    second.value,
                    value / second.value
                );
            }
        }
    });
}
