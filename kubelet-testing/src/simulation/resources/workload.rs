//! The pods of a simulation that need CPUs of their own, memory, devices and claims.

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use serde_json::{Value, json};

use super::{DRIVER, GPU, NIC};
use crate::ApiServer;
use crate::memory_cri::hash;
use crate::simulation::agent::AgentError;
use crate::simulation::storage::of;

const CLASS: &str = "claims";
const TEMPLATE: &str = "one-device";
/// The claims that several pods may use.
const SHARED: u64 = 2;
/// How many devices the driver has.
const DEVICES: usize = 8;

/// Adds random requests to a pod. They follow from the pod's name and `seed`.
pub(in crate::simulation) fn add_requests(pod: &mut Value, seed: u64, is_static: bool) {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut rng = fastrand::Rng::with_seed(hash(seed, format!("requests of {name}")));
    let spec = &mut pod["spec"];
    let is_guaranteed = rng.bool();
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            if container["resources"].is_object() {
                // More than the node has.
                continue;
            }
            let cpu = ["1", "1", "2", "3", "500m", "1500m"][rng.usize(..6)];
            let memory = ["64Mi", "256Mi", "1Gi"][rng.usize(..3)];
            if is_guaranteed {
                request(container, "cpu", cpu);
                request(container, "memory", memory);
            } else if rng.u8(..3) == 0 {
                container["resources"] = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": cpu}});
            }
            for (resource, most) in [(GPU, 3), (NIC, 2)] {
                if rng.u8(..6) == 0 {
                    request(container, resource, &rng.usize(1..=most).to_string());
                }
            }
        }
    }
    if !is_static && rng.u8(..4) == 0 {
        let shared = format!("shared-{}", rng.u64(..SHARED));
        let entries = [
            json!({"name": "own", "resourceClaimTemplateName": TEMPLATE}),
            json!({"name": "shared", "resourceClaimName": shared}),
        ];
        let entry = entries[rng.usize(..2)].clone();
        spec["containers"][0]["resources"]["claims"] = json!([{"name": entry["name"]}]);
        spec["resourceClaims"] = json!([entry]);
    }
}

fn request(container: &mut Value, resource: &str, amount: &str) {
    for list in ["requests", "limits"] {
        container["resources"][list][resource] = json!(amount);
    }
}

/// A pod with a device of each plugin.
pub(in crate::simulation) fn with_devices(name: &str, node: &str) -> Value {
    let mut container = json!({"name": "main", "image": "sim/forever", "imagePullPolicy": "IfNotPresent"});
    request(&mut container, GPU, "1");
    request(&mut container, NIC, "1");
    json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false}})
}

/// Creates the objects that claims refer to.
pub(in crate::simulation) fn create_objects(api: &ApiServer) -> Result<(), AgentError> {
    let expression = format!("device.driver == \"{DRIVER}\"");
    api.create(&of::<DeviceClass>(
        json!({"metadata": {"name": CLASS}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}),
    ))?;
    let spec = json!({"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": CLASS}}]}});
    api.create(&of::<ResourceClaimTemplate>(
        json!({"metadata": {"name": TEMPLATE, "namespace": "default"}, "spec": {"spec": spec}}),
    ))?;
    for number in 0..SHARED {
        let name = format!("shared-{number}");
        api.create(&of::<ResourceClaim>(
            json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}),
        ))?;
    }
    Ok(())
}

/// The driver publishes the devices of a node, if they are not published. Agents delete this when they start.
pub(in crate::simulation) fn publish_slice(api: &ApiServer, node: &str) {
    let name = format!("{node}-{CLASS}");
    // An error: nobody knows while the server is away.
    if !matches!(api.get::<ResourceSlice>("", &name), Ok(None)) {
        return;
    }
    let devices: Vec<Value> = (0..DEVICES)
        .map(|number| json!({"name": format!("claimed-{number}")}))
        .collect();
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"nodeName": node, "driver": DRIVER, "pool": pool, "devices": devices});
    // Tried again later.
    let _ = api.create(&of::<ResourceSlice>(
        json!({"metadata": {"name": name}, "spec": spec}),
    ));
}
