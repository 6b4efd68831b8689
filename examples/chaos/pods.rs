//! The pods of the workload: every kind of container, volume and restart policy.

use fastrand::Rng;
use kubelet_testing::Containerd;
use serde_json::{Value, json};

use crate::cluster::DRIVER;
use crate::folder::folder;

/// A label of pods with a container that ends again and again. The value is its name.
pub(crate) const CRASHES: &str = "chaos/crashes";

/// What each container may do when it ends: as `restartPolicy`, and `Init` for a container that may run again with a new
/// sandbox. The witness of its runs judges by it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Policy {
    Always,
    OnFailure,
    Never,
    Init,
}

/// A container that behaves as `container.sh` describes.
pub(crate) fn container(name: &str, behaviour: &[&str], policy: Policy) -> Value {
    let mut command = vec!["/witness/run"];
    command.extend(behaviour);
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    json!({
        "name": name,
        "image": Containerd::BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": [
            field("POD_UID", "metadata.uid"),
            field("POD_NAME", "metadata.name"),
            {"name": "CONTAINER", "value": name},
            {"name": "POLICY", "value": format!("{policy:?}")},
        ],
        "volumeMounts": [{"name": "witness", "mountPath": "/witness"}],
    })
}

/// A spec with these containers.
pub(crate) fn spec(containers: Vec<Value>, grace: u64) -> Value {
    let witness = folder().join("witness").display().to_string();
    json!({
        "containers": containers,
        "terminationGracePeriodSeconds": grace,
        "volumes": [{"name": "witness", "hostPath": {"path": witness, "type": "Directory"}}],
    })
}

/// Adds a volume, and mounts it in all containers.
pub(crate) fn mount(spec: &mut Value, name: &str, mut volume: Value) {
    volume["name"] = name.into();
    push(&mut spec["volumes"], volume);
    for kind in ["containers", "initContainers"] {
        for container in spec[kind].as_array_mut().into_iter().flatten() {
            push(&mut container["volumeMounts"], json!({"name": name, "mountPath": format!("/{name}")}));
        }
    }
}

fn push(list: &mut Value, item: Value) {
    if let Value::Array(list) = list {
        list.push(item);
    } else {
        *list = json!([item]);
    }
}

/// A sidecar: an init container that runs beside the others.
pub(crate) fn sidecar(name: &str) -> Value {
    let mut sidecar = container(name, &["serve", "0"], Policy::Always);
    sidecar["restartPolicy"] = "Always".into();
    sidecar
}

/// A volume of each kind that needs an object of the API.
pub(crate) fn mount_objects(spec: &mut Value) {
    let labels = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]);
    mount(spec, "settings", json!({"configMap": {"name": "settings"}}));
    mount(spec, "key", json!({"secret": {"secretName": "key"}}));
    mount(spec, "pod", json!({"downwardAPI": {"items": labels}}));
    let sources = json!([
        {"configMap": {"name": "settings"}},
        {"secret": {"name": "key"}},
        {"downwardAPI": {"items": labels}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
    ]);
    mount(spec, "all", json!({"projected": {"sources": sources}}));
}

/// An inline volume of the CSI driver.
pub(crate) fn mount_csi(spec: &mut Value) {
    mount(spec, "csi", json!({"csi": {"driver": DRIVER, "volumeAttributes": {"size": "1Mi"}}}));
}

/// A web server with probes, a hook, a sidecar and volumes.
pub(crate) fn web() -> Value {
    let mut main = container("main", &["web", "1"], Policy::Always);
    let get = json!({"path": "/", "port": 8080});
    main["readinessProbe"] = json!({"httpGet": get, "periodSeconds": 5});
    main["startupProbe"] = json!({"httpGet": get, "periodSeconds": 1, "failureThreshold": 60});
    main["lifecycle"] = json!({"preStop": {"exec": {"command": ["sleep", "1"]}}});
    let mut spec = spec(vec![main, container("other", &["serve", "0"], Policy::Always)], 10);
    spec["initContainers"] =
        json!([container("first", &["finish", "1", "0"], Policy::Init), sidecar("beside")]);
    mount(&mut spec, "scratch", json!({"emptyDir": {}}));
    mount_objects(&mut spec);
    spec
}

/// A pod of a stateful set. No other pod of its name may run at the same time.
pub(crate) fn stateful(has_csi: bool) -> Value {
    let mut main = container("main", &["serve", "3"], Policy::Always);
    main["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 30});
    one_of_a_name(&mut main);
    let mut spec = spec(vec![main], 15);
    mount(&mut spec, "scratch", json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}));
    if has_csi {
        mount_csi(&mut spec);
    }
    spec
}

fn one_of_a_name(container: &mut Value) {
    push(&mut container["env"], json!({"name": "ONE_OF_A_NAME", "value": "yes"}));
}

/// A manifest of a static pod. Its second version has another environment.
pub(crate) fn static_pod(name: &str, version: u32) -> Value {
    let mut main = container("main", &["serve", "2"], Policy::Always);
    one_of_a_name(&mut main);
    push(&mut main["env"], json!({"name": "VERSION", "value": version.to_string()}));
    let mut spec = spec(vec![main], 10);
    mount(&mut spec, "scratch", json!({"emptyDir": {}}));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": crate::api::NAMESPACE},
        "spec": spec,
    })
}

/// A pod of a job: it ends after some seconds, one in four with an error.
pub(crate) fn of_job(rng: &mut Rng, has_csi: bool) -> Value {
    let seconds = rng.u32(2..20).to_string();
    let never = rng.bool();
    let (policy, behaviour) = match (never, rng.u32(0..4)) {
        (true, 0) => (Policy::Never, vec!["finish", &seconds, "1"]),
        (true, _) => (Policy::Never, vec!["finish", &seconds, "0"]),
        (false, 0) => (Policy::OnFailure, vec!["fail-once", &seconds]),
        (false, _) => (Policy::OnFailure, vec!["finish", &seconds, "0"]),
    };
    let mut spec = spec(vec![container("main", &behaviour, policy)], 5);
    spec["restartPolicy"] = format!("{policy:?}").into();
    mount(&mut spec, "scratch", json!({"emptyDir": {}}));
    if has_csi && rng.bool() {
        mount_csi(&mut spec);
    }
    spec
}

/// A pod that nobody owns, of a random kind.
pub(crate) fn bare(name: &str, rng: &mut Rng, has_csi: bool) -> Value {
    let seconds = rng.u32(2..40).to_string();
    // Longer than any hook sleeps.
    let grace = rng.u64(3..20);
    let mut labels = json!({"app": "bare"});
    let mut pod = match rng.u32(0..11) {
        0 => with_policy(Policy::Never, container("main", &["finish", &seconds, "0"], Policy::Never)),
        1 => with_policy(Policy::Never, container("main", &["finish", &seconds, "3"], Policy::Never)),
        2 => with_policy(Policy::OnFailure, container("main", &["fail-once", "2"], Policy::OnFailure)),
        // Its sidecar ends after it.
        3 => {
            let mut spec =
                with_policy(Policy::Never, container("main", &["finish", &seconds, "0"], Policy::Never));
            spec["initContainers"] =
                json!([sidecar("beside"), container("first", &["finish", "1", "0"], Policy::Never)]);
            spec
        }
        4 => {
            let mut spec = with_policy(Policy::Never, container("main", &["serve", "1"], Policy::Never));
            spec["activeDeadlineSeconds"] = rng.u32(10..90).into();
            spec
        }
        5 => {
            let mut main = container("main", &["sick", &seconds], Policy::Always);
            main["livenessProbe"] = json!({"exec": {"command": ["test", "-e", "/tmp/alive"]}, "periodSeconds": 5, "failureThreshold": 2});
            main["lifecycle"] = json!({"postStart": {"exec": {"command": ["true"]}}});
            labels[CRASHES] = "main".into();
            with_policy(Policy::Always, main)
        }
        6 => {
            labels[CRASHES] = "main".into();
            with_policy(Policy::Always, container("main", &["finish", "3", "1"], Policy::Always))
        }
        7 => with_policy(Policy::Always, container("main", &["stubborn"], Policy::Always)),
        8 => {
            let mut spec = with_policy(Policy::Always, container("main", &["serve", "2"], Policy::Always));
            spec["hostNetwork"] = true.into();
            spec
        }
        9 => {
            let mut main = container("main", &["serve", "1"], Policy::Always);
            main["resources"] = json!({"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"cpu": "500m", "memory": "32Mi"}});
            main["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 2}}});
            with_policy(Policy::Always, main)
        }
        _ => {
            let mut spec = with_policy(Policy::Always, container("main", &["serve", "0"], Policy::Always));
            spec["initContainers"] = json!([
                container("first", &["finish", "1", "0"], Policy::Init),
                container("second", &["finish", "1", "0"], Policy::Init)
            ]);
            mount_objects(&mut spec);
            spec
        }
    };
    pod["terminationGracePeriodSeconds"] = grace.into();
    mount(&mut pod, "scratch", json!({"emptyDir": {}}));
    if has_csi && rng.u32(0..4) == 0 {
        mount_csi(&mut pod);
    }
    json!({"metadata": {"name": name, "labels": labels}, "spec": pod})
}

fn with_policy(policy: Policy, container: Value) -> Value {
    let mut spec = spec(vec![container], 5);
    spec["restartPolicy"] = format!("{policy:?}").into();
    spec
}
