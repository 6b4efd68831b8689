//! NUMA nodes, cores and caches, from `/sys/devices/system`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{entries, huge_pages, number, text};
use crate::reading::{Cache, Core, NumaNode};

/// Caches above this level may be shared by cores (`cacheLevel2`).
const LEVEL_OF_CORES: u64 = 2;

/// The nodes, and the number of logical CPUs (`GetNodesInfo`). Without NUMA, each socket is a node.
pub(super) fn nodes(system: &Path) -> (Vec<NumaNode>, u64) {
    let mut nodes: Vec<NumaNode> = numbered(&system.join("node"), "node")
        .into_iter()
        .map(|(id, path)| {
            let meminfo = text(&path.join("meminfo")).unwrap_or_default();
            let memory = meminfo.lines().find_map(|line| {
                let kib = line.split_once("MemTotal:")?.1.trim().strip_suffix(" kB")?;
                kib.trim().parse::<u64>().ok()
            });
            let distances = text(&path.join("distance")).unwrap_or_default();
            NumaNode {
                id,
                memory: memory.unwrap_or(0).saturating_mul(1024),
                huge_pages: huge_pages(&path.join("hugepages")),
                cores: cores(&numbered(&path, "cpu")),
                caches: Vec::new(),
                distances: distances
                    .split_ascii_whitespace()
                    .filter_map(|distance| distance.parse().ok())
                    .collect(),
            }
        })
        .collect();
    let cpus = system.join("cpu");
    if nodes.is_empty() {
        let mut sockets: BTreeMap<u64, Vec<(u64, PathBuf)>> = BTreeMap::new();
        for (id, path) in numbered(&cpus, "cpu") {
            if let Some(socket) = socket(&path.join("topology")) {
                sockets.entry(socket).or_default().push((id, path));
            }
        }
        nodes = sockets
            .into_iter()
            .map(|(id, paths)| NumaNode {
                id,
                cores: cores(&paths),
                ..Default::default()
            })
            .collect();
    }
    for node in &mut nodes {
        add_caches(&cpus, node);
    }
    let threads = nodes
        .iter()
        .flat_map(|node| &node.cores)
        .map(|core| core.threads.len() as u64);
    let count = threads.sum();
    (nodes, count)
}

/// How many values a property of the topology has.
pub(super) fn unique_property(cpus: &Path, property: &str) -> u64 {
    let values = numbered(cpus, "cpu").into_iter().filter_map(|(_, path)| {
        let topology = path.join("topology");
        // The ids of cores count from 0 in each socket.
        let socket = text(&topology.join("physical_package_id")).filter(|_| property == "core_id");
        Some((socket, text(&topology.join(property))?))
    });
    values.collect::<BTreeSet<_>>().len() as u64
}

/// Folders of a name with a number, such as `cpu12`, by number.
fn numbered(folder: &Path, prefix: &str) -> Vec<(u64, PathBuf)> {
    let mut found: Vec<(u64, PathBuf)> = entries(folder)
        .into_iter()
        .filter_map(|(name, path)| Some((name.strip_prefix(prefix)?.parse().ok()?, path)))
        .collect();
    found.sort();
    found
}

/// Where the kernel does not know the sockets, it writes -1 for each CPU: one socket.
fn socket(topology: &Path) -> Option<u64> {
    let id = number::<i64>(&topology.join("physical_package_id"))?;
    Some(u64::try_from(id).unwrap_or(0))
}

fn cores(cpus: &[(u64, PathBuf)]) -> Vec<Core> {
    let mut cores: Vec<Core> = Vec::new();
    for (thread, path) in cpus {
        // `cpu0` can often not be turned off, and has no such file then.
        if text(&path.join("online")).is_some_and(|online| online.trim() == "0") {
            continue;
        }
        let topology = path.join("topology");
        let (Some(id), Some(socket_id)) = (number::<u64>(&topology.join("core_id")), socket(&topology))
        else {
            continue;
        };
        let name = |file: &str| match cfg!(target_arch = "s390x") {
            true => text(&topology.join(file)).unwrap_or_default().trim().to_owned(),
            false => String::new(),
        };
        let core = Core {
            id,
            threads: vec![*thread],
            socket_id,
            book_id: name("book_id"),
            drawer_id: name("drawer_id"),
            ..Default::default()
        };
        let same = |known: &&mut Core| {
            (known.id, known.socket_id) == (id, socket_id)
                && known.book_id == core.book_id
                && known.drawer_id == core.drawer_id
        };
        match cores.iter_mut().find(same) {
            Some(known) => known.threads.push(*thread),
            None => cores.push(core),
        }
    }
    cores
}

/// (`addCacheInfo`)
fn add_caches(cpus: &Path, node: &mut NumaNode) {
    let in_node = node.cores.len();
    for core in &mut node.cores {
        let Some(thread) = core.threads.first() else {
            continue;
        };
        let folder = cpus.join(format!("cpu{thread}/cache"));
        for (_, path) in numbered(&folder, "index") {
            let Some((cache, shared)) = cache(&path) else {
                continue;
            };
            if cache.level > LEVEL_OF_CORES {
                let caches = match shared == in_node * core.threads.len() {
                    true => &mut node.caches,
                    false => &mut core.uncore_caches,
                };
                if !caches.contains(&cache) {
                    caches.push(cache);
                }
            } else if shared == core.threads.len() {
                core.caches.push(cache);
            }
        }
    }
}

/// A cache, and how many logical CPUs share it.
fn cache(path: &Path) -> Option<(Cache, usize)> {
    let size = text(&path.join("size"))?;
    let kib: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
    let shared = text(&path.join("shared_cpu_map"))?;
    let bits = shared
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .map(u32::count_ones);
    let cache = Cache {
        id: number(&path.join("id")).unwrap_or(0),
        size: kib * 1024,
        kind: text(&path.join("type"))?.trim().to_owned(),
        level: number(&path.join("level"))?,
    };
    Some((cache, bits.sum::<u32>() as usize))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn sockets_that_the_kernel_does_not_know_are_one() {
        let system = tempfile::tempdir().unwrap();
        for cpu in 0..2 {
            let topology = system.path().join(format!("cpu/cpu{cpu}/topology"));
            std::fs::create_dir_all(&topology).unwrap();
            std::fs::write(topology.join("core_id"), format!("{cpu}\n")).unwrap();
            std::fs::write(topology.join("physical_package_id"), "-1\n").unwrap();
        }
        let (nodes, threads) = nodes(system.path());
        assert_eq!((nodes.len(), threads), (1, 2));
        assert_eq!((nodes[0].id, nodes[0].cores.len()), (0, 2));
    }
}
