//! Ever more hollow nodes in several processes on one API server.
//!
//! ```console
//! # KUBE_APISERVER=/usr/bin/kube-apiserver cargo bench -p benches --bench scale_nodes -- HOLLOW_NODES
//! ```
//!
//! needs kube-apiserver, `etcd` of the path and a release build of the example `hollow-nodes`, with an absolute path. `STEPS=100,250,500` are
//! the numbers of nodes, `PER_PROCESS` of them are in one process (250), and each has `PODS` pods (2).
//!
//! At each step the bench starts processes until there are enough nodes, waits until all their pods run, waits `SETTLING` seconds (30) more, and
//! measures a minute of rest. More than 500 nodes take longer to settle. Requests are those that kube-apiserver has counted in it, watches that
//! ended among them.

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
#[path = "../process.rs"]
mod process;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::control_plane::ControlPlane;
use crate::process::{cpu_seconds, megabytes, proc};

/// Longer than a step takes.
const GUARD: Duration = Duration::from_secs(900);
const REST: Duration = Duration::from_secs(60);

/// A process of hollow nodes.
struct Hollow {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pods: usize,
}

impl Hollow {
    fn start(program: &str, kubeconfig: &Path, number: usize, nodes: usize, pods: usize) -> Self {
        let mut process = Command::new(program)
            .env("KUBECONFIG", kubeconfig)
            .args(["--api-server", "kubeconfig", "--output", "json"])
            .args(["--name", &format!("hollow-{number}")])
            .args(["--nodes", &nodes.to_string(), "--pods", &pods.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program does not start");
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            process,
            lines,
            pods: nodes * pods,
        }
    }

    /// Reads what it shows until all pods run.
    async fn run(&mut self) {
        let all_run = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                let shown: Value = serde_json::from_str(&line).unwrap();
                if shown["phases"]["Running"] == self.pods {
                    return;
                }
            }
            panic!("a process has ended");
        };
        timeout(GUARD, all_run).await.expect("not all pods run");
    }

    /// Goes on reading, so that the process can write.
    async fn read(&mut self) {
        while let Ok(Some(_)) = self.lines.next_line().await {}
        panic!("a process has ended");
    }
}

/// CPU seconds and megabytes of processes.
fn used(pids: &[u32]) -> (f64, f64) {
    let rss = |pid: &u32| megabytes(&proc(*pid, "status"), "VmRSS:");
    (
        pids.iter().copied().map(cpu_seconds).sum(),
        pids.iter().map(rss).sum(),
    )
}

async fn measure(program: &str, steps: &[usize], per_process: usize, pods: usize, settling: Duration) {
    let plane = ControlPlane::start("no-node").await;
    let (Some(kubeconfig), Some(of_plane)) = (plane.admin_kubeconfig(), plane.processes_of()) else {
        println!("needs KUBE_APISERVER");
        return;
    };
    println!(
        "{program}, load {}:",
        fs::read_to_string("/proc/loadavg").unwrap().trim()
    );
    println!(
        "| nodes | pods | until all run | RSS of the nodes | their CPU a second | requests a second | CPU of kube-apiserver and etcd a second | their RSS | open connections |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let (mut hollow, mut nodes): (Vec<Hollow>, usize) = (Vec::new(), 0);
    for step in steps {
        let begun = Instant::now();
        let first = hollow.len();
        while nodes < *step {
            let more = per_process.min(step - nodes);
            hollow.push(Hollow::start(program, &kubeconfig, hollow.len(), more, pods));
            nodes += more;
        }
        for process in &mut hollow[first..] {
            process.run().await;
        }
        let took = begun.elapsed().as_secs_f64();
        let pids: Vec<u32> = hollow.iter().filter_map(|it| it.process.id()).collect();
        let reading = futures::future::join_all(hollow.iter_mut().map(Hollow::read));
        let resting = async {
            sleep(settling).await;
            let requests = plane.counter("apiserver_request_total{", "").await;
            let (begun, (cpu, _), (plane_cpu, _)) = (Instant::now(), used(&pids), used(&of_plane));
            sleep(REST).await;
            let seconds = begun.elapsed().as_secs_f64();
            let ((now, rss), (plane_now, plane_rss)) = (used(&pids), used(&of_plane));
            let requests = plane.counter("apiserver_request_total{", "").await - requests;
            let sockets: usize = pids.iter().map(|pid| connections(*pid)).sum();
            println!(
                "| {nodes} | {} | {took:.0} s | {rss:.0} MB | {:.0} ms | {:.1} | {:.0} ms | {plane_rss:.0} MB | {sockets} |",
                nodes * pods,
                (now - cpu) / seconds * 1e3,
                requests / seconds,
                (plane_now - plane_cpu) / seconds * 1e3,
            );
        };
        tokio::select! {
            () = resting => {}
            _ = reading => {}
        }
    }
}

/// How many sockets a process has.
fn connections(pid: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}

fn main() {
    let Some(program) = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'))
    else {
        println!("name the program: cargo bench -p benches --bench scale_nodes -- HOLLOW_NODES");
        return;
    };
    let number = |name: &str, default: usize| std::env::var(name).map_or(default, |it| it.parse().unwrap());
    let steps = std::env::var("STEPS").unwrap_or_else(|_| "100,250,500".to_owned());
    let steps: Vec<usize> = steps.split(',').map(|step| step.parse().unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(
        &program,
        &steps,
        number("PER_PROCESS", 250),
        number("PODS", 2),
        Duration::from_secs(number("SETTLING", 30) as u64),
    ));
}
