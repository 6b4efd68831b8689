//! The limits of the QoS classes, which follow their pods (`qosContainerManagerImpl`).

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::cgroups::{CgroupLimits, SHARES, milli_cpu_to_shares};
use kubelet_core::{PodExt, PodUid, QosClass, pod_request, qos_class};
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::driver::{CLASSES, Cgroups};
use super::limits::of_class;
use super::pods::PodCgroups;

/// How often the limits are written without a change (`periodicQOSCgroupUpdateInterval`).
const UPDATE_INTERVAL: Duration = Duration::from_secs(60);

/// Which memory the kernel does not reclaim from pods (`memoryReservationPolicy`, under the gate `MemoryQoS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryQos {
    /// `None`: no memory is protected, except for that of the reservations of the node.
    NoReservation,
    /// `TieredReservation`: what guaranteed pods request (`memory.min`), and, unless the node has nothing else left, what
    /// burstable pods request (`memory.low`).
    TieredReservation,
}

/// The part of requested memory that lower QoS classes may not use (`qosReserved`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QosReserved {
    /// Of the requests, in percent.
    pub percent: u8,
    /// The memory that all pods together may use, in bytes. With 0, no limits are set.
    pub allocatable_memory: i64,
}

impl QosReserved {
    /// `percent` of the memory that pods request, on a node whose pods may use `allocatable_memory` bytes together.
    pub fn memory(percent: u8, allocatable_memory: i64) -> Self {
        Self {
            percent,
            allocatable_memory,
        }
    }
}

/// The pods, and what follows from them.
#[derive(Debug)]
pub(super) struct Qos {
    memory: Option<MemoryQos>,
    reserved: Option<QosReserved>,
    known: Mutex<Known>,
    /// One update at a time.
    updates: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    pods: HashMap<PodUid, Requests>,
    /// The limits that were written last.
    written: Option<[CgroupLimits; 3]>,
}

/// What a pod requests.
#[derive(Clone, Copy, Debug)]
struct Requests {
    class: QosClass,
    milli_cpu: i64,
    memory: i64,
}

impl Qos {
    pub(super) fn new(memory: Option<MemoryQos>, reserved: Option<QosReserved>) -> Self {
        Self {
            memory,
            reserved,
            known: Mutex::default(),
            updates: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn has_memory_qos(&self) -> bool {
        self.memory.is_some()
    }

    pub(super) fn note(&self, pod: &Pod) {
        let requests = Requests {
            class: qos_class(pod),
            milli_cpu: pod_request(pod, "cpu").milli_value(),
            memory: pod_request(pod, "memory").value(),
        };
        self.known.lock().pods.insert(pod.uid(), requests);
    }

    /// Returns whether the pod was known.
    pub(super) fn forget(&self, uid: &PodUid) -> bool {
        self.known.lock().pods.remove(uid).is_some()
    }

    /// The limits of all classes, in the order of [`CLASSES`].
    fn desired(&self, page_sizes: &[String]) -> [CgroupLimits; 3] {
        let known = self.known.lock();
        let sum = |class: QosClass, amount: fn(&Requests) -> i64| {
            let of_class = known.pods.values().filter(|requests| requests.class == class);
            of_class.map(amount).fold(0_i64, i64::saturating_add)
        };
        let burstable_cpu = sum(QosClass::Burstable, |requests| requests.milli_cpu);
        let memory = |class| sum(class, |requests: &Requests| requests.memory);
        let (guaranteed, burstable) = (memory(QosClass::Guaranteed), memory(QosClass::Burstable));
        drop(known);

        let shares = [
            None,
            Some(milli_cpu_to_shares(burstable_cpu)),
            Some(*SHARES.start()),
        ];
        let mut limits = shares.map(|shares| of_class(page_sizes, shares));
        let [of_all, of_burstable, of_best_effort] = &mut limits;
        if let Some(policy) = self.memory {
            let (min, low) = match policy {
                MemoryQos::NoReservation => (0, 0),
                MemoryQos::TieredReservation => (guaranteed, burstable),
            };
            metrics::gauge!("kubelet_memory_qos_node_memory_min_bytes").set(min as f64);
            metrics::gauge!("kubelet_memory_qos_node_memory_low_bytes").set(low as f64);
            // What protects a cgroup must protect the one above it, too.
            of_all.memory_min = Some(min.saturating_add(low));
            of_burstable.memory_low = Some(low);
        }
        if let Some(reserved) = self.reserved.filter(|reserved| reserved.allocatable_memory > 0) {
            let part = |requests: i64| requests.saturating_mul(i64::from(reserved.percent)) / 100;
            let left = reserved.allocatable_memory.saturating_sub(part(guaranteed));
            of_burstable.memory = Some(left);
            of_best_effort.memory = Some(left.saturating_sub(part(burstable)));
        }
        limits
    }
}

impl PodCgroups {
    /// Writes the limits of the QoS classes every minute, until `shutdown` (`UpdateCgroups`). They are also written when a pod
    /// comes or goes; this tries again what the kernel refused, and sets right what others changed.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn run_qos_updates(&self, shutdown: CancellationToken) {
        if self.cgroups.is_none() {
            return;
        }
        let mut updates = interval(UPDATE_INTERVAL);
        updates.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let run = async {
            loop {
                updates.tick().await;
                self.update_qos(true).await;
            }
        };
        shutdown.run_until_cancelled(run).await;
    }

    /// Writes the limits of the QoS classes if they are others than the last time.
    pub(super) async fn update_changed_qos(&self) {
        self.update_qos(false).await;
    }

    async fn update_qos(&self, always: bool) {
        let Some(cgroups) = &self.cgroups else { return };
        let _one = self.qos.updates.lock().await;
        let desired = self.qos.desired(&self.settings.huge_page_sizes);
        if !always && self.qos.known.lock().written.as_ref() == Some(&desired) {
            return;
        }
        let mut updated = update(cgroups, &desired).await;
        if updated.is_err() && self.qos.reserved.is_some() {
            let near = near_usage(cgroups, desired.clone()).await;
            updated = update(cgroups, &near).await;
        }
        self.qos.known.lock().written = updated.is_ok().then_some(desired);
        if let Err(error) = updated {
            tracing::warn!(%error, "Failed to update QoS cgroup configuration");
        }
    }
}

/// Writes those of all classes. The error is the last one.
async fn update(cgroups: &Cgroups, limits: &[CgroupLimits; 3]) -> std::io::Result<()> {
    let mut updated = Ok(());
    for (class, limits) in CLASSES.into_iter().zip(limits) {
        if let Some(name) = cgroups.driver.class(class) {
            updated = cgroups.update(&name, limits.clone()).await.and(updated);
        }
    }
    updated
}

/// The kernel refuses a memory limit below the usage. A limit at the usage keeps it from growing (`retrySetMemoryReserve`).
async fn near_usage(cgroups: &Cgroups, mut limits: [CgroupLimits; 3]) -> [CgroupLimits; 3] {
    for (class, limits) in CLASSES.into_iter().zip(&mut limits) {
        let (Some(name), Some(limit)) = (cgroups.driver.class(class), limits.memory) else {
            continue;
        };
        let usage = cgroups.memory_usage(&name).await;
        if let Some(usage) = usage.and_then(|usage| i64::try_from(usage).ok())
            && usage > limit
        {
            limits.memory = Some(usage);
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kubelet_core::Disk;
    use kubelet_core::cgroups::CgroupDriver;

    use super::*;
    use crate::cgroups::CgroupMounts;
    use crate::cgroups::tree::Tree;

    #[tokio::test]
    async fn a_class_above_its_limit_is_limited_to_its_usage() {
        let folder = tempfile::tempdir().unwrap();
        for (class, usage) in [("", "9000"), ("burstable", "900"), ("besteffort", "500")] {
            let dir = folder.path().join("kubepods").join(class);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("memory.current"), usage).unwrap();
        }
        let cgroups = Cgroups {
            driver: CgroupDriver::configured(true, "cgroupfs", "/"),
            tree: Tree::new(CgroupMounts::v2(folder.path()), false, false),
            disk: Disk::inline(),
            #[cfg(feature = "systemd")]
            systemd: None,
        };
        let limits = [None, Some(800), Some(600)].map(|memory| {
            let mut limits = CgroupLimits::default();
            limits.memory = memory;
            limits
        });
        let near = near_usage(&cgroups, limits).await;
        assert_eq!(near.map(|limits| limits.memory), [None, Some(900), Some(600)]);
    }

    #[test]
    fn percentages_are_taken_of_what_pods_request() {
        let qos = Qos::new(None, Some(QosReserved::memory(100, 1000)));
        let pods = [
            (QosClass::Guaranteed, 300),
            (QosClass::Burstable, 200),
            (QosClass::BestEffort, 0),
        ];
        for (uid, (class, memory)) in pods.into_iter().enumerate() {
            let requests = Requests {
                class,
                milli_cpu: 1000,
                memory,
            };
            qos.known
                .lock()
                .pods
                .insert(PodUid::from(uid.to_string()), requests);
        }
        let [all, burstable, best_effort] = qos.desired(&["2MB".to_owned()]);
        assert_eq!(
            [all.memory, burstable.memory, best_effort.memory],
            [None, Some(700), Some(500)]
        );
        assert_eq!(
            [all.cpu_shares, burstable.cpu_shares, best_effort.cpu_shares],
            [None, Some(1024), Some(2)]
        );
        assert_eq!(all.huge_pages["2MB"], 1 << 62);
        assert_eq!(
            (all.memory_min, burstable.memory_low),
            (None, None),
            "the gate is off"
        );
        let none = Qos::new(Some(MemoryQos::NoReservation), Some(QosReserved::memory(100, 0)));
        let [all, burstable, _] = none.desired(&[]);
        assert_eq!((all.memory_min, burstable.memory_low), (Some(0), Some(0)));
        assert_eq!(burstable.memory, None, "the node has no memory to share");
    }
}
