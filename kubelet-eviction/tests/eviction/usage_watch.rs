//! The look at the usage of memory, on files.

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::stats::Summary;
use kubelet_eviction::notifier::{UsageFile, UsageWatch};
use kubelet_eviction::{Signal, Threshold, ThresholdNotifier, ThresholdValue};
use serde_json::json;
use tokio::time::timeout;

use super::node::MIB;

fn threshold(signal: Signal) -> Threshold {
    Threshold {
        signal,
        value: ThresholdValue::Quantity(Quantity("100Mi".into())),
        grace_period: Duration::ZERO,
        min_reclaim: None,
    }
}

/// 300 of 1,000 MiB are used, of which 200 are the working set: the threshold is at a usage of 1,000.
fn summary() -> Summary {
    let memory = json!({"availableBytes": 800 * MIB, "usageBytes": 300 * MIB, "workingSetBytes": 200 * MIB});
    let node = json!({"memory": memory, "systemContainers": [{"name": "pods", "memory": memory}]});
    serde_json::from_value(json!({ "node": node })).unwrap()
}

async fn is_crossed(watch: &mut UsageWatch) -> bool {
    let crossed = timeout(Duration::from_secs(1), watch.crossed()).await;
    crossed.map(Result::unwrap).is_ok()
}

async fn crosses(mut watch: UsageWatch, file: &Path, write: fn(u64) -> String) {
    // The file counts 10 MiB that the summary does not.
    fs::write(file, write(310)).unwrap();
    assert!(!is_crossed(&mut watch).await, "not updated");
    watch.update_threshold(&summary()).await.unwrap();
    for (usage, crossed) in [
        (1009, false),
        (1010, true),
        (1010, false),
        (1020, false),
        (500, false),
        (1015, true),
    ] {
        fs::write(file, write(usage)).unwrap();
        assert_eq!(is_crossed(&mut watch).await, crossed, "{usage}");
    }
    fs::remove_file(file).unwrap();
    assert!(watch.crossed().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn notifies_each_time_the_usage_rises_above_the_threshold() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory.current");
    let watch = UsageWatch::new(
        threshold(Signal::AllocatableMemoryAvailable),
        UsageFile::Current(file.clone()),
    );
    crosses(watch, &file, |mib| format!("{}\n", mib * MIB)).await;

    let file = folder.path().join("meminfo");
    let watch = UsageWatch::new(
        threshold(Signal::MemoryAvailable),
        UsageFile::Meminfo(file.clone()),
    );
    let meminfo = |mib: u64| {
        let free = 2000 - mib;
        format!(
            "MemTotal:       {} kB\nMemFree:  {} kB\nMemAvailable: 1 kB\n",
            2000 * 1024,
            free * 1024
        )
    };
    crosses(watch, &file, meminfo).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_without_usage_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("meminfo");
    fs::write(&file, "MemTotal: 1 kB\n").unwrap();
    let mut watch = UsageWatch::new(
        threshold(Signal::MemoryAvailable),
        UsageFile::Meminfo(file.clone()),
    );
    let error = watch.update_threshold(&summary()).await.unwrap_err();
    assert!(error.to_string().contains("meminfo"), "{error}");
}
