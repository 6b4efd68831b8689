//! How the cgroups of pods are set up.

use std::sync::Arc;

use kubelet_core::Disk;
use kubelet_core::cgroups::{CgroupDriver, ExclusiveCpus, NoExclusiveCpus, PodCgroupSettings, SHARES};

use super::driver::Cgroups;
use super::limits::of_class;
use super::mounts::CgroupMounts;
use super::pods::PodCgroups;
use super::qos::{MemoryQos, Qos, QosReserved};
#[cfg(feature = "systemd")]
use super::systemd::Systemd;
use super::tree::Tree;
use crate::{Error, Result};

/// Builds a [`PodCgroups`].
#[must_use]
pub struct PodCgroupsBuilder {
    settings: PodCgroupSettings,
    mounts: Option<CgroupMounts>,
    disk: Disk,
    all_cpus: Option<String>,
    exclusive_cpus: Arc<dyn ExclusiveCpus>,
    no_load_balance: bool,
    memory_qos: Option<MemoryQos>,
    qos_reserved: Option<QosReserved>,
    #[cfg(feature = "systemd")]
    bus: Option<String>,
}

impl PodCgroupsBuilder {
    pub(super) fn new(settings: PodCgroupSettings) -> Self {
        Self {
            settings,
            mounts: None,
            disk: Disk::default(),
            all_cpus: None,
            exclusive_cpus: Arc::new(NoExclusiveCpus),
            no_load_balance: false,
            memory_qos: None,
            qos_reserved: None,
            #[cfg(feature = "systemd")]
            bus: None,
        }
    }

    /// Where the hierarchies are mounted. By default, those of this host.
    pub fn mounts(mut self, mounts: CgroupMounts) -> Self {
        self.mounts = Some(mounts);
        self
    }

    /// How file work is done.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// The CPUs of the machine, e.g. `0-7`, for the cgroup of all pods and those of the reservations. The kubelet writes them
    /// under the CPU manager policy `none`, so that systemd knows that these cgroups have the controller. By default, none are
    /// written.
    pub fn all_cpus(mut self, cpus: impl Into<String>) -> Self {
        self.all_cpus = Some(cpus.into()).filter(|cpus| !cpus.is_empty());
        self
    }

    /// Knows which pods get no CPU quota because they have CPUs of their own (`DisableCPUQuotaWithExclusiveCPUs`). By default,
    /// none have.
    pub fn exclusive_cpus(mut self, exclusive_cpus: Arc<dyn ExclusiveCpus>) -> Self {
        self.exclusive_cpus = exclusive_cpus;
        self
    }

    /// The scheduler does not balance load across the CPUs of new cgroups; cgroup v1 only (`SetCPULoadBalanceDisable`). The
    /// kubelet does so under the CPU manager policy `static`.
    pub fn without_cpu_load_balance(mut self) -> Self {
        self.no_load_balance = true;
        self
    }

    /// Protects the memory that pods request (the gate `MemoryQoS`). It has an effect with cgroup v2 only. By default, off.
    pub fn memory_qos(mut self, qos: MemoryQos) -> Self {
        self.memory_qos = Some(qos);
        self
    }

    /// Keeps memory that pods of the higher QoS classes request from the lower ones (`qosReserved`, the gate `QOSReserved`). By
    /// default, off.
    pub fn qos_reserved(mut self, reserved: QosReserved) -> Self {
        self.qos_reserved = Some(reserved);
        self
    }

    /// The D-Bus with the service manager, e.g. `unix:path=/run/dbus/system_bus_socket`. By default, that of this host.
    #[cfg(feature = "systemd")]
    pub fn bus(mut self, address: impl Into<String>) -> Self {
        self.bus = Some(address.into());
        self
    }

    /// Creates the cgroup of all pods and those of the QoS classes, if they do not exist.
    ///
    /// # Errors
    ///
    /// No cgroups are mounted, or a cgroup cannot be created, or the driver is systemd and this build cannot use it.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn build(mut self) -> Result<PodCgroups> {
        let driver = self.settings.driver.clone();
        let cgroups = match &driver {
            CgroupDriver::Cgroupfs { .. } | CgroupDriver::Systemd { .. } => Some(self.cgroups(driver).await?),
            _ => None,
        };
        let is_v2 = cgroups.as_ref().is_some_and(|cgroups| cgroups.version().is_v2());
        let memory_qos = self.memory_qos.filter(|_| is_v2);
        self.settings.protect_memory = memory_qos == Some(MemoryQos::TieredReservation);
        let made = PodCgroups {
            qos: Qos::new(memory_qos, self.qos_reserved),
            settings: self.settings,
            all_cpus: self.all_cpus,
            exclusive_cpus: self.exclusive_cpus,
            cgroups,
        };
        made.create_classes().await?;
        Ok(made)
    }

    async fn cgroups(&self, driver: CgroupDriver) -> Result<Cgroups> {
        let is_systemd = matches!(driver, CgroupDriver::Systemd { .. });
        if is_systemd && cfg!(not(feature = "systemd")) {
            return Err(Error::Refused(
                "the cgroup driver is systemd, but this program was built without the feature `systemd`"
                    .to_owned(),
            ));
        }
        let mounts = match &self.mounts {
            Some(mounts) => mounts.clone(),
            None => {
                let mounts = self.disk.run(CgroupMounts::of_this_host).await;
                mounts.map_err(|source| Error::File {
                    path: "/proc/self/mountinfo".into(),
                    source,
                })?
            }
        };
        Ok(Cgroups {
            driver,
            tree: Tree::new(mounts, is_systemd, self.no_load_balance),
            disk: self.disk,
            #[cfg(feature = "systemd")]
            systemd: is_systemd.then(|| Systemd::new(self.bus.clone())),
        })
    }
}

impl PodCgroups {
    /// Creates the cgroups that pods are in (`createNodeAllocatableCgroups`, `qosContainerManagerImpl.Start`).
    async fn create_classes(&self) -> Result<()> {
        let Some(cgroups) = &self.cgroups else {
            return Ok(());
        };
        let sizes = &self.settings.huge_page_sizes;
        // The burstable class gets its shares when its pods come.
        let with = [
            (kubelet_core::QosClass::Guaranteed, of_class(sizes, None)),
            (kubelet_core::QosClass::Burstable, of_class(sizes, None)),
            (
                kubelet_core::QosClass::BestEffort,
                of_class(sizes, Some(*SHARES.start())),
            ),
        ];
        for (class, limits) in with {
            let Some(name) = cgroups.driver.class(class) else {
                continue;
            };
            // What exists is brought into the right state.
            let made = match cgroups.exists(&name) {
                true => {
                    if let Err(error) = cgroups.update(&name, limits).await {
                        tracing::error!(cgroup = %name, %error, "cannot set some limits of a cgroup");
                    }
                    Ok(())
                }
                false => cgroups.create(&name, limits).await,
            };
            made.map_err(|source| Error::Cgroup { name, source })?;
        }
        Ok(())
    }
}
