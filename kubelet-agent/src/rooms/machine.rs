//! The machine of the agent: read once at the start, for the node's status and for the stats.

use std::path::Path;
use std::time::Duration;

use kubelet_core::Clock;
use kubelet_node::MachineInfo;
use kubelet_stats::{Machine, reading::SystemVersion, source::MachineSource};
use parking_lot::Mutex;

/// For how long the stats use the machine as the node has read it (cAdvisor's `update_machine_info_interval`).
const AGE: Duration = Duration::from_secs(5 * 60);

/// The machine that the agent runs on.
pub(crate) struct HostMachine {
    source: kubelet_stats::source::HostMachine,
    clock: Clock,
    /// As the node has read it. The first reading of the stats takes it.
    at_start: Mutex<Option<Machine>>,
}

impl HostMachine {
    pub(crate) fn new(clock: Clock) -> Self {
        Self::below("/", clock)
    }

    /// The machine whose files are below `root`.
    fn below(root: impl Into<std::path::PathBuf>, clock: Clock) -> Self {
        Self {
            source: kubelet_stats::source::HostMachine::new(root, clock),
            clock,
            at_start: Mutex::default(),
        }
    }

    /// The machine for the node's status. What the stats do not read comes from `kubelet-node`, and all of it if the stats
    /// cannot read the machine.
    pub(crate) fn of_node(&self, root_dir: &Path) -> kubelet_node::Result<MachineInfo> {
        match self.source.machine() {
            Ok(machine) if machine.cores > 0 => {
                let info = info(&machine).with_facts_of_host(root_dir);
                *self.at_start.lock() = Some(machine);
                return Ok(info);
            }
            Ok(_) => tracing::debug!("the stats find no CPUs"),
            Err(error) => tracing::debug!(%error, "the stats cannot read the machine"),
        }
        MachineInfo::read(root_dir)
    }
}

/// What the node reports of a machine (`nodestatus.MachineInfo`).
fn info(machine: &Machine) -> MachineInfo {
    let cpus = u32::try_from(machine.cores).unwrap_or(u32::MAX);
    let mut info = MachineInfo::new(cpus, machine.memory_capacity);
    info.swap = machine.swap_capacity;
    let pages = machine.huge_pages.iter().map(|pages| kubelet_node::HugePages {
        page_size: pages.page_size.saturating_mul(1024),
        pages: pages.pages,
    });
    info.huge_pages = pages.collect();
    info.machine_id.clone_from(&machine.machine_id);
    info.system_uuid.clone_from(&machine.system_uuid);
    info.boot_id.clone_from(&machine.boot_id);
    info
}

impl MachineSource for HostMachine {
    fn machine(&self) -> kubelet_stats::Result<Machine> {
        let is_young = |machine: &Machine| {
            let age = Duration::try_from(self.clock.now().duration_since(machine.timestamp));
            age.is_ok_and(|age| age < AGE)
        };
        match self.at_start.lock().take().filter(is_young) {
            Some(machine) => Ok(machine),
            None => self.source.machine(),
        }
    }

    fn version(&self) -> SystemVersion {
        self.source.version()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = host.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        host
    }

    #[tokio::test(start_paused = true)]
    async fn node_and_stats_share_the_reading_of_the_start() {
        let host = host(&[
            ("proc/cpuinfo", "processor\t: 0\nprocessor\t: 1\nprocessor\t: 2\n"),
            ("proc/meminfo", "MemTotal: 1000 kB\nSwapTotal: 0 kB\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
            ("etc/machine-id", "3d12\n"),
            ("sys/class/dmi/id/product_uuid", "4e5f\n"),
            ("proc/sys/kernel/random/boot_id", "3607\n"),
        ]);
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let machine = HostMachine::below(host.path(), clock);
        let of_node = machine.of_node(host.path()).unwrap();
        assert_eq!((of_node.cpus, of_node.memory, of_node.swap), (3, 1_024_000, 0));
        let ids = [&*of_node.machine_id, &of_node.system_uuid, &of_node.boot_id];
        assert_eq!(ids, ["3d12", "4e5f", "3607"]);
        let pages = (of_node.huge_pages[0].page_size, of_node.huge_pages[0].pages);
        assert_eq!(pages, (2 << 20, 3));
        assert!(of_node.max_pids.is_some() && of_node.ephemeral_storage.is_some());

        // A second reading shows what has changed meanwhile.
        let meminfo = host.path().join("proc/meminfo");
        std::fs::write(&meminfo, "MemTotal: 2000 kB\nSwapTotal: 0 kB\n").unwrap();
        let read = || machine.machine().unwrap().memory_capacity;
        assert_eq!((read(), read()), (1_024_000, 2_048_000));

        // After five minutes the stats read it themselves.
        machine.of_node(host.path()).unwrap();
        std::fs::write(&meminfo, "MemTotal: 3000 kB\nSwapTotal: 0 kB\n").unwrap();
        tokio::time::advance(AGE).await;
        assert_eq!(read(), 3_072_000);
    }

    #[test]
    fn a_machine_that_the_stats_cannot_read_is_read_by_the_node() {
        let empty = host(&[]);
        let machine = HostMachine::below(empty.path(), Clock::system());
        let of_node = machine.of_node(empty.path()).unwrap();
        assert!(of_node.cpus > 0 && of_node.memory > 0);
    }

    #[test]
    fn both_read_the_same_of_this_host() {
        let folder = tempfile::tempdir().unwrap();
        let machine = HostMachine::new(Clock::system());
        let (shared, alone) = (machine.of_node(folder.path()), MachineInfo::read(folder.path()));
        assert_eq!(shared.unwrap(), alone.unwrap());
    }
}
