//! The cost of an idle node agent on a real containerd: memory, CPU time and API requests.
//!
//! `cargo bench -p benches --bench footprint -- PROGRAM…` needs root and containerd, and prints a message if they are
//! missing. A program must accept a kubelet's command line; for example, a release build of the example `node-agent`.
//! Each program takes about seven minutes. A kubelet exits after two minutes, because this API server does not serve
//! `CSINode`.
//!
//! Each program runs in its own process, with its own containerd and its own API server in memory, over TLS. The
//! bench creates pods with one container (`sleep`) and the token volume that the API server adds. It increases their
//! number in steps, measures while nothing changes, and deletes all pods at the end. Memory is the maximum of
//! `/proc/<pid>/smaps_rollup`, sampled every second; CPU is user and system time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

mod member;
mod process;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kubelet_testing::{ApiServer, Containerd, User};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::member::{NODE, configuration, is_ready};
use crate::process::{cpu_seconds, megabytes, proc};

const PODS: [usize; 4] = [0, 30, 110, 0];
/// The time for the effects of a change to settle.
const SETTLING: Duration = Duration::from_secs(30);
const REST: Duration = Duration::from_secs(60);
/// A timeout longer than anything here takes.
const GUARD: Duration = Duration::from_secs(180);

fn pod(number: usize) -> Pod {
    let pod = serde_json::json!({
        "metadata": { "name": format!("pod-{number}"), "namespace": "default" },
        "spec": {
            "nodeName": NODE,
            "hostNetwork": true,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": Containerd::BUSYBOX,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "10000"],
            }],
        },
    });
    serde_json::from_value(pod).unwrap()
}

/// A running program and its API server.
struct Agent {
    server: ApiServer,
    process: Child,
    log: PathBuf,
    stop_server: CancellationToken,
}

impl Agent {
    async fn start(program: &str, endpoint: &str, dir: &Path) -> Self {
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let server = ApiServer::builder().record_reads().sign_certificates().build();
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .unwrap();
        let kubeconfig = server.kubeconfig_tls(listener.local_addr().unwrap(), User::node(NODE));
        fs::write(path("kubeconfig"), kubeconfig).unwrap();
        fs::write(path("config.yaml"), configuration(endpoint, &path("logs"))).unwrap();
        let (serving, stop_server) = (server.clone(), CancellationToken::new());
        let token = stop_server.clone();
        tokio::spawn(async move { serving.serve_tls(listener, token).await.unwrap() });
        let log_file = dir.join("log");
        let log = fs::File::create(&log_file).unwrap();
        let process = Command::new(program)
            .args(["--config", &path("config.yaml")])
            .args(["--root-dir", &path("root")])
            .args(["--cert-dir", &path("pki")])
            .args(["--kubeconfig", &path("kubeconfig")])
            .args(["--hostname-override", NODE])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the program does not start");
        let mut agent = Self {
            server,
            process,
            log: log_file,
            stop_server,
        };
        agent.until("the node is ready", is_ready).await;
        agent
    }

    /// Creates or deletes pods up to this number, and waits until exactly these run.
    async fn have(&mut self, pods: usize) {
        let before = self.server.list::<Pod>().unwrap().len();
        for number in before..pods {
            self.server.create(&pod(number)).unwrap();
        }
        for number in pods..before {
            self.server
                .delete::<Pod>("default", &format!("pod-{number}"))
                .unwrap();
        }
        let reached = |server: &ApiServer| {
            let is_running = |pod: &Pod| {
                let status = pod.status.as_ref();
                status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
            };
            let all = server.list::<Pod>().unwrap();
            all.len() == pods && all.iter().all(is_running)
        };
        self.until("the pods are as they are to be", reached).await;
    }

    async fn until(&mut self, what: &str, reached: impl Fn(&ApiServer) -> bool) {
        let begun = Instant::now();
        while !reached(&self.server) {
            assert!(begun.elapsed() < GUARD, "not in time: {what}");
            if let Some(ended) = self.process.try_wait().unwrap() {
                let log = fs::read_to_string(&self.log).unwrap();
                let last = log.lines().last().unwrap_or_default();
                panic!("the program has ended, {ended}, before {what}: {last}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Measures it for a while.
    async fn tell(&self, pods: usize) {
        tokio::time::sleep(SETTLING).await;
        let (cpu, calls, begun) = (cpu_seconds(self.pid()), self.calls(), Instant::now());
        let mut most = Memory::default();
        while begun.elapsed() < REST {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let memory = self.memory();
            if memory.rss > most.rss {
                most = memory;
            }
        }
        let minutes = begun.elapsed().as_secs_f64() / 60.0;
        println!(
            "| {pods} | {:.1} MB | {:.1} MB | {:.2} s | {:.1} |",
            most.rss,
            most.anonymous,
            (cpu_seconds(self.pid()) - cpu) / minutes,
            (self.calls() - calls) as f64 / minutes
        );
    }

    fn pid(&self) -> u32 {
        self.process.id().expect("the program has ended")
    }

    fn memory(&self) -> Memory {
        let rollup = proc(self.pid(), "smaps_rollup");
        Memory {
            rss: megabytes(&rollup, "Rss:"),
            anonymous: megabytes(&rollup, "Anonymous:"),
        }
    }

    fn calls(&self) -> usize {
        let name = User::node(NODE).name;
        let calls = self.server.calls().all();
        calls.iter().filter(|call| call.user == name).count()
    }

    /// Ends the program with SIGTERM, so that it can write a profile.
    async fn end(mut self) {
        kill_process(
            Pid::from_raw(self.pid().try_into().unwrap()).unwrap(),
            Signal::TERM,
        )
        .unwrap();
        let ended = tokio::time::timeout(GUARD, self.process.wait()).await;
        ended.expect("the program did not end in time").unwrap();
        self.stop_server.cancel();
    }
}

/// In megabytes of 1,000,000 bytes.
#[derive(Default)]
struct Memory {
    rss: f64,
    anonymous: f64,
}

async fn measure(program: &str) {
    let Some(containerd) = Containerd::start().await.unwrap() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    println!(
        "{program}:\n| pods | RSS | of it anonymous | CPU a minute | requests a minute |\n|---|---|---|---|---|"
    );
    let mut agent = Agent::start(program, &containerd.endpoint(), dir.path()).await;
    for pods in PODS {
        agent.have(pods).await;
        agent.tell(pods).await;
    }
    agent.end().await;
}

fn main() {
    // Cargo's own arguments start with a dash.
    let programs: Vec<_> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    if programs.is_empty() {
        println!("name the programs to measure: cargo bench -p benches --bench footprint -- PROGRAM…");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for program in &programs {
            measure(program).await;
        }
    });
}
