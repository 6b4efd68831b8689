//! Reads the machine from `/sys`, as cAdvisor does (`sysinfo.GetNodesInfo`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Core, HugePages, Machine, NumaNode};
use crate::cpu_set::CpuSet;
use crate::{Error, Result};

impl Machine {
    /// Reads the machine from this folder, usually `/sys`.
    ///
    /// CPUs that are offline do not count. Without NUMA in the kernel, each socket is a node, whose memory is not known. It reads
    /// a few files for each CPU and blocks meanwhile.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or has another form than expected.
    pub fn read(sys: &Path) -> Result<Self> {
        let sysfs = Sysfs::new(sys)?;
        let nodes = numbered(&sys.join("devices/system/node"), "node")?;
        let nodes: Vec<NumaNode> = match nodes.is_empty() {
            true => sysfs.sockets()?,
            false => nodes
                .into_iter()
                .map(|(id, folder)| sysfs.node(id, &folder))
                .collect::<Result<_>>()?,
        };
        Ok(Self { nodes })
    }
}

struct Sysfs {
    cpus: PathBuf,
    /// `None`: all, CPUs cannot be offline.
    online: Option<CpuSet>,
}

impl Sysfs {
    fn new(sys: &Path) -> Result<Self> {
        let cpus = sys.join("devices/system/cpu");
        let online = optional(&cpus.join("online"))?;
        Ok(Self { cpus, online })
    }

    fn node(&self, id: usize, folder: &Path) -> Result<NumaNode> {
        let cpus = numbered(folder, "cpu")?.into_keys();
        let mut node = NumaNode {
            id,
            memory: memory(&folder.join("meminfo"))?,
            huge_pages: huge_pages(&folder.join("hugepages"))?,
            cores: self.cores(cpus)?,
            distances: optional::<Distances>(&folder.join("distance"))?.map(|Distances(list)| list),
        };
        self.add_caches(&mut node.cores);
        Ok(node)
    }

    /// Each socket as a node.
    fn sockets(&self) -> Result<Vec<NumaNode>> {
        let cores = self.cores(numbered(&self.cpus, "cpu")?.into_keys())?;
        let mut sockets: BTreeMap<usize, NumaNode> = BTreeMap::new();
        for core in cores {
            let node = sockets.entry(core.socket).or_default();
            node.id = core.socket;
            node.cores.push(core);
        }
        let mut nodes: Vec<NumaNode> = sockets.into_values().collect();
        for node in &mut nodes {
            self.add_caches(&mut node.cores);
        }
        Ok(nodes)
    }

    fn cores(&self, cpus: impl Iterator<Item = usize>) -> Result<Vec<Core>> {
        let mut cores: Vec<Core> = Vec::new();
        for cpu in cpus.filter(|cpu| self.online.as_ref().is_none_or(|online| online.contains(*cpu))) {
            let topology = self.cpus.join(format!("cpu{cpu}/topology"));
            let ids = (
                optional(&topology.join("core_id"))?,
                optional(&topology.join("physical_package_id"))?,
            );
            let (Some(id), Some(socket)) = ids else {
                tracing::warn!(cpu, "the core or the socket of a CPU is not known");
                continue;
            };
            let socket = known_socket(socket);
            match cores
                .iter_mut()
                .find(|core| core.id == id && core.socket == socket)
            {
                Some(core) => core.threads.push(cpu),
                None => cores.push(Core {
                    id,
                    socket,
                    threads: vec![cpu],
                    uncore_cache: None,
                }),
            }
        }
        Ok(cores)
    }

    /// Notes the cache of each core that it shares with some cores of its node, not with all. Machines without information about
    /// caches exist, so errors are logged only.
    fn add_caches(&self, cores: &mut [Core]) {
        let count = cores.len();
        for core in cores {
            let Some(first) = core.threads.first() else {
                continue;
            };
            let folder = self.cpus.join(format!("cpu{first}/cache"));
            match last_level_cache(&folder, count * core.threads.len()) {
                Ok(cache) => core.uncore_cache = cache,
                Err(error) => {
                    tracing::debug!(cpu = first, %error, "the caches of a CPU are not known");
                    return;
                }
            }
        }
    }
}

/// Where the kernel does not know the sockets, it writes -1 for each CPU: one socket.
fn known_socket(id: i64) -> usize {
    usize::try_from(id).unwrap_or(0)
}

/// The id of the first cache above the second level that not all CPUs of the node share.
fn last_level_cache(folder: &Path, cpus_of_node: usize) -> Result<Option<usize>> {
    for cache in numbered(folder, "index")?.into_values() {
        let level: usize = required(&cache.join("level"))?;
        let shared: Hex = required(&cache.join("shared_cpu_map"))?;
        if level > 2 && shared.0 != cpus_of_node {
            return required(&cache.join("id")).map(Some);
        }
    }
    Ok(None)
}

/// `Node 0 MemTotal:  16384 kB`, in bytes. Zero if the file does not exist.
fn memory(path: &Path) -> Result<u64> {
    let Some(text) = read(path)? else { return Ok(0) };
    let line = text.lines().find_map(|line| line.split_once("MemTotal:"));
    let kib = line.and_then(|(_, rest)| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| unexpected(path, "no MemTotal in kB"))
}

/// `hugepages-2048kB/nr_hugepages`
fn huge_pages(folder: &Path) -> Result<Vec<HugePages>> {
    let mut all = Vec::new();
    for (name, path) in entries(folder)? {
        let size = name
            .strip_prefix("hugepages-")
            .and_then(|rest| rest.strip_suffix("kB"));
        let Some(size_kib) = size.and_then(|size| size.parse().ok()) else {
            return Err(unexpected(&path, "the name is not hugepages-…kB"));
        };
        let count = required(&path.join("nr_hugepages"))?;
        all.push(HugePages { size_kib, count });
    }
    all.sort_by_key(|pages| pages.size_kib);
    Ok(all)
}

/// `10 21`
struct Distances(Vec<u64>);

impl FromStr for Distances {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// How many bits are set in a mask of CPUs: `00000000,0000000f`.
struct Hex(usize);

impl FromStr for Hex {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split(',').map(|word| u64::from_str_radix(word.trim(), 16));
        let counts = words.map(|word| word.map(|word| word.count_ones() as usize));
        counts.sum::<Result<_, _>>().map(Self)
    }
}

/// The entries whose names are the prefix and a number. Empty if the folder does not exist.
fn numbered(folder: &Path, prefix: &str) -> Result<BTreeMap<usize, PathBuf>> {
    let numbers = entries(folder)?.into_iter().filter_map(|(name, path)| {
        let number = name.strip_prefix(prefix)?.parse().ok()?;
        Some((number, path))
    });
    Ok(numbers.collect())
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let error = |source| Error::File {
        path: folder.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(error(source)),
    };
    entries
        .map(|entry| {
            let entry = entry.map_err(error)?;
            Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
        })
        .collect()
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::File {
            path: path.to_owned(),
            source,
        }),
    }
}

fn optional<T: FromStr<Err: std::fmt::Display>>(path: &Path) -> Result<Option<T>> {
    let Some(text) = read(path)? else {
        return Ok(None);
    };
    let value = text.trim().parse();
    value
        .map(Some)
        .map_err(|error: T::Err| unexpected(path, &error.to_string()))
}

fn required<T: FromStr<Err: std::fmt::Display>>(path: &Path) -> Result<T> {
    optional(path)?.ok_or_else(|| unexpected(path, "the file does not exist"))
}

fn unexpected(path: &Path, reason: &str) -> Error {
    Error::Machine {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}
