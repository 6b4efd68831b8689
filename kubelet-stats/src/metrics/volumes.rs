//! `kubelet_volume_stats_*`: the volumes with a claim (`volumeStatsCollector`).

use std::collections::BTreeMap;

use kubelet_core::stats::StatsPods;
use kubelet_core::{PodExt, PodUid, VolumeUsage, VolumeUsages};

use super::text::Kind::Gauge;
use super::text::Number::Whole;
use super::text::{Text, push_label};

/// Name, help text and value of a metric.
type Metric = (&'static str, &'static str, fn(&VolumeUsage) -> Option<u64>);

/// All metrics, sorted by name.
const METRICS: [Metric; 7] = [
    (
        "kubelet_volume_stats_available_bytes",
        "[ALPHA] Number of available bytes in the volume",
        |volume| volume.available_bytes,
    ),
    (
        "kubelet_volume_stats_capacity_bytes",
        "[ALPHA] Capacity in bytes of the volume",
        |volume| volume.capacity_bytes,
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
        |volume| volume.inodes,
    ),
    (
        "kubelet_volume_stats_inodes_free",
        "[ALPHA] Number of free inodes in the volume",
        |volume| volume.inodes_free,
    ),
    (
        "kubelet_volume_stats_inodes_used",
        "[ALPHA] Number of used inodes in the volume",
        |volume| volume.inodes_used,
    ),
    (
        "kubelet_volume_stats_used_bytes",
        "[ALPHA] Number of used bytes in the volume",
        |volume| volume.used_bytes,
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
    fn a_volume_shows_what_its_driver_reports() {
        let mut usage = VolumeUsage::default();
        usage.used_bytes = Some(4096);
        usage.abnormal = Some(true);
        let claim = ("default".to_owned(), "data".to_owned());
        let text = write(&Volumes::from([(claim, usage)]));
        let labels = "{namespace=\"default\",persistentvolumeclaim=\"data\"}";
        assert_eq!(
            String::from_utf8_lossy(&text),
            format!(
                "# HELP kubelet_volume_stats_health_status_abnormal [ALPHA] Abnormal volume health status. The count is \
                 either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy\n\
                 # TYPE kubelet_volume_stats_health_status_abnormal gauge\n\
                 kubelet_volume_stats_health_status_abnormal{labels} 1\n\
                 # HELP kubelet_volume_stats_used_bytes [ALPHA] Number of used bytes in the volume\n\
                 # TYPE kubelet_volume_stats_used_bytes gauge\nkubelet_volume_stats_used_bytes{labels} 4096\n"
            )
        );
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
