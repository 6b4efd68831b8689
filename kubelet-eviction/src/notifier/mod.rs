//! Notifications of the kernel that memory runs short, so that the manager does not wait for the next measurement.
//!
//! | host              | notifier                                                                              |
//! |-------------------|---------------------------------------------------------------------------------------|
//! | cgroup version 1  | a threshold on the usage of the memory cgroup, as in the kubelet                      |
//! | cgroup version 2  | a trigger on pressure stall information, and a look at the usage four times a second |
//!
//! The kernel has no thresholds on usage in version 2; the kubelet is not notified there.

#[cfg(target_os = "linux")]
mod cgroup_v1;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod pressure_stall;
mod usage_watch;

use async_trait::async_trait;
use kubelet_core::quantity::Amount;
use kubelet_core::stats::{SYSTEM_CONTAINER_PODS, Summary};

#[cfg(target_os = "linux")]
pub use self::cgroup_v1::CgroupV1Notifier;
#[cfg(target_os = "linux")]
pub use self::host::{MemoryHost, memory_notifiers};
#[cfg(target_os = "linux")]
pub use self::pressure_stall::PressureStallNotifier;
pub use self::usage_watch::{UsageFile, UsageWatch};
use crate::observation::signed;
use crate::threshold::Threshold;
use crate::{Error, Result, Signal};

/// Notifies when a threshold may have been crossed (`eviction.ThresholdNotifier`). A notification too many costs one
/// measurement.
#[async_trait]
pub trait ThresholdNotifier: Send + Sync {
    /// What it watches, for logs (`Description`).
    fn description(&self) -> String;

    /// Sets what it watches by recent usage, and starts it if need be (`UpdateThreshold`).
    ///
    /// # Errors
    ///
    /// If the usage is incomplete, or the kernel refuses. The notifier is not waited for until the next update.
    ///
    /// # Cancel safety
    ///
    /// After a drop, the notifier must be updated before it is waited for.
    async fn update_threshold(&mut self, summary: &Summary) -> Result<()>;

    /// Waits until it is crossed.
    ///
    /// # Errors
    ///
    /// If the kernel reports no more. The notifier is not waited for until the next update.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; no notification is lost.
    async fn crossed(&mut self) -> Result<()>;
}

/// How a threshold is named in logs (`linuxMemoryThresholdNotifier.Description`).
fn description(threshold: &Threshold) -> String {
    let hard = if threshold.is_hard() { "hard" } else { "soft" };
    let allocatable = match threshold.signal {
        Signal::AllocatableMemoryAvailable => "allocatable ",
        _ => "",
    };
    format!("{hard} {allocatable}memory eviction threshold")
}

/// What a cgroup uses of memory, and at which usage the threshold is met, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageThreshold {
    pub(crate) usage: u64,
    pub(crate) threshold: u64,
}

/// Thresholds concern the working set; the kernel watches usage, which has inactive files in addition. They are assumed to stay
/// as they are: capacity − threshold + inactive files (`UpdateThreshold`).
pub(crate) fn usage_threshold(threshold: &Threshold, summary: &Summary) -> Result<UsageThreshold> {
    let (of, memory) = match threshold.signal {
        Signal::AllocatableMemoryAvailable => {
            let pods = summary.system_container(SYSTEM_CONTAINER_PODS);
            ("the pods", pods.and_then(|pods| pods.memory.as_ref()))
        }
        _ => ("the node", summary.node.memory.as_ref()),
    };
    let complete = memory.and_then(|memory| {
        Some((
            memory.usage_bytes?,
            memory.working_set_bytes?,
            memory.available_bytes?,
        ))
    });
    let (usage, working_set, available) = complete.ok_or(Error::IncompleteSummary { of })?;
    let capacity = Amount::from_units(signed(available.saturating_add(working_set)));
    let inactive_file = Amount::from_units(signed(usage.saturating_sub(working_set)));
    let at = capacity - threshold.value.amount(capacity) + inactive_file;
    Ok(UsageThreshold {
        usage,
        threshold: u64::try_from(at.value()).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ThresholdValue;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;
    use std::time::Duration;

    fn threshold(signal: Signal, grace_period: u64) -> Threshold {
        Threshold {
            signal,
            value: ThresholdValue::Quantity(Quantity("1Gi".into())),
            grace_period: Duration::from_secs(grace_period),
            min_reclaim: None,
        }
    }

    #[test]
    fn the_kernel_watches_usage_with_inactive_files() {
        let memory = |capacity: u64, usage: u64, working_set: u64| {
            json!({"availableBytes": (capacity - working_set) << 30, "usageBytes": usage << 30,
                "workingSetBytes": working_set << 30})
        };
        let summary: Summary = serde_json::from_value(json!({"node": {
            "memory": memory(10, 5, 3),
            "systemContainers": [{"name": "pods", "memory": memory(8, 4, 3)}],
        }}))
        .unwrap();
        for (signal, usage, expected) in [
            (Signal::MemoryAvailable, 5, 11),
            (Signal::AllocatableMemoryAvailable, 4, 8),
        ] {
            let at = usage_threshold(&threshold(signal, 0), &summary).unwrap();
            assert_eq!(
                (at.usage, at.threshold),
                (usage << 30, expected << 30),
                "{signal}"
            );
        }
    }

    #[test]
    fn an_incomplete_summary_is_refused() {
        let summary: Summary =
            serde_json::from_value(json!({"node": {"memory": {"usageBytes": 1}}})).unwrap();
        for (signal, of) in [
            (Signal::MemoryAvailable, "the node"),
            (Signal::AllocatableMemoryAvailable, "the pods"),
        ] {
            let error = usage_threshold(&threshold(signal, 0), &summary).unwrap_err();
            assert!(error.to_string().contains(of), "{error}");
        }
    }

    #[test]
    fn the_description_names_the_threshold() {
        let cases = [
            (Signal::MemoryAvailable, 0, "hard memory eviction threshold"),
            (Signal::MemoryAvailable, 30, "soft memory eviction threshold"),
            (
                Signal::AllocatableMemoryAvailable,
                0,
                "hard allocatable memory eviction threshold",
            ),
        ];
        for (signal, grace_period, expected) in cases {
            assert_eq!(description(&threshold(signal, grace_period)), expected);
        }
    }
}
