//! Deleted pods leave nothing.

use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream;
use kubelet_core::PodContainerManager;
use kubelet_core::runtime::ContainerState;
use kubelet_cri::CriClient;
use kubelet_kuberuntime::CgroupDriver;
use kubelet_testing::Containerd;

use super::manager::{AllBut, Manager, pod, pod_of};
use crate::standalone::until;
use crate::variables::number;

/// How many pods by default; the variable `KUBELET_TESTING_PODS` changes this. There are 200 in CI.
const PODS: u64 = 50;
/// The number of concurrent pods: more do not make containerd faster.
const AT_ONCE: usize = 16;

#[tokio::test]
async fn nothing_is_left_of_many_pods() {
    let pods = number("KUBELET_TESTING_PODS").unwrap_or(PODS);
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let client = Arc::new(CriClient::connect(containerd.endpoint()).await.unwrap());
    let root = format!("kubelet-testing-{}", std::process::id());
    let driver = CgroupDriver::Cgroupfs { root: format!("/{root}") };
    let manager = Manager::with_cgroups(client.clone(), client, driver).await;
    let lives = (0..pods).map(|number| {
        let manager = &manager;
        async move {
            let name = format!("pod-{number}");
            // Some end well, some fail, some run until they are killed; every tenth has a network of its own.
            let pod = match number % 10 {
                0 => pod_of(
                    &name,
                    serde_json::json!({
                        "restartPolicy": "Never",
                        "containers": [{ "name": "main", "image": Containerd::BUSYBOX, "command": ["true"] }],
                    }),
                ),
                1..=4 => pod(&name, "exit 0", "Never"),
                5..=7 => pod(&name, "exit 1", "Never"),
                _ => pod(&name, "trap 'exit 0' TERM; sleep 1000 & wait", "Always"),
            };
            let wanted = match number % 10 {
                8.. => ContainerState::Running,
                _ => ContainerState::Exited,
            };
            manager
                .sync_until(&pod, |status| status.container("main").is_some_and(|it| it.state == wanted))
                .await;
            manager.kill(&pod).await;
        }
    });
    stream::iter(lives).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;

    manager.collect(&AllBut(None)).await;
    assert_eq!(containerd.containers().await.unwrap(), [""; 0], "containers and sandboxes");
    assert_eq!(containerd.tasks().await.unwrap(), [], "tasks");
    assert_eq!(count(&manager.dir.path().join("logs")), 0, "folders of logs");
    // Shims go when they have said goodbye.
    until("processes are gone", async || shims_of(containerd.folder()).is_empty().then_some(())).await;
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    // The folder itself is a mount, too.
    let inside = format!("{}/", containerd.folder().display());
    let left: Vec<_> = mounts.lines().filter(|mount| mount.contains(&inside)).collect();
    assert_eq!(left, [""; 0], "mounts");
    let cgroups = manager.cgroups.pods().await.unwrap();
    assert!(cgroups.is_empty(), "cgroups of pods: {cgroups:?}");
    for name in ["kubepods/besteffort", "kubepods/burstable", "kubepods", ""] {
        remove_cgroup(&Path::new(&root).join(name));
    }
    let addresses = containerd.folder().join("addresses");
    let reserved = std::fs::read_dir(addresses).unwrap().flatten().map(|network| {
        let files = std::fs::read_dir(network.path()).unwrap().flatten();
        files.filter(|file| file.file_name().to_string_lossy().parse::<std::net::IpAddr>().is_ok()).count()
    });
    assert_eq!(reserved.sum::<usize>(), 0, "addresses");
}

/// From all hierarchies. It must have nothing in it.
fn remove_cgroup(name: &Path) {
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([Path::new("/sys/fs/cgroup").to_owned()]) {
        let dir = hierarchy.join(name);
        if dir.is_dir() {
            std::fs::remove_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        }
    }
}

fn count(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

/// The shims of the containerd in this folder, by their socket's address: pid and command line.
pub(crate) fn shims_of(folder: &Path) -> Vec<(u32, String)> {
    let address = format!(" -address {}", folder.join("containerd.sock").display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let command = std::fs::read(process.path().join("cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&command).replace('\0', " ")))
    });
    commands
        .filter(|(_, command)| command.contains("containerd-shim") && command.contains(&address))
        .collect()
}
