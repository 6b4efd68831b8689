//! Keeps processes of the host in their cgroups (`pkg/kubelet/cm/container_manager_linux.go`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet_core::Disk;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Cgroup;
use super::cgroup::{failed, read};
use crate::{Error, Result};

/// How often processes are moved (`Start`).
const PERIOD: Duration = Duration::from_secs(60);
/// How often the root cgroup is read again, because a process may fork while it is moved (`ensureSystemCgroups`).
const ROUNDS: usize = 11;

/// Keeps the process of the agent in the cgroup of `kubeletCgroups`, and the processes of the root cgroup in that of
/// `systemCgroups`. The kernel's threads and process 1 stay in the root cgroup.
///
/// A process with a process namespace of its own is in a container, and is not moved.
#[derive(Clone, Debug)]
pub struct ProcessCgroups {
    proc: PathBuf,
    /// The process of the agent, its cgroup and its OOM score.
    agent: Option<(u32, Cgroup, i32)>,
    system: Option<Cgroup>,
}

impl ProcessCgroups {
    /// Moves nothing yet. `host` is the root folder of the host.
    pub fn new(host: &Path) -> Self {
        Self {
            proc: host.join("proc"),
            agent: None,
            system: None,
        }
    }

    /// The cgroup of this process (`kubeletCgroups`), and its OOM score (`oomScoreAdj`).
    #[must_use]
    pub fn agent(mut self, cgroup: Cgroup, oom_score_adj: i32) -> Self {
        self.agent = Some((std::process::id(), cgroup, oom_score_adj));
        self
    }

    /// The cgroup of the processes of the system (`systemCgroups`).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is the root cgroup.
    pub fn system(mut self, cgroup: Cgroup) -> Result<Self> {
        if cgroup.name() == "/" {
            return Err(Error::Invalid {
                what: "systemCgroups".to_owned(),
                why: "system container cannot be root (\"/\")".to_owned(),
            });
        }
        self.system = Some(cgroup);
        Ok(self)
    }

    /// Moves the processes at once and then each minute, until `shutdown`. What fails is logged, and tried again. Files are read
    /// and written as `disk` says.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; a round that has begun is completed.
    pub async fn run(self, disk: Disk, shutdown: CancellationToken) {
        if self.agent.is_none() && self.system.is_none() {
            return;
        }
        let mut rounds = interval(PERIOD);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                _ = rounds.tick() => {}
            }
            let this = self.clone();
            match disk.run(move || Ok(this.move_all())).await {
                Ok(errors) => {
                    for error in errors {
                        tracing::warn!(%error, "Failed to ensure state");
                    }
                }
                Err(error) => tracing::warn!(%error, "Failed to ensure state"),
            }
        }
    }

    /// Moves all processes that are not where they should be; returns what failed.
    fn move_all(&self) -> Vec<Error> {
        let system = self.system.as_ref().map(|cgroup| self.move_system(cgroup));
        let agent = self
            .agent
            .as_ref()
            .map(|(pid, cgroup, score)| self.keep(*pid, cgroup, *score));
        [system, agent]
            .into_iter()
            .flatten()
            .filter_map(Result::err)
            .collect()
    }

    /// `ensureProcessInContainerWithOOMScore`
    fn keep(&self, pid: u32, cgroup: &Cgroup, oom_score: i32) -> Result<()> {
        let namespace = |pid: &str| {
            let link = self.proc.join(pid).join("ns/pid");
            fs::read_link(&link).map_err(|source| failed("read", &link, source))
        };
        if namespace("1")? != namespace(&pid.to_string())? {
            tracing::info!(pid, "PID is not running in the host namespace");
            return Ok(());
        }
        if self.cgroup_of(pid)? != cgroup.name() {
            tracing::info!(pid, cgroup = cgroup.name(), "moving the agent to its cgroup");
            cgroup.add(pid)?;
        }
        let file = self.proc.join(pid.to_string()).join("oom_score_adj");
        let score = oom_score.to_string();
        if read(&file)?.trim() == score {
            return Ok(());
        }
        match fs::write(&file, score) {
            // The agent may move itself, but not lower its score.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::debug!(%error, oom_score, "cannot set the OOM score of the agent");
                Ok(())
            }
            written => written.map_err(|source| failed("write", &file, source)),
        }
    }

    /// The cgroup of a process, for accounting (`getContainer`). On cgroup v1 it is the one of systemd, if there is systemd.
    fn cgroup_of(&self, pid: u32) -> Result<String> {
        let file = self.proc.join(pid.to_string()).join("cgroup");
        let cgroups = by_controller(&read(&file)?);
        let of = |controller: &str| cgroups.get(controller).cloned();
        let Some(cpu) = of("cpu") else {
            return Ok(of("").unwrap_or_default());
        };
        let memory = of("memory").unwrap_or_default();
        if cpu != memory {
            // It is in no cgroup of ours.
            tracing::debug!(pid, cpu, memory, "cpu and memory cgroup hierarchy not unified");
            return Ok(String::new());
        }
        Ok(of("name=systemd").unwrap_or(cpu))
    }

    /// `ensureSystemCgroups`
    fn move_system(&self, cgroup: &Cgroup) -> Result<()> {
        let mut outcome = Ok(());
        for _ in 0..ROUNDS {
            let all = cgroup.processes_of_root()?;
            let pids: Vec<u32> = all.into_iter().filter(|pid| self.is_movable(*pid)).collect();
            if pids.is_empty() {
                return Ok(());
            }
            tracing::info!(?pids, cgroup = cgroup.name(), "Moving non-kernel processes");
            for pid in pids {
                if let Err(error) = cgroup.add(pid) {
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    /// Neither process 1, nor a thread of the kernel, which has no program (`isKernelPid`), nor the agent with a cgroup of its
    /// own.
    fn is_movable(&self, pid: u32) -> bool {
        let agent = self.agent.as_ref().map(|(agent, ..)| *agent);
        let program = fs::read_link(self.proc.join(pid.to_string()).join("exe"));
        let is_kernel = program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        pid != 1 && agent != Some(pid) && !is_kernel
    }
}

/// The names of the hierarchies of cgroup v1 below `/sys/fs/cgroup`.
pub(super) fn own_hierarchies(host: &Path) -> Result<Vec<String>> {
    let text = read(&host.join("proc/self/cgroup"))?;
    let names = text.lines().filter_map(|line| line.split(':').nth(1));
    let names = names.filter(|name| !name.is_empty());
    let folders = names.map(|name| name.trim_start_matches("name=").to_owned());
    Ok(folders
        .filter(|folder| host.join("sys/fs/cgroup").join(folder).is_dir())
        .collect())
}

/// The cgroup of each controller in `/proc/PID/cgroup`; that of cgroup v2 has an empty name.
fn by_controller(text: &str) -> BTreeMap<String, String> {
    let mut cgroups = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(cgroup)) = (fields.next(), fields.next()) else {
            continue;
        };
        for controller in controllers.split(',') {
            cgroups.insert(controller.to_owned(), cgroup.to_owned());
        }
    }
    cgroups
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const AGENT: u32 = 70;

    /// A host with the folders of cgroups, and processes with their cgroup.
    struct Host(tempfile::TempDir);

    impl Host {
        fn v1() -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            for hierarchy in ["cpu,cpuacct", "cpuset", "devices", "memory", "systemd"] {
                host.write(&format!("sys/fs/cgroup/{hierarchy}/cgroup.procs"), "");
            }
            host.write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-3\n");
            host.write("sys/fs/cgroup/cpuset/cpuset.mems", "0\n");
            // The kernel makes the files of a cgroup; here it has no kernel.
            for name in ["kubelet", "slice/system"] {
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    for folder in Path::new(name)
                        .ancestors()
                        .filter(|it| !it.as_os_str().is_empty())
                    {
                        host.write(&format!("sys/fs/cgroup/cpuset/{}/{file}", folder.display()), "\n");
                    }
                }
            }
            host.write(
                "proc/self/cgroup",
                "9:name=systemd:/\n5:devices:/\n4:memory:/\n3:cpuset:/\n1:cpu,cpuacct:/\n6:pids:/\n0::/\n",
            );
            host
        }

        fn v2() -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            host.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
            host.write("sys/fs/cgroup/cgroup.procs", "");
            host.write("proc/self/cgroup", "0::/\n");
            host
        }

        fn process(&self, pid: u32, cgroup: &str, namespace: &str) {
            self.write(&format!("proc/{pid}/cgroup"), cgroup);
            self.write(&format!("proc/{pid}/oom_score_adj"), "0\n");
            fs::create_dir_all(self.0.path().join(format!("proc/{pid}/ns"))).unwrap();
            symlink(namespace, self.0.path().join(format!("proc/{pid}/ns/pid"))).unwrap();
        }

        /// A process that is not a thread of the kernel.
        fn program(&self, pid: u32) {
            self.process(pid, "0::/\n", "pid:[1]");
            symlink("/bin/daemon", self.0.path().join(format!("proc/{pid}/exe"))).unwrap();
        }

        fn write(&self, file: &str, text: &str) {
            let file = self.0.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }

        fn read(&self, file: &str) -> String {
            fs::read_to_string(self.0.path().join(file)).unwrap_or_default()
        }

        fn cgroup(&self, name: &str) -> Cgroup {
            Cgroup::new(self.0.path(), name).unwrap()
        }

        fn agent(&self, name: &str) -> ProcessCgroups {
            let mut processes = ProcessCgroups::new(self.0.path()).agent(self.cgroup(name), -999);
            processes.agent.as_mut().unwrap().0 = AGENT;
            processes
        }
    }

    #[test]
    fn the_agent_is_moved_in_each_hierarchy_and_gets_its_score() {
        let host = Host::v1();
        host.process(1, "", "pid:[1]");
        host.process(AGENT, "4:memory:/user\n1:cpu,cpuacct:/user\n", "pid:[1]");
        assert!(host.agent("/kubelet").move_all().is_empty());
        for hierarchy in ["cpu,cpuacct", "cpuset", "devices", "memory", "systemd"] {
            let file = format!("sys/fs/cgroup/{hierarchy}/kubelet/cgroup.procs");
            assert_eq!(host.read(&file), "70", "{hierarchy}");
        }
        assert_eq!(host.read("sys/fs/cgroup/cpuset/kubelet/cpuset.cpus"), "0-3");
        assert_eq!(host.read("sys/fs/cgroup/cpuset/kubelet/cpuset.mems"), "0");
        assert_eq!(host.read("proc/70/oom_score_adj"), "-999");
    }

    #[test]
    fn an_agent_that_is_in_its_cgroup_stays_as_it_is() {
        let host = Host::v2();
        host.process(1, "", "pid:[1]");
        host.process(AGENT, "0::/kubelet\n", "pid:[1]");
        assert!(host.agent("kubelet").move_all().is_empty());
        assert!(!host.0.path().join("sys/fs/cgroup/kubelet").exists());
    }

    #[test]
    fn an_agent_in_a_container_is_not_moved() {
        let host = Host::v2();
        host.process(1, "", "pid:[1]");
        host.process(AGENT, "0::/\n", "pid:[2]");
        assert!(host.agent("/kubelet").move_all().is_empty());
        assert!(!host.0.path().join("sys/fs/cgroup/kubelet").exists());
        assert_eq!(host.read("proc/70/oom_score_adj"), "0\n");
    }

    #[test]
    fn controllers_are_turned_on_above_a_cgroup_of_v2() {
        let host = Host::v2();
        host.process(1, "", "pid:[1]");
        host.process(AGENT, "0::/\n", "pid:[1]");
        host.write("sys/fs/cgroup/a/cgroup.controllers", "memory");
        assert!(host.agent("/a/kubelet").move_all().is_empty());
        assert_eq!(host.read("sys/fs/cgroup/a/kubelet/cgroup.procs"), "70");
        // Each controller is written by itself; a folder of files keeps the last one.
        assert_eq!(host.read("sys/fs/cgroup/cgroup.subtree_control"), "+memory");
        assert_eq!(host.read("sys/fs/cgroup/a/cgroup.subtree_control"), "+memory");
        assert!(
            !host
                .0
                .path()
                .join("sys/fs/cgroup/a/kubelet/cgroup.subtree_control")
                .exists()
        );
    }

    #[test]
    fn processes_of_the_system_are_moved_but_not_the_kernels_nor_the_first() {
        let host = Host::v1();
        host.program(1);
        host.program(20);
        host.program(AGENT);
        host.process(3, "", "pid:[1]");
        host.write("sys/fs/cgroup/devices/cgroup.procs", "1\n3\n20\n70\n");
        let system = host.cgroup("slice/system");
        assert_eq!(system.name(), "/slice/system");
        let processes = host.agent("/kubelet").system(system.clone()).unwrap();
        processes.move_system(&system).unwrap();
        for hierarchy in ["memory", "devices"] {
            let file = format!("sys/fs/cgroup/{hierarchy}/slice/system/cgroup.procs");
            assert_eq!(host.read(&file), "20");
        }
        assert_eq!(host.read("sys/fs/cgroup/cpuset/slice/system/cpuset.cpus"), "0-3");
    }

    #[test]
    fn what_cannot_be_moved_is_reported() {
        let host = Host::v2();
        host.program(20);
        host.write("sys/fs/cgroup/cgroup.procs", "20\n");
        host.write("sys/fs/cgroup/system", "a file in the way");
        let system = host.cgroup("/system");
        let processes = ProcessCgroups::new(host.0.path()).system(system).unwrap();
        let errors = processes.move_all();
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].to_string().contains("sys/fs/cgroup/system"),
            "{errors:?}"
        );
    }

    #[test]
    fn the_root_is_no_cgroup_of_the_system_and_names_stay_in_the_tree() {
        let host = Host::v2();
        let refused = ProcessCgroups::new(host.0.path()).system(host.cgroup("/"));
        assert_eq!(
            refused.unwrap_err().to_string(),
            "systemCgroups: system container cannot be root (\"/\")"
        );
        assert!(Cgroup::new(host.0.path(), "/a/../b").is_err());
    }

    #[test]
    fn the_cgroup_of_a_process_is_that_of_systemd_or_of_cpu_and_memory() {
        let host = Host::v1();
        let processes = ProcessCgroups::new(host.0.path());
        for (text, expected) in [
            ("4:memory:/a\n1:cpu,cpuacct:/a\n", "/a"),
            ("4:memory:/a\n1:cpu:/b\n", ""),
            ("9:name=systemd:/s.slice\n4:memory:/\n1:cpu:/\n", "/s.slice"),
            ("9:name=systemd:/\n4:memory:/a\n1:cpu:/a\n", "/"),
            ("0::/x/y:z\n", "/x/y:z"),
        ] {
            host.write("proc/9/cgroup", text);
            assert_eq!(processes.cgroup_of(9).unwrap(), expected, "{text}");
        }
    }
}
