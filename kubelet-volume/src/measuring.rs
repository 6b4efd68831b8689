//! How long it takes to measure the usage of volumes, by the kubelet's name.

use tokio::time::Instant;

/// Runs a measurement, and records how long it took, also if it fails (`CollectVolumeStatCalDuration`). `source` is how the
/// volume is measured: `du`, `fsquota`, `statfs`, `block`, or the name of a CSI driver.
pub(crate) async fn timed<T>(source: &str, measuring: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let measured = measuring.await;
    metrics::histogram!(
        "kubelet_volume_metric_collection_duration_seconds",
        "metric_source" => source.to_owned()
    )
    .record(begun.elapsed().as_secs_f64());
    measured
}
