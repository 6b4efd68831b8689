//! `kubelet_volume_stats_*`: the volumes with a claim (`volumeStatsCollector`).

use std::collections::BTreeMap;

use kubelet_core::stats::{PvcReference, Summary, VolumeStats};

use super::text::Kind::Gauge;
use super::text::Number::Whole;
use super::text::{Text, push_label};

/// All metrics, sorted by name.
const METRICS: [(&str, &str, fn(&VolumeStats) -> Option<u64>); 7] = [
    (
        "kubelet_volume_stats_available_bytes",
        "[ALPHA] Number of available bytes in the volume",
        |volume| volume.fs.available_bytes,
    ),
    (
        "kubelet_volume_stats_capacity_bytes",
        "[ALPHA] Capacity in bytes of the volume",
        |volume| volume.fs.capacity_bytes,
    ),
    (
        "kubelet_volume_stats_health_status_abnormal",
        "[ALPHA] Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates \
         volume is healthy",
        |volume| {
            volume
                .volume_health_stats
                .as_ref()
                .map(|health| health.abnormal.into())
        },
    ),
    (
        "kubelet_volume_stats_inodes",
        "[ALPHA] Maximum number of inodes in the volume",
        |volume| volume.fs.inodes,
    ),
    (
        "kubelet_volume_stats_inodes_free",
        "[ALPHA] Number of free inodes in the volume",
        |volume| volume.fs.inodes_free,
    ),
    (
        "kubelet_volume_stats_inodes_used",
        "[ALPHA] Number of used inodes in the volume",
        |volume| volume.fs.inodes_used,
    ),
    (
        "kubelet_volume_stats_used_bytes",
        "[ALPHA] Number of used bytes in the volume",
        |volume| volume.fs.used_bytes,
    ),
];

/// Writes the metrics. If pods share a claim, the first counts.
pub(super) fn write(summary: &Summary) -> Vec<u8> {
    let mut volumes: BTreeMap<(&str, &str), &VolumeStats> = BTreeMap::new();
    for pod in summary.pods.iter().flatten() {
        for volume in &pod.volume_stats {
            if let Some(PvcReference { namespace, name, .. }) = &volume.pvc_ref {
                volumes.entry((namespace, name)).or_insert(volume);
            }
        }
    }
    let mut text = Text::default();
    for (name, help, value) in METRICS {
        let mut begun = false;
        for ((namespace, claim), volume) in &volumes {
            let Some(value) = value(volume) else { continue };
            if !std::mem::replace(&mut begun, true) {
                text.header(name, Gauge, help);
            }
            let mut labels = String::new();
            push_label(&mut labels, "namespace", namespace);
            push_label(&mut labels, ",persistentvolumeclaim", claim);
            text.series(name, [&labels], Whole(value), None);
        }
    }
    text.into_bytes()
}
