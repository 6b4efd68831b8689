//! One round: list the cgroups, find their owners, read each.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubelet_core::Clock;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::containers::Owner;
use super::rates::Rates;
use super::{Collector, CollectorConfig};
use crate::reading::{DiskIo, FileSystem, Machine, MemorySpec, ProcessUsage, Reading, Snapshot, Spec, Usage};
use crate::source::{Cgroups, Processes};
use crate::{Error, Result};

/// A reading that could not be renewed is shown for this long (`statsCacheDuration`).
const KEEP: SignedDuration = SignedDuration::from_secs(120);
/// The process whose network and limits the root cgroup shows.
const ROOT_PROCESS: u32 = 1;

/// What is kept from one round to the next.
#[derive(Default)]
pub(super) struct Round {
    previous: Arc<BTreeMap<Arc<str>, Arc<Reading>>>,
}

impl Collector {
    /// Reads everything.
    pub(super) async fn collect(&self, round: &mut Round) -> Result<Snapshot> {
        let config = &self.inner.config;
        let timestamp = config.clock.now();
        let (machine, version) = self.machine().await?;
        let file_systems = config.file_systems.all().await;
        let (names, left_out) = self.names().await?;
        let owners = self.inner.containers.owners(&names, config).await;
        let reader = Reader::new(config, machine.clone(), file_systems, &self.inner.rates);
        let previous = round.previous.clone();
        let read = move || Ok(reader.read_all(names, &left_out, &owners, &previous));
        let (cgroups, incomplete) = config.disk.run(read).await.map_err(failed)??;
        round.previous = Arc::new(cgroups.clone());
        Ok(Snapshot {
            timestamp,
            machine,
            version,
            cgroups,
            incomplete,
        })
    }

    /// Reads one cgroup.
    pub(super) async fn collect_one(&self, name: &str) -> Result<Arc<Reading>> {
        let config = &self.inner.config;
        let (machine, _) = self.machine().await?;
        let file_systems = match name {
            "/" => config.file_systems.all().await,
            _ => Arc::default(),
        };
        let name: Arc<str> = name.into();
        let mut owners = self
            .inner
            .containers
            .owners(std::slice::from_ref(&name), config)
            .await;
        let owner = owners.remove(&name).unwrap_or_default();
        let reader = Reader::new(config, machine, file_systems, &self.inner.rates);
        let read = move || Ok(reader.read(&name, &owner));
        let reading = config.disk.run(read).await.map_err(failed)??;
        Ok(Arc::new(reading))
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

/// Reads cgroups, on a thread that may block.
struct Reader {
    cgroups: Arc<dyn Cgroups>,
    processes: Arc<dyn Processes>,
    machine: Arc<Machine>,
    file_systems: Arc<[FileSystem]>,
    rates: Arc<Mutex<Rates>>,
    clock: Clock,
}

/// All readings, and whether one is missing or old.
type AllReadings = (BTreeMap<Arc<str>, Arc<Reading>>, bool);

impl Reader {
    fn new(
        config: &CollectorConfig,
        machine: Arc<Machine>,
        file_systems: Arc<[FileSystem]>,
        rates: &Arc<Mutex<Rates>>,
    ) -> Self {
        Self {
            cgroups: config.cgroups.clone(),
            processes: config.processes.clone(),
            machine,
            file_systems,
            rates: rates.clone(),
            clock: config.clock,
        }
    }

    /// Reads each cgroup. One that is gone is left out. One that cannot be read keeps its last reading for a while.
    fn read_all(
        &self,
        names: Vec<Arc<str>>,
        left_out: &[String],
        owners: &HashMap<Arc<str>, Owner>,
        previous: &BTreeMap<Arc<str>, Arc<Reading>>,
    ) -> Result<AllReadings> {
        let nobody = Owner::default();
        let mut failed = HashSet::new();
        let mut readings = BTreeMap::new();
        let mut incomplete = !left_out.is_empty();
        for name in names {
            let before = previous.get(&name);
            match self.read(&name, owners.get(&name).unwrap_or(&nobody)) {
                Ok(reading) if before.is_some_and(|before| is_being_removed(&before.spec, &reading.spec)) => {
                }
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
                        |reading: &&Arc<Reading>| is_young(reading.usage.timestamp, self.clock.now());
                    if let Some(reading) = before.filter(is_young) {
                        readings.insert(name, reading.clone());
                    }
                }
            }
        }
        // What could not be read this time goes on next time.
        let is_left_out = |name: &str| {
            left_out.iter().any(|above| {
                name.strip_prefix(above.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let exists = |name: &str| readings.contains_key(name) || failed.contains(name) || is_left_out(name);
        self.rates.lock().retain(exists);
        Ok((readings, incomplete))
    }

    fn read(&self, name: &Arc<str>, owner: &Owner) -> Result<Reading> {
        let is_root = &**name == "/";
        let mut spec = self.cgroups.spec(name)?;
        let (timestamp, now) = (self.clock.now(), Instant::now());
        let read = self.cgroups.usage(name, &spec)?;
        let pids = self.cgroups.processes(name)?;
        let is_sandbox = owner
            .container
            .as_ref()
            .is_some_and(|container| container.is_sandbox);
        let first = match &owner.container {
            _ if is_root => Some(ROOT_PROCESS),
            Some(_) => pids.first().copied(),
            None => None,
        };
        let mut usage = Usage {
            timestamp,
            cpu: read.cpu,
            memory: read.memory,
            hugetlb: read.hugetlb,
            disk_io: read.disk_io,
            processes: self.processes(&pids, first),
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
            match self.processes.network(pid) {
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

    /// Counts the open files of processes. One that has ended is left out.
    fn processes(&self, pids: &[u32], first: Option<u32>) -> ProcessUsage {
        let mut usage = ProcessUsage {
            processes: pids.len() as u64,
            ..Default::default()
        };
        for pid in pids {
            if let Ok((files, sockets)) = self.processes.open_files(*pid) {
                usage.file_descriptors += files;
                usage.sockets += sockets;
            }
        }
        if let Some(pid) = first {
            usage.ulimits = self.processes.ulimits(pid).unwrap_or_default();
        }
        usage
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

fn is_young(read: Timestamp, now: Timestamp) -> bool {
    now.duration_since(read) < KEEP
}

/// The age of readings that metrics and the summary accept (`maxHousekeepingInterval`).
pub const DEFAULT_AGE: Duration = Duration::from_secs(15);
