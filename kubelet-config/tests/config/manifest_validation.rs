//! What a manifest may say: one change to a good pod at a time, and the field that is refused, if any.
use kubelet_config::manifest::{Location, decode};
use serde_json::{Value, json};

/// Sets or, with null, removes what lies at `path`.
fn changed(path: &str, value: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "annotations": {}, "labels": {}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": "init", "image": "i"}],
            "securityContext": {}},
    });
    let (parent, key) = path.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value.clone();
    pod
}

fn check(cases: &[(&str, Value, &str)]) {
    let mut wrong = Vec::new();
    for (path, value, refused) in cases {
        let text = changed(path, value).to_string();
        let decoded = decode(text.as_bytes(), "node-1", Location::Url("http://x"));
        let verdict = match decoded {
            Ok(_) if refused.is_empty() => continue,
            Err(error) if !refused.is_empty() && error.to_string().contains(&format!("{refused}: ")) => {
                continue;
            }
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        };
        wrong.push(format!("{path} {value}: expected {refused:?}, but {verdict}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn node_affinity() {
    let required = |requirement: Value| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}})
    };
    let fields = |requirement: Value| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [requirement]}]}}})
    };
    let preferred = |weight: i32, value: &str| {
        json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": weight, "preference": {"matchExpressions": [{"key": "k", "operator": "In", "values": [value]}]}}]}})
    };
    let at = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let of = |rest: &str| format!("{at}{rest}");
    let preferences = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]";
    let path = "/spec/affinity";
    check(&[
        (path, json!({}), ""),
        (
            path,
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
            at,
        ),
        (
            path,
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}),
            "",
        ),
        (
            path,
            required(json!({"key": "k", "operator": "In", "values": ["a", "b"]})),
            "",
        ),
        (
            path,
            required(json!({"key": "k", "operator": "In"})),
            &of("[0].matchExpressions[0].values"),
        ),
        (path, required(json!({"key": "k", "operator": "Exists"})), ""),
        (
            path,
            required(json!({"key": "k", "operator": "DoesNotExist", "values": ["a"]})),
            &of("[0].matchExpressions[0].values"),
        ),
        (
            path,
            required(json!({"key": "k", "operator": "Gt", "values": ["1"]})),
            "",
        ),
        (
            path,
            required(json!({"key": "k", "operator": "Lt", "values": ["1", "2"]})),
            &of("[0].matchExpressions[0].values"),
        ),
        (
            path,
            required(json!({"key": "k", "operator": "Is", "values": ["1"]})),
            &of("[0].matchExpressions[0].operator"),
        ),
        (
            path,
            required(json!({"key": "-", "operator": "Exists"})),
            &of("[0].matchExpressions[0].key"),
        ),
        (
            path,
            required(json!({"key": "k", "operator": "In", "values": ["a", "-b"]})),
            &of("[0].matchExpressions[0].values[1]"),
        ),
        (
            path,
            fields(json!({"key": "metadata.name", "operator": "In", "values": ["node-1"]})),
            "",
        ),
        (
            path,
            fields(json!({"key": "metadata.name", "operator": "In", "values": ["a", "b"]})),
            &of("[0].matchFields[0].values"),
        ),
        (
            path,
            fields(json!({"key": "metadata.name", "operator": "Exists"})),
            &of("[0].matchFields[0].operator"),
        ),
        (
            path,
            fields(json!({"key": "metadata.uid", "operator": "In", "values": ["a"]})),
            &of("[0].matchFields[0].key"),
        ),
        (
            path,
            fields(json!({"key": "metadata.name", "operator": "In", "values": ["A_"]})),
            &of("[0].matchFields[0].values[0]"),
        ),
        (path, preferred(1, "a"), ""),
        (path, preferred(100, "-- no label --"), ""),
        (path, preferred(0, "a"), &format!("{preferences}.weight")),
        (path, preferred(101, "a"), &format!("{preferences}.weight")),
    ]);
}

#[test]
fn pod_affinity() {
    let term = |patch: Value| {
        let mut term = json!({"topologyKey": "kubernetes.io/hostname"});
        term.as_object_mut()
            .unwrap()
            .extend(patch.as_object().unwrap().clone());
        json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    };
    let at = |rest: &str| {
        format!("spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].{rest}")
    };
    let selector = json!({"matchLabels": {"a": "b"}});
    let path = "/spec/affinity";
    check(&[
        (path, term(json!({})), ""),
        (path, term(json!({"topologyKey": ""})), &at("topologyKey")),
        (path, term(json!({"topologyKey": "-"})), &at("topologyKey")),
        (
            path,
            term(json!({"labelSelector": selector, "namespaces": ["ns"]})),
            "",
        ),
        (path, term(json!({"namespaces": ["N"]})), &at("namespace")),
        (
            path,
            term(json!({"labelSelector": {"matchLabels": {"a": "-"}}})),
            &at("labelSelector.matchLabels"),
        ),
        (
            path,
            term(json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}})),
            &at("namespaceSelector.matchExpressions[0].values"),
        ),
        (
            path,
            term(
                json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}),
            ),
            &at("labelSelector.matchExpressions[0].operator"),
        ),
        (
            path,
            term(json!({"labelSelector": selector, "matchLabelKeys": ["k"]})),
            "",
        ),
        (
            path,
            term(json!({"matchLabelKeys": ["k"]})),
            &at("matchLabelKeys"),
        ),
        (
            path,
            term(json!({"labelSelector": selector, "mismatchLabelKeys": ["-"]})),
            &at("mismatchLabelKeys[0]"),
        ),
        (
            path,
            term(json!({"labelSelector": selector, "matchLabelKeys": ["k"], "mismatchLabelKeys": ["k"]})),
            &at("matchLabelKeys[0]"),
        ),
        (
            path,
            json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 0, "podAffinityTerm": {"topologyKey": "k"}}]}}),
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
        ),
        (
            path,
            json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 1, "podAffinityTerm": {}}]}}),
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey",
        ),
    ]);
}

#[test]
fn topology_spread() {
    let good = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let with = |patch: Value| {
        let mut constraint = good.clone();
        constraint
            .as_object_mut()
            .unwrap()
            .extend(patch.as_object().unwrap().clone());
        json!([constraint])
    };
    let at = |rest: &str| format!("spec.topologySpreadConstraints[0].{rest}");
    let path = "/spec/topologySpreadConstraints";
    check(&[
        (path, json!([good]), ""),
        (path, with(json!({"maxSkew": 0})), &at("maxSkew")),
        (path, with(json!({"topologyKey": ""})), &at("topologyKey")),
        (
            path,
            with(json!({"whenUnsatisfiable": "Wait"})),
            &at("whenUnsatisfiable"),
        ),
        (path, with(json!({"minDomains": 2})), ""),
        (path, with(json!({"minDomains": 0})), &at("minDomains")),
        (
            path,
            with(json!({"minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"})),
            &at("minDomains"),
        ),
        (
            path,
            with(json!({"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"})),
            "",
        ),
        (
            path,
            with(json!({"nodeTaintsPolicy": "Love"})),
            &at("nodeTaintsPolicy"),
        ),
        (
            path,
            with(json!({"matchLabelKeys": ["a"]})),
            &at("matchLabelKeys"),
        ),
        (
            path,
            with(json!({"labelSelector": {"matchLabels": {"-": "b"}}})),
            &at("labelSelector.matchLabels"),
        ),
        (path, json!([good, good]), &at("{topologyKey, whenUnsatisfiable}")),
    ]);
}

#[test]
fn volumes_from_storage() {
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        volume
            .as_object_mut()
            .unwrap()
            .extend(source.as_object().unwrap().clone());
        json!([volume])
    };
    let at = |rest: &str| format!("spec.volumes[0].{rest}");
    let iscsi = |patch: Value| {
        let mut iscsi =
            json!({"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:x", "lun": 0});
        iscsi
            .as_object_mut()
            .unwrap()
            .extend(patch.as_object().unwrap().clone());
        volume(json!({"iscsi": iscsi}))
    };
    let path = "/spec/volumes";
    check(&[
        (path, volume(json!({"nfs": {"server": "s", "path": "/p"}})), ""),
        (
            path,
            volume(json!({"nfs": {"server": "s", "path": "p"}})),
            &at("nfs.path"),
        ),
        (
            path,
            volume(json!({"gitRepo": {"repository": "r", "directory": "d"}})),
            "",
        ),
        (
            path,
            volume(json!({"gitRepo": {"directory": "d"}})),
            &at("gitRepo.repository"),
        ),
        (
            path,
            volume(json!({"gitRepo": {"repository": "r", "directory": "../d"}})),
            &at("gitRepo.directory"),
        ),
        (
            path,
            volume(json!({"gcePersistentDisk": {"pdName": "d", "partition": 1}})),
            "",
        ),
        (
            path,
            volume(json!({"gcePersistentDisk": {"partition": 256}})),
            &at("persistentDisk.pdName"),
        ),
        (
            path,
            volume(json!({"awsElasticBlockStore": {"volumeID": "d", "partition": 256}})),
            &at("awsElasticBlockStore.partition"),
        ),
        (path, iscsi(json!({})), ""),
        (
            path,
            iscsi(json!({"targetPortal": ""})),
            &at("iscsi.targetPortal"),
        ),
        (path, iscsi(json!({"iqn": "disk"})), &at("iscsi.iqn")),
        (path, iscsi(json!({"lun": 256})), &at("iscsi.lun")),
        (
            path,
            iscsi(json!({"chapAuthSession": true})),
            &at("iscsi.secretRef"),
        ),
        (
            path,
            iscsi(json!({"initiatorName": "disk"})),
            &at("iscsi.initiatorname"),
        ),
        (
            path,
            iscsi(json!({"initiatorName": "eui.0123456789abcdef", "targetPortal": "p".repeat(63)})),
            &at("name"),
        ),
        (path, volume(json!({"flocker": {"datasetName": "d"}})), ""),
        (path, volume(json!({"flocker": {}})), "spec.volumes[0].flocker"),
        (
            path,
            volume(json!({"flocker": {"datasetName": "a/b"}})),
            &at("flocker.datasetName"),
        ),
        (
            path,
            volume(json!({"rbd": {"monitors": ["m"], "image": "i"}})),
            "",
        ),
        (
            path,
            volume(json!({"rbd": {"monitors": [], "image": "i"}})),
            &at("rbd.monitors"),
        ),
        (path, volume(json!({"cephfs": {"monitors": ["m"]}})), ""),
        (path, volume(json!({"cephfs": {}})), &at("cephfs.monitors")),
        (
            path,
            volume(json!({"cinder": {"volumeID": ""}})),
            &at("cinder.volumeID"),
        ),
        (
            path,
            volume(json!({"quobyte": {"registry": "a:1,b:2", "volume": "v"}})),
            "",
        ),
        (
            path,
            volume(json!({"quobyte": {"registry": "a", "volume": "v"}})),
            &at("quobyte.registry"),
        ),
        (
            path,
            volume(json!({"quobyte": {"registry": "a:1", "volume": "v", "tenant": "t".repeat(65)}})),
            &at("quobyte.tenant"),
        ),
        (path, volume(json!({"fc": {"targetWWNs": ["a"], "lun": 0}})), ""),
        (path, volume(json!({"fc": {"wwids": ["a"]}})), ""),
        (path, volume(json!({"fc": {}})), &at("fc.targetWWNs")),
        (path, volume(json!({"fc": {"targetWWNs": ["a"]}})), &at("fc.lun")),
        (
            path,
            volume(json!({"flexVolume": {"driver": "d", "options": {"a/b": "c"}}})),
            "",
        ),
        (
            path,
            volume(json!({"flexVolume": {"driver": "d", "options": {"x.K8s.io/b": "c"}}})),
            &at("flexVolume.options[x.K8s.io/b]"),
        ),
        (
            path,
            volume(json!({"vsphereVolume": {}})),
            &at("vsphereVolume.volumePath"),
        ),
        (
            path,
            volume(json!({"photonPersistentDisk": {}})),
            &at("photonPersistentDisk.pdID"),
        ),
        (
            path,
            volume(json!({"portworxVolume": {}})),
            &at("portworxVolume.volumeID"),
        ),
        (
            path,
            volume(json!({"azureDisk": {"diskName": "d", "diskURI": "https://x"}})),
            "",
        ),
        (
            path,
            volume(json!({"azureDisk": {"diskName": "d", "diskURI": "https://x", "kind": "Managed"}})),
            &at("azureDisk.diskURI"),
        ),
        (
            path,
            volume(json!({"azureDisk": {"diskName": "d", "diskURI": "/x"}})),
            &at("azureDisk.diskURI"),
        ),
        (
            path,
            volume(json!({"azureDisk": {"diskName": "d", "diskURI": "https://x", "cachingMode": "Some"}})),
            &at("azureDisk.cachingMode"),
        ),
        (path, volume(json!({"storageos": {"volumeName": "v"}})), ""),
        (
            path,
            volume(json!({"storageos": {"volumeNamespace": "v"}})),
            &at("storageos.volumeName"),
        ),
        (path, volume(json!({"image": {"reference": "i"}})), ""),
        // Only the API server demands a reference (`ResourceIsPod`).
        (path, volume(json!({"image": {}})), ""),
        (
            path,
            volume(json!({"emptyDir": {"sizeLimit": "-1"}})),
            &at("emptyDir.sizeLimit"),
        ),
        (
            path,
            volume(json!({"emptyDir": {}, "hostPath": {"path": "/"}})),
            &at("hostPath"),
        ),
    ]);
}

#[test]
fn stop_signals_and_operating_systems() {
    let stop = |os: Value, signal: &str| {
        let lifecycle = json!({"stopSignal": signal});
        let containers = json!([{"name": "c", "image": "i", "lifecycle": lifecycle}]);
        json!({"containers": containers, "os": os})
    };
    let linux = || json!({"name": "linux"});
    let windows = |security: Value| {
        let context = json!({"name": "c", "image": "i", "securityContext": security});
        json!({"containers": [context], "os": {"name": "windows"}})
    };
    let signal = "spec.containers[0].lifecycle.stopSignal";
    let path = "/spec";
    check(&[
        (path, stop(linux(), "SIGUSR1"), ""),
        (path, stop(linux(), "SIGRTMIN+3"), ""),
        (path, stop(linux(), "SIGRTMIN+16"), signal),
        (path, stop(linux(), "TERM"), signal),
        (path, stop(Value::Null, "SIGTERM"), signal),
        (path, stop(json!({"name": "windows"}), "SIGTERM"), ""),
        (path, stop(json!({"name": "windows"}), "SIGHUP"), signal),
        ("/spec/os", json!({"name": "plan9"}), "spec.os"),
        ("/spec/os", json!({"name": ""}), "spec.os.name"),
        (path, windows(json!({})), ""),
        (
            path,
            windows(json!({"privileged": false})),
            "spec.containers[0].securityContext.privileged",
        ),
        (
            path,
            windows(json!({"windowsOptions": {"runAsUserName": "a@b"}})),
            "spec.containers[0].securityContext.windowsOptions.runAsUserName",
        ),
        (
            path,
            windows(json!({"windowsOptions": {"hostProcess": true}})),
            "spec.hostNetwork",
        ),
        (
            path,
            json!({"containers": [{"name": "c", "image": "i", "securityContext": {"windowsOptions": {}}}], "os": linux()}),
            "spec.containers[0].securityContext.windowsOptions",
        ),
        (
            path,
            json!({"containers": [{"name": "c", "image": "i"}], "os": {"name": "windows"}, "hostPID": true}),
            "spec.hostPID",
        ),
    ]);
}

#[test]
fn annotations_with_a_meaning() {
    let seccomp = |annotation: &str, profile: Value| {
        json!([{"metadata": {"name": "p", "annotations": {"container.seccomp.security.alpha.kubernetes.io/c": annotation}},
            "spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"seccompProfile": profile}}]}}])
    };
    let annotation = |key: &str| format!("/metadata/annotations/{}", key.replace('/', "~1"));
    let pod_seccomp = annotation("seccomp.security.alpha.kubernetes.io/pod");
    let app_armor = annotation("container.apparmor.security.beta.kubernetes.io/c");
    let stranger = annotation("container.apparmor.security.beta.kubernetes.io/x");
    let tolerations = annotation("scheduler.alpha.kubernetes.io/tolerations");
    let at = |key: &str| format!("metadata.annotations{key}");
    check(&[
        (&pod_seccomp, json!("runtime/default"), ""),
        (&pod_seccomp, json!("localhost/a/b"), ""),
        (
            &pod_seccomp,
            json!("localhost/../b"),
            &at(".seccomp.security.alpha.kubernetes.io/pod"),
        ),
        (
            &pod_seccomp,
            json!("none"),
            &at(".seccomp.security.alpha.kubernetes.io/pod"),
        ),
        (&app_armor, json!("runtime/default"), ""),
        (&app_armor, json!("localhost/x"), ""),
        (
            &app_armor,
            json!("x"),
            &at("[container.apparmor.security.beta.kubernetes.io/c]"),
        ),
        (
            &stranger,
            json!("unconfined"),
            &at("[container.apparmor.security.beta.kubernetes.io/x]"),
        ),
        (&tolerations, json!(""), ""),
        (
            &tolerations,
            json!("[{\"key\": \"k\", \"operator\": \"Exists\"}]"),
            "",
        ),
        (
            &tolerations,
            json!("[{\"operator\": \"Equal\"}]"),
            &at(".scheduler.alpha.kubernetes.io/tolerations[0].operator"),
        ),
        (&tolerations, json!("{"), "metadata.annotations"),
    ]);
    let agree = [
        (seccomp("runtime/default", json!({"type": "RuntimeDefault"})), ""),
        (
            seccomp("unconfined", json!({"type": "RuntimeDefault"})),
            "seccompProfile.type",
        ),
        (
            seccomp(
                "localhost/a",
                json!({"type": "Localhost", "localhostProfile": "a"}),
            ),
            "",
        ),
        (
            seccomp(
                "localhost/a",
                json!({"type": "Localhost", "localhostProfile": "b"}),
            ),
            "seccompProfile.localhostProfile",
        ),
    ];
    for (mut pod, refused) in agree {
        let mut pod = pod[0].take();
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        let decoded = decode(pod.to_string().as_bytes(), "n", Location::Url("http://x"));
        match decoded {
            Ok(_) => assert_eq!(refused, "", "{pod}"),
            Err(error) => assert!(
                !refused.is_empty() && error.to_string().contains(refused),
                "{error}"
            ),
        }
    }
}
