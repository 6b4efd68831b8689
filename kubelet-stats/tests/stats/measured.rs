//! How often the runtime measures its containers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kubelet_core::RootDir;
use kubelet_core::stats::{
    ContainerStats, PodStats, RuntimeContainer, RuntimeContainerUsage, RuntimeCpu, RuntimeFileSystem,
    RuntimeFileSystems, RuntimeList, RuntimeSandbox,
};
use kubelet_stats::{Collector, NodeSummary, SummaryConfig};
use tokio::time::advance;

use crate::tree::{FixedRuntime, Tree};

/// A pod `web` with the containers `c1` and `c2`, of which the runtime reports 7 ns of CPU time each.
struct Host {
    tree: Tree,
    runtime: Arc<FixedRuntime>,
    summary: NodeSummary,
}

impl Host {
    fn new() -> Self {
        let tree = Tree::node();
        let usage = |id: &str| RuntimeContainerUsage {
            id: id.into(),
            name: id.into(),
            cpu: Some(RuntimeCpu {
                usage_core_nano_seconds: Some(7),
                ..Default::default()
            }),
            ..Default::default()
        };
        let runtime = Arc::new(FixedRuntime {
            usages: vec![usage("c1"), usage("c2")],
            file_systems: RuntimeFileSystems {
                images: vec![RuntimeFileSystem {
                    mountpoint: tree.dir.path().to_str().unwrap().to_owned(),
                    ..Default::default()
                }],
                ..Default::default()
            },
            ..Default::default()
        });
        *runtime.list.lock() = RuntimeList {
            sandboxes: vec![RuntimeSandbox {
                id: "s".into(),
                namespace: "default".into(),
                pod: "web".into(),
                uid: "a".into(),
                ready: true,
                ..Default::default()
            }],
            containers: vec![container("c1")],
        };
        let mut config = tree.config(&["/kubepods"]);
        config.runtime = Some(runtime.clone());
        let of_summary = SummaryConfig {
            root_dir: RootDir::new(tree.path("var/lib/kubelet")),
            pod_logs_dir: tree.path("var/log/pods"),
            runtime: Some(runtime.clone()),
            ..SummaryConfig::new("node1")
        };
        let summary = NodeSummary::new(Collector::new(config), of_summary);
        Self {
            tree,
            runtime,
            summary,
        }
    }

    fn set_cpu(&self, cgroup: &str, cpu: u64) {
        self.tree.add_v1(&format!("/kubepods/poda{cgroup}"), cpu, 5_000);
    }

    fn measured(&self) -> usize {
        self.runtime.measured.load(Ordering::SeqCst)
    }

    /// The CPU time of each container.
    async fn cpu_and_memory(&self) -> Vec<(String, Option<u64>)> {
        cpu(&self.summary.cpu_and_memory_summary().await.unwrap().pods.unwrap())
    }

    async fn all(&self, update: bool) -> Vec<(String, Option<u64>)> {
        cpu(&self.summary.summary(update).await.unwrap().pods.unwrap())
    }
}

fn container(id: &str) -> RuntimeContainer {
    RuntimeContainer {
        id: id.into(),
        sandbox_id: "s".into(),
        name: id.into(),
        running: true,
        ..Default::default()
    }
}

fn cpu(pods: &[PodStats]) -> Vec<(String, Option<u64>)> {
    let containers = pods.iter().flat_map(|pod| pod.containers.iter().flatten());
    let cpu = |container: &ContainerStats| container.cpu.as_ref()?.usage_core_nano_seconds;
    containers
        .map(|container| (container.name.clone(), cpu(container)))
        .collect()
}

fn shown(containers: &[(&str, u64)]) -> Vec<(String, Option<u64>)> {
    containers
        .iter()
        .map(|(name, cpu)| ((*name).to_owned(), Some(*cpu)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn cpu_and_memory_come_from_cgroups_alone_if_they_show_all() {
    let host = Host::new();
    host.set_cpu("", 500);
    host.set_cpu("/c1", 300);
    assert_eq!(
        host.cpu_and_memory().await,
        shown(&[("c1", 7)]),
        "a first reading has no rate"
    );
    assert_eq!(host.measured(), 1);

    advance(Duration::from_secs(16)).await;
    host.set_cpu("/c1", 400);
    assert_eq!(host.cpu_and_memory().await, shown(&[("c1", 400)]));
    assert_eq!(host.measured(), 1);

    // Younger than the readings.
    host.runtime.list.lock().containers.push(container("c2"));
    assert_eq!(host.cpu_and_memory().await, shown(&[("c1", 400), ("c2", 7)]));
    assert_eq!(host.measured(), 2);

    advance(Duration::from_secs(16)).await;
    host.set_cpu("/c1", 500);
    assert_eq!(
        host.cpu_and_memory().await,
        shown(&[("c1", 500), ("c2", 7)]),
        "it has no cgroup"
    );
    assert_eq!(host.measured(), 3);

    // One that ended does not count.
    host.runtime.list.lock().containers[1].running = false;
    assert_eq!(host.cpu_and_memory().await, shown(&[("c1", 500)]));
    assert_eq!(host.measured(), 3);
}

#[tokio::test(start_paused = true)]
async fn without_cgroups_of_pods_the_runtime_measures() {
    let host = Host::new();
    // The container has a cgroup, and its pod has none. The collector asks for names because of the other pod.
    host.tree.add_v1("/kubepods", 900, 5_000);
    host.tree.add_v1("/kubepods/podb/other", 1, 5_000);
    host.tree.add_v1("/kubepods/c1", 300, 5_000);
    host.cpu_and_memory().await;
    advance(Duration::from_secs(16)).await;
    host.tree.add_v1("/kubepods/c1", 400, 5_000);
    assert_eq!(host.cpu_and_memory().await, shown(&[("c1", 400)]));
    assert_eq!(
        host.measured(),
        2,
        "the usage of the pod is the sum of what the runtime reports"
    );
}

#[tokio::test(start_paused = true)]
async fn the_runtime_measures_a_container_whose_cgroup_shows_no_memory() {
    let host = Host::new();
    host.set_cpu("", 500);
    for cpu in [300, 400] {
        advance(Duration::from_secs(16)).await;
        host.set_cpu("/c1", cpu);
        host.tree.remove("sys/fs/cgroup/memory/kubepods/poda/c1");
        host.cpu_and_memory().await;
    }
    assert_eq!(
        host.cpu_and_memory().await,
        shown(&[("c1", 400)]),
        "its cgroup shows CPU"
    );
    assert_eq!(host.measured(), 3);
}

#[tokio::test(start_paused = true)]
async fn summaries_share_what_the_runtime_measured() {
    let host = Host::new();
    for _ in 0..2 {
        assert_eq!(host.all(false).await, shown(&[("c1", 7)]));
        assert_eq!(host.measured(), 1);
    }
    assert_eq!(host.all(true).await, shown(&[("c1", 7)]));
    assert_eq!(host.measured(), 2, "an update is measured anew");
    advance(Duration::from_secs(15)).await;
    host.all(false).await;
    assert_eq!(host.measured(), 2);
    advance(Duration::from_millis(1)).await;
    host.all(false).await;
    assert_eq!(host.measured(), 3);

    // A container that started since has been measured by chance; the next one has not.
    host.runtime.list.lock().containers.push(container("c2"));
    assert_eq!(host.all(false).await, shown(&[("c1", 7), ("c2", 7)]));
    assert_eq!(host.measured(), 3);
    host.runtime.list.lock().containers.push(container("c3"));
    assert_eq!(
        host.all(false).await,
        shown(&[("c1", 7), ("c2", 7)]),
        "the runtime does not report it"
    );
    assert_eq!(host.measured(), 4);
}
