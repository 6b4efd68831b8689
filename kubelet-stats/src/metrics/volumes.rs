//! `kubelet_volume_stats_*`: the volumes with a claim (`volumeStatsCollector`).

use std::collections::BTreeMap;

use kubelet_core::stats::StatsPods;
use kubelet_core::{PodExt, PodUid, VolumeUsage, VolumeUsages};

use super::text::Kind::Gauge;
use super::text::Number::Whole;
use super::text::{Text, push_label};

/// Name, help text and value of a metric.
type Metric = (&'static str, &'static str, fn(&VolumeUsage) -> Option<u64>);

/// All metrics, sorted by name. What a driver does not report is 0, except for the health (`parsePodVolumeStats`).
const METRICS: [Metric; 7] = [
    (
        "kubelet_volume_stats_available_bytes",
        "[ALPHA] Number of available bytes in the volume",
        |volume| Some(volume.available_bytes.unwrap_or(0)),
    ),
    (
        "kubelet_volume_stats_capacity_bytes",
        "[ALPHA] Capacity in bytes of the volume",
        |volume| Some(volume.capacity_bytes.unwrap_or(0)),
    ),
    (
        "kubelet_volume_stats_health_status_abnormal",
        "[ALPHA] Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates \
         volume is healthy",
        |volume| volume.abnormal.map(u64::from),
    ),
    (
        "kubelet_volume_stats_inodes",
        "[ALPHA] Maximum number of inodes in the volume",
        |volume| Some(volume.inodes.unwrap_or(0)),
    ),
    (
        "kubelet_volume_stats_inodes_free",
        "[ALPHA] Number of free inodes in the volume",
        |volume| Some(volume.inodes_free.unwrap_or(0)),
    ),
    (
        "kubelet_volume_stats_inodes_used",
        "[ALPHA] Number of used inodes in the volume",
        |volume| Some(volume.inodes_used.unwrap_or(0)),
    ),
    (
        "kubelet_volume_stats_used_bytes",
        "[ALPHA] Number of used bytes in the volume",
        |volume| Some(volume.used_bytes.unwrap_or(0)),
    ),
];

/// Volumes by the namespace and the name of their claim.
pub(super) type Volumes = BTreeMap<(String, String), VolumeUsage>;

/// The usage of all volumes with a claim. If pods share a claim, the first counts.
pub(super) async fn of_pods(pods: &dyn StatsPods, usages: &dyn VolumeUsages) -> Volumes {
    let mut volumes = Volumes::new();
    for pod in pods.pods() {
        let spec = pod.spec.as_ref();
        let mut declared = spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten());
        if !declared.any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()) {
            continue;
        }
        for (_, usage) in usages.volume_usages(&PodUid::new(pod.uid_str())).await {
            if let Some(claim) = usage.claim.clone() {
                volumes.entry(claim).or_insert(usage);
            }
        }
    }
    volumes
}

/// Writes the metrics.
pub(super) fn write(volumes: &Volumes) -> Vec<u8> {
    let mut text = Text::default();
    for (name, help, value) in METRICS {
        let mut begun = false;
        for ((namespace, claim), volume) in volumes {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_driver_does_not_report_is_0() {
        let mut usage = VolumeUsage::default();
        usage.used_bytes = Some(4096);
        usage.abnormal = Some(true);
        let claim = ("default".to_owned(), "data".to_owned());
        let text = write(&Volumes::from([(claim, usage)]));
        let labels = "{namespace=\"default\",persistentvolumeclaim=\"data\"}";
        let text = String::from_utf8_lossy(&text);
        let series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let shown = [
            ("available_bytes", 0),
            ("capacity_bytes", 0),
            ("health_status_abnormal", 1),
            ("inodes", 0),
            ("inodes_free", 0),
            ("inodes_used", 0),
            ("used_bytes", 4096),
        ];
        let shown = shown.map(|(name, value)| format!("kubelet_volume_stats_{name}{labels} {value}"));
        assert_eq!(series, shown);
        assert!(text.contains(
            "# HELP kubelet_volume_stats_used_bytes [ALPHA] Number of used bytes in the volume\n\
             # TYPE kubelet_volume_stats_used_bytes gauge\n"
        ));
        let healthy = [(("default".to_owned(), "data".to_owned()), VolumeUsage::default())];
        assert!(!String::from_utf8_lossy(&write(&Volumes::from(healthy))).contains("health"));
        assert_eq!(write(&Volumes::new()), Vec::<u8>::new());
    }

    struct Pods(Vec<Arc<Pod>>);

    impl StatsPods for Pods {
        fn pod(&self, _: &PodUid) -> Option<Arc<Pod>> {
            None
        }

        fn pods(&self) -> Vec<Arc<Pod>> {
            self.0.clone()
        }
    }

    /// Each pod has a volume with the claim `data`, and uses as many bytes as its UID says.
    struct Usages;

    #[async_trait]
    impl VolumeUsages for Usages {
        async fn volume_usages(&self, uid: &PodUid) -> BTreeMap<String, VolumeUsage> {
            let mut usage = VolumeUsage::default();
            usage.used_bytes = uid.as_str().parse().ok();
            usage.claim = Some(("default".to_owned(), "data".to_owned()));
            let scratch = VolumeUsage::default();
            BTreeMap::from([("data".to_owned(), usage), ("scratch".to_owned(), scratch)])
        }
    }

    #[tokio::test]
    async fn a_claim_that_pods_share_is_shown_once() {
        let pod = |uid: &str, volume: serde_json::Value| {
            let pod = json!({"metadata": {"uid": uid}, "spec": {"containers": [], "volumes": [volume]}});
            Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
        };
        let claim = || json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
        let pods = Pods(vec![
            pod("1", json!({"name": "scratch", "emptyDir": {}})),
            pod("2", claim()),
            pod("3", claim()),
        ]);
        let volumes = of_pods(&pods, &Usages).await;
        let used: Vec<_> = volumes.values().map(|usage| usage.used_bytes).collect();
        assert_eq!(used, [Some(2)]);
    }
}
