//! Two node agents on the same host in turns: how fast they run and end pods, how soon a changed config map is in a pod, commands,
//! logs and scrapes, what a restart costs, and what they use at rest and under churn: of this host, and of the API server.
//!
//! ```console
//! # KUBE_APISERVER=/usr/bin/kube-apiserver ROUNDS=2 cargo bench -p benches --bench side_by_side -- PROGRAM PROGRAM
//! ```
//!
//! needs root and a containerd 2 (`Containerd::start_2` of `kubelet-testing` says where), and prints a message if they are missing. A
//! program must accept a kubelet's command line; for example, a kubelet, and a release build of the example `node-agent`. The programs
//! must have absolute paths. Each takes about twelve minutes in each of `ROUNDS` rounds (1 by default), in which another program is the
//! first. The table has the medians of the rounds with the least and the greatest, and the ratio of the first program to the second.
//!
//! With `KUBE_APISERVER` the API server is this program, with `etcd` of the path, its data in memory; otherwise it is the one in
//! memory of `kubelet-apiserver`, in the process of the bench. Each program has an API server, a containerd and a cgroup of its own,
//! one after the other. The bench watches pods in the API and reads volumes on the disk.
//!
//! Requests to the API server are those that the node made, with a watch counted when it ends. Bytes are those of the connections, encrypted,
//! in both directions.
//!
//! Pods have one busybox container on the host's network, which ends at once on SIGTERM, and a config map. CPU is the user and system
//! time of the program's process; memory is resident. For logs and scrapes CPU is without that of the idle program in the same time.
//!
//! `PODS=20,30` replaces the numbers of pods, 30 and 110.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

#[path = "../stats/cgroup_root.rs"]
mod cgroup_root;
#[allow(dead_code, reason = "the bench of the server uses all of it")]
#[path = "../node_server/client.rs"]
mod client;
#[allow(dead_code, reason = "each bench uses a part of it")]
#[path = "../control_plane.rs"]
mod control_plane;
#[path = "../node_server/load.rs"]
mod load;
#[allow(dead_code, reason = "the API server is not always in memory")]
#[path = "../member.rs"]
mod member;
mod pods;
#[path = "../process.rs"]
mod process;
#[allow(dead_code, reason = "the bench of the server uses all of it")]
#[path = "../node_server/program.rs"]
mod program;
#[path = "../node_server/report.rs"]
mod report;
mod wire;

use std::fs;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kubelet_testing::Containerd;
use tokio::time::{interval, sleep};

use crate::cgroup_root::CgroupRoot;
use crate::control_plane::ControlPlane;
use crate::load::{one_log, requests};
use crate::member::NODE;
use crate::pods::{Pods, middle};
use crate::program::{Program, Setup};
use crate::report::{Figure, Report, compare_programs, settle};
use crate::wire::Wire;

const SINGLE_RUNS: usize = 11;
const COMMANDS: usize = 50;
const SCRAPES: usize = 30;
const LOG_BYTES: usize = 500_000_000;
/// A pod is deleted and another one created each second.
const CHURN: Duration = Duration::from_secs(60);
const CHANGES: usize = 1_000;
/// A change of the config map, at most.
const PACE: Duration = Duration::from_millis(20);
/// What a restart costs is counted in this time.
const RESTARTED: Duration = Duration::from_secs(60);
/// Longer than anything here takes.
const GUARD: Duration = Duration::from_secs(300);
/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// The program at rest: what it uses of this host, and of the API server.
async fn rest(program: &Program, plane: &ControlPlane, wire: &Wire, pods: usize, report: &mut Report) {
    let load = || (plane.requests_of(NODE), wire.bytes());
    settle().await;
    let before = load();
    let minutes = report.idle(program, pods).await.seconds / 60.0;
    let (requests, bytes) = load();
    let requests = (requests - before.0) as f64 / minutes;
    report.add(format!("{pods} pods, idle: requests a minute"), requests, "");
    let bytes = (bytes - before.1) as f64 / minutes;
    report.add(
        format!("{pods} pods, idle: to and from the API server a minute"),
        bytes / 1e3,
        "kB",
    );
}

async fn single_pods(pods: &Pods, report: &mut Report) {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for run in 0..SINGLE_RUNS {
        let names = [format!("single-{run}")];
        starts.push(pods.run(&names).await);
        ends.push(pods.delete(&names).await);
    }
    report.add("one pod, created until `Running`", middle(starts) * 1e3, "ms");
    report.add("one pod, deleted until gone", middle(ends) * 1e3, "ms");
}

async fn many_pods(pods: &Pods, names: &[String], program: &Program, report: &mut Report) {
    let meter = program.meter();
    let took = pods.run(names).await;
    let (what, used) = (format!("{} pods", names.len()), meter.used());
    report.add(format!("{what}, created until all run"), took, "s");
    report.add(format!("{what}, created: CPU"), used.cpu, "s");
    report.add(format!("{what}, created: peak of the memory"), used.peak, "MB");
}

async fn no_pods(pods: &Pods, names: &[String], program: &Program, report: &mut Report) {
    let meter = program.meter();
    let took = pods.delete(names).await;
    let (what, used) = (format!("{} pods", names.len()), meter.used());
    report.add(format!("{what}, deleted until all are gone"), took, "s");
    report.add(format!("{what}, deleted: CPU"), used.cpu, "s");
}

/// The time until each pod has the file of a changed config map.
async fn changed_config_map(pods: &Pods, running: &[Pod], program: &Program, report: &mut Report) {
    pods.configure("second").await;
    let took = has_version("second", running, program).await;
    report.add(
        "a changed config map, in the last pod",
        took.last().copied().unwrap(),
        "s",
    );
    report.add("a changed config map, in the median pod", middle(took), "s");
}

/// Many changes of the config map one after the other, until each pod has the last one.
async fn many_changes(pods: &Pods, running: &[Pod], program: &Program, report: &mut Report) {
    let (meter, mut ticks) = (program.meter(), interval(PACE));
    for number in 1..=CHANGES {
        ticks.tick().await;
        pods.configure(&format!("change-{number}")).await;
    }
    has_version(&format!("change-{CHANGES}"), running, program).await;
    let used = meter.used();
    let what = format!("{CHANGES} changes of the config map of {} pods", running.len());
    report.add(
        format!("{what}: time until each pod has the last"),
        used.seconds,
        "s",
    );
    report.add(format!("{what}: CPU"), report.cpu(&used), "s");
}

/// The seconds until each pod has this version of the config map, in order.
async fn has_version(version: &str, running: &[Pod], program: &Program) -> Vec<f64> {
    let begun = Instant::now();
    let file = |pod: &Pod| {
        let uid = pod.metadata.uid.as_deref().unwrap();
        program.volume(uid, "kubernetes.io~configmap/config/version")
    };
    let mut waiting: Vec<_> = running.iter().map(file).collect();
    let mut took = Vec::new();
    while !waiting.is_empty() {
        assert!(
            begun.elapsed() < GUARD,
            "{} pods have the old file",
            waiting.len()
        );
        waiting.retain(|file| {
            let is_new = fs::read_to_string(file).is_ok_and(|text| text == version);
            if is_new {
                took.push(begun.elapsed().as_secs_f64());
            }
            !is_new
        });
        sleep(LOOK).await;
    }
    took
}

/// The program ends and starts again: the time until its server lists all pods as running, what that costs, and that nothing started again.
async fn restart(pods: usize, program: &mut Program, report: &mut Report) {
    let before = program.containers().await;
    let begun = Instant::now();
    program.restart().await;
    let started = Instant::now();
    let all_run = async |program: &Program| match program.client.try_connect().await {
        Some(mut connection) => {
            let list = connection.get("/pods").await;
            memchr::memmem::find_iter(&list, br#""phase":"Running""#).count() == pods
        }
        None => false,
    };
    while !all_run(program).await {
        assert!(started.elapsed() < GUARD, "the pods are not known again");
        sleep(LOOK).await;
    }
    let what = format!("restart with {pods} pods");
    report.add(
        format!("{what}: until all are known"),
        started.elapsed().as_secs_f64(),
        "s",
    );
    report.add(
        format!("{what}: until all are known, with the end of the process before"),
        begun.elapsed().as_secs_f64(),
        "s",
    );
    let of_all = program.meter_of_all();
    report.add(format!("{what}: CPU until then"), of_all.used().cpu, "s");
    sleep(RESTARTED.saturating_sub(started.elapsed())).await;
    report.add(format!("{what}: CPU of the first minute"), of_all.used().cpu, "s");
    assert_eq!(program.containers().await, before, "containers");
}

async fn commands(pod: &str, program: &Program, report: &mut Report) {
    let path = format!("/exec/default/{pod}/main?command=true&output=1&error=1");
    program.client.exec(&path).await;
    let mut times = Vec::new();
    for _ in 0..COMMANDS {
        let begun = Instant::now();
        program.client.exec(&path).await;
        times.push(begun.elapsed().as_secs_f64());
    }
    report.add("exec of `true`", middle(times) * 1e3, "ms");
}

/// Deletes the oldest pod and creates one, again and again. Returns the names of the pods at the end.
async fn churn(pods: &Pods, mut names: Vec<String>, program: &Program, report: &mut Report) -> Vec<String> {
    let (meter, mut ticks) = (program.meter(), interval(Duration::from_secs(1)));
    for number in 0..CHURN.as_secs() {
        ticks.tick().await;
        let (old, new) = (names.remove(0), format!("churn-{number}"));
        pods.begin_to_delete(&old).await;
        pods.create(&new).await;
        names.push(new);
    }
    let used = meter.used();
    pods.settle(names.len()).await;
    report.add(
        "churn, a pod a second: CPU a second",
        used.cpu / used.seconds * 1e3,
        "ms",
    );
    report.add("churn, a pod a second: peak of the memory", used.peak, "MB");
    names
}

async fn measure(path: &str) -> Option<Vec<Figure>> {
    let containerd = Containerd::start_2().await.unwrap()?;
    let plane = ControlPlane::start(NODE).await;
    println!(
        "{path}, load {}:",
        fs::read_to_string("/proc/loadavg").unwrap().trim()
    );
    println!("| measured | |\n|---|---|");
    let numbers = std::env::var("PODS").unwrap_or_else(|_| "30,110".to_owned());
    let numbers: Vec<usize> = numbers.split(',').map(|number| number.parse().unwrap()).collect();
    let names = |count: usize| {
        (0..count)
            .map(|number| format!("pod-{count}-{number}"))
            .collect::<Vec<_>>()
    };
    let cgroups = CgroupRoot::new();
    let own = format!(
        "cgroupsPerQOS: true\ncgroupRoot: {}\nmaxPods: 250",
        cgroups.name()
    );
    let wire = Wire::to(plane.address()).await;
    let kubeconfig = plane.node_kubeconfig_at(NODE, wire.address);
    let setup = Setup {
        changes: &[("cgroupsPerQOS: false", own.as_str())],
        settings: plane.settings(),
        arguments: &["--kubeconfig".to_owned(), kubeconfig.to_str().unwrap().to_owned()],
        busy: false,
    };
    let mut program = Program::start(path, containerd, &setup).await;
    let pods = Pods::new(plane.client.clone());
    pods.configure("first").await;
    pods.node_is_ready().await;
    let mut report = Report::default();
    rest(&program, &plane, &wire, 0, &mut report).await;
    single_pods(&pods, &mut report).await;
    let (last, before) = numbers.split_last().unwrap();
    for count in before {
        many_pods(&pods, &names(*count), &program, &mut report).await;
        rest(&program, &plane, &wire, *count, &mut report).await;
        no_pods(&pods, &names(*count), &program, &mut report).await;
    }
    let names = names(*last);
    many_pods(&pods, &names, &program, &mut report).await;
    rest(&program, &plane, &wire, *last, &mut report).await;
    let running = pods.all().await;
    changed_config_map(&pods, &running, &program, &mut report).await;
    many_changes(&pods, &running, &program, &mut report).await;
    commands(&names[0], &program, &mut report).await;
    for path in [
        "/metrics",
        "/metrics/cadvisor",
        "/metrics/resource",
        "/stats/summary",
        "/pods",
    ] {
        requests(path, SCRAPES, &program, &mut report).await;
    }
    one_log(&program, &names[0], LOG_BYTES, &mut report).await;
    restart(names.len(), &mut program, &mut report).await;
    let names = churn(&pods, names, &program, &mut report).await;
    no_pods(&pods, &names, &program, &mut report).await;
    program.end().await;
    println!();
    Some(report.figures)
}

fn main() {
    compare_programs("side_by_side", measure);
}
