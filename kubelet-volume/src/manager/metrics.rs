//! The metrics of the volume manager, by the kubelet's names.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{counter, gauge, histogram};

use super::next_step::{Presence, Step, Wanted};
use super::state::State;

/// The operation, as the kubelet names it.
pub(crate) fn operation_name(step: &Step, is_block: bool) -> &'static str {
    match (step, is_block) {
        (Step::Mount(_), false) => "volume_mount",
        (Step::Mount(_), true) => "map_volume",
        (Step::TearDown(_), false) => "volume_unmount",
        (Step::TearDown(_), true) => "unmap_volume",
        (Step::UnmountDevice, false) => "unmount_device",
        (Step::UnmountDevice, true) => "unmap_device",
        (Step::VerifyAttached, _) => "verify_controller_attached_volume",
        (Step::Attach, _) => "volume_attach",
        (Step::Detach, _) => "volume_detach",
        (Step::Expand(_), _) => "volume_fs_resize",
        (Step::Rest | Step::WaitUntil(_) | Step::Forget, _) => "none",
    }
}

pub(crate) fn operation_ended(
    name: &'static str,
    plugin: &str,
    is_migrated: bool,
    is_ok: bool,
    took: Duration,
) {
    let status = if is_ok { "success" } else { "fail-unknown" };
    let migrated = if is_migrated { "true" } else { "false" };
    histogram!(
        "storage_operation_duration_seconds",
        "volume_plugin" => plugin.to_owned(), "operation_name" => name, "status" => status, "migrated" => migrated
    )
    .record(took.as_secs_f64());
}

/// A volume was mounted for a pod, so long after the pod asked for it.
pub(crate) fn mounted(plugin: &str, after: Duration) {
    histogram!(
        "volume_operation_total_seconds",
        "plugin_name" => plugin.to_owned(), "operation_name" => "overall_volume_mount"
    )
    .record(after.as_secs_f64());
}

/// An attempt to find out what an earlier agent mounted.
pub(crate) fn reconstructed(is_ok: bool) {
    counter!("reconstruct_volume_operations_total").increment(1);
    if !is_ok {
        counter!("reconstruct_volume_operations_errors_total").increment(1);
    }
}

/// An attempt to remove a volume that could not be reconstructed.
pub(crate) fn force_cleaned(is_ok: bool) {
    counter!("force_cleaned_failed_volume_operations_total").increment(1);
    if !is_ok {
        counter!("force_cleaned_failed_volume_operation_errors_total").increment(1);
    }
}

/// The containers of a pod want different SELinux contexts for one volume.
pub(crate) fn selinux_pod_mismatch(is_error: bool, access_mode: &'static str) {
    let mismatches = match is_error {
        true => {
            gauge!("volume_manager_selinux_pod_context_mismatch_errors_total", "access_mode" => access_mode)
        }
        false => {
            gauge!("volume_manager_selinux_pod_context_mismatch_warnings_total", "access_mode" => access_mode)
        }
    };
    mismatches.increment(1.0);
}

/// Two pods want different SELinux contexts for one volume.
pub(crate) fn selinux_volume_mismatch(is_error: bool, plugin: &str, access_mode: &'static str) {
    let plugin = plugin.to_owned();
    let mismatches = match is_error {
        true => gauge!(
            "volume_manager_selinux_volume_context_mismatch_errors_total",
            "volume_plugin" => plugin, "access_mode" => access_mode
        ),
        false => gauge!(
            "volume_manager_selinux_volume_context_mismatch_warnings_total",
            "volume_plugin" => plugin, "access_mode" => access_mode
        ),
    };
    mismatches.increment(1.0);
}

/// A volume has a SELinux context to be mounted with.
pub(crate) fn selinux_admitted(plugin: &str, access_mode: &'static str) {
    gauge!(
        "volume_manager_selinux_volumes_admitted_total",
        "volume_plugin" => plugin.to_owned(), "access_mode" => access_mode
    )
    .increment(1.0);
}

/// The gauges of `volume_manager_total_volumes`.
#[derive(Default)]
pub(crate) struct TotalVolumes {
    set: BTreeMap<(String, &'static str), u32>,
}

impl TotalVolumes {
    /// Sets those that have changed.
    pub(crate) fn update(&mut self, state: &State) {
        let mut counts: BTreeMap<(String, &'static str), u32> = BTreeMap::new();
        for record in state.records.values() {
            let plugin = record.qualified_plugin_name();
            for mount in record.situation.mounts.values() {
                if mount.presence == Presence::Mounted {
                    *counts
                        .entry((plugin.clone(), "actual_state_of_world"))
                        .or_default() += 1;
                }
                if mount.wanted == Wanted::Yes {
                    *counts
                        .entry((plugin.clone(), "desired_state_of_world"))
                        .or_default() += 1;
                }
            }
        }
        for gone in self.set.keys() {
            counts.entry(gone.clone()).or_default();
        }
        for ((plugin, state), count) in &counts {
            if self.set.get(&(plugin.clone(), *state)) != Some(count) {
                gauge!(
                    "volume_manager_total_volumes",
                    "plugin_name" => plugin.clone(), "state" => *state
                )
                .set(f64::from(*count));
            }
        }
        self.set = counts;
    }
}
