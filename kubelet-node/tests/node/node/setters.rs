//! What the kubelet's setters make of a node.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kubelet_core::{Clock, RuntimeState};
use kubelet_node::{
    BoxError, Error, HugePages, LocalNode, LocalNodeBuilder, MachineInfo, NodeConfig, NodeRuntime,
    NodeStatusSetter, Pressure, ReadyCheck, Result, RuntimeFeatures, RuntimeHandler, RuntimeImage,
    VolumesInUse,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::rig::{Events, Network, START, clock};

fn builder(config: NodeConfig, machine: MachineInfo) -> LocalNodeBuilder {
    LocalNode::builder(config, machine).network(Network::with(&["10.0.0.7"]))
}

fn node(object: Value) -> Node {
    serde_json::from_value(object).unwrap()
}

async fn status(local: &LocalNode, mut node: Node) -> Value {
    local.set_status(&mut node).await;
    serde_json::to_value(node.status).unwrap()
}

/// The condition without its type.
fn condition(status: &Value, type_: &str) -> Value {
    let conditions = status["conditions"].as_array().unwrap();
    let mut found = conditions
        .iter()
        .find(|condition| condition["type"] == type_)
        .unwrap()
        .clone();
    found.as_object_mut().unwrap().remove("type");
    found
}

#[tokio::test]
async fn capacity_and_allocatable() {
    let machine = || {
        let mut machine = MachineInfo::new(4, 8 << 30);
        machine.ephemeral_storage = Some(100 << 30);
        machine.swap = 1 << 30;
        machine.huge_pages = vec![HugePages {
            page_size: 2 << 20,
            pages: 512,
        }];
        machine
    };
    let mut config = NodeConfig::new("n");
    (config.max_pods, config.pods_per_core) = (250, 10);
    let local = builder(config, machine()).build();
    let there = json!({"metadata": {"name": "n"}, "status": {
        "capacity": {"example.com/gpu": "4", "cpu": "1"},
        "allocatable": {"example.com/gpu": "1", "example.com/gone": "3", "kubernetes.io/theirs": "1"},
    }});
    let found = status(&local, node(there)).await;
    assert_eq!(
        found["capacity"],
        json!({"cpu": "4", "memory": "8Gi", "pods": "40", "ephemeral-storage": "100Gi", "hugepages-2Mi": "1Gi",
            "example.com/gpu": "4"})
    );
    // 8 GiB without 100 MiB and the 1 GiB of huge pages; nine tenths of 100 GiB, by a tenth of single precision.
    assert_eq!(
        found["allocatable"],
        json!({"cpu": "4", "memory": "7068Mi", "pods": "40", "ephemeral-storage": "96636764000",
            "hugepages-2Mi": "1Gi", "example.com/gpu": "4", "kubernetes.io/theirs": "1"})
    );
    assert_eq!(found["nodeInfo"]["swap"], json!({"capacity": 1 << 30}));

    let mut config = NodeConfig::new("n");
    config.local_storage_capacity_isolation = false;
    let mut small = machine();
    (small.memory, small.swap) = (1 << 30, 0);
    let found = status(&builder(config, small).build(), node(json!({"metadata": {}}))).await;
    assert_eq!(found["capacity"]["ephemeral-storage"], Value::Null);
    assert_eq!(
        (&found["capacity"]["pods"], &found["allocatable"]["memory"]),
        (&json!("110"), &json!("0"))
    );
    assert_eq!(condition(&found, "Ready")["status"], "True");
}

/// Pressure that the test sets.
#[derive(Default)]
struct FixedPressure(Mutex<(bool, bool, bool)>);

impl Pressure for FixedPressure {
    fn is_under_memory_pressure(&self) -> bool {
        self.0.lock().0
    }

    fn is_under_disk_pressure(&self) -> bool {
        self.0.lock().1
    }

    fn is_under_pid_pressure(&self) -> bool {
        self.0.lock().2
    }
}

#[tokio::test(start_paused = true)]
async fn conditions_keep_the_time_of_their_last_change() {
    let (pressure, events) = (Arc::new(FixedPressure::default()), Events::default());
    let mut config = NodeConfig::new("n");
    config.local_storage_capacity_isolation = false;
    let local = builder(config, MachineInfo::new(1, 1 << 30))
        .pressure(pressure.clone())
        .events(Arc::new(events.clone()))
        .clock(clock())
        .build();
    let mut node = node(json!({"metadata": {"name": "n"}}));
    let seconds = |seconds: &str| START.replace("55Z", &format!("{seconds}Z"));
    let fields = |status: &str, reason: &str, message: &str, heartbeat: &str, transition: &str| {
        json!({"status": status, "reason": reason, "message": message, "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": transition})
    };
    let (first, second, third) = (seconds("55"), seconds("57"), seconds("59"));
    for (now, under, memory, disk, pid) in [
        (
            &first,
            (false, false, false),
            fields(
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
                &first,
                &first,
            ),
            fields(
                "False",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
                &first,
                &first,
            ),
            fields(
                "False",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
                &first,
                &first,
            ),
        ),
        (
            &second,
            (true, true, false),
            fields(
                "True",
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
                &second,
                &second,
            ),
            fields(
                "True",
                "KubeletHasDiskPressure",
                "kubelet has disk pressure",
                &second,
                &second,
            ),
            fields(
                "False",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
                &second,
                &first,
            ),
        ),
        (
            &third,
            (true, false, true),
            fields(
                "True",
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
                &third,
                &second,
            ),
            fields(
                "False",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
                &third,
                &third,
            ),
            fields(
                "True",
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
                &third,
                &third,
            ),
        ),
    ] {
        *pressure.0.lock() = under;
        local.set_status(&mut node).await;
        let status = serde_json::to_value(&node.status).unwrap();
        let found = ["MemoryPressure", "DiskPressure", "PIDPressure"].map(|type_| condition(&status, type_));
        assert_eq!(found, [memory, disk, pid], "{now}");
        let ready = condition(&status, "Ready");
        assert_eq!(
            (&ready["lastTransitionTime"], &ready["lastHeartbeatTime"]),
            (&json!(first), &json!(now))
        );
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    let reported: Vec<String> = events
        .messages()
        .iter()
        .map(|message| message.replace("Node n status is now: ", ""))
        .collect();
    assert_eq!(
        reported,
        [
            "NodeHasSufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientPID",
            "NodeHasInsufficientMemory",
            "NodeHasDiskPressure",
            "NodeHasNoDiskPressure",
            "NodeHasInsufficientPID",
        ]
    );
}

/// Reports fixed problems and a fixed warning.
struct Says(&'static [&'static str], Option<&'static str>);

impl ReadyCheck for Says {
    fn problems(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    fn warning(&self) -> Option<String> {
        self.1.map(str::to_owned)
    }
}

#[tokio::test]
async fn ready_says_all_that_is_missing_once() {
    let ready = "kubelet is posting ready status";
    let storage = "missing node capacity for resources: ephemeral-storage";
    for (checks, has_storage, expected, message) in [
        (vec![], true, "True", ready.to_owned()),
        (
            vec![Says(&[], Some("CPU hardcapping unsupported"))],
            true,
            "True",
            format!("{ready}. WARNING: CPU hardcapping unsupported"),
        ),
        (vec![], false, "False", storage.to_owned()),
        (vec![Says(&["a"], None)], true, "False", "a".to_owned()),
        (
            vec![Says(&["a"], None), Says(&["a"], None)],
            true,
            "False",
            "a".to_owned(),
        ),
        (
            vec![Says(&["b", "a"], None), Says(&["c", "b"], None)],
            false,
            "False",
            format!("[b, a, c, {storage}]"),
        ),
    ] {
        let mut machine = MachineInfo::new(1, 1 << 30);
        machine.ephemeral_storage = has_storage.then_some(1 << 30);
        let mut builder = builder(NodeConfig::new("n"), machine);
        for check in checks {
            builder = builder.ready_check(check);
        }
        let status = status(&builder.build(), node(json!({"metadata": {}}))).await;
        let found = condition(&status, "Ready");
        let reason = if expected == "True" {
            "KubeletReady"
        } else {
            "KubeletNotReady"
        };
        assert_eq!(
            (&found["status"], &found["reason"], &found["message"]),
            (&json!(expected), &json!(reason), &json!(message))
        );
    }
}

#[tokio::test]
async fn storage_that_could_not_be_read_is_read_again() {
    let mut machine = MachineInfo::new(1, 1 << 30);
    machine.root_dir = Some(std::env::temp_dir());
    let status = status(&builder(NodeConfig::new("n"), machine).build(), node(json!({}))).await;
    assert!(status["capacity"]["ephemeral-storage"].is_string(), "{status}");
    assert_eq!(condition(&status, "Ready")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_never_answers_is_not_waited_for_forever() {
    let state = RuntimeState::new();
    let begun = tokio::time::Instant::now();
    state.refresh().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    let mut machine = MachineInfo::new(1, 1 << 30);
    machine.ephemeral_storage = Some(1 << 30);
    let local = builder(NodeConfig::new("n"), machine).ready_check(state).build();
    let found = condition(&status(&local, node(json!({"metadata": {}}))).await, "Ready");
    assert_eq!(
        found["message"],
        "[container runtime status check may not have completed yet, network state unknown]"
    );
}

/// A runtime with many images, or one that fails.
struct Runtime {
    fails: bool,
}

#[async_trait]
impl NodeRuntime for Runtime {
    fn runtime_type(&self) -> &str {
        "mine"
    }

    async fn version(&self) -> Result<String, BoxError> {
        if self.fails {
            Err("away".into())
        } else {
            Ok("1.0".into())
        }
    }

    async fn images(&self) -> Result<Vec<RuntimeImage>, BoxError> {
        if self.fails {
            return Err("away".into());
        }
        let image = |id: &str, size: u64, digests: u64, tags: u64| RuntimeImage {
            id: id.to_owned(),
            repo_digests: (0..digests).map(|n| format!("{id}@{n}")).collect(),
            repo_tags: (0..tags).map(|n| format!("{id}:{n}")).collect(),
            size,
        };
        Ok(vec![
            image("small", 1, 0, 1),
            image("a", 5, 0, 1),
            image("b", 5, 1, 1),
            image("many", 9, 4, 4),
            image("bare", 3, 0, 0),
        ])
    }

    fn handlers(&self) -> Vec<RuntimeHandler> {
        let handler = |name: &str| RuntimeHandler {
            name: name.to_owned(),
            recursive_read_only_mounts: true,
            user_namespaces: false,
        };
        if self.fails {
            Vec::new()
        } else {
            vec![handler("runc"), handler("")]
        }
    }

    fn features(&self) -> Option<RuntimeFeatures> {
        (!self.fails).then_some(RuntimeFeatures {
            supplemental_groups_policy: true,
        })
    }
}

#[tokio::test]
async fn what_the_runtime_tells() {
    let mut config = NodeConfig::new("n");
    config.node_status_max_images = Some(4);
    let local = |config: &NodeConfig, fails| {
        builder(config.clone(), MachineInfo::new(1, 1 << 30))
            .runtime(Arc::new(Runtime { fails }))
            .build()
    };
    let found = status(&local(&config, false), node(json!({"metadata": {}}))).await;
    // The largest first, then by id backwards; digests before tags, five names at most.
    assert_eq!(
        found["images"],
        json!([
            {"names": ["many@0", "many@1", "many@2", "many@3", "many:0"], "sizeBytes": 9},
            {"names": ["b@0", "b:0"], "sizeBytes": 5},
            {"names": ["a:0"], "sizeBytes": 5},
            {"sizeBytes": 3},
        ])
    );
    let features = json!({"recursiveReadOnlyMounts": true, "userNamespaces": false});
    assert_eq!(
        found["runtimeHandlers"],
        json!([{"features": features}, {"name": "runc", "features": features}])
    );
    assert_eq!(found["features"], json!({"supplementalGroupsPolicy": true}));
    assert_eq!(found["nodeInfo"]["containerRuntimeVersion"], "mine://1.0");

    config.node_status_max_images = None;
    let all = status(&local(&config, false), node(json!({"metadata": {}}))).await;
    assert_eq!(all["images"].as_array().unwrap().len(), 5);
    let failing = status(
        &local(&config, true),
        node(json!({"metadata": {}, "status": {"images": [{"names": ["old"]}]}})),
    )
    .await;
    assert_eq!(
        (
            &failing["images"],
            &failing["nodeInfo"]["containerRuntimeVersion"]
        ),
        (&Value::Null, &json!("mine://Unknown"))
    );
}

/// Volumes that are known, or not yet.
struct InUse(Option<&'static [&'static str]>);

impl VolumesInUse for InUse {
    fn volumes_in_use(&self) -> Option<Vec<String>> {
        let volumes = self.0?.iter();
        Some(volumes.map(ToString::to_string).collect())
    }
}

#[tokio::test]
async fn volumes_in_use_stay_until_they_are_known() {
    for (known, reported) in [
        (None, json!(["before"])),
        (Some(&[] as &[&str]), Value::Null),
        (Some(&["csi/a", "csi/b"]), json!(["csi/a", "csi/b"])),
    ] {
        let local = builder(NodeConfig::new("n"), MachineInfo::new(1, 1 << 30));
        let local = local.volumes_in_use(Arc::new(InUse(known))).build();
        let there = node(json!({"metadata": {}, "status": {"volumesInUse": ["before"]}}));
        assert_eq!(status(&local, there).await["volumesInUse"], reported);
    }
}

#[tokio::test]
async fn a_reboot_is_reported_once_and_declared_features_each_time() {
    let events = Events::default();
    let mut machine = MachineInfo::new(1, 1 << 30);
    machine.boot_id = "second".into();
    for (features, reported) in [
        (vec!["A".to_owned(), "B".to_owned()], json!(["A", "B"])),
        (vec![], Value::Null),
    ] {
        let mut config = NodeConfig::new("n");
        config.declared_features = features;
        let local = builder(config, machine.clone())
            .events(Arc::new(events.clone()))
            .build();
        let info = json!({"bootID": "first", "machineID": "", "systemUUID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
            "architecture": ""});
        let there = || {
            node(
                json!({"metadata": {"name": "n"}, "status": {"nodeInfo": info, "declaredFeatures": ["Old"]}}),
            )
        };
        for _ in 0..2 {
            let found = status(&local, there()).await;
            assert_eq!(
                (&found["declaredFeatures"], &found["nodeInfo"]["bootID"]),
                (&reported, &json!("second"))
            );
        }
    }
    let mut reboots = events.messages();
    reboots.retain(|message| message.contains("rebooted"));
    assert_eq!(reboots, ["Node n has been rebooted, boot id: second"; 2]);
}

/// A setter of the embedder.
struct Own(&'static str);

#[async_trait]
impl NodeStatusSetter for Own {
    fn name(&self) -> &str {
        self.0
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert(self.0.to_owned(), labels.len().to_string());
        Err(Error::Setter {
            what: self.0.to_owned(),
            source: "no more".into(),
        })
    }
}

#[tokio::test]
async fn setters_can_be_added_and_replaced_and_one_that_fails_stops_nobody() {
    let local = builder(NodeConfig::new("n"), MachineInfo::new(1, 1 << 30))
        .setter(Arc::new(Own("addresses")))
        .setter(Arc::new(Own("mine")))
        .clock(Clock::system())
        .build();
    let mut node = node(json!({"metadata": {"name": "n"}}));
    local.set_status(&mut node).await;
    let labels = node.metadata.labels.clone().unwrap();
    assert_eq!(
        (labels["addresses"].as_str(), labels["mine"].as_str()),
        ("0", "1")
    );
    let status = node.status.unwrap();
    assert_eq!(
        (status.addresses, status.capacity.unwrap()["cpu"].0.as_str()),
        (None, "1")
    );
    let debug = format!("{local:?}");
    let names = r#"["addresses", "machine", "versions", "daemonEndpoints", "images", "runtimeHandlers", "MemoryPressure", "#;
    assert!(
        debug.contains(names) && debug.contains(r#""mine", "Ready""#),
        "{debug}"
    );
}

#[tokio::test]
async fn the_conditions_of_a_new_node_have_events_once() {
    let events = Events::default();
    let builder = builder(NodeConfig::new("n"), MachineInfo::new(1, 1 << 30));
    let local = builder.events(Arc::new(events.clone())).build();
    let first = local.initial_node().await;
    let expected = [
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
    ];
    let expected = expected.map(|event| format!("Node n status is now: {event}"));
    assert_eq!(events.messages(), expected);
    // Without the API server it is made again and again: for admission, and for each try to register.
    let again = local.initial_node().await;
    assert_eq!(events.messages(), expected);
    let types = |node: &Node| -> Vec<String> {
        let conditions = node
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions.map(|condition| condition.type_.clone()).collect()
    };
    assert_eq!(types(&again), types(&first));
}

#[tokio::test]
async fn a_new_node_is_what_its_configuration_says() {
    let mut config = NodeConfig::new("n");
    config.hostname = "h".into();
    config.provider_id = Some("example://7".into());
    config.external_cloud_provider = true;
    config.enable_controller_attach_detach = false;
    config.node_labels = [
        ("kubernetes.io/arch".to_owned(), "mine".to_owned()),
        ("a".to_owned(), "b".to_owned()),
    ]
    .into();
    config.register_with_taints =
        vec![serde_json::from_value(json!({"key": "t", "effect": "NoExecute"})).unwrap()];
    let mut machine = MachineInfo::new(1, 1 << 30);
    (machine.operating_system, machine.architecture) = ("linux".into(), "arm64".into());
    let node = serde_json::to_value(builder(config, machine).build().initial_node().await).unwrap();
    assert_eq!(
        node["metadata"],
        json!({"name": "n", "labels": {"a": "b", "kubernetes.io/hostname": "h", "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "mine", "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64"}})
    );
    assert_eq!(
        node["spec"],
        json!({"providerID": "example://7", "taints": [{"key": "t", "effect": "NoExecute"},
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]})
    );
}
