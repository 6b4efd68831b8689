//! All numbers of pods from the runtime (gate `PodAndContainerStatsFromCRI`).

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::RootDir;
use kubelet_core::stats::{
    InterfaceStats, PodStats, PsiData, PsiStats, RuntimeContainer, RuntimeContainerUsage, RuntimeCpu,
    RuntimeIo, RuntimeList, RuntimeMemory, RuntimeNetwork, RuntimePodUsage, RuntimeSandbox, RuntimeSwap,
};
use kubelet_stats::{NodeSummary, SummaryConfig};

use crate::tree::{FixedRuntime, Tree};

fn at() -> Timestamp {
    Timestamp::from_second(1000).unwrap()
}

fn psi() -> Option<PsiStats> {
    let data = PsiData {
        total: 5,
        avg10: 1.0,
        avg60: 2.0,
        avg300: 3.0,
    };
    Some(PsiStats {
        full: data,
        some: data,
    })
}

fn cpu(total: u64) -> Option<RuntimeCpu> {
    Some(RuntimeCpu {
        timestamp: at(),
        usage_core_nano_seconds: Some(total),
        usage_nano_cores: Some(total / 10),
        psi: psi(),
    })
}

fn memory(working_set: u64) -> Option<RuntimeMemory> {
    Some(RuntimeMemory {
        timestamp: at(),
        working_set: Some(working_set),
        psi: psi(),
        ..Default::default()
    })
}

fn runtime() -> FixedRuntime {
    let container = |id: &str, name: &str, running| RuntimeContainer {
        id: id.into(),
        sandbox_id: "new".into(),
        name: name.into(),
        running,
        ..Default::default()
    };
    let sandbox = |id: &str, ready| RuntimeSandbox {
        id: id.into(),
        namespace: "default".into(),
        pod: "web".into(),
        uid: "a".into(),
        ready,
        ..Default::default()
    };
    let usage = |id: &str, name: &str, cpu_total| RuntimeContainerUsage {
        id: id.into(),
        name: name.into(),
        cpu: cpu(cpu_total),
        memory: memory(100),
        swap: Some(RuntimeSwap {
            timestamp: at(),
            available: Some(10),
            usage: Some(20),
        }),
        ..Default::default()
    };
    let pod = |sandbox_id: &str| RuntimePodUsage {
        sandbox_id: sandbox_id.into(),
        cpu: cpu(1000),
        memory: memory(300),
        io: Some(RuntimeIo {
            timestamp: at(),
            psi: psi(),
        }),
        network: Some(RuntimeNetwork {
            timestamp: at(),
            default_interface: InterfaceStats {
                name: "eth0".into(),
                rx_bytes: Some(7),
                ..Default::default()
            },
            interfaces: Vec::new(),
        }),
        processes: Some(4),
        containers: vec![
            usage("1", "main", 400),
            usage("2", "side", 500),
            usage("0", "ended", 600),
        ],
    };
    let list = RuntimeList {
        sandboxes: vec![sandbox("old", false), sandbox("new", true)],
        containers: vec![
            container("1", "main", true),
            container("2", "side", true),
            container("0", "ended", false),
        ],
    };
    FixedRuntime {
        list: list.into(),
        pods: Some(vec![pod("old"), pod("new"), pod("unknown")]),
        usages: vec![usage("1", "main", 400)],
        ..Default::default()
    }
}

fn summary(tree: &Tree, runtime: FixedRuntime, psi: bool) -> NodeSummary {
    let config = SummaryConfig {
        root_dir: RootDir::new(tree.dir.path()),
        runtime: Some(Arc::new(runtime)),
        pod_and_container_stats_from_cri: true,
        psi,
        ..SummaryConfig::new("node1")
    };
    NodeSummary::new(tree.collector(&["/kubepods"]), config)
}

fn node() -> Tree {
    let tree = Tree::v1();
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    tree.write("proc/self/mountinfo", &mountinfo);
    // Its numbers are not shown.
    tree.add_v1("/kubepods/poda", 77, 77);
    tree
}

fn only(pods: Vec<PodStats>) -> PodStats {
    let [pod] = <[PodStats; 1]>::try_from(pods).unwrap();
    pod
}

#[tokio::test]
async fn the_runtimes_numbers() {
    let tree = node();
    let pod = only(summary(&tree, runtime(), true).pod_stats().await.unwrap());
    assert_eq!(pod.cpu.as_ref().unwrap().usage_core_nano_seconds, Some(1000));
    assert_eq!(pod.cpu.as_ref().unwrap().psi, psi());
    assert_eq!(pod.memory.as_ref().unwrap().working_set_bytes, Some(300));
    assert_eq!(pod.io.as_ref().unwrap().psi, psi());
    assert_eq!(pod.network.as_ref().unwrap().default_interface.rx_bytes, Some(7));
    assert_eq!(pod.process_stats.as_ref().unwrap().process_count, Some(4));
    let names: Vec<_> = pod
        .containers
        .as_ref()
        .unwrap()
        .iter()
        .map(|container| &*container.name)
        .collect();
    assert_eq!(
        names,
        ["main", "side"],
        "those that run, of the sandbox that is ready"
    );
    assert!(pod.ephemeral_storage.is_some());
}

#[tokio::test]
async fn without_the_gate_of_stalls_there_are_none() {
    let tree = node();
    let pod = only(summary(&tree, runtime(), false).pod_stats().await.unwrap());
    assert_eq!(
        (pod.cpu.unwrap().psi, pod.memory.unwrap().psi, pod.io),
        (None, None, None)
    );
    assert!(
        pod.containers
            .unwrap()
            .iter()
            .all(|container| container.io.is_none())
    );
}

#[tokio::test]
async fn the_swap_of_a_pod_is_that_of_its_containers() {
    let tree = node();
    let pods = summary(&tree, runtime(), true)
        .cpu_and_memory_summary()
        .await
        .unwrap()
        .pods
        .unwrap();
    let swap = only(pods).swap.unwrap();
    assert_eq!(
        (swap.swap_available_bytes, swap.swap_usage_bytes),
        (Some(20), Some(40))
    );
}

#[tokio::test]
async fn a_runtime_without_stats_of_pods_is_read_as_without_the_gate() {
    let tree = node();
    let runtime = FixedRuntime {
        pods: None,
        ..runtime()
    };
    let pod = only(summary(&tree, runtime, true).pod_stats().await.unwrap());
    assert_eq!(
        pod.cpu.unwrap().usage_core_nano_seconds,
        Some(77),
        "of its cgroup"
    );
    assert_eq!(pod.containers.unwrap().len(), 1);
}
