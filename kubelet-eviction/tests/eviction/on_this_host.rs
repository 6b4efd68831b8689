//! What this host's kernel reports. Needs root and cgroups of version 1; without them the tests print `SKIPPED`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::LogEvents;
use kubelet_core::stats::Summary;
use kubelet_eviction::notifier::{CgroupV1Notifier, MemoryHost, PressureStallNotifier, memory_notifiers};
use kubelet_eviction::oom::{Kmsg, OomKill, OomWatcher};
use kubelet_eviction::{Signal, Threshold, ThresholdNotifier, ThresholdValue};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::node::MIB;

/// A memory cgroup that is removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Option<Self> {
        let memory = PathBuf::from("/sys/fs/cgroup/memory");
        let path = memory.join(format!("kubelet-eviction-{name}-{}", std::process::id()));
        let is_there = memory.join("cgroup.event_control").exists() && fs::create_dir(&path).is_ok();
        if !is_there {
            println!("SKIPPED: no memory cgroup of version 1 can be made");
        }
        is_there.then_some(Self(path))
    }

    /// Runs a program in it, and waits for its end.
    fn run(&self, program: &str) {
        let procs = self.0.join("cgroup.procs");
        let script = format!("echo $$ > {}; exec {program}", procs.display());
        let mut command = Command::new("sh");
        command
            .args(["-c", &script])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).unwrap();
    }
}

fn threshold(signal: Signal) -> Threshold {
    Threshold {
        signal,
        value: ThresholdValue::Quantity(Quantity("92Mi".into())),
        grace_period: Duration::ZERO,
        min_reclaim: None,
    }
}

/// A capacity of 100 MiB: the threshold is at 8 MiB.
fn summary() -> Summary {
    let memory = json!({"availableBytes": 100 * MIB, "usageBytes": 0, "workingSetBytes": 0});
    let node = json!({"memory": memory, "systemContainers": [{"name": "pods", "memory": memory}]});
    serde_json::from_value(json!({ "node": node })).unwrap()
}

#[tokio::test]
async fn a_cgroup_of_version_1_notifies_when_its_usage_crosses_the_threshold() {
    let Some(cgroup) = Cgroup::new("usage") else {
        return;
    };
    let mut notifier = CgroupV1Notifier::new(threshold(Signal::MemoryAvailable), &cgroup.0);
    notifier.update_threshold(&summary()).await.unwrap();
    let mut crossed = Box::pin(notifier.crossed());
    assert!(futures::poll!(&mut crossed).is_pending());
    // `tail` keeps all of it, since it has no end of line.
    cgroup.run("head -c 20000000 /dev/zero | tail");
    crossed.await.unwrap();
    let gone = PathBuf::from("/sys/fs/cgroup/memory/there-is-none");
    let error = CgroupV1Notifier::new(threshold(Signal::MemoryAvailable), gone)
        .update_threshold(&summary())
        .await;
    assert!(error.unwrap_err().to_string().contains("there-is-none"));
}

#[tokio::test]
async fn the_kernel_takes_the_trigger_for_stalls() {
    let path = "/proc/pressure/memory";
    if fs::OpenOptions::new().write(true).open(path).is_err() {
        println!("SKIPPED: {path} cannot be written");
        return;
    }
    let mut notifier = PressureStallNotifier::new(path);
    for _ in 0..2 {
        notifier.update_threshold(&summary()).await.unwrap();
    }
    let _ = futures::poll!(Box::pin(notifier.crossed()));
}

#[tokio::test]
async fn a_kill_in_a_cgroup_is_read_from_the_kernels_log() {
    let Some(cgroup) = Cgroup::new("oom") else { return };
    let log = match Kmsg::open("/dev/kmsg") {
        Ok(log) => log,
        Err(error) => {
            println!("SKIPPED: {error}");
            return;
        }
    };
    fs::write(cgroup.0.join("memory.limit_in_bytes"), "10M").unwrap();
    let (heard, mut kills) = mpsc::unbounded_channel();
    let watcher = OomWatcher::new(log, Arc::new(LogEvents))
        .listener(move |kill: &OomKill| heard.send(kill.clone()).unwrap_or_default());
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(watcher.run(shutdown.clone()));
    cgroup.run("tail /dev/zero");
    // Other processes of the host may be killed meanwhile.
    let name = cgroup.0.file_name().unwrap().to_str().unwrap().to_owned();
    let kill = loop {
        let kill = kills.recv().await.unwrap();
        if kill.out_of_memory.ends_with(&name) {
            break kill;
        }
    };
    assert_eq!(kill.process_name, "tail");
    assert!(kill.pid > 0 && !kill.is_of_system(), "{kill:?}");
    shutdown.cancel();
    running.await.unwrap();
}

#[test]
fn the_notifiers_fit_the_version_of_cgroups() {
    let folder = tempfile::tempdir().unwrap();
    let host = MemoryHost {
        cgroup_root: folder.path().join("cgroup"),
        proc_root: folder.path().join("proc"),
        pods_cgroup: "/kubepods".into(),
    };
    let thresholds = [
        threshold(Signal::MemoryAvailable),
        threshold(Signal::AllocatableMemoryAvailable),
        threshold(Signal::PidAvailable),
    ];
    let described = || -> Vec<String> {
        let notifiers = memory_notifiers(&thresholds, &host);
        notifiers.iter().map(|notifier| notifier.description()).collect()
    };
    let of_thresholds = [
        "hard memory eviction threshold",
        "hard allocatable memory eviction threshold",
    ];
    assert_eq!(described(), of_thresholds);
    fs::create_dir(&host.cgroup_root).unwrap();
    fs::write(host.cgroup_root.join("cgroup.controllers"), "memory").unwrap();
    let path = |file: &str| format!("stall for memory of {}", folder.path().join(file).display());
    let stalls = [
        path("proc/pressure/memory"),
        path("cgroup/kubepods/memory.pressure"),
    ];
    assert_eq!(
        described(),
        [&of_thresholds.map(str::to_owned)[..], &stalls[..]].concat()
    );
}
