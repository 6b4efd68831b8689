//! What is left of pods on the node after all are deleted.

use std::fs;
use std::path::{Path, PathBuf};

use kubelet_cri::{CriClient, RuntimeService, v1};

use crate::cgroups::{cgroup, hierarchies};
use crate::cluster::{Cluster, ROOT};

/// What is left, each with its path or id. Empty when the node is clean.
pub(crate) async fn find(cluster: &Cluster) -> Vec<String> {
    let mut left = Vec::new();
    for folder in [format!("{ROOT}/pods"), "/var/log/pods".to_owned(), "/var/log/containers".to_owned()] {
        left.extend(children(Path::new(&folder)).iter().map(|path| format!("file {}", path.display())));
    }
    left.extend(mounts().into_iter().map(|mount| format!("mount {mount}")));
    for root in hierarchies() {
        pod_cgroups(&root.join(cgroup().trim_start_matches('/')), &mut left);
    }
    match in_runtime(&cluster.runtime).await {
        Ok(items) => left.extend(items),
        Err(error) => left.push(error),
    }
    left
}

/// Mounts below the agent's folder, which is one itself.
fn mounts() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| point.starts_with(&format!("{ROOT}/"))).map(str::to_owned).collect()
}

/// The cgroups of pods below the agent's, and of containers in them.
fn pod_cgroups(folder: &Path, left: &mut Vec<String>) {
    for path in children(folder).iter().filter(|path| path.is_dir()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("pod") {
            left.push(format!("cgroup {}", path.display()));
        } else {
            pod_cgroups(path, left);
        }
    }
}

async fn in_runtime(runtime: &CriClient) -> Result<Vec<String>, String> {
    let sandboxes = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await;
    let containers = runtime.list_containers(v1::ListContainersRequest::default()).await;
    let name = |sandbox: &v1::PodSandbox| sandbox.metadata.clone().unwrap_or_default().name;
    let sandboxes = sandboxes.map_err(|error| error.to_string())?.items;
    let containers = containers.map_err(|error| error.to_string())?.containers;
    let sandboxes = sandboxes.iter().map(|it| format!("sandbox {} of {}", it.id, name(it)));
    let containers = containers.iter().map(|it| format!("container {} in {}", it.id, it.pod_sandbox_id));
    Ok(sandboxes.chain(containers).collect())
}

/// What runtime and CSI driver left that were killed, which is no fault of an agent: addresses of pods, network namespaces,
/// shims, volumes.
pub(crate) async fn of_others(cluster: &Cluster) -> Vec<String> {
    let folder = cluster.containerd.lock().await.folder().to_owned();
    let mut addresses =
        children(&folder.join("addresses")).iter().flat_map(|network| children(network)).collect::<Vec<_>>();
    addresses.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("10.")));
    let shims = children(Path::new("/proc")).into_iter().filter(|process| {
        fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with("containerd-shim"))
    });
    let counts = [
        ("addresses", addresses.len()),
        (
            "network namespaces",
            children(&folder.join("state/netns")).len() + children(Path::new("/run/netns")).len(),
        ),
        ("shims", shims.count()),
        ("CSI volumes", children(&cluster.csi_folder).iter().filter(|path| path.is_dir()).count()),
    ];
    let left = counts.iter().filter(|(_, count)| *count > 0);
    left.map(|(what, count)| format!("{count} {what}")).collect()
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
