//! The metric of measurements, as the kubelet has it.

use std::sync::Arc;

use kubelet_core::{Disk, PodUid};
use kubelet_volume::{InTreePlugins, OnDisk, VolumePlugin, VolumeSpec};
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The sources of the measurements that were recorded.
#[derive(Clone, Default)]
struct Sources(Arc<Mutex<Vec<String>>>);

struct Measured(Sources, String);

impl HistogramFn for Measured {
    fn record(&self, _: f64) {
        self.0.0.lock().push(self.1.clone());
    }
}

impl Recorder for Sources {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let source = key.labels().find(|label| label.key() == "metric_source");
        match source {
            Some(source) if key.name() == "kubelet_volume_metric_collection_duration_seconds" => {
                Histogram::from_arc(Arc::new(Measured(self.clone(), source.value().to_owned())))
            }
            _ => Histogram::noop(),
        }
    }
}

/// Runs a test, and returns the sources of its measurements.
pub(crate) fn sources_of(test: impl Future<Output = ()>) -> Vec<String> {
    let sources = Sources::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    metrics::with_local_recorder(&sources, || runtime.block_on(test));
    std::mem::take(&mut *sources.0.lock())
}

fn persistent(source: Value) -> VolumeSpec {
    let volume = json!({"metadata": {"name": "v"}, "spec": source});
    VolumeSpec::persistent(Arc::new(serde_json::from_value(volume).unwrap()), false)
}

#[test]
fn each_measurement_is_timed_by_its_source() {
    let root = tempfile::tempdir().unwrap();
    let plugins = InTreePlugins::new(root.path()).disk(Disk::inline()).build();
    let scratch = VolumeSpec::of_pod(Arc::new(
        serde_json::from_value(json!({"name": "v", "emptyDir": {}})).unwrap(),
    ));
    let device = root.path().join("device");
    std::fs::write(&device, "1234").unwrap();
    for (spec, dir, is_block, expected) in [
        (&scratch, root.path(), false, "du"),
        (
            &persistent(json!({"nfs": {"server": "s", "path": "/"}})),
            root.path(),
            false,
            "statfs",
        ),
        (
            &persistent(json!({"local": {"path": "/x"}, "volumeMode": "Block"})),
            &device,
            true,
            "block",
        ),
        // A measurement that fails took its time, too.
        (
            &persistent(json!({"local": {"path": "/x"}})),
            &root.path().join("absent"),
            false,
            "statfs",
        ),
    ] {
        let plugin = plugins.iter().find(|plugin| plugin.can_support(spec)).unwrap();
        let mounted = OnDisk {
            uid: PodUid::from("a"),
            name: "v".to_owned(),
            dir: dir.to_owned(),
            is_block,
        };
        let sources = sources_of(async { _ = plugin.usage(&mounted, spec).await });
        assert_eq!(sources, [expected]);
    }
}

#[cfg(feature = "csi")]
#[test]
fn a_csi_driver_is_a_source_by_its_name() {
    use crate::csi::node::{DRIVER, Node, on_disk, plain};

    let sources = sources_of(async {
        let node = Node::new();
        let mount = node.mount("a", plain("pv-1"));
        node.plugin.usage(&on_disk(&mount), &mount.spec).await.unwrap();
    });
    assert_eq!(sources, [DRIVER]);
}
