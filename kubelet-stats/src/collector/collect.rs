//! One round: list the cgroups, find their owners, read each.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::containers::Owner;
use super::rates::Rates;
use super::{Collector, CollectorConfig, KEEP};
use crate::reading::{
    DiskIo, FileSystem, Machine, MemorySpec, NetworkUsage, ProcessUsage, Reading, Snapshot, Spec, Usage,
};
use crate::source::{CgroupFiles, Cgroups, Detail, Processes, Round, Wanted};
use crate::{Error, Result};

/// The process whose network and limits the root cgroup shows.
const ROOT_PROCESS: u32 = 1;

impl Collector {
    /// Reads everything that `detail` needs.
    pub(super) async fn collect(&self, detail: Detail) -> Result<Snapshot> {
        let config = &self.inner.config;
        let timestamp = config.clock.now();
        let (machine, version) = self.machine().await?;
        let (names, left_out) = self.names().await?;
        // Whoever waits for all details would have everything read again after this.
        let detail = match self.inner.all_wanted.load(Ordering::Relaxed) {
            0 => detail,
            _ => Detail::All,
        };
        let file_systems = self.all_file_systems(detail).await;
        let owners = self.inner.containers.owners(&names, config).await;
        let reader = Reader::new(config, detail, machine.clone(), file_systems, &self.inner.rates);
        let earlier = Earlier {
            newest: self.last(Detail::Summary),
            all: self.last(Detail::All),
        };
        let read = move || Ok(reader.read_all(names, &left_out, &owners, &earlier));
        let (cgroups, incomplete) = config.disk.run(read).await.map_err(failed)??;
        Ok(Snapshot {
            timestamp,
            detail,
            machine,
            version,
            cgroups,
            incomplete,
        })
    }

    /// Reads one cgroup.
    pub(super) async fn collect_one(&self, detail: Detail, name: &str) -> Result<Arc<Reading>> {
        let config = &self.inner.config;
        let (machine, _) = self.machine().await?;
        let file_systems = match name {
            "/" => self.all_file_systems(detail).await,
            _ => Arc::default(),
        };
        let name: Arc<str> = name.into();
        let mut owners = self
            .inner
            .containers
            .owners(std::slice::from_ref(&name), config)
            .await;
        let owner = owners.remove(&name).unwrap_or_default();
        let reader = Reader::new(config, detail, machine, file_systems, &self.inner.rates);
        let read = move || Ok(reader.read(&mut Round::default(), &name, &owner, None));
        let reading = config.disk.run(read).await.map_err(failed)??;
        Ok(Arc::new(reading))
    }

    /// Reads the CPU time of all cgroups. A new one is read whole: the kernel may forget when it was created.
    pub(super) async fn collect_cpu_times(&self) -> Result<()> {
        let config = &self.inner.config;
        let (names, left_out) = self.names().await?;
        let (cgroups, rates) = (config.cgroups.clone(), self.inner.rates.clone());
        let read = move || {
            let mut found = HashSet::new();
            for name in names {
                let (now, is_known) = (Instant::now(), rates.lock().knows(&name));
                let total = match is_known {
                    true => cgroups.cpu_time(&name),
                    false => cgroups
                        .read(&name, Detail::Summary)
                        .map(|read| read.spec.cpu.map(|_| read.usage.cpu.total)),
                };
                match total {
                    Ok(total) => {
                        if let Some(total) = total {
                            rates.lock().update(&name, now, total);
                        }
                        found.insert(name);
                    }
                    Err(error) if error.is_gone() => {}
                    Err(error) => {
                        tracing::warn!(%error, cgroup = %name, "read the CPU time of a cgroup");
                        found.insert(name);
                    }
                }
            }
            let exists = |name: &str| found.contains(name) || is_below(name, &left_out);
            rates.lock().retain(exists);
            Ok(())
        };
        config.disk.run(read).await.map_err(failed)
    }

    async fn all_file_systems(&self, detail: Detail) -> Arc<[FileSystem]> {
        match detail {
            Detail::All => self.inner.config.file_systems.all().await,
            Detail::Summary => Arc::default(),
        }
    }

    /// The names of all cgroups, and those that could not be listed.
    async fn names(&self) -> Result<(Vec<Arc<str>>, Vec<String>)> {
        let config = &self.inner.config;
        let (cgroups, roots) = (config.cgroups.clone(), config.cgroup_roots.clone());
        let list = move || {
            let mut names: Vec<Arc<str>> = vec!["/".into()];
            let mut left_out = Vec::new();
            for root in roots.iter().filter(|root| *root != "/") {
                match cgroups.list(root) {
                    Ok(listed) => {
                        names.extend(listed.names.into_iter().map(Arc::from));
                        left_out.extend(listed.left_out);
                    }
                    Err(error) if error.is_gone() => {}
                    Err(error) => {
                        tracing::warn!(%error, cgroup = %root, "list cgroups");
                        left_out.push(root.clone());
                    }
                }
            }
            names.sort_unstable();
            names.dedup();
            Ok((names, left_out))
        };
        config.disk.run(list).await.map_err(failed)
    }
}

/// The thread of a reading panicked.
fn failed(error: io::Error) -> Error {
    Error::read("/sys/fs/cgroup", error)
}

/// Snapshots that were read before.
struct Earlier {
    newest: Option<Arc<Snapshot>>,
    /// With all details.
    all: Option<Arc<Snapshot>>,
}

/// Reads cgroups, on a thread that may block.
struct Reader {
    detail: Detail,
    cgroups: Arc<dyn Cgroups>,
    processes: Arc<dyn Processes>,
    machine: Arc<Machine>,
    file_systems: Arc<[FileSystem]>,
    rates: Arc<Mutex<Rates>>,
    /// By the number of the namespace: containers on the host's network share one.
    networks: Mutex<HashMap<u64, NetworkUsage>>,
    clock: Clock,
}

/// All readings, and whether one is missing or old.
type AllReadings = (BTreeMap<Arc<str>, Arc<Reading>>, bool);

impl Reader {
    fn new(
        config: &CollectorConfig,
        detail: Detail,
        machine: Arc<Machine>,
        file_systems: Arc<[FileSystem]>,
        rates: &Arc<Mutex<Rates>>,
    ) -> Self {
        Self {
            detail,
            cgroups: config.cgroups.clone(),
            processes: config.processes.clone(),
            machine,
            file_systems,
            rates: rates.clone(),
            networks: Mutex::default(),
            clock: config.clock,
        }
    }

    /// Reads each cgroup. One that is gone is left out. One that cannot be read keeps its last reading for a while.
    fn read_all(
        &self,
        names: Vec<Arc<str>>,
        left_out: &[String],
        owners: &HashMap<Arc<str>, Owner>,
        earlier: &Earlier,
    ) -> Result<AllReadings> {
        let of = |snapshot: &Option<Arc<Snapshot>>, name: &str| snapshot.as_ref()?.cgroup(name).cloned();
        let kept = match self.detail {
            Detail::All => &earlier.all,
            Detail::Summary => &earlier.newest,
        };
        let nobody = Owner::default();
        let mut failed = HashSet::new();
        let mut readings = BTreeMap::new();
        let mut incomplete = !left_out.is_empty();
        let mut round = Round::default();
        for name in names {
            let before = earlier.all.as_ref().and_then(|all| all.cgroup(&name));
            let owner = owners.get(&name).unwrap_or(&nobody);
            match self.read(&mut round, &name, owner, before.map(AsRef::as_ref)) {
                Ok(reading)
                    if of(&earlier.newest, &name)
                        .is_some_and(|before| is_being_removed(&before.spec, &reading.spec)) => {}
                Ok(reading) => {
                    readings.insert(name, Arc::new(reading));
                }
                Err(error) if &*name == "/" => return Err(error),
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    tracing::warn!(%error, cgroup = %name, "read a cgroup");
                    incomplete = true;
                    failed.insert(name.clone());
                    let is_young =
                        |reading: &Arc<Reading>| is_young(reading.usage.timestamp, self.clock.now());
                    if let Some(reading) = of(kept, &name).filter(is_young) {
                        readings.insert(name, reading);
                    }
                }
            }
        }
        // What could not be read this time goes on next time.
        let exists =
            |name: &str| readings.contains_key(name) || failed.contains(name) || is_below(name, left_out);
        self.rates.lock().retain(exists);
        Ok((readings, incomplete))
    }

    /// `before`: what was read of it before, with all details.
    fn read(
        &self,
        round: &mut Round,
        name: &Arc<str>,
        owner: &Owner,
        before: Option<&Reading>,
    ) -> Result<Reading> {
        let is_root = &**name == "/";
        let (timestamp, now) = (self.clock.now(), Instant::now());
        // The processes of a cgroup are read otherwise if it is a container's.
        let is_container = owner.container.is_some();
        let before = before.filter(|before| before.container.is_some() == is_container);
        let wanted = Wanted {
            detail: self.detail,
            processes: is_container,
            before: before.filter(|_| self.detail == Detail::All),
        };
        let CgroupFiles {
            mut spec,
            usage: read,
            processes: pids,
            at_rest,
        } = self.cgroups.read_in(round, name, wanted)?;
        let is_sandbox = owner
            .container
            .as_ref()
            .is_some_and(|container| container.is_sandbox);
        let first = match &owner.container {
            _ if is_root => Some(ROOT_PROCESS),
            Some(_) => pids.first().copied(),
            None => None,
        };
        let before = before.filter(|before| at_rest && *before.counted == *pids);
        let (processes, is_whole) = match before {
            Some(before) => (before.usage.processes.clone(), true),
            None => self.processes(&pids, first),
        };
        let mut usage = Usage {
            timestamp,
            cpu: read.cpu,
            memory: read.memory,
            hugetlb: read.hugetlb,
            disk_io: read.disk_io,
            processes,
            oom_events: read.oom_events,
            ..Default::default()
        };
        usage.processes.threads = read.threads;
        usage.processes.threads_max = read.threads_max;
        self.name_devices(&mut usage.disk_io, is_root);
        spec.has_network = is_sandbox;
        if is_root {
            self.make_root(&mut spec);
            usage.file_systems = self.file_systems.to_vec();
        }
        if let Some(pid) = first.filter(|_| is_root || is_sandbox) {
            match self.network(pid) {
                Ok(network) => usage.network = network,
                Err(error) => tracing::debug!(%error, cgroup = %name, "read the network"),
            }
        }
        let cpu_rate = match spec.cpu {
            Some(_) => self.rates.lock().update(name, now, usage.cpu.total),
            None => None,
        };
        Ok(Reading {
            name: name.clone(),
            spec: Arc::new(spec),
            usage,
            cpu_rate,
            container: owner.container.clone(),
            counted: if is_whole { pids.into() } else { Box::default() },
            pod: owner.pod.clone(),
        })
    }

    /// The root cgroup has no limits but the machine's (`rawContainerHandler.GetSpec`).
    fn make_root(&self, spec: &mut Spec) {
        spec.has_network = !self.machine.network_devices.is_empty();
        spec.has_file_systems = true;
        let reservation = spec.memory.map_or(0, |memory| memory.reservation);
        spec.memory = Some(MemorySpec {
            limit: self.machine.memory_capacity,
            reservation,
            swap_limit: self.machine.swap_capacity,
        });
    }

    /// The network of a process. Of each namespace, it is read once.
    fn network(&self, pid: u32) -> Result<NetworkUsage> {
        let Some(namespace) = self.processes.network_namespace(pid) else {
            return self.processes.network(pid);
        };
        if let Some(known) = self.networks.lock().get(&namespace) {
            return Ok(known.clone());
        }
        let network = self.processes.network(pid)?;
        self.networks.lock().insert(namespace, network.clone());
        Ok(network)
    }

    /// Counts the open files of processes. One that has ended is left out. Also returns whether all were counted.
    fn processes(&self, pids: &[u32], first: Option<u32>) -> (ProcessUsage, bool) {
        let mut usage = ProcessUsage {
            processes: pids.len() as u64,
            ..Default::default()
        };
        if self.detail == Detail::Summary {
            return (usage, false);
        }
        let mut is_whole = true;
        for pid in pids {
            match self.processes.open_files(*pid) {
                Ok((files, sockets)) => {
                    usage.file_descriptors += files;
                    usage.sockets += sockets;
                }
                Err(_) => is_whole = false,
            }
        }
        match first.map(|pid| self.processes.ulimits(pid)) {
            Some(Ok(limits)) => usage.ulimits = limits,
            Some(Err(_)) => is_whole = false,
            None => {}
        }
        (usage, is_whole)
    }

    /// In the root cgroup, the names of file systems come first. Elsewhere those of disks do
    /// (`AssignDeviceNamesToDiskStats`).
    fn name_devices(&self, io: &mut DiskIo, is_root: bool) {
        let name = |major, minor| {
            let of = |fs: &&FileSystem| (fs.major, fs.minor) == (major, minor);
            let file_system = || self.file_systems.iter().find(of).map(|fs| fs.device.clone());
            let disk = || {
                let mut disks = self.machine.disks.iter();
                let disk = disks.find(|disk| (disk.major, disk.minor) == (major, minor))?;
                Some(format!("/dev/{}", disk.name))
            };
            match is_root {
                true => file_system().or_else(disk),
                false => disk().or_else(file_system),
            }
        };
        let all = [
            &mut io.io_service_bytes,
            &mut io.io_serviced,
            &mut io.io_queued,
            &mut io.sectors,
            &mut io.io_service_time,
            &mut io.io_wait_time,
            &mut io.io_merged,
            &mut io.io_time,
        ];
        for device in all.into_iter().flatten() {
            device.device = name(device.major, device.minor).unwrap_or_default();
        }
    }
}

/// A part that was there is missing: a runtime removes the folders of a cgroup v1 one after the other.
fn is_being_removed(before: &Spec, now: &Spec) -> bool {
    (before.memory.is_some() && now.memory.is_none())
        || (before.cpu.is_some() && now.cpu.is_none())
        || (before.threads_max.is_some() && now.threads_max.is_none())
}

/// It is one of these cgroups, or below one.
fn is_below(name: &str, cgroups: &[String]) -> bool {
    cgroups.iter().any(|above| {
        name.strip_prefix(above.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn is_young(read: Timestamp, now: Timestamp) -> bool {
    // After the clock was set back, a reading counts as young.
    Duration::try_from(now.duration_since(read)).unwrap_or_default() < KEEP
}

/// The age of readings that metrics and the summary accept (`maxHousekeepingInterval`).
pub const DEFAULT_AGE: Duration = Duration::from_secs(15);
