//! One node with ever more pods: what a program uses, and how often it asks the API server.
//!
//! ```console
//! # KUBE_APISERVER=/usr/bin/kube-apiserver cargo bench -p benches --bench scale_pods -- PROGRAM…
//! ```
//!
//! needs root. A program must accept a kubelet's command line. `STEPS=10,50,100,250,500` are the numbers of pods; the node takes as many as
//! the last one (`maxPods`). The pods have one container and a config map. They run on a CRI runtime in memory behind a socket, in the
//! process of the bench, so that no figure has containers in it. The API server is the program that `KUBE_APISERVER` names, with
//! `etcd` of the path; without the variable it is the one in memory.
//!
//! At each step the bench creates the pods that are missing, waits until all run, and measures a minute of rest: CPU is user and system
//! time of the program's process, memory the resident memory at its end. Requests are those of the node's user; a watch counts when it
//! ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

#[allow(dead_code, reason = "each bench uses a part of it")]
#[path = "../control_plane.rs"]
mod control_plane;
#[allow(dead_code, reason = "the API server is not always in memory")]
#[path = "../member.rs"]
mod member;
#[path = "../process.rs"]
mod process;

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube_client::Api;
use kube_client::api::{DeleteParams, ListParams, PostParams};
use kubelet_core::Clock;
use kubelet_cri::{CriServer, CriSocket};
use kubelet_testing::MemoryCri;
use rustix::mount::{UnmountFlags, unmount};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::control_plane::ControlPlane;
use crate::member::{NODE, configuration};
use crate::process::{cpu_seconds, megabytes, proc};

/// Longer than anything here takes.
const GUARD: Duration = Duration::from_secs(600);
/// How often the pods are counted.
const LOOK: Duration = Duration::from_millis(250);
/// The time for the effects of a change to settle.
const SETTLING: Duration = Duration::from_secs(20);
const REST: Duration = Duration::from_secs(60);
/// So many requests at once create or delete pods.
const AT_ONCE: usize = 16;

/// A program that is a node, and its runtime in memory.
struct Member {
    plane: ControlPlane,
    process: Child,
    dir: TempDir,
    _runtime: DropGuard,
}

impl Member {
    /// Waits until the node is ready.
    async fn start(program: &str, max_pods: usize) -> Self {
        let plane = ControlPlane::start(NODE).await;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (stop, runtime) = (
            CancellationToken::new(),
            Arc::new(MemoryCri::new(Clock::system())),
        );
        let socket = CriSocket::bind(path("cri.sock"), 0o600).await.unwrap();
        let (cri, token) = (CriServer::new(runtime.clone(), runtime), stop.clone());
        tokio::spawn(async move { cri.serve(socket, token).await.unwrap() });
        let settings = configuration(&format!("unix://{}", path("cri.sock")), &path("logs"))
            + plane.settings()
            + &format!("maxPods: {max_pods}\nenableServer: false\nevictionHard: {{nodefs.available: 1%}}\n");
        fs::write(path("config.yaml"), settings).unwrap();
        let log = File::create(path("log")).unwrap();
        let process = Command::new(program)
            .args(["--config", &path("config.yaml")])
            .args(["--kubeconfig", plane.node_kubeconfig(NODE).to_str().unwrap()])
            .args(["--root-dir", &path("root")])
            .args(["--cert-dir", &path("pki")])
            .args(["--hostname-override", NODE])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the program does not start");
        let member = Self {
            plane,
            process,
            dir,
            _runtime: stop.drop_guard(),
        };
        member
            .until("the node is ready", async || member.is_ready().await)
            .await;
        member
    }

    async fn is_ready(&self) -> bool {
        let node = Api::<Node>::all(self.plane.client.clone())
            .get_opt(NODE)
            .await
            .unwrap();
        let conditions = node
            .and_then(|node| node.status?.conditions)
            .into_iter()
            .flatten();
        conditions
            .into_iter()
            .any(|it| it.type_ == "Ready" && it.status == "True")
    }

    async fn until(&self, what: &str, reached: impl AsyncFn() -> bool) {
        let begun = Instant::now();
        while !reached().await {
            if begun.elapsed() > GUARD {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(10).collect();
                panic!("never: {what}; the log ends with {last:#?}");
            }
            sleep(LOOK).await;
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.plane.client.clone(), "default")
    }

    /// How many pods there are, and how many of them run.
    async fn count(&self) -> (usize, usize) {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items;
        let runs = |pod: &&Pod| {
            pod.status
                .as_ref()
                .is_some_and(|it| it.phase.as_deref() == Some("Running"))
        };
        (pods.len(), pods.iter().filter(runs).count())
    }

    /// Creates the pods with these numbers, and waits until all run.
    async fn create(&self, numbers: std::ops::Range<usize>) {
        let (api, pods) = (self.pods(), numbers.end);
        let create = |number| {
            let api = api.clone();
            async move { drop(api.create(&PostParams::default(), &pod(number)).await.unwrap()) }
        };
        stream::iter(numbers)
            .map(create)
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<()>>()
            .await;
        self.until("the pods run", async || self.count().await == (pods, pods))
            .await;
    }

    /// Deletes all pods, and waits until they are gone.
    async fn delete(&self, pods: usize) {
        let api = self.pods();
        let delete = |number| {
            let api = api.clone();
            async move { drop(api.delete(&name(number), &DeleteParams::default()).await.unwrap()) }
        };
        stream::iter(0..pods)
            .map(delete)
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<()>>()
            .await;
        self.until("the pods are gone", async || self.count().await == (0, 0))
            .await;
    }

    fn pid(&self) -> u32 {
        self.process.id().expect("the program has ended")
    }

    fn rss(&self) -> f64 {
        megabytes(&proc(self.pid(), "status"), "VmRSS:")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for path in paths.filter(|path| Path::new(path).starts_with(self.dir.path())) {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    }
}

fn name(number: usize) -> String {
    format!("pod-{number}")
}

fn pod(number: usize) -> Pod {
    let pod = json!({"metadata": {"name": name(number), "namespace": "default"}, "spec": {
        "nodeName": NODE, "hostNetwork": true, "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "config", "configMap": {"name": "config"}}],
        "containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{"name": "config", "mountPath": "/config"}]}]}});
    serde_json::from_value(pod).unwrap()
}

async fn measure(program: &str, steps: &[usize]) {
    let most = steps.iter().copied().max().unwrap_or_default();
    let member = Member::start(program, most).await;
    let map = json!({"metadata": {"name": "config"}, "data": {"key": "value"}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    Api::namespaced(member.plane.client.clone(), "default")
        .create(&PostParams::default(), &map)
        .await
        .unwrap();
    println!(
        "{program}, load {}:",
        fs::read_to_string("/proc/loadavg").unwrap().trim()
    );
    println!("| pods | until all run | CPU meanwhile | RSS | CPU a second at rest | requests a minute |");
    println!("|---|---|---|---|---|---|");
    let mut pods = 0;
    for step in steps {
        let (begun, cpu) = (Instant::now(), cpu_seconds(member.pid()));
        member.create(pods..*step).await;
        let (took, used) = (begun.elapsed(), cpu_seconds(member.pid()) - cpu);
        pods = *step;
        sleep(SETTLING).await;
        let (begun, cpu, requests) = (
            Instant::now(),
            cpu_seconds(member.pid()),
            member.plane.requests_of(NODE),
        );
        sleep(REST).await;
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "| {pods} | {:.1} s | {used:.2} s | {:.1} MB | {:.1} ms | {:.0} |",
            took.as_secs_f64(),
            member.rss(),
            (cpu_seconds(member.pid()) - cpu) / seconds * 1e3,
            (member.plane.requests_of(NODE) - requests) as f64 / seconds * 60.0
        );
    }
    let (begun, cpu) = (Instant::now(), cpu_seconds(member.pid()));
    member.delete(pods).await;
    println!(
        "{pods} pods are gone after {:.1} s, with {:.2} s of CPU; then {:.1} MB",
        begun.elapsed().as_secs_f64(),
        cpu_seconds(member.pid()) - cpu,
        member.rss()
    );
}

fn main() {
    let programs: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    if programs.is_empty() || !rustix::process::geteuid().is_root() {
        println!("needs root, and programs with a kubelet's command line as arguments");
        return;
    }
    let steps = std::env::var("STEPS").unwrap_or_else(|_| "10,50,100,250,500".to_owned());
    let steps: Vec<usize> = steps.split(',').map(|step| step.parse().unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for program in &programs {
            measure(program, &steps).await;
        }
    });
}
