//! Defaults of pods (`pkg/apis/core/v1/defaults.go`), and the conversions that apply to every pod
//! (`pkg/apis/core/v1/conversion.go`).

use kubelet_core::image_name::default_pull_policy;
use serde_json::{Map, Value, json};

use super::super::quantity::{self, Amounts};
use super::super::value::Fields;

/// Readable by all users.
const VOLUME_FILE_MODE: i32 = 0o644;
/// Lists of resources: amounts are rounded up to thousandths.
const RESOURCE_LISTS: [&str; 2] = ["limits", "requests"];

/// Annotations that listed init containers before there was a field for them.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.alpha.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-container-statuses",
    "pod.beta.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
];

/// Sets what is unset.
pub(in super::super) fn set_defaults(pod: &mut Value) {
    agree_on_twins(pod);
    drop_init_container_annotations(pod);
    let spec = &mut pod["spec"];
    if !spec.is_object() {
        *spec = Value::Object(Map::new());
    }
    spec.default_text("dnsPolicy", "ClusterFirst");
    spec.default_text("restartPolicy", "Always");
    spec.default_value("securityContext", json!({}));
    spec.default_value("terminationGracePeriodSeconds", 30);
    if spec
        .number("terminationGracePeriodSeconds")
        .is_some_and(|seconds| seconds < 0)
    {
        spec["terminationGracePeriodSeconds"] = json!(1);
    }
    spec.default_text("schedulerName", "default-scheduler");
    spec.list_mut("volumes").iter_mut().for_each(default_volume);
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        spec.list_mut(key).iter_mut().for_each(default_container);
    }
    for key in ["containers", "initContainers"] {
        for container in spec.list_mut(key) {
            default_requests(&mut container["resources"]);
        }
    }
    if let Some(overhead) = spec.get_mut("overhead") {
        canonicalize_amounts(overhead);
    }
    if spec.has("resources") {
        canonicalize_lists(&mut spec["resources"]);
        default_huge_page_limits(spec);
        default_pod_requests(spec);
    }
    spec.default_value("enableServiceLinks", true);
    if spec.flag("hostNetwork") {
        for key in ["containers", "initContainers"] {
            spec.list_mut(key).iter_mut().for_each(default_host_ports);
        }
    }
    if pod["status"].is_object() {
        if let Some(amounts) = pod["status"].get_mut("allocatedResources") {
            canonicalize_amounts(amounts);
        }
        if let Some(resources) = pod["status"].get_mut("resources") {
            canonicalize_lists(resources);
        }
        for key in [
            "containerStatuses",
            "initContainerStatuses",
            "ephemeralContainerStatuses",
        ] {
            for status in pod["status"].list_mut(key) {
                if let Some(amounts) = status.get_mut("allocatedResources") {
                    canonicalize_amounts(amounts);
                }
                if let Some(resources) = status.get_mut("resources") {
                    canonicalize_lists(resources);
                }
            }
        }
    }
}

/// If two fields mean the same, the conversion to the API server's internal types keeps one.
fn agree_on_twins(pod: &mut Value) {
    let account = pod["spec"].text("serviceAccount").to_owned();
    if pod["spec"].text("serviceAccountName").is_empty() && !account.is_empty() {
        pod["spec"]["serviceAccountName"] = json!(account);
    }
    let ip = pod["status"].text("podIP").to_owned();
    if !ip.is_empty() && pod["status"]["podIPs"][0]["ip"] != ip.as_str() {
        pod["status"]["podIPs"] = json!([{"ip": ip}]);
    }
    let first = pod["status"]["podIPs"][0].text("ip").to_owned();
    if ip.is_empty() && !first.is_empty() {
        pod["status"]["podIP"] = json!(first);
    }
}

fn drop_init_container_annotations(pod: &mut Value) {
    if let Some(annotations) = pod
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !INIT_CONTAINER_ANNOTATIONS.contains(&key.as_str()));
        if annotations.is_empty() {
            pod["metadata"]
                .as_object_mut()
                .map(|metadata| metadata.remove("annotations"));
        }
    }
}

fn default_container(container: &mut Value) {
    let image = container.text("image").to_owned();
    container.default_text("imagePullPolicy", default_pull_policy(&image));
    container.default_text("terminationMessagePath", "/dev/termination-log");
    container.default_text("terminationMessagePolicy", "File");
    canonicalize_lists(&mut container["resources"]);
    for port in container.list_mut("ports") {
        port.default_text("protocol", "TCP");
    }
    for variable in container.list_mut("env") {
        if let Some(from) = variable.get_mut("valueFrom") {
            default_selectors(from);
            if let Some(file) = from.get_mut("fileKeyRef") {
                file.default_value("optional", false);
            }
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(key).filter(|probe| probe.is_object()) {
            default_probe(probe);
        }
    }
    for hook in ["/lifecycle/postStart", "/lifecycle/preStop"] {
        if let Some(hook) = container.pointer_mut(hook) {
            default_http_get(hook);
        }
    }
}

fn default_probe(probe: &mut Value) {
    for (key, default) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        if probe.number(key).unwrap_or(0) == 0 {
            probe[key] = json!(default);
        }
    }
    default_http_get(probe);
    if let Some(grpc) = probe.get_mut("grpc").filter(|grpc| grpc.is_object()) {
        grpc.default_value("service", "");
    }
}

fn default_http_get(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet").filter(|get| get.is_object()) {
        get.default_text("path", "/");
        get.default_text("scheme", "HTTP");
    }
}

/// References to a field or a resource of the pod.
fn default_selectors(from: &mut Value) {
    if let Some(field) = from.get_mut("fieldRef").filter(|field| field.is_object()) {
        field.default_text("apiVersion", "v1");
    }
    if let Some(resource) = from
        .get_mut("resourceFieldRef")
        .filter(|resource| resource.is_object())
    {
        resource.default_value("divisor", "0");
        canonicalize_amount(&mut resource["divisor"]);
    }
}

/// A limit without a request is also the request.
fn default_requests(resources: &mut Value) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    for (resource, limit) in limits {
        resources["requests"].default_value(&resource, limit);
    }
}

/// On the host's network a container port is a port of the host.
fn default_host_ports(container: &mut Value) {
    for port in container.list_mut("ports") {
        if port.number("hostPort").unwrap_or(0) == 0 {
            port["hostPort"] = port["containerPort"].clone();
        }
    }
}

/// The requests of a pod with pod-level limits: the sum of its containers' requests, or else its limits.
fn default_pod_requests(spec: &mut Value) {
    let limits = quantity::amounts(&spec["resources"], "limits");
    if limits.is_empty() {
        return;
    }
    let mut requests = quantity::amounts(&spec["resources"], "requests");
    for (resource, amount) in quantity::of_containers(spec, "requests") {
        if matches!(resource.as_str(), "cpu" | "memory") {
            requests.entry(resource).or_insert(amount);
        }
    }
    for (resource, limit) in limits {
        if is_pod_level(&resource) {
            requests.entry(resource).or_insert(limit);
        }
    }
    set_list(spec, "requests", &requests);
}

/// Huge pages cannot be overcommitted: the limit is the sum of the containers' limits.
fn default_huge_page_limits(spec: &mut Value) {
    let mut limits = quantity::amounts(&spec["resources"], "limits");
    let requests = quantity::amounts(&spec["resources"], "requests");
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    for (resource, amount) in quantity::of_containers(spec, "limits") {
        if resource.starts_with("hugepages-") && !requests.contains_key(&resource) {
            limits.entry(resource).or_insert(amount);
        }
    }
    set_list(spec, "limits", &limits);
}

fn set_list(spec: &mut Value, list: &str, amounts: &Amounts) {
    if !amounts.is_empty() {
        spec["resources"][list] = quantity::to_value(amounts);
    }
}

fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

fn default_volume(volume: &mut Value) {
    let sources = volume.as_object().into_iter().flatten();
    if !sources
        .into_iter()
        .any(|(key, value)| key != "name" && !value.is_null())
    {
        volume["emptyDir"] = json!({});
    }
    if let Some(size) = volume.pointer_mut("/emptyDir/sizeLimit") {
        canonicalize_amount(size);
    }
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(key).filter(|source| source.is_object()) {
            source.default_value("defaultMode", VOLUME_FILE_MODE);
            source.list_mut("items").iter_mut().for_each(default_selectors);
        }
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in projected.list_mut("sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                token.default_value("expirationSeconds", 3600);
            }
            if let Some(downward) = source.get_mut("downwardAPI") {
                downward.list_mut("items").iter_mut().for_each(default_selectors);
            }
        }
    }
    default_other_sources(volume);
}

fn default_other_sources(volume: &mut Value) {
    let mut source = |key: &str, defaults: &[(&str, Value)]| {
        if let Some(source) = volume.get_mut(key).filter(|source| source.is_object()) {
            for (key, default) in defaults {
                if default.is_string() {
                    source.default_text(key, default.as_str().unwrap_or_default());
                } else {
                    source.default_value(key, default.clone());
                }
            }
        }
    };
    source("iscsi", &[("iscsiInterface", json!("default"))]);
    source(
        "rbd",
        &[
            ("pool", json!("rbd")),
            ("user", json!("admin")),
            ("keyring", json!("/etc/ceph/keyring")),
        ],
    );
    source(
        "azureDisk",
        &[
            ("cachingMode", json!("ReadWrite")),
            ("kind", json!("Shared")),
            ("fsType", json!("ext4")),
            ("readOnly", json!(false)),
        ],
    );
    source(
        "scaleIO",
        &[
            ("storageMode", json!("ThinProvisioned")),
            ("fsType", json!("xfs")),
        ],
    );
    if let Some(host_path) = volume.get_mut("hostPath").filter(|source| source.is_object()) {
        host_path.default_value("type", "");
    }
    if let Some(image) = volume.get_mut("image").filter(|source| source.is_object()) {
        let reference = image.text("reference").to_owned();
        image.default_text("pullPolicy", default_pull_policy(&reference));
    }
    if let Some(template) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        template.default_value("volumeMode", "Filesystem");
        if template.has("resources") {
            canonicalize_lists(&mut template["resources"]);
        }
    }
}

/// Brings the lists of resources into canonical form.
fn canonicalize_lists(resources: &mut Value) {
    if !resources.is_object() {
        *resources = Value::Object(Map::new());
    }
    for list in RESOURCE_LISTS {
        if let Some(amounts) = resources.get_mut(list) {
            canonicalize_amounts(amounts);
        }
    }
}

fn canonicalize_amounts(amounts: &mut Value) {
    for (_, amount) in amounts.as_object_mut().into_iter().flatten() {
        if let Some(quantity) = quantity::of(amount) {
            *amount = json!(quantity.round_up_to_milli().to_string());
        }
    }
}

fn canonicalize_amount(amount: &mut Value) {
    if let Some(quantity) = quantity::of(amount) {
        *amount = json!(quantity.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_replaced() {
        for (spec, expected) in [
            (json!({}), 30),
            (json!(null), 30),
            (json!({"terminationGracePeriodSeconds": 0}), 0),
        ] {
            let mut pod = json!({"metadata": {}, "spec": spec});
            set_defaults(&mut pod);
            assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], expected);
        }
        let mut pod = json!({
            "metadata": {"annotations": {"pod.beta.kubernetes.io/init-containers": "[]"}},
            "spec": {"terminationGracePeriodSeconds": -5},
            "status": {"podIPs": [{"ip": "::1"}], "allocatedResources": {"cpu": "1.5m"}},
        });
        set_defaults(&mut pod);
        assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 1);
        assert_eq!(pod["metadata"], json!({}));
        assert_eq!(pod["status"]["podIP"], "::1");
        assert_eq!(pod["status"]["allocatedResources"]["cpu"], "2m");
    }
}
