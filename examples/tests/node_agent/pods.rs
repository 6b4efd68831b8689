//! Pods for tests.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::cluster::NODE;

pub(crate) const IMAGE: &str = "docker.io/library/busybox:1.36";

/// Runs until it is asked to stop, and then ends well.
pub(crate) const SERVER: &str = "trap 'exit 0' TERM; echo up; while true; do sleep 1 & wait $!; done";

/// A pod of one container `main` that does this in a shell. `spec` is laid over its spec.
pub(crate) fn pod(name: &str, script: &str, spec: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": NODE,
            "hostNetwork": true,
            "terminationGracePeriodSeconds": 20,
            "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script]}],
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        match field.as_str() {
            // Of the container.
            "env" | "envFrom" | "volumeMounts" => pod["spec"]["containers"][0][field] = value.clone(),
            _ => pod["spec"][field] = value.clone(),
        }
    }
    serde_json::from_value(pod).unwrap()
}
