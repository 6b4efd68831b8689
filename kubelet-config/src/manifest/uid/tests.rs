//! What the dump looks like. `tests/config/static_pod_uids.rs` holds the hash to many recordings.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;

use super::*;
use crate::manifest::{decode, defaults, json, read};

fn dump_of(manifest: &str) -> String {
    let text = read(manifest.as_bytes()).unwrap();
    let mut pod: Pod = serde_json::from_value(text.canonical).unwrap();
    defaults::set_defaults(&mut pod);
    pod_dump(&json(&pod), &text.written, text.syntax).unwrap()
}

fn with(metadata: &str, container: &str, spec: &str) -> String {
    dump_of(&format!(
        "{{\"metadata\": {{\"name\": \"a\"{metadata}}}, \"spec\": \
         {{\"containers\": [{{\"name\": \"c\", \"image\": \"i\"{container}}}]{spec}}}}}"
    ))
}

#[test]
fn each_kind_of_value() {
    let cases = [
        (
            "",
            "",
            "",
            "(*core.Pod){TypeMeta:(v1.TypeMeta){Kind:(string) APIVersion:(string)} ObjectMeta:(v1.ObjectMeta){Name:(string)a ",
        ),
        // A list or a map that is not there, an empty one, one with items.
        ("", "", "", " Labels:(map[string]string)<nil> "),
        (r#", "labels": null"#, "", "", " Labels:(map[string]string)<nil> "),
        (r#", "labels": {}"#, "", "", " Labels:(map[string]string)map[] "),
        (
            r#", "labels": {"b": "2", "B": "1", "a": null}"#,
            "",
            "",
            " Labels:(map[string]string)map[B:1 a: b:2] ",
        ),
        (r#", "finalizers": []"#, "", "", " Finalizers:([]string)[] "),
        ("", r#", "args": ["x y", ""]"#, "", " Args:([]string)[x y ] "),
        (
            "",
            r#", "ports": [{"containerPort": 80}]"#,
            "",
            " Ports:([]core.ContainerPort)[{Name:(string) HostPort:(int32)0 ContainerPort:(int32)80 Protocol:(core.Protocol)TCP HostIP:(string)}] ",
        ),
        // Pointers.
        (
            "",
            "",
            r#", "hostUsers": false"#,
            " SecurityContext:(*core.PodSecurityContext){HostNetwork:(bool)false HostPID:(bool)false HostIPC:(bool)false ShareProcessNamespace:(*bool)<nil> HostUsers:(*bool)false ",
        ),
        (
            "",
            "",
            r#", "volumes": [{"name": "v"}]"#,
            " EmptyDir:(*core.EmptyDirVolumeSource){Medium:(core.StorageMedium) SizeLimit:(*resource.Quantity)<nil>} ",
        ),
        (
            "",
            "",
            r#", "volumes": [{"name": "v", "scaleIO": {"system": "s"}}]"#,
            " SecretRef:(*core.LocalObjectReference)<nil> ",
        ),
        // A port is a number or a name.
        (
            "",
            r#", "livenessProbe": {"httpGet": {"port": 80}}"#,
            "",
            " Port:(intstr.IntOrString){Type:(intstr.Type)0 IntVal:(int32)80 StrVal:(string)} ",
        ),
        (
            "",
            r#", "livenessProbe": {"httpGet": {"port": "web"}}"#,
            "",
            " Port:(intstr.IntOrString){Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)web} ",
        ),
        // Annotations that the API drops.
        (
            r#", "annotations": {"pod.beta.kubernetes.io/init-containers": ""}"#,
            "",
            "",
            " Annotations:(map[string]string)map[] ",
        ),
        (
            r#", "managedFields": [{"fieldsV1": {"f:a": {}}}]"#,
            "",
            "",
            " FieldsV1:(*v1.FieldsV1){Raw:([]uint8)[123 34 102 58 97 34 58 32 123 125 125]} ",
        ),
        // Requests that follow from limits.
        (
            "",
            r#", "resources": {"limits": {}}"#,
            "",
            "{Limits:(core.ResourceList)map[] Requests:(core.ResourceList)map[] ",
        ),
    ];
    for (metadata, container, spec, expected) in cases {
        let dump = with(metadata, container, spec);
        assert!(
            dump.contains(expected),
            "{metadata}{container}{spec}: {expected:?} is not in {dump}"
        );
    }
}

#[test]
fn quantities_as_they_are_written_and_rounded() {
    let word = |value, scale, text, format| {
        format!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){text} Format:(resource.Format){format}}}"
        )
    };
    let decimal = |words, scale, format| {
        format!(
            "{{i:(resource.int64Amount){{value:(int64)0 scale:(resource.Scale)0}} d:(resource.infDecAmount){{Dec:(*inf.Dec)\
             {{unscaled:(big.Int){{neg:(bool)false abs:(big.nat){words}}} scale:(inf.Scale){scale}}}}} s:(string) \
             Format:(resource.Format){format}}}"
        )
    };
    // How it is written, in JSON; a size limit; a limit, which is rounded.
    let same = |dump: String| (dump.clone(), dump);
    for (written, (size, limit)) in [
        ("1", same(word(1, 0, "1", "DecimalSI"))),
        ("1000", same(word(1000, 0, "", "DecimalSI"))),
        ("\" 1 \"", same(word(1, 0, "1", "DecimalSI"))),
        ("0.5", same(word(5, -1, "", "DecimalSI"))),
        ("1.0", same(word(10, -1, "", "DecimalSI"))),
        ("1e3", same(word(1, 3, "1e3", "DecimalExponent"))),
        ("\"100m\"", same(word(100, -3, "100m", "DecimalSI"))),
        ("\"1Gi\"", same(word(1_073_741_824, 0, "1Gi", "BinarySI"))),
        ("\"8Ki\"", same(word(8192, 0, "", "BinarySI"))),
        (
            "\"1500u\"",
            (word(1500, -6, "1500u", "DecimalSI"), word(2, -3, "", "DecimalSI")),
        ),
        (
            "\"1.5Gi\"",
            (
                decimal("[1610612736000000000]", 9, "BinarySI"),
                decimal("[1610612736000]", 3, "BinarySI"),
            ),
        ),
        (
            "12345678901234567890",
            (
                decimal("[5097733592002180096 669260594]", 9, "DecimalSI"),
                decimal("[4807115922877858896 669]", 3, "DecimalSI"),
            ),
        ),
    ] {
        let dump = with(
            "",
            &format!(", \"resources\": {{\"limits\": {{\"cpu\": {written}}}}}"),
            &format!(", \"volumes\": [{{\"name\": \"v\", \"emptyDir\": {{\"sizeLimit\": {written}}}}}]"),
        );
        for expected in [
            format!(" SizeLimit:(*resource.Quantity){size}}} "),
            format!(
                "Limits:(core.ResourceList)map[cpu:{limit}] Requests:(core.ResourceList)map[cpu:{limit}] "
            ),
        ] {
            assert!(
                dump.contains(&expected),
                "{written}: {expected:?} is not in {dump}"
            );
        }
    }
}

#[test]
fn a_time_has_the_local_zone() {
    let dump = with(", \"creationTimestamp\": \"2024-01-02T03:04:05.5Z\"", "", "");
    let time = "CreationTimestamp:(v1.Time){Time:(time.Time){wall:(uint64)500000000 ext:(int64)63839761445 \
                loc:(*time.Location){name:(string)Local zone:([]time.zone)[{name:(string)UTC offset:(int)0 isDST:(bool)false}] ";
    assert!(dump.contains(time), "{dump}");
}

#[test]
fn what_the_kubelet_would_make_of_it_may_be_unknown() {
    let manifest = "---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, \
                    resources: {limits: {cpu: '1e-5000'}}}]}}";
    let uid = |node| {
        let manifest = decode(manifest.as_bytes(), node, Location::File(Path::new("/a"))).unwrap();
        manifest.pod.metadata.uid
    };
    assert_eq!(
        uid("n").as_deref(),
        Some("4eb0443a75d9e6fd0429a82426871608"),
        "agents of this project agree on it"
    );
    assert_ne!(uid("n"), uid("m"));
}
