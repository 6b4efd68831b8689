//! A recording of a node: its files, its runtime, and what the kubelet answered.

use std::io::Read as _;
use std::path::Path;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::stats::{
    RuntimeContainer, RuntimeContainerUsage, RuntimeCpu, RuntimeFileSystem, RuntimeList, RuntimeMemory,
    RuntimeSandbox,
};
use serde_json::Value;

use crate::tree::{FixedRuntime, Tree};

/// A node as recorded. `tree` has its files.
pub(crate) struct Recorded {
    pub tree: Tree,
    recording: Value,
}

impl Recorded {
    /// The node of `tests/data/v1.json.gz`: cgroup v1, containerd, three pods at rest.
    pub(crate) fn v1() -> Self {
        Self::read("v1.json.gz")
    }

    /// The node of `tests/data/v2.json.gz`: cgroup v2 with systemd, containerd, four pods at rest.
    pub(crate) fn v2() -> Self {
        Self::read("v2.json.gz")
    }

    fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(name);
        let mut text = String::new();
        let file = std::fs::File::open(path).unwrap();
        flate2::read::GzDecoder::new(file)
            .read_to_string(&mut text)
            .unwrap();
        let recording: Value = serde_json::from_str(&text).unwrap();
        let tree = Tree::new();
        for part in ["cgroups", "proc"] {
            for (path, content) in recording[part].as_object().unwrap() {
                match content {
                    Value::String(text) => tree.write(path, text),
                    // The names of open files.
                    Value::Array(names) => {
                        for name in names {
                            tree.link(&format!("{path}/{}", name.as_str().unwrap()), "/dev/null");
                        }
                    }
                    other => panic!("{path}: {other}"),
                }
            }
        }
        tree.write(
            "proc/1/limits",
            "Max open files            32768                32768                files     \n",
        );
        Self { tree, recording }
    }

    /// What the kubelet answered to a path.
    pub(crate) fn answer(&self, path: &str) -> &str {
        self.recording["answers"][path].as_str().unwrap()
    }

    /// The runtime as recorded.
    pub(crate) fn runtime(&self) -> FixedRuntime {
        let cri = &self.recording["cri"];
        let list = RuntimeList {
            sandboxes: array(&cri["pod_sandboxes"]["items"], |sandbox| RuntimeSandbox {
                id: text(&sandbox["id"]),
                namespace: text(&sandbox["metadata"]["namespace"]),
                pod: text(&sandbox["metadata"]["name"]),
                uid: text(&sandbox["metadata"]["uid"]),
                created_at: at(&sandbox["created_at"]),
                ready: sandbox.get("state").is_none_or(|state| state == "SANDBOX_READY"),
            }),
            containers: array(&cri["containers"]["containers"], |container| RuntimeContainer {
                id: text(&container["id"]),
                sandbox_id: text(&container["pod_sandbox_id"]),
                name: text(&container["metadata"]["name"]),
                image: text(&container["image"]["image"]),
                created_at: at(&container["created_at"]),
                running: container["state"] == "CONTAINER_RUNNING",
            }),
        };
        let usages = array(&cri["container_stats"]["stats"], |stats| RuntimeContainerUsage {
            id: text(&stats["attributes"]["id"]),
            name: text(&stats["attributes"]["metadata"]["name"]),
            cpu: stats.get("cpu").map(|cpu| RuntimeCpu {
                timestamp: at(&cpu["timestamp"]).unwrap(),
                usage_core_nano_seconds: number(cpu, "usage_core_nano_seconds"),
                usage_nano_cores: number(cpu, "usage_nano_cores"),
                psi: None,
            }),
            memory: stats.get("memory").map(|memory| RuntimeMemory {
                timestamp: at(&memory["timestamp"]).unwrap(),
                working_set: number(memory, "working_set_bytes"),
                available: number(memory, "available_bytes"),
                usage: number(memory, "usage_bytes"),
                rss: number(memory, "rss_bytes"),
                page_faults: number(memory, "page_faults"),
                major_page_faults: number(memory, "major_page_faults"),
                psi: None,
            }),
            swap: None,
            io: None,
            writable_layer: stats.get("writable_layer").map(|layer| RuntimeFileSystem {
                timestamp: at(&layer["timestamp"]).unwrap(),
                mountpoint: text(&layer["fs_id"]["mountpoint"]),
                used_bytes: number(layer, "used_bytes"),
                inodes_used: number(layer, "inodes_used"),
            }),
        });
        FixedRuntime {
            list: list.into(),
            usages,
            ..Default::default()
        }
    }
}

fn array<T>(value: &Value, each: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(each).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// `{}` is 0.
fn number(value: &Value, field: &str) -> Option<u64> {
    let value = value.get(field)?;
    Some(
        value
            .get("value")
            .map_or(0, |value| value.as_str().unwrap().parse().unwrap()),
    )
}

fn at(value: &Value) -> Option<Timestamp> {
    Timestamp::from_nanosecond(value.as_str()?.parse().unwrap()).ok()
}
