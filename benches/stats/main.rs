//! The usage of a node with 110 pods: `/metrics/cadvisor`, `/metrics/resource` and `/stats/summary`, over TLS.
//!
//! `cargo bench -p benches --bench stats -- PROGRAM…` needs root and a containerd 2, and prints a message if they are missing. A
//! program must accept a kubelet's command line; for example, a release build of the example `node-agent`. Each program takes
//! about five minutes. With two programs, the bench prints the ratio of the first to the second.
//!
//! Each program runs static pods (`sleep`) in its own process on its own containerd, with a cgroup for each pod, without an
//! API server. The cgroups of pods are below one of the bench, since an agent removes those that are not its own. A scrape is measured [`SCRAPES`] times, so far apart that the readings of the last one are too old. Then comes a
//! minute with the load that Prometheus and metrics-server cause on a node: `/metrics/cadvisor`, `/metrics/resource` and
//! `/metrics/probes` each 30 s, `/stats/summary` each 15 s. CPU is the user and system time of the process; "beyond idle" is
//! without that of the idle program in the same time. Memory is resident.
//!
//! Each mount that exists when a program starts is in its metrics, and is asked for its size. On a host with many, run the bench
//! in a mount namespace of its own without them. The figures of a run are in the README of `kubelet-stats`.
//!
//! The Go kubelet has no summary if cAdvisor does not see the file systems of its root folder and of containerd. The bench shows
//! which status it answers. `TMPDIR=/dev/shm` puts both folders on another file system.
//!
//! `PODS` sets the number of pods. With `BUSY=1`, each of their containers starts a program once a second.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

mod cgroup_root;
#[allow(dead_code, reason = "the bench of the server uses all of it")]
#[path = "../node_server/client.rs"]
mod client;
#[allow(dead_code, reason = "there is no API server here")]
#[path = "../member.rs"]
mod member;
#[path = "../process.rs"]
mod process;
#[allow(dead_code, reason = "the bench of the server uses all of it")]
#[path = "../node_server/program.rs"]
mod program;
#[path = "../node_server/report.rs"]
mod report;

use std::time::{Duration, Instant};

use futures::join;
use http::Method;
use kubelet_testing::Containerd;
use tokio::time::{interval, sleep, timeout};

use crate::cgroup_root::CgroupRoot;
use crate::client::Client;
use crate::program::{Program, Setup};
use crate::report::{Figure, Report, compare_programs};

const PODS: usize = 110;
/// Scrapes of an endpoint whose readings are too old.
const SCRAPES: usize = 5;
/// Longer than the kubelet and this agent keep readings.
const APART: Duration = Duration::from_secs(16);
/// Scrapes of an endpoint one after the other.
const REPEATED: usize = 20;
const LOAD: Duration = Duration::from_secs(60);
const ENDPOINTS: [&str; 4] = [
    "/metrics/cadvisor",
    "/metrics/resource",
    "/stats/summary",
    "/stats/summary?only_cpu_and_memory=true",
];

/// One endpoint.
async fn scrapes(path: &str, program: &Program, report: &mut Report) {
    let mut connection = program.client.connect().await;
    let (status, body) = connection.send(Method::GET, path).await;
    println!("| {path}: status | {status} |");
    report.add(format!("{path}: size"), body.len() as f64 / 1e3, "kB");
    let mut times = Vec::new();
    let meter = program.meter();
    for _ in 0..SCRAPES {
        sleep(APART).await;
        if connection.is_closed() {
            connection = program.client.connect().await;
        }
        let begun = Instant::now();
        connection.send(Method::GET, path).await;
        times.push(begun.elapsed());
    }
    let used = meter.used();
    times.sort_unstable();
    let median = times.get(SCRAPES / 2).unwrap().as_secs_f64();
    report.add(format!("{path}: median"), median * 1e3, "ms");
    let cpu = report.cpu(&used) / SCRAPES as f64;
    report.add(format!("{path}: CPU of one beyond idle"), cpu * 1e3, "ms");
    report.add(format!("{path}: more memory"), used.growth, "MB");
    let meter = program.meter_within();
    for _ in 0..REPEATED {
        connection.send(Method::GET, path).await;
    }
    let used = meter.used();
    let repeated = REPEATED as f64;
    report.add(
        format!("{path}: repeated: time"),
        used.seconds / repeated * 1e3,
        "ms",
    );
    report.add(
        format!("{path}: repeated: CPU"),
        report.cpu(&used) / repeated * 1e3,
        "ms",
    );
}

/// The load of Prometheus and metrics-server.
async fn load(program: &Program, report: &mut Report) {
    let meter = program.meter();
    let (half, quarter) = (Duration::from_secs(30), Duration::from_secs(15));
    let client = &program.client;
    let loads = async {
        join!(
            every(half, "/metrics/cadvisor", client),
            every(half, "/metrics/resource", client),
            every(half, "/metrics/probes", client),
            every(quarter, "/stats/summary", client),
        )
    };
    // It ends with the minute.
    drop(timeout(LOAD, loads).await);
    let used = meter.used();
    report.add("a minute of load: CPU", used.cpu * 1e3, "ms");
    report.add("a minute of load: CPU beyond idle", report.cpu(&used) * 1e3, "ms");
    report.add("a minute of load: peak of the memory", used.peak, "MB");
}

async fn every(period: Duration, path: &str, client: &Client) {
    let mut ticks = interval(period);
    let mut connection = client.connect().await;
    loop {
        ticks.tick().await;
        if connection.is_closed() {
            connection = client.connect().await;
        }
        connection.send(Method::GET, path).await;
    }
}

async fn measure(program: &str) -> Option<Vec<Figure>> {
    let containerd = Containerd::start_2().await.unwrap()?;
    println!("{program}:\n| measured | |\n|---|---|");
    let pods = std::env::var("PODS").map_or(PODS, |pods| pods.parse().unwrap());
    let mut report = Report::default();
    let cgroups = CgroupRoot::new();
    let own = format!("cgroupsPerQOS: true\ncgroupRoot: {}", cgroups.name());
    let setup = Setup {
        busy: std::env::var_os("BUSY").is_some(),
        changes: &[("cgroupsPerQOS: false", own.as_str())],
        ..Setup::default()
    };
    let mut program = Program::start(program, containerd, &setup).await;
    let names: Vec<String> = (0..pods).map(|number| format!("pod-{number}")).collect();
    program.run(&names, pods).await;
    report.rest(&program, pods).await;
    for path in ENDPOINTS {
        scrapes(path, &program, &mut report).await;
    }
    load(&program, &mut report).await;
    program.end().await;
    println!();
    Some(report.figures)
}

fn main() {
    compare_programs("stats", measure);
}
