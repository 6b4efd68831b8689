//! The cgroups of pods and of QoS classes (`pkg/kubelet/cm`).

mod all_pods;
mod limits;
mod mounts;
mod tree;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::ContainerResources;
use kubelet_core::{Disk, Error, PodContainerManager, PodExt, PodUid, QosClass, Result, qos_class};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

pub(super) use self::limits::{Limits, UNLIMITED};
pub use self::mounts::CgroupMounts;
use self::tree::Tree;
use crate::config::{
    CgroupDriver, ConfigError, NodeSettings, SHARES, milli_cpu_to_shares, pod_cgroup_parent, pod_totals,
};
use crate::read::to_resources;
use kubelet_cri::v1;

/// How long the killed processes of a cgroup may take to end, and how often to check.
const PROCESSES_GO: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(10));

/// Creates and removes the cgroups of pods through the file system, with cgroup v1 and v2, and sets their limits: the
/// pod's CPU shares, quota, memory, huge pages and processes, and the CPU shares of all burstable pods together. These
/// are the kubelet's `podContainerManagerImpl` and `qosContainerManagerImpl`.
///
/// It works with the driver cgroupfs. If `cgroupsPerQOS` is off, or with the driver systemd, it does nothing, and each
/// pod's cgroup counts as existing. Only systemd may change its slices. The runtime creates them there without limits,
/// and they stay until systemd removes them.
///
/// ```no_run
/// # async fn make(runtime: kubelet_kuberuntime::CriRuntime) -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use kubelet_core::Kubelet;
/// use kubelet_kuberuntime::PodCgroups;
///
/// let cgroups = Arc::new(PodCgroups::of_this_host(runtime.node_settings()).await?);
/// let runtime = runtime.with_pod_cgroups(cgroups.clone());
/// let kubelet = Kubelet::builder().pod_containers(cgroups).runtime(Arc::new(runtime));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PodCgroups {
    node: NodeSettings,
    tree: Option<Tree>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The CPU request of each burstable pod, in millicores.
    pods: HashMap<PodUid, i64>,
    /// The shares of all burstable pods that were written last.
    burstable: Option<i64>,
}

impl PodCgroups {
    /// Opens the cgroups of this host: [`open`](Self::open) with the host's [mounts](CgroupMounts::of_this_host), which
    /// are read only with the driver cgroupfs.
    ///
    /// # Errors
    ///
    /// Those of `open`, and an error if no cgroups are mounted.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn of_this_host(node: &NodeSettings) -> Result<Self> {
        let mounts = match node.cgroup_driver {
            CgroupDriver::Cgroupfs { .. } => node.disk.run(CgroupMounts::of_this_host).await,
            _ => Ok(CgroupMounts::default()),
        };
        let mounts = mounts.map_err(|error| Error::io("/proc/self/mountinfo", None, error))?;
        Self::open(node, mounts).await
    }

    /// Opens the cgroups below the node's `cgroupRoot`. Creates `kubepods` and the QoS classes in it if they do not
    /// exist.
    ///
    /// # Errors
    ///
    /// A cgroup cannot be created; only with the driver cgroupfs.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn open(node: &NodeSettings, mounts: CgroupMounts) -> Result<Self> {
        let tree = match &node.cgroup_driver {
            CgroupDriver::Cgroupfs { root } => {
                let parts = root.split('/').filter(|part| !part.is_empty());
                let root: PathBuf = parts.chain(["kubepods"]).collect();
                Some(Tree::new(mounts, root))
            }
            _ => None,
        };
        let this = Self {
            node: node.clone(),
            tree,
            known: Mutex::default(),
        };
        // The burstable class gets its shares when its pods come.
        for (class, shares) in [
            (Some("burstable"), None),
            (Some("besteffort"), Some(*SHARES.start())),
        ] {
            let limits = Limits::of_class(&this.node, shares);
            let made = this.on_tree(move |tree| {
                let name = tree.class(class);
                tree.create(&name)?;
                log_unset(tree.set(&name, &limits), "class", class.unwrap_or_default());
                Ok(())
            });
            made.await.map_err(|error| Error::io("cgroups", None, error))?;
        }
        Ok(this)
    }

    /// Does file work on the configured disk; does nothing without a tree.
    async fn on_tree<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&Tree) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let Some(tree) = self.tree.clone() else {
            return Ok(T::default());
        };
        let disk: Disk = self.node.disk;
        disk.run(move || work(&tree)).await
    }

    /// Sets the CPU shares of the burstable class to the sum of its pods' requests (`setCPUCgroupConfig`).
    async fn share_out(&self) {
        let shares = {
            let mut known = self.known.lock();
            let total = known
                .pods
                .values()
                .fold(0_i64, |total, cpu| total.saturating_add(*cpu));
            let shares = milli_cpu_to_shares(total);
            if known.burstable == Some(shares) {
                return;
            }
            known.burstable = Some(shares);
            shares
        };
        let limits = Limits {
            cpu_shares: Some(shares),
            ..Limits::default()
        };
        let set = self.on_tree(move |tree| tree.set(&tree.class(Some("burstable")), &limits));
        if let Err(error) = set.await {
            self.known.lock().burstable = None;
            tracing::warn!(%error, "Failed to update QoS cgroups");
        }
    }

    fn limits(&self, pod: &Pod) -> Result<(Limits, i64)> {
        let read = || -> Result<(Limits, i64), ConfigError> {
            let burstable = match qos_class(pod) {
                QosClass::Burstable => pod_totals(pod)?.cpu_request,
                QosClass::Guaranteed | QosClass::BestEffort => 0,
            };
            Ok((Limits::of_pod(&self.node, pod)?, burstable))
        };
        read().map_err(|error| Error::SyncPod {
            pod: pod.key(),
            uid: pod.uid(),
            message: error.to_string(),
        })
    }

    /// The present CPU and memory limits of the pod's cgroup (`GetPodCgroupConfig`); `None` if the agent created no
    /// cgroup.
    pub(super) async fn written(&self, pod: &Pod) -> io::Result<Option<Limits>> {
        match self.name_of(pod) {
            Some(name) => self.on_tree(move |tree| tree.written(&name).map(Some)).await,
            None => Ok(None),
        }
    }

    /// Writes these limits of the pod's cgroup, and no others (`SetPodCgroupConfig`).
    pub(super) async fn set(&self, pod: &Pod, limits: Limits) -> io::Result<()> {
        match self.name_of(pod) {
            Some(name) => self.on_tree(move |tree| tree.set(&name, &limits)).await,
            None => Ok(()),
        }
    }

    /// The memory usage of the pod's cgroup in bytes (`GetPodCgroupMemoryUsage`).
    pub(super) async fn memory_usage(&self, pod: &Pod) -> Option<u64> {
        let name = self.name_of(pod)?;
        let usage = self.on_tree(move |tree| Ok(tree.memory_usage(&name))).await;
        usage.ok().flatten()
    }

    /// The cgroup parent that the runtime gets for the pod.
    fn name_of(&self, pod: &Pod) -> Option<PathBuf> {
        self.tree.as_ref()?;
        let parent = pod_cgroup_parent(&self.node.cgroup_driver, pod);
        Some(PathBuf::from(parent.trim_start_matches('/')))
    }
}

#[async_trait]
impl PodContainerManager for PodCgroups {
    async fn exists(&self, pod: &Pod) -> bool {
        let Some(name) = self.name_of(pod) else {
            return true;
        };
        let exists = self
            .on_tree(move |tree| Ok(tree.exists(&name)))
            .await
            .unwrap_or(false);
        if !exists {
            self.known.lock().pods.remove(&pod.uid());
        }
        exists
    }

    async fn ensure_exists(&self, pod: &Pod) -> Result<()> {
        let Some(name) = self.name_of(pod) else {
            return Ok(());
        };
        let (limits, burstable_milli_cpu) = self.limits(pod)?;
        let (uid, key) = (pod.uid(), pod.key());
        let exists = self.exists(pod).await;
        self.known.lock().pods.insert(uid.clone(), burstable_milli_cpu);
        self.share_out().await;
        if exists {
            return Ok(());
        }
        let started = Instant::now();
        let made = self.on_tree(move |tree| {
            tree.create(&name)?;
            log_unset(tree.set(&name, &limits), "pod", &key.to_string());
            Ok(())
        });
        let made = made.await;
        observe("create", started);
        made.map_err(|error| {
            self.known.lock().pods.remove(&uid);
            Error::io("cgroup", Some(&uid), error)
        })
    }

    async fn destroy(&self, uid: &PodUid) -> Result<()> {
        let started = Instant::now();
        loop {
            let of_pod = uid.clone();
            let removed = self.on_tree(move |tree| {
                let names = tree.names_of(of_pod.as_str());
                names.iter().try_for_each(|name| tree.kill(name))?;
                let removed: Vec<_> = names.iter().map(|name| tree.remove(name)).collect();
                removed.into_iter().collect()
            });
            match removed.await {
                Ok(()) => break,
                // Killed processes need time to end.
                Err(_) if started.elapsed() < PROCESSES_GO.0 => sleep(PROCESSES_GO.1).await,
                Err(error) => return Err(Error::io("cgroup", Some(uid), error)),
            }
        }
        observe("destroy", started);
        if self.known.lock().pods.remove(uid).is_some() {
            self.share_out().await;
        }
        Ok(())
    }

    async fn reduce_cpu_limits(&self, uid: &PodUid) -> Result<()> {
        let of_pod = uid.clone();
        let set = self.on_tree(move |tree| {
            let names = tree.names_of(of_pod.as_str());
            names
                .iter()
                .try_for_each(|name| tree.set(name, &Limits::least_cpu()))
        });
        set.await.map_err(|error| Error::io("cgroup", Some(uid), error))
    }

    async fn resources(&self, pod: &Pod) -> Option<ContainerResources> {
        let held = self.written(pod).await.ok()??;
        to_resources(v1::LinuxContainerResources {
            cpu_quota: held.cpu_quota.unwrap_or_default(),
            cpu_period: held.cpu_period.unwrap_or_default(),
            cpu_shares: held.cpu_shares.unwrap_or_default(),
            memory_limit_in_bytes: held.memory.unwrap_or_default(),
            ..Default::default()
        })
    }

    async fn pods(&self) -> Result<Vec<PodUid>> {
        let found = self.on_tree(Tree::pods).await;
        let found = found.map_err(|error| Error::io("cgroups", None, error))?;
        Ok(found.into_iter().map(PodUid::from).collect())
    }
}

/// If the kernel refuses a limit, the pod still runs, as in the kubelet.
fn log_unset(set: io::Result<()>, of: &'static str, name: &str) {
    if let Err(error) = set {
        tracing::error!(of, name, %error, "cannot set some limits of a cgroup");
    }
}

fn observe(operation: &'static str, started: Instant) {
    metrics::histogram!("kubelet_cgroup_manager_duration_seconds", "operation_type" => operation)
        .record(started.elapsed());
}
