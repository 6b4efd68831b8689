//! Each default, and each value that the API replaces.

use std::path::Path;

use serde_json::{Value, json};

use crate::manifest::{Location, decode};

/// The pod that a manifest becomes, and whether it is refused.
fn pod(metadata: &str, spec: &str, container: &str, status: &str) -> Result<Value, String> {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, {metadata}}}\nstatus: {{{status}}}\n\
         spec: {{{spec}, containers: [{{name: c, image: i, {container}}}]}}\n"
    );
    let text = text.replace("{, ", "{");
    let manifest = decode(text.as_bytes(), "n", Location::File(Path::new("/a")));
    let pod = manifest.map_err(|error| format!("{error}: {text}"))?.pod;
    serde_json::to_value(pod).map_err(|error| error.to_string())
}

/// Holds the part of a pod at a JSON pointer to a value; `null` is an absent one.
#[track_caller]
fn check(pod: Result<Value, String>, pointer: &str, expected: &Value) {
    let pod = pod.unwrap();
    let found = pod.pointer(pointer).unwrap_or(&Value::Null);
    assert_eq!(found, expected, "{pointer} of {pod:#}");
}

#[test]
fn of_the_pod() {
    for (spec, pointer, expected) in [
        ("", "/spec/terminationGracePeriodSeconds", json!(30)),
        (
            "terminationGracePeriodSeconds: ~",
            "/spec/terminationGracePeriodSeconds",
            json!(30),
        ),
        (
            "terminationGracePeriodSeconds: 0",
            "/spec/terminationGracePeriodSeconds",
            json!(0),
        ),
        (
            "terminationGracePeriodSeconds: -1",
            "/spec/terminationGracePeriodSeconds",
            json!(1),
        ),
        (
            "terminationGracePeriodSeconds: -9223372036854775808",
            "/spec/terminationGracePeriodSeconds",
            json!(1),
        ),
        ("", "/spec/restartPolicy", json!("Always")),
        ("restartPolicy: ''", "/spec/restartPolicy", json!("Always")),
        ("restartPolicy: ~", "/spec/restartPolicy", json!("Always")),
        ("dnsPolicy: ''", "/spec/dnsPolicy", json!("ClusterFirst")),
        ("", "/spec/securityContext", json!({})),
        ("", "/spec/schedulerName", json!("default-scheduler")),
        (
            "schedulerName: ''",
            "/spec/schedulerName",
            json!("default-scheduler"),
        ),
        ("", "/spec/enableServiceLinks", json!(true)),
        (
            "enableServiceLinks: false",
            "/spec/enableServiceLinks",
            json!(false),
        ),
        ("hostNetwork: false", "/spec/hostNetwork", json!(null)),
        ("hostUsers: true", "/spec/hostUsers", json!(true)),
        ("overhead: {cpu: 1.5m}", "/spec/overhead/cpu", json!("2m")),
        ("overhead: {cpu: ~}", "/spec/overhead/cpu", json!("0")),
        (
            "securityContext: {supplementalGroups: [~, 7]}",
            "/spec/securityContext/supplementalGroups",
            json!([0, 7]),
        ),
        (
            "dnsConfig: {options: [{name: a, value: ''}]}",
            "/spec/dnsConfig/options/0",
            json!({"name": "a", "value": ""}),
        ),
        (
            "topologySpreadConstraints: [{maxSkew: 1, topologyKey: k, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: ~}}]",
            "/spec/topologySpreadConstraints/0/labelSelector",
            json!({}),
        ),
    ] {
        check(pod("", spec, "", ""), pointer, &expected);
    }
}

#[test]
fn of_metadata_and_status() {
    for (metadata, status, pointer, expected) in [
        ("", "", "/status/phase", json!("Pending")),
        ("", "phase: Running", "/status/phase", json!("Pending")),
        (
            "",
            "podIP: 10.0.0.1",
            "/status/podIPs",
            json!([{"ip": "10.0.0.1"}]),
        ),
        (
            "",
            "podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.2}, {ip: '::1'}]",
            "/status/podIPs",
            json!([{"ip": "10.0.0.1"}]),
        ),
        (
            "",
            "podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: '::1'}]",
            "/status/podIPs",
            json!([{"ip": "10.0.0.1"}, {"ip": "::1"}]),
        ),
        ("", "podIPs: [{ip: '::1'}]", "/status/podIP", json!("::1")),
        ("", "podIPs: []", "/status/podIPs", json!(null)),
        (
            "",
            "allocatedResources: {cpu: 1.5m}",
            "/status/allocatedResources/cpu",
            json!("2m"),
        ),
        ("generation: 0", "", "/metadata/generation", json!(null)),
        (
            "annotations: {pod.beta.kubernetes.io/init-containers: '[]', b: ~}",
            "",
            "/metadata/annotations/pod.beta.kubernetes.io~1init-containers",
            json!(null),
        ),
        ("annotations: {b: ~}", "", "/metadata/annotations/b", json!("")),
        ("labels: {b: ~}", "", "/metadata/labels/b", json!("")),
    ] {
        check(pod(metadata, "", "", status), pointer, &expected);
    }
}

#[test]
fn of_a_container() {
    for (container, pointer, expected) in [
        ("", "/terminationMessagePath", json!("/dev/termination-log")),
        (
            "terminationMessagePath: ''",
            "/terminationMessagePath",
            json!("/dev/termination-log"),
        ),
        ("", "/terminationMessagePolicy", json!("File")),
        ("", "/imagePullPolicy", json!("Always")),
        ("imagePullPolicy: ''", "/imagePullPolicy", json!("Always")),
        ("", "/resources", json!({})),
        ("resources: ~", "/resources", json!({})),
        (
            "resources: {limits: {cpu: 1}}",
            "/resources/requests",
            json!({"cpu": "1"}),
        ),
        (
            "resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 0}}",
            "/resources/requests",
            json!({"cpu": "0", "memory": "1Gi"}),
        ),
        (
            "resources: {limits: {cpu: 0.0001}}",
            "/resources/limits/cpu",
            json!("1m"),
        ),
        (
            "resources: {limits: {cpu: 1500m}}",
            "/resources/limits/cpu",
            json!("1500m"),
        ),
        (
            "resources: {limits: {cpu: ~}}",
            "/resources/requests/cpu",
            json!("0"),
        ),
        (
            "resources: {limits: {memory: 1e3}}",
            "/resources/limits/memory",
            json!("1k"),
        ),
        (
            "resources: {limits: {memory: 0x10}}",
            "/resources/limits/memory",
            json!("16"),
        ),
        (
            "resources: {limits: {memory: 10E}}",
            "/resources/limits/memory",
            json!("9223372036854775807"),
        ),
        ("resources: {limits: {}}", "/resources", json!({})),
        (
            "ports: [{containerPort: 1}]",
            "/ports/0",
            json!({"containerPort": 1, "protocol": "TCP"}),
        ),
        (
            "ports: [{containerPort: 1, hostPort: 0, protocol: ''}]",
            "/ports/0",
            json!({"containerPort": 1, "protocol": "TCP"}),
        ),
        ("args: [~, a]", "/args", json!(["", "a"])),
        ("command: []", "/command", json!(null)),
        ("stdin: false, tty: ~", "/stdin", json!(null)),
        (
            "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
            "/env/0/valueFrom/fieldRef/apiVersion",
            json!("v1"),
        ),
        (
            "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]",
            "/env/0/valueFrom/resourceFieldRef/divisor",
            json!("0"),
        ),
        (
            "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: ~}}}]",
            "/env/0/valueFrom/resourceFieldRef/divisor",
            json!("0"),
        ),
        (
            "livenessProbe: {exec: {command: [a]}}",
            "/livenessProbe/timeoutSeconds",
            json!(1),
        ),
        (
            "livenessProbe: {exec: {command: [a]}, timeoutSeconds: 0, periodSeconds: 0, failureThreshold: ~}",
            "/livenessProbe",
            json!({
                "exec": {"command": ["a"]}, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3,
            }),
        ),
        (
            "livenessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 2}",
            "/livenessProbe/terminationGracePeriodSeconds",
            json!(2),
        ),
        (
            "readinessProbe: {grpc: {port: 1}}",
            "/readinessProbe/grpc/service",
            json!(""),
        ),
        (
            "startupProbe: {httpGet: {port: 80.0}}",
            "/startupProbe/httpGet",
            json!({"port": 80, "path": "/", "scheme": "HTTP"}),
        ),
        (
            "lifecycle: {preStop: {httpGet: {port: p, path: ''}}}",
            "/lifecycle/preStop/httpGet",
            json!({"port": "p", "path": "/", "scheme": "HTTP"}),
        ),
    ] {
        check(
            pod("", "", container, ""),
            &format!("/spec/containers/0{pointer}"),
            &expected,
        );
    }
}

#[test]
fn of_a_variable_from_a_file() {
    let env = "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]";
    check(
        pod("", "volumes: [{name: v}]", env, ""),
        "/spec/containers/0/env/0/valueFrom/fileKeyRef/optional",
        &json!(false),
    );
}

#[test]
fn of_a_volume() {
    for (volume, expected) in [
        ("", json!({"emptyDir": {}})),
        ("emptyDir: ~", json!({"emptyDir": {}})),
        (
            "emptyDir: {sizeLimit: 1024Mi}",
            json!({"emptyDir": {"sizeLimit": "1Gi"}}),
        ),
        (
            "emptyDir: {sizeLimit: 1.5}",
            json!({"emptyDir": {"sizeLimit": "1500m"}}),
        ),
        ("emptyDir: {sizeLimit: ~}", json!({"emptyDir": {}})),
        (
            "hostPath: {path: /x}",
            json!({"hostPath": {"path": "/x", "type": ""}}),
        ),
        (
            "hostPath: {path: /x, type: ~}",
            json!({"hostPath": {"path": "/x", "type": ""}}),
        ),
        (
            "downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}",
            json!({"downwardAPI": {
                "defaultMode": 420,
                "items": [{"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}],
            }}),
        ),
        (
            "downwardAPI: {defaultMode: 0, items: []}",
            json!({"downwardAPI": {"defaultMode": 0}}),
        ),
        (
            "iscsi: {targetPortal: 1.2.3.4, iqn: 'iqn.2001-04.com.example:x', lun: 0, chapAuthDiscovery: false, readOnly: false}",
            json!({"iscsi": {
                "targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:x", "lun": 0, "iscsiInterface": "default",
            }}),
        ),
        (
            "rbd: {monitors: [a], image: i}",
            json!({"rbd": {
                "monitors": ["a"], "image": "i", "pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring",
            }}),
        ),
        (
            "azureDisk: {diskName: d, diskURI: 'https://x/d'}",
            json!({"azureDisk": {
                "diskName": "d", "diskURI": "https://x/d", "cachingMode": "ReadWrite", "kind": "Shared",
                "fsType": "ext4", "readOnly": false,
            }}),
        ),
        (
            "azureDisk: {diskName: d, diskURI: 'https://x/d', fsType: ''}",
            json!({"azureDisk": {
                "diskName": "d", "diskURI": "https://x/d", "cachingMode": "ReadWrite", "kind": "Shared",
                "fsType": "", "readOnly": false,
            }}),
        ),
        (
            "gcePersistentDisk: {pdName: d, partition: 0}",
            json!({"gcePersistentDisk": {"pdName": "d"}}),
        ),
        (
            "image: {reference: 'a:1'}",
            json!({"image": {"reference": "a:1", "pullPolicy": "IfNotPresent"}}),
        ),
        (
            "image: {reference: a, pullPolicy: ''}",
            json!({"image": {"reference": "a", "pullPolicy": "Always"}}),
        ),
    ] {
        let mut expected = expected;
        expected["name"] = json!("v");
        let spec = format!("volumes: [{{name: v, {volume}}}]");
        check(pod("", &spec, "", ""), "/spec/volumes/0", &expected);
    }
}

#[test]
fn of_the_pods_own_resources() {
    for (resources, container, expected) in [
        ("{}", "{limits: {cpu: 1}}", json!({})),
        (
            "{limits: {cpu: 2}}",
            "{}",
            json!({"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}),
        ),
        (
            "{limits: {cpu: 2, memory: 1Gi}}",
            "{requests: {cpu: 1}}",
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}),
        ),
        (
            "{requests: {cpu: 2}}",
            "{limits: {cpu: 1}}",
            json!({"requests": {"cpu": "2"}}),
        ),
        (
            "{limits: {cpu: 2}}",
            "{limits: {cpu: 1, hugepages-2Mi: 4Mi}}",
            json!({
                "limits": {"cpu": "2", "hugepages-2Mi": "4Mi"},
                "requests": {"cpu": "1", "hugepages-2Mi": "4Mi"},
            }),
        ),
    ] {
        let spec = format!("resources: {resources}");
        check(
            pod("", &spec, &format!("resources: {container}"), ""),
            "/spec/resources",
            &expected,
        );
    }
}

#[test]
fn of_ports_on_the_hosts_network() {
    let container = "ports: [{containerPort: 1}, {containerPort: 2, hostPort: 2}]";
    check(
        pod("", "hostNetwork: true", container, ""),
        "/spec/containers/0/ports",
        &json!([
            {"containerPort": 1, "hostPort": 1, "protocol": "TCP"},
            {"containerPort": 2, "hostPort": 2, "protocol": "TCP"},
        ]),
    );
}

#[test]
fn what_is_empty_but_not_unset_is_refused() {
    for (spec, container) in [
        ("hostnameOverride: ''", ""),
        ("preemptionPolicy: ''", ""),
        ("", "restartPolicy: ''"),
        ("", "securityContext: {procMount: ''}"),
        ("", "resources: {limits: {cpu: ''}}"),
        ("", "resources: {limits: {cpu: -1}}"),
        ("volumes: [{name: v, emptyDir: {sizeLimit: ''}}]", ""),
        (
            "",
            "livenessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: -1}",
        ),
        ("", "livenessProbe: {exec: {command: [a]}, timeoutSeconds: -1}"),
        ("tolerations: [~]", ""),
    ] {
        let pod = pod("", spec, container, "");
        assert!(pod.is_err(), "{spec} {container}: {pod:?}");
    }
    assert!(pod("creationTimestamp: ''", "", "", "").is_err());
}
