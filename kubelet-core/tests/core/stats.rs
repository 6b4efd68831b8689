//! The types of the usage against a recorded summary and against the API's text.

use flate2::read::GzDecoder;
use kubelet_core::stats::{SYSTEM_CONTAINER_PODS, Summary};
use serde_json::{Value, json};

/// Parses and writes back.
fn through_the_types(summary: &Value) -> Value {
    let summary: Summary = serde_json::from_value(summary.clone()).unwrap();
    serde_json::to_value(summary).unwrap()
}

#[test]
fn a_recorded_summary_is_written_as_it_was_read() {
    let packed = include_bytes!("../data/summary-only-cpu-and-memory.json.gz");
    let recorded: Value = serde_json::from_reader(GzDecoder::new(packed.as_slice())).unwrap();
    assert_eq!(through_the_types(&recorded), recorded);
    let summary: Summary = serde_json::from_value(recorded).unwrap();
    let pods = summary.system_container(SYSTEM_CONTAINER_PODS).unwrap();
    assert!(pods.memory.as_ref().unwrap().working_set_bytes.is_some());
    assert!(pods.cpu.as_ref().unwrap().psi.is_some());
}

#[test]
fn what_was_not_measured_is_null_or_absent_as_in_the_kubelet() {
    assert_eq!(
        serde_json::to_value(Summary::default()).unwrap(),
        json!({"node": {"nodeName": "", "startTime": null}, "pods": null})
    );
    let everything = json!({
        "node": {
            "nodeName": "n", "startTime": "2026-01-01T00:00:00Z",
            "cpu": {"time": null, "psi": {
                "full": {"total": 5, "avg10": 0.25, "avg60": 0, "avg300": 1},
                "some": {"total": 0, "avg10": 0, "avg60": 0, "avg300": 0},
            }},
            "io": {"time": null},
            "network": {"time": null, "name": "eth0", "rxBytes": 1, "rxErrors": 2, "txBytes": 3, "txErrors": 4,
                "interfaces": [{"name": "eth0", "rxBytes": 1}]},
            "fs": {"time": null, "availableBytes": 1, "capacityBytes": 2, "usedBytes": 3, "inodesFree": 4, "inodes": 5,
                "inodesUsed": 6},
            "runtime": {"imageFs": {"time": null}, "containerFs": {"time": null}},
            "rlimit": {"time": null, "maxpid": -1, "curproc": 3},
            "swap": {"time": null, "swapAvailableBytes": 1, "swapUsageBytes": 2},
        },
        "pods": [{
            "podRef": {"name": "p", "namespace": "d", "uid": "u"}, "startTime": null, "containers": null,
            "memory": {"time": null, "availableBytes": 1, "usageBytes": 2, "workingSetBytes": 3, "rssBytes": 4,
                "pageFaults": 5, "majorPageFaults": 6},
            "volume": [
                {"time": null, "usedBytes": 1, "name": "data", "pvcRef": {"name": "c", "namespace": "d"},
                    "volumeHealthStats": {"abnormal": true}},
                {"time": null},
            ],
            "ephemeral-storage": {"time": null}, "process_stats": {"process_count": 7},
        }, {
            "podRef": {"name": "", "namespace": "", "uid": ""}, "startTime": null,
            "containers": [{
                "name": "c", "startTime": null,
                "accelerators": [{"make": "a", "model": "b", "id": "c", "memoryTotal": 1, "memoryUsed": 2, "dutyCycle": 3}],
                "userDefinedMetrics": [{"name": "m", "type": "gauge", "units": "u", "labels": {"a": "b"},
                    "time": null, "value": 1.5}],
            }],
        }],
    });
    assert_eq!(through_the_types(&everything), everything);
}
