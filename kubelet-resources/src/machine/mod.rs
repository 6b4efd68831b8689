//! The machine as far as the managers need it: which CPUs share a core, a cache, a socket and a NUMA node, and the memory of
//! each node (`MachineInfo` of cAdvisor).

mod sysfs;

use serde::{Deserialize, Serialize};

use crate::numa_set::NumaSet;

/// The NUMA nodes of a machine (`MachineInfo.Topology`).
///
/// Serialized, it has the names that cAdvisor uses, so that a recorded machine can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Machine {
    /// The nodes. A machine without NUMA has one.
    pub nodes: Vec<NumaNode>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// Its id.
    #[serde(rename = "node_id")]
    pub id: usize,
    /// Its memory, huge pages included, in bytes.
    #[serde(default)]
    pub memory: u64,
    /// Its huge pages, one item for each size.
    #[serde(default, deserialize_with = "null_is_empty", rename = "hugepages")]
    pub huge_pages: Vec<HugePages>,
    /// Its cores. None, if the node has memory only.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub cores: Vec<Core>,
    /// The distance to each node, in the order of the nodes. `None` if unknown.
    #[serde(default)]
    pub distances: Option<Vec<u64>>,
}

/// Pages of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    /// The size of a page, in KiB.
    #[serde(rename = "page_size")]
    pub size_kib: u64,
    /// The number of pages.
    #[serde(rename = "num_pages")]
    pub count: u64,
}

/// A physical core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Its id, unique in its socket only.
    #[serde(rename = "core_id")]
    pub id: usize,
    /// Its CPUs: one, or several with simultaneous multithreading.
    #[serde(rename = "thread_ids")]
    pub threads: Vec<usize>,
    /// The last-level cache that it shares with other cores. `None` if the cores of the socket do not share caches.
    #[serde(
        default,
        rename = "uncore_caches",
        serialize_with = "caches::write",
        deserialize_with = "caches::read"
    )]
    pub uncore_cache: Option<usize>,
    /// Its socket.
    #[serde(rename = "socket_id")]
    pub socket: usize,
}

impl Machine {
    /// The number of CPUs.
    pub fn cpu_count(&self) -> usize {
        self.cores().map(|(_, core)| core.threads.len()).sum()
    }

    /// The number of sockets.
    pub fn socket_count(&self) -> usize {
        let mut sockets: Vec<usize> = self.cores().map(|(_, core)| core.socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        sockets.len()
    }

    /// The ids of all nodes. `None` if one is higher than a [`NumaSet`] can have.
    pub fn numa_nodes(&self) -> Option<NumaSet> {
        NumaSet::of(self.nodes.iter().map(|node| node.id))
    }

    /// Every core with its node.
    pub(crate) fn cores(&self) -> impl Iterator<Item = (&NumaNode, &Core)> {
        self.nodes
            .iter()
            .flat_map(|node| node.cores.iter().map(move |core| (node, core)))
    }
}

fn null_is_empty<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

/// cAdvisor has a list of caches, of which the first counts.
mod caches {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Cache {
        id: usize,
    }

    pub(super) fn write<S: Serializer>(id: &Option<usize>, output: S) -> Result<S::Ok, S::Error> {
        let caches: Vec<Cache> = id.iter().map(|&id| Cache { id }).collect();
        caches.serialize(output)
    }

    pub(super) fn read<'de, D: Deserializer<'de>>(input: D) -> Result<Option<usize>, D::Error> {
        let caches: Option<Vec<Cache>> = Option::deserialize(input)?;
        Ok(caches.and_then(|caches| caches.first().map(|cache| cache.id)))
    }
}
