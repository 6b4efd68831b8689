//! Two node agents on the same host in turns: how fast they run and end pods, how soon a changed config map is in a pod, commands,
//! logs and scrapes, and what they use at rest and under churn.
//!
//! ```console
//! # KUBE_APISERVER=/usr/bin/kube-apiserver ROUNDS=2 cargo bench -p benches --bench side_by_side -- PROGRAM PROGRAM
//! ```
//!
//! needs root and containerd, and prints a message if they are missing. A program must accept a kubelet's command line; for
//! example, a kubelet, and a release build of the example `node-agent`. Each program takes about seven minutes in each of `ROUNDS`
//! rounds (1 by default), in which another program is the first. The table has the medians of the rounds, and the ratio of the
//! first program to the second. The programs must have absolute paths.
//!
//! With `KUBE_APISERVER` the API server is this program, with `etcd` of the path, its data in memory; otherwise it is the one in
//! memory of `kubelet-apiserver`, in the process of the bench. Each program has an API server, a containerd and a cgroup of its own,
//! one after the other. The bench watches pods in the API and reads volumes on the disk.
//!
//! Pods have one busybox container on the host's network, which ends at once on SIGTERM, and a config map. CPU is the user and system
//! time of the program's process; memory is resident. For logs and scrapes CPU is without that of the idle program in the same time.
//!
//! `PODS=20,30` replaces the numbers of pods, 80 and 110.

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
use crate::report::{Figure, Report, compare_programs};

const SINGLE_RUNS: usize = 11;
const COMMANDS: usize = 50;
const SCRAPES: usize = 30;
const LOG_BYTES: usize = 500_000_000;
/// A pod is deleted and another one created each second.
const CHURN: Duration = Duration::from_secs(60);
/// Longer than anything here takes.
const GUARD: Duration = Duration::from_secs(300);
/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(5);

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
            let is_new = fs::read_to_string(file).is_ok_and(|text| text == "second");
            if is_new {
                took.push(begun.elapsed().as_secs_f64());
            }
            !is_new
        });
        sleep(LOOK).await;
    }
    report.add(
        "a changed config map, in the last pod",
        took.last().copied().unwrap(),
        "s",
    );
    report.add("a changed config map, in the median pod", middle(took), "s");
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
    let containerd = Containerd::start().await.unwrap()?;
    let plane = ControlPlane::start(NODE).await;
    println!(
        "{path}, load {}:",
        fs::read_to_string("/proc/loadavg").unwrap().trim()
    );
    println!("| measured | |\n|---|---|");
    let numbers = std::env::var("PODS").unwrap_or_else(|_| "80,110".to_owned());
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
    let setup = Setup {
        changes: &[("cgroupsPerQOS: false", own.as_str())],
        settings: plane.settings(),
        arguments: &[
            "--kubeconfig".to_owned(),
            plane.node_kubeconfig(NODE).to_str().unwrap().to_owned(),
        ],
    };
    let program = Program::start(path, containerd, &setup).await;
    let pods = Pods::new(plane.client.clone());
    pods.configure("first").await;
    pods.node_is_ready().await;
    let mut report = Report::default();
    report.rest(&program, 0).await;
    single_pods(&pods, &mut report).await;
    let (last, before) = numbers.split_last().unwrap();
    for count in before {
        many_pods(&pods, &names(*count), &program, &mut report).await;
        no_pods(&pods, &names(*count), &program, &mut report).await;
    }
    let names = names(*last);
    many_pods(&pods, &names, &program, &mut report).await;
    report.rest(&program, *last).await;
    changed_config_map(&pods, &pods.all().await, &program, &mut report).await;
    commands(&names[0], &program, &mut report).await;
    for path in ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/pods"] {
        requests(path, SCRAPES, &program, &mut report).await;
    }
    one_log(&program, &names[0], LOG_BYTES, &mut report).await;
    let names = churn(&pods, names, &program, &mut report).await;
    no_pods(&pods, &names, &program, &mut report).await;
    program.end().await;
    println!();
    Some(report.figures)
}

fn main() {
    compare_programs("side_by_side", measure);
}
