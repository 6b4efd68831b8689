//! Cgroups by name, with either driver (`CgroupManager`).

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kubelet_core::cgroups::{CgroupDriver, CgroupLimits, CgroupName};
use kubelet_core::{Disk, QosClass};
use tokio::time::{Instant, sleep};

use super::limits::least_cpu;
use super::mounts::Version;
#[cfg(feature = "systemd")]
use super::systemd::Systemd;
use super::tree::Tree;

/// How long the killed processes of a cgroup may take to end, and how often to check.
const PROCESSES_GO: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(10));

/// The QoS classes, each with a cgroup of pods.
pub(super) const CLASSES: [QosClass; 3] = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];

#[derive(Debug)]
pub(super) struct Cgroups {
    pub(super) driver: CgroupDriver,
    pub(super) tree: Tree,
    pub(super) disk: Disk,
    /// With the driver systemd.
    #[cfg(feature = "systemd")]
    pub(super) systemd: Option<Systemd>,
}

impl Cgroups {
    pub(super) fn version(&self) -> Version {
        self.tree.version()
    }

    /// From a hierarchy's own root, without a leading slash.
    fn path(&self, name: &CgroupName) -> PathBuf {
        PathBuf::from(self.driver.path(name).trim_start_matches('/'))
    }

    /// Does file work on the configured disk.
    async fn on_tree<T: Send + 'static>(
        &self,
        name: &CgroupName,
        work: impl FnOnce(&Tree, PathBuf) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (tree, path) = (self.tree.clone(), self.path(name));
        self.disk.run(move || work(&tree, path)).await
    }

    /// Checks that it exists in all hierarchies (`Validate`). Not on the disk: the kernel answers from memory, and each sync calls
    /// this twice.
    pub(super) fn validate(&self, name: &CgroupName) -> Result<(), String> {
        self.tree.validate(&self.path(name), name)
    }

    pub(super) fn exists(&self, name: &CgroupName) -> bool {
        self.validate(name).is_ok()
    }

    /// Creates it, with its parents, and sets its limits (`Create`). A limit that the kernel refuses is logged: the pod still
    /// runs.
    pub(super) async fn create(&self, name: &CgroupName, limits: CgroupLimits) -> io::Result<()> {
        let started = Instant::now();
        let created = async {
            #[cfg(feature = "systemd")]
            if let Some(systemd) = &self.systemd {
                systemd.start_slice(name, self.version()).await?;
            }
            self.on_tree(name, |tree, path| tree.create(&path)).await?;
            if let Err(error) = self.set(name, limits).await {
                tracing::error!(cgroup = %name, %error, "cannot set some limits of a cgroup");
            }
            Ok(())
        };
        let created = created.await;
        observe("create", started);
        created
    }

    /// Sets its limits (`Update`). The error has all that could not be set.
    pub(super) async fn update(&self, name: &CgroupName, limits: CgroupLimits) -> io::Result<()> {
        let started = Instant::now();
        let set = self.set(name, limits).await;
        observe("update", started);
        set
    }

    #[cfg_attr(
        not(feature = "systemd"),
        expect(unused_mut, reason = "systemd rounds quotas")
    )]
    async fn set(&self, name: &CgroupName, mut limits: CgroupLimits) -> io::Result<()> {
        #[cfg(feature = "systemd")]
        if let Some(systemd) = &self.systemd {
            systemd.set_limits(name, &mut limits, self.version()).await?;
        }
        self.on_tree(name, move |tree, path| tree.set(&path, &limits))
            .await
    }

    /// The least CPU (`ReduceCPULimits`).
    pub(super) async fn reduce_cpu(&self, name: &CgroupName) -> io::Result<()> {
        self.update(name, least_cpu()).await
    }

    /// Kills its processes, and removes it with all below it (`Destroy`).
    pub(super) async fn destroy(&self, name: &CgroupName) -> io::Result<()> {
        let started = Instant::now();
        self.on_tree(name, |tree, path| tree.kill(&path)).await?;
        #[cfg(feature = "systemd")]
        if let Some(systemd) = &self.systemd {
            systemd.stop_slice(name).await?;
        }
        loop {
            let removed = self.on_tree(name, |tree, path| {
                tree.kill(&path)?;
                tree.remove(&path)
            });
            match removed.await {
                Ok(()) => break,
                // Killed processes need time to end.
                Err(_) if started.elapsed() < PROCESSES_GO.0 => sleep(PROCESSES_GO.1).await,
                Err(error) => return Err(error),
            }
        }
        observe("destroy", started);
        Ok(())
    }

    /// Its CPU and memory limits (`GetCgroupConfig`).
    pub(super) async fn limits(&self, name: &CgroupName) -> io::Result<CgroupLimits> {
        self.on_tree(name, |tree, path| tree.written(&path)).await
    }

    /// Its memory usage in bytes, if the kernel reports it (`MemoryUsage`).
    pub(super) async fn memory_usage(&self, name: &CgroupName) -> Option<u64> {
        let usage = self.on_tree(name, |tree, path| Ok(tree.memory_usage(&path)));
        usage.await.ok().flatten()
    }

    /// The names of all cgroups of pods, in at least one hierarchy. A pod has more than one if its QoS class changed.
    pub(super) async fn of_pods(&self) -> io::Result<Vec<CgroupName>> {
        let mut found = Vec::new();
        for class in CLASSES.into_iter().filter_map(|class| self.driver.class(class)) {
            for folder in self.on_tree(&class, |tree, path| tree.below(&path)).await? {
                let name = self
                    .driver
                    .parse(&format!("{}/{folder}", self.driver.path(&class)));
                // A slice of systemd could be of another parent.
                if self.driver.pod_uid(&name).is_some() && name.parent() == class {
                    found.push(name);
                }
            }
        }
        Ok(found)
    }

    /// The names of the pod's cgroups.
    pub(super) async fn of_pod(&self, uid: &str) -> io::Result<Vec<CgroupName>> {
        let mut found = Vec::new();
        for class in CLASSES.into_iter().filter_map(|class| self.driver.class(class)) {
            let name = self.driver.below(class, uid);
            if self
                .on_tree(&name, |tree, path| Ok(tree.is_somewhere(&path)))
                .await?
            {
                found.push(name);
            }
        }
        Ok(found)
    }
}

fn observe(operation: &'static str, started: Instant) {
    metrics::histogram!("kubelet_cgroup_manager_duration_seconds", "operation_type" => operation)
        .record(started.elapsed());
}
