//! The cgroups of pods (`podContainerManagerImpl`).

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::cgroups::{CgroupLimits, CgroupName, ExclusiveCpus, PodCgroupSettings};
use kubelet_core::{Error, PodContainerManager, PodExt, PodUid, Result};

use super::builder::PodCgroupsBuilder;
use super::driver::Cgroups;
use super::qos::Qos;

/// Creates and removes the cgroups of pods, and sets their limits: the pod's CPU shares, quota, memory, huge pages and
/// processes, and the limits of its QoS class. These are the kubelet's `podContainerManagerImpl` and
/// `qosContainerManagerImpl`.
///
/// It works with cgroup v1 and v2, and with both drivers: cgroupfs, and systemd (feature `systemd`). If `cgroupsPerQOS` is
/// off, it does nothing, and each pod's cgroup counts as existing.
///
/// ```no_run
/// # async fn make() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use kubelet_core::Kubelet;
/// use kubelet_core::cgroups::{CgroupDriver, PodCgroupSettings};
/// use kubelet_resources::cgroups::PodCgroups;
///
/// let mut settings = PodCgroupSettings::default();
/// settings.driver = CgroupDriver::configured(true, "cgroupfs", "/");
/// let cgroups = Arc::new(PodCgroups::builder(settings).build().await?);
/// // The manager of containers resizes the cgroups: `CriRuntime::with_pod_cgroups(cgroups.clone())`.
/// let kubelet = Kubelet::builder().pod_containers(cgroups);
/// # Ok(())
/// # }
/// ```
pub struct PodCgroups {
    pub(super) settings: PodCgroupSettings,
    pub(super) all_cpus: Option<String>,
    pub(super) exclusive_cpus: Arc<dyn ExclusiveCpus>,
    /// `None` if the runtime decides where pods are.
    pub(super) cgroups: Option<Cgroups>,
    pub(super) qos: Qos,
}

impl PodCgroups {
    /// Returns a builder.
    pub fn builder(settings: PodCgroupSettings) -> PodCgroupsBuilder {
        PodCgroupsBuilder::new(settings)
    }

    /// The cgroups, and the name of the pod's.
    fn of(&self, pod: &Pod) -> Option<(&Cgroups, CgroupName)> {
        let cgroups = self.cgroups.as_ref()?;
        Some((cgroups, cgroups.driver.pod(pod)?))
    }

    fn desired(&self, pod: &Pod) -> Result<CgroupLimits> {
        let mut settings = self.settings.clone();
        settings.cpu_cfs_quota &= !self.exclusive_cpus.pod_has_exclusive_cpus(pod);
        CgroupLimits::of_pod(&settings, pod)
    }
}

#[async_trait]
impl PodContainerManager for PodCgroups {
    async fn exists(&self, pod: &Pod) -> bool {
        let Some((cgroups, name)) = self.of(pod) else {
            return true;
        };
        let exists = cgroups.exists(&name);
        if !exists {
            self.qos.forget(&pod.uid());
        }
        exists
    }

    async fn ensure_exists(&self, pod: &Pod) -> Result<()> {
        let Some((cgroups, name)) = self.of(pod) else {
            return Ok(());
        };
        let limits = self.desired(pod)?;
        let (uid, exists) = (pod.uid(), self.exists(pod).await);
        self.qos.note(pod);
        self.update_changed_qos().await;
        if exists {
            return Ok(());
        }
        cgroups.create(&name, limits).await.map_err(|error| {
            self.qos.forget(&uid);
            Error::io("cgroup", Some(&uid), error)
        })
    }

    async fn destroy(&self, uid: &PodUid) -> Result<()> {
        let Some(cgroups) = &self.cgroups else {
            return Ok(());
        };
        let destroyed = async {
            for name in cgroups.of_pod(uid.as_str()).await? {
                cgroups.destroy(&name).await?;
            }
            Ok(())
        };
        destroyed
            .await
            .map_err(|error| Error::io("cgroup", Some(uid), error))?;
        if self.qos.forget(uid) {
            self.update_changed_qos().await;
        }
        Ok(())
    }

    async fn reduce_cpu_limits(&self, uid: &PodUid) -> Result<()> {
        let Some(cgroups) = &self.cgroups else {
            return Ok(());
        };
        let reduced = async {
            for name in cgroups.of_pod(uid.as_str()).await? {
                cgroups.reduce_cpu(&name).await?;
            }
            Ok(())
        };
        reduced
            .await
            .map_err(|error| Error::io("cgroup", Some(uid), error))
    }

    async fn limits(&self, pod: &Pod) -> io::Result<Option<CgroupLimits>> {
        match self.of(pod) {
            Some((cgroups, name)) => cgroups.limits(&name).await.map(Some),
            None => Ok(None),
        }
    }

    async fn set_limits(&self, pod: &Pod, limits: CgroupLimits) -> io::Result<()> {
        match self.of(pod) {
            Some((cgroups, name)) => cgroups.update(&name, limits).await,
            None => Ok(()),
        }
    }

    async fn memory_usage(&self, pod: &Pod) -> Option<u64> {
        let (cgroups, name) = self.of(pod)?;
        cgroups.memory_usage(&name).await
    }

    async fn pods(&self) -> Result<Vec<PodUid>> {
        let Some(cgroups) = &self.cgroups else {
            return Ok(Vec::new());
        };
        let found = cgroups.of_pods().await;
        let found = found.map_err(|error| Error::io("cgroups", None, error))?;
        let mut uids: Vec<PodUid> = found
            .iter()
            .filter_map(|name| cgroups.driver.pod_uid(name))
            .map(PodUid::from)
            .collect();
        uids.sort();
        uids.dedup();
        Ok(uids)
    }
}

kubelet_core::impl_debug!(PodCgroups: settings, cgroups);
