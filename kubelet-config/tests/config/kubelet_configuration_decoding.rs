//! What of a text becomes a `KubeletConfiguration`, and what is wrong with the rest, told with its line.
use kubelet_config::kubelet_configuration::GoDuration;
use kubelet_config::{ConfigurationStage, KubeletConfiguration};
use serde_json::{Value, json};

const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const JSON_HEADER: &str =
    "{\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n\"kind\": \"KubeletConfiguration\",\n";

fn yaml(fields: &str) -> Result<KubeletConfiguration, String> {
    KubeletConfiguration::from_yaml(&format!("{HEADER}{fields}")).map_err(|error| error.to_string())
}

fn json(fields: &str) -> Result<KubeletConfiguration, String> {
    KubeletConfiguration::from_yaml(&format!("{JSON_HEADER}{fields}}}")).map_err(|error| error.to_string())
}

/// What is shown of a field.
fn shown(config: &KubeletConfiguration, pointer: &str) -> Value {
    let shown = serde_json::to_value(config.configz()).unwrap();
    shown["kubeletconfig"]
        .pointer(pointer)
        .cloned()
        .unwrap_or_default()
}

#[test]
fn problems_have_their_line() {
    for (fields, expected) in [
        (
            "maxPods: ten",
            r#"line 3: maxPods: expected a whole number, found the string "ten""#,
        ),
        (
            "\nmaxPods: 1.5",
            "line 4: maxPods: expected a whole number, found the number 1.5",
        ),
        (
            "maxPods: 2147483648",
            "line 3: maxPods: invalid value: integer `2147483648`, expected i32",
        ),
        (
            "maxPods: 99999999999999999999",
            "line 3: maxPods: expected a whole number",
        ),
        (
            "maxPods: [5]",
            "line 3: maxPods: expected a whole number, found a list",
        ),
        (
            "enableServer: \"true\"",
            r#"line 3: enableServer: expected true or false, found the string "true""#,
        ),
        (
            "enableServer: 1",
            "line 3: enableServer: expected true or false, found the number 1",
        ),
        (
            "clusterDomain: 5",
            "line 3: clusterDomain: expected a string, found the number 5",
        ),
        ("clusterDNS: 10.0.0.10", "line 3: clusterDNS: expected a list"),
        (
            "clusterDNS:\n- a\n- 5",
            "line 5: clusterDNS[1]: expected a string, found the number 5",
        ),
        (
            "authentication: 5",
            "line 3: authentication: expected an object, found the number 5",
        ),
        (
            "authentication:\n  webhook:\n    cacheTTL: 5",
            "line 5: authentication.webhook.cacheTTL: expected a string, found the number 5",
        ),
        (
            "evictionHard:\n  memory.available: 5",
            "line 4: evictionHard.memory.available: expected a string",
        ),
        (
            "syncFrequency: 5d",
            r#"line 3: syncFrequency: unknown unit "d" in duration "5d""#,
        ),
        ("syncFrequency:", r#"line 3: syncFrequency: invalid duration """#),
        (
            "featureGates: {EventedPLEG: on, MemoryQoS: maybe}",
            "line 3: featureGates.MemoryQoS: expected true",
        ),
        (
            "reservedMemory: [{limits: {memory: 1Gb}}]",
            "line 3: reservedMemory[0].limits: ",
        ),
        (
            "logging:\n  verbosity: -1",
            "line 4: logging.verbosity: invalid value: integer `-1`",
        ),
        (
            "logging:\n  flushFrequency: 1.5",
            "line 4: logging.flushFrequency: invalid type: floating point",
        ),
        (
            "nosuch: 1\nmaxpods: 5",
            r#"line 3: unknown field "nosuch"; line 4: unknown field "maxpods""#,
        ),
        (
            "authentication:\n  anonymous: {allowed: true}",
            r#"line 4: unknown field "authentication.anonymous.allowed""#,
        ),
        (
            "registerWithTaints:\n- key: a\n  what: b",
            r#"line 5: unknown field "registerWithTaints[0].what""#,
        ),
        ("maxPods: 1\nmaxPods: 2", "maxPods"),
        ("a: *nowhere", "unknown anchor at line 3"),
        ("a: {", ""),
    ] {
        let error = yaml(fields).expect_err(fields);
        assert!(
            error.starts_with("load: ") && error.contains(expected),
            "{fields}: {error}"
        );
    }
    assert!(
        yaml("maxPods: 1\nmaxPods: 2").unwrap_err().contains("line 4"),
        "of a field that is there twice"
    );
}

#[test]
fn problems_of_json_have_their_line_too() {
    for (fields, expected) in [
        (
            "\"maxPods\": \"5\"",
            r#"line 3: maxPods: expected a whole number, found the string "5""#,
        ),
        (
            "\"maxPods\":\n\n5.0\n",
            "line 3: maxPods: expected a whole number, found the number 5",
        ),
        ("\"maxPods\": 1e2", "expected a whole number"),
        (
            "\"clusterDNS\": [\n\"a\",\n{}]",
            "line 5: clusterDNS[1]: expected a string, found an object",
        ),
        ("\n\"nosuch\": 1", r#"line 4: unknown field "nosuch""#),
        (
            "\"maxPods\": 1,\n\"maxPods\": 2",
            r#"line 4: duplicate field "maxPods""#,
        ),
        ("maxPods: 1", "what starts with { must be JSON"),
        ("\"maxPods\": 1}{", "what starts with { must be JSON"),
    ] {
        let error = json(fields).expect_err(fields);
        assert!(
            error.starts_with("load: ") && error.contains(expected),
            "{fields}: {error}"
        );
    }
    assert_eq!(json("\"maxPods\": 5").unwrap().max_pods, 5);
}

#[test]
fn only_this_kind_is_read() {
    for (text, expected) in [
        ("", "empty"),
        ("# nothing", "'Kind' is missing"),
        ("5", "expected an object"),
        ("[]", "expected an object"),
        ("kind: KubeletConfiguration", "'apiVersion' is missing"),
        ("apiVersion: kubelet.config.k8s.io/v1beta1", "'Kind' is missing"),
        (
            "apiVersion: 5\nkind: KubeletConfiguration",
            "line 1: apiVersion: expected a string",
        ),
        (
            "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration",
            "a KubeletConfiguration of kubelet.config.k8s.io/v1",
        ),
        ("apiVersion: v1\nkind: Pod", "a Pod of v1"),
        (
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: kubeletconfiguration",
            "not a KubeletConfiguration",
        ),
    ] {
        let error = KubeletConfiguration::from_yaml(text).unwrap_err();
        assert_eq!(error.stage(), Some(ConfigurationStage::Load));
        assert!(error.to_string().contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn lenient_decoding_returns_what_it_ignored() {
    let fields = "maxPods: 1\nmaxPods: 2\nnosuch: {a: 1}\nauthentication: {x509: {b: 1}}\nlogging: {c: 1}\n---\nmore: 1";
    let text = format!("{HEADER}{fields}");
    let (config, ignored) = KubeletConfiguration::from_yaml_lenient(&text).unwrap();
    assert_eq!(config.max_pods, 2, "the last one counts");
    assert_eq!(ignored.len(), 5, "{ignored:?}");
    assert_eq!(
        ignored[1..4],
        [
            r#"line 5: unknown field "nosuch""#,
            r#"line 6: unknown field "authentication.x509.b""#,
            r#"line 7: unknown field "logging.c""#,
        ]
    );
    // How the kind is capitalised matters only to the strict way.
    let shouted = text.replace("kind", "KIND");
    assert!(KubeletConfiguration::from_yaml(&shouted).is_err());
    assert_eq!(
        KubeletConfiguration::from_yaml_lenient(&shouted).unwrap().1.len(),
        6
    );
    // What has the wrong type is no matter of leniency.
    assert!(KubeletConfiguration::from_yaml_lenient(&format!("{HEADER}maxPods: ten")).is_err());
}

#[test]
fn values_are_those_of_yaml_1_1() {
    for (fields, pointer, expected) in [
        ("enableServer: no", "/enableServer", json!(false)),
        ("enableServer: Y", "/enableServer", json!(true)),
        ("maxPods: 1e2", "/maxPods", json!(100)),
        ("maxPods: 50.0", "/maxPods", json!(50)),
        ("maxPods: 0x20", "/maxPods", json!(32)),
        ("maxPods: 0144", "/maxPods", json!(100)),
        ("maxPods: 1_00", "/maxPods", json!(100)),
        ("maxPods: &a 7\npodsPerCore: *a", "/podsPerCore", json!(7)),
        (
            "clusterDNS: &a ['10.0.0.10']\nallowedUnsafeSysctls: *a",
            "/allowedUnsafeSysctls/0",
            json!("10.0.0.10"),
        ),
        (
            "systemReserved: {<<: {cpu: '1'}, memory: 1Gi}",
            "/systemReserved/cpu",
            json!("1"),
        ),
        (
            "systemReserved: {1: a, on: b}",
            "/systemReserved",
            json!({"1": "a", "true": "b"}),
        ),
        (
            "staticPodURLHeader: {A: [b, null]}",
            "/staticPodURLHeader/A",
            json!(["b", ""]),
        ),
        (
            "featureGates: {EventedPLEG: }",
            "/featureGates/EventedPLEG",
            json!(false),
        ),
        ("memoryThrottlingFactor: 1", "/memoryThrottlingFactor", json!(1)),
        (
            "memoryThrottlingFactor: 0.25",
            "/memoryThrottlingFactor",
            json!(0.25),
        ),
        (
            "reservedMemory: [{limits: {memory: 2048Mi}}]",
            "/reservedMemory/0/limits/memory",
            json!("2Gi"),
        ),
        (
            "reservedMemory: [{limits: {memory: 1000}}]",
            "/reservedMemory/0/limits/memory",
            json!("1k"),
        ),
        (
            "reservedMemory: [{numaNode: 1}]",
            "/reservedMemory/0",
            json!({"numaNode": 1, "limits": null}),
        ),
        (
            "logging: {flushFrequency: 5000}",
            "/logging/flushFrequency",
            json!(5000),
        ),
        (
            "logging: {flushFrequency: 90s}",
            "/logging/flushFrequency",
            json!("1m30s"),
        ),
        (
            "logging: {flushFrequency: 0}",
            "/logging/flushFrequency",
            json!("5s"),
        ),
        (
            "logging: {options: {json: {infoBufferSize: 1024Ki}}}",
            "/logging/options/json/infoBufferSize",
            json!("1Mi"),
        ),
        (
            "registerWithTaints: [{key: a, value: '', effect: NoSchedule}]",
            "/registerWithTaints/0",
            json!({"key": "a", "effect": "NoSchedule"}),
        ),
    ] {
        let config = yaml(fields).expect(fields);
        assert_eq!(shown(&config, pointer), expected, "{fields}");
    }
}

#[test]
fn absent_zero_and_null() {
    for (fields, pointer, expected) in [
        // Zero is absent where the API has no other way to say it.
        ("maxPods: 0", "/maxPods", json!(110)),
        ("address: ''", "/address", json!("0.0.0.0")),
        ("syncFrequency: 0s", "/syncFrequency", json!("1m0s")),
        (
            "authentication: {webhook: {cacheTTL: 0s}}",
            "/authentication/webhook/cacheTTL",
            json!("2m0s"),
        ),
        (
            "evictionPressureTransitionPeriod: '0'",
            "/evictionPressureTransitionPeriod",
            json!("5m0s"),
        ),
        // And is itself where it has.
        ("registryPullQPS: 0", "/registryPullQPS", json!(0)),
        ("enableServer: false", "/enableServer", json!(false)),
        ("resolvConf: ''", "/resolvConf", json!("")),
        ("cpuCFSQuotaPeriod: 0s", "/cpuCFSQuotaPeriod", json!("0s")),
        ("memoryThrottlingFactor: 0", "/memoryThrottlingFactor", json!(0)),
        (
            "authentication: {webhook: {enabled: false}}",
            "/authentication/webhook/enabled",
            json!(false),
        ),
        // Null is absent.
        ("registryPullQPS: null", "/registryPullQPS", json!(5)),
        ("resolvConf:", "/resolvConf", json!("/etc/resolv.conf")),
        ("cpuCFSQuotaPeriod: ~", "/cpuCFSQuotaPeriod", json!("100ms")),
        (
            "authentication: {webhook: null}",
            "/authentication/webhook/enabled",
            json!(true),
        ),
        (
            "crashLoopBackOff: null",
            "/crashLoopBackOff/maxContainerRestartPeriod",
            json!("5m0s"),
        ),
        (
            "enforceNodeAllocatable: null",
            "/enforceNodeAllocatable",
            json!(["pods"]),
        ),
        (
            "enforceNodeAllocatable: []",
            "/enforceNodeAllocatable",
            json!(null),
        ),
        // One default follows another field.
        (
            "nodeStatusUpdateFrequency: 30s",
            "/nodeStatusReportFrequency",
            json!("30s"),
        ),
        (
            "nodeStatusUpdateFrequency: 0s",
            "/nodeStatusReportFrequency",
            json!("5m0s"),
        ),
        (
            "nodeStatusUpdateFrequency: 30s\nnodeStatusReportFrequency: 1m",
            "/nodeStatusReportFrequency",
            json!("1m0s"),
        ),
        ("maxParallelImagePulls: 2", "/serializeImagePulls", json!(false)),
        ("maxParallelImagePulls: 1", "/serializeImagePulls", json!(true)),
        (
            "maxParallelImagePulls: 5\nserializeImagePulls: true",
            "/serializeImagePulls",
            json!(true),
        ),
        ("podPidsLimit: -5", "/podPidsLimit", json!(-1)),
        // Some need their gate.
        (
            "featureGates: {KubeletCrashLoopBackOffMax: false}",
            "/crashLoopBackOff",
            json!({}),
        ),
        (
            "featureGates: {KubeletEnsureSecretPulledImages: false}",
            "/imagePullCredentialsVerificationPolicy",
            json!(null),
        ),
        // Hard eviction is all or nothing, unless it is asked for.
        ("evictionHard: {}", "/evictionHard", json!(null)),
        (
            "evictionHard: null",
            "/evictionHard/memory.available",
            json!("100Mi"),
        ),
        (
            "evictionHard: {memory.available: 1Gi}",
            "/evictionHard",
            json!({"memory.available": "1Gi"}),
        ),
        (
            "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true",
            "/evictionHard",
            json!({
                "memory.available": "1Gi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
                "imagefs.available": "15%", "imagefs.inodesFree": "5%",
            }),
        ),
    ] {
        let config = yaml(fields).expect(fields);
        assert_eq!(shown(&config, pointer), expected, "{fields}");
    }
    assert_eq!(yaml("").unwrap(), KubeletConfiguration::default());
}

#[test]
fn gates_that_cannot_be_are_a_stage_of_their_own() {
    for gates in [
        "{NoSuchGate: true}",
        "{NodeSwap: false}",
        "{GracefulNodeShutdown: false}",
    ] {
        let text = format!("{HEADER}featureGates: {gates}");
        let error = KubeletConfiguration::from_yaml(&text).unwrap_err();
        assert_eq!(error.stage(), Some(ConfigurationStage::FeatureGates), "{error}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    let config = yaml(
        "syncFrequency: 90s\nreservedMemory: [{limits: {memory: 1Gi}}]\ntracing: {}\nregistryPullQPS: 0",
    );
    let config = config.unwrap();
    assert_eq!(config.sync_frequency, GoDuration::from_secs(90));
    let written = serde_json::to_string(&config).unwrap();
    let read: KubeletConfiguration = serde_json::from_str(&written).unwrap();
    assert_eq!(read, config);
    let own = format!("{JSON_HEADER}{}", &written[1..]);
    assert_eq!(KubeletConfiguration::from_yaml(&own).unwrap(), config);
}

#[test]
fn hostile_text_is_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb += &format!("a{level}: &a{level} [{below}]\n");
    }
    let deep = |open: &str| format!("maxPods: {}", open.repeat(100_000));
    for fields in [
        bomb,
        deep("["),
        deep("{a: "),
        format!("a: [{}]", "1,".repeat(60_000)),
    ] {
        assert!(KubeletConfiguration::from_yaml_lenient(&format!("{HEADER}{fields}")).is_err());
    }
    for fields in ["[".repeat(100_000), "{\"a\":".repeat(100_000)] {
        let text = format!("{JSON_HEADER}\"a\": {fields}");
        assert!(KubeletConfiguration::from_yaml_lenient(&text).is_err());
    }
}
