//! Checks that nothing stays of deleted pods: in the runtime, on disk, in the agent's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kubelet_core::{PodUid, RootDir};

use super::driver::Node;
use super::storage;

/// The label of a container's or sandbox's pod.
const POD_UID: &str = "io.kubernetes.pod.uid";

/// What a node still has of pods that are not in `living`; `gone` are the deleted pods.
pub(super) fn leftovers(node: &Node, living: &BTreeSet<String>, gone: &BTreeSet<String>) -> Vec<String> {
    let mut left = Vec::new();
    let uid_of = |labels: &BTreeMap<String, String>| {
        let uid = labels.get(POD_UID).cloned().unwrap_or_default();
        (!living.contains(&uid)).then_some(uid)
    };
    for container in node.runtime.containers() {
        if let Some(uid) = uid_of(&container.labels) {
            let name = container.metadata.unwrap_or_default().name;
            left.push(format!(
                "the runtime has a container {name} of the deleted pod {uid}"
            ));
        }
    }
    for sandbox in node.runtime.sandboxes() {
        if let Some(uid) = uid_of(&sandbox.labels) {
            left.push(format!("the runtime has a sandbox of the deleted pod {uid}"));
        }
    }
    let folders = names_in(&RootDir::new(&node.root_dir).pods_dir());
    let folders = folders.into_iter().filter(|uid| !living.contains(uid));
    left.extend(folders.map(|uid| format!("the disk has a folder of the deleted pod {uid}")));
    let is_living = |uid: &str| living.contains(uid);
    left.extend(storage::left_mounted(&node.mounter, &node.root_dir, is_living));
    let logs = names_in(&node.root_dir.join("logs"));
    let is_of_living = |folder: &String| living.iter().any(|uid| folder.ends_with(&format!("_{uid}")));
    let logs = logs.into_iter().filter(|folder| !is_of_living(folder));
    left.extend(logs.map(|folder| format!("the disk has logs {folder} of a deleted pod")));
    if let Some(kubelet) = &*node.shown.lock() {
        for uid in gone.difference(living) {
            let keepers = kubelet.keepers(&PodUid::new(uid.as_str()));
            if !keepers.is_empty() {
                left.push(format!(
                    "{} keep something of the deleted pod {uid}",
                    keepers.join(", ")
                ));
            }
        }
    }
    left
}

/// Empty if there is no such folder.
fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
