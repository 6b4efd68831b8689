//! From a node's files to its configuration: the file, the drop-in folder, the command line.
use std::fs;
use std::path::{Path, PathBuf};

use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_config::kubelet_configuration::{ConfigurationLoader, Decoding, LoadedConfiguration};
use kubelet_config::{ConfigurationStage, Error, KubeletConfiguration};
use serde_json::{Value, json};
use tempfile::TempDir;

const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// A node's configuration file and drop-in folder.
struct Node {
    folder: TempDir,
    loader: ConfigurationLoader,
}

impl Node {
    /// The file has these fields.
    fn new(fields: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        fs::write(&file, format!("{HEADER}{fields}")).unwrap();
        let loader = ConfigurationLoader::new().config(file).host(Host::default());
        Self { folder, loader }
    }

    /// A drop-in has these fields.
    fn drop_in(self, name: &str, fields: &str) -> Self {
        self.drop_in_text(name, &format!("{HEADER}{fields}"))
    }

    fn drop_in_text(self, name: &str, text: &str) -> Self {
        let path = self.drop_ins().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let loader = self.loader.config_dir(self.folder.path().join("d"));
        Self { loader, ..self }
    }

    fn drop_ins(&self) -> PathBuf {
        self.folder.path().join("d")
    }

    fn lenient(self) -> Self {
        let loader = self.loader.decoding(Decoding::LenientFallback);
        Self { loader, ..self }
    }

    fn load(&self) -> LoadedConfiguration {
        self.loader.load().unwrap()
    }

    fn rejected(&self) -> Error {
        self.loader.load().unwrap_err()
    }
}

/// What is shown of a field.
fn shown(config: &KubeletConfiguration, field: &str) -> Value {
    serde_json::to_value(config).unwrap()[field].clone()
}

#[test]
fn drop_ins_are_laid_over_the_file() {
    for (file, drop_in, field, expected) in [
        ("maxPods: 50", "maxPods: 60", "maxPods", json!(60)),
        ("maxPods: 50", "podsPerCore: 5", "maxPods", json!(50)),
        (
            "syncFrequency: 2m",
            "fileCheckFrequency: 5s",
            "syncFrequency",
            json!("2m0s"),
        ),
        // Objects and maps are merged, lists are replaced.
        (
            "authentication: {anonymous: {enabled: true}}",
            "authentication: {webhook: {enabled: false}}",
            "authentication",
            json!({"x509": {}, "webhook": {"enabled": false, "cacheTTL": "2m0s"}, "anonymous": {"enabled": true}}),
        ),
        (
            "systemReserved: {cpu: 100m}",
            "systemReserved: {memory: 1Gi}",
            "systemReserved",
            json!({"cpu": "100m", "memory": "1Gi"}),
        ),
        (
            "featureGates: {MemoryQoS: true}",
            "featureGates: {EventedPLEG: true}",
            "featureGates",
            json!({"MemoryQoS": true, "EventedPLEG": true}),
        ),
        (
            "clusterDNS: [1.1.1.1, 2.2.2.2]",
            "clusterDNS: [3.3.3.3]",
            "clusterDNS",
            json!(["3.3.3.3"]),
        ),
        (
            "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 10}]",
            "shutdownGracePeriodByPodPriority: [{priority: 100}]",
            "shutdownGracePeriodByPodPriority",
            json!([{"priority": 100, "shutdownGracePeriodSeconds": 0}]),
        ),
        // The defaults of hard eviction are the file's, and merged like all else.
        (
            "evictionHard: {memory.available: 1Gi}",
            "evictionHard: {nodefs.available: 10%}",
            "evictionHard",
            json!({"memory.available": "1Gi", "nodefs.available": "10%"}),
        ),
        ("", "evictionHard: null", "evictionHard", Value::Null),
        // Zero and null.
        ("maxPods: 50", "maxPods: 0", "maxPods", json!(110)),
        ("maxPods: 50", "maxPods: null", "maxPods", json!(110)),
        (
            "registryPullQPS: 9",
            "registryPullQPS: 0",
            "registryPullQPS",
            json!(0),
        ),
        ("registryPullQPS: 0", "maxPods: 5", "registryPullQPS", json!(0)),
        (
            "systemReserved: {cpu: '1', memory: 1Gi}",
            "systemReserved: {cpu: null}",
            "systemReserved",
            json!({"memory": "1Gi"}),
        ),
        // What is empty is not there any more once something is laid over it.
        (
            "enforceNodeAllocatable: []",
            "maxPods: 5",
            "enforceNodeAllocatable",
            json!(["pods"]),
        ),
        // The file's own defaults are settled before.
        (
            "nodeStatusUpdateFrequency: 30s",
            "nodeStatusUpdateFrequency: 1m",
            "nodeStatusReportFrequency",
            json!("30s"),
        ),
        (
            "maxParallelImagePulls: 5",
            "maxParallelImagePulls: null",
            "serializeImagePulls",
            json!(false),
        ),
        // Paths are as they are, and numbers as YAML has them.
        (
            "",
            "staticPodPath: manifests",
            "staticPodPath",
            json!("manifests"),
        ),
        ("", "maxPods: 1e2", "maxPods", json!(100)),
        // The merged whole is read without minding capitals.
        ("", "PODSPERCORE: 7", "podsPerCore", json!(7)),
    ] {
        let loaded = Node::new(file).drop_in("10.conf", drop_in).load();
        assert_eq!(shown(&loaded.config, field), expected, "{file} + {drop_in}");
    }
}

#[test]
fn json_drop_ins() {
    let text =
        r#"{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "maxPods": 5}"#;
    assert_eq!(
        Node::new("").drop_in_text("10.conf", text).load().config.max_pods,
        5
    );
}

#[test]
fn drop_ins_are_taken_by_name_with_folders_at_their_place() {
    let node = Node::new("maxPods: 1")
        .drop_in("20.conf", "maxPods: 20\npodsPerCore: 20")
        .drop_in("15/99.conf", "maxPods: 15\npodsPerCore: 15\nport: 15")
        .drop_in("10.conf", "maxPods: 10\nport: 10\nregistryBurst: 10")
        .drop_in("30/sub/.conf", "maxPods: 30")
        .drop_in("99.yaml", "maxPods: 99")
        .drop_in("99.conf.bak", "nonsense")
        .drop_in("10.CONF", "nonsense");
    let LoadedConfiguration {
        config,
        skipped_drop_ins,
        ..
    } = node.load();
    assert_eq!(
        (
            config.max_pods,
            config.pods_per_core,
            config.port,
            config.registry_burst
        ),
        (30, 20, 15, 10)
    );
    let skipped = ["10.CONF", "99.conf.bak", "99.yaml"].map(|name| node.drop_ins().join(name));
    assert_eq!(skipped_drop_ins, skipped);
}

#[test]
fn links_to_files_count_and_links_to_folders_do_not() {
    let node = Node::new("").drop_in("10.conf", "maxPods: 10");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("a.conf"), format!("{HEADER}podsPerCore: 5")).unwrap();
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, node.drop_ins().join(name)).unwrap();
    link(&elsewhere.path().join("a.conf"), "20.conf");
    link(elsewhere.path(), "30");
    let loaded = node.load();
    assert_eq!((loaded.config.max_pods, loaded.config.pods_per_core), (10, 5));
    assert_eq!(loaded.skipped_drop_ins, [node.drop_ins().join("30")]);
}

#[test]
fn a_wrong_drop_in_is_named() {
    for (text, problem) in [
        (
            format!("{HEADER}maxPods: ten"),
            "line 3: maxPods: expected a whole number",
        ),
        (format!("{HEADER}nosuch: 1"), r#"line 3: unknown field "nosuch""#),
        (format!("{HEADER}maxPods: 1\nmaxPods: 2"), "line 4"),
        (String::new(), "empty"),
        ("a: [\n".into(), "line"),
        ("apiVersion: v1\nkind: Pod".into(), "a Pod of v1"),
        ("maxPods: 5".into(), "'Kind' is missing"),
        (HEADER.replace("kind", "Kind"), "must be written like that"),
    ] {
        let node = Node::new("")
            .drop_in("05.conf", "maxPods: 5")
            .drop_in_text("10.conf", &text);
        let error = node.rejected();
        assert_eq!(error.stage(), Some(ConfigurationStage::DropIns));
        let file = node.drop_ins().join("10.conf");
        let told = error.to_string();
        assert!(
            told.contains(&format!("{}: ", file.display())) && told.contains(problem),
            "{told}"
        );
    }
    let gone = Node::new("");
    let gone = gone.loader.config_dir(gone.folder.path().join("gone")).load();
    assert_eq!(gone.unwrap_err().stage(), Some(ConfigurationStage::DropIns));
}

#[test]
fn what_the_kubelet_ignores_in_drop_ins() {
    let unknown = Node::new("").drop_in("10.conf", "nosuch: 1").lenient().load();
    assert_eq!(unknown.ignored.len(), 1);
    assert!(
        unknown.ignored[0].ends_with(r#"10.conf: line 3: unknown field "nosuch""#),
        "{:?}",
        unknown.ignored
    );
    // There is no lenient way with fields that are there twice.
    let twice = Node::new("")
        .drop_in("10.conf", "maxPods: 1\nmaxPods: 2")
        .lenient();
    assert_eq!(twice.rejected().stage(), Some(ConfigurationStage::DropIns));
    // A value that a later drop-in replaces is never looked at.
    let replaced = Node::new("")
        .drop_in("10.conf", "maxPods: ten")
        .drop_in("20.conf", "maxPods: 20");
    assert_eq!(replaced.load().config.max_pods, 20);
}

#[test]
fn relative_paths_start_at_the_folder_of_the_file() {
    let node = Node::new(
        "staticPodPath: manifests\nresolvConf: ./run/../resolv.conf\ntlsCertFile: ../../../../../../../../tls/a.crt
tlsPrivateKeyFile: /tls/a.key\nvolumePluginDir: a//b/\npodLogsDir: logs\nauthentication: {x509: {clientCAFile: ca}}",
    );
    let config = node.load().config;
    let here = |path: &str| node.folder.path().join(path).to_string_lossy().into_owned();
    assert_eq!(config.static_pod_path, here("manifests"));
    assert_eq!(config.resolv_conf, here("resolv.conf"));
    assert_eq!(config.tls_cert_file, "/tls/a.crt");
    assert_eq!(config.tls_private_key_file, "/tls/a.key");
    assert_eq!(config.volume_plugin_dir, here("a/b"));
    assert_eq!(config.pod_logs_dir, here("logs"));
    assert_eq!(config.authentication.x509.client_ca_file, here("ca"));
}

#[test]
fn without_a_file_a_node_is_open() {
    let loader = ConfigurationLoader::new().host(Host::default());
    let config = loader.load().unwrap().config;
    assert_eq!(config, KubeletConfiguration::without_file());
    assert!(config.authentication.anonymous.enabled && config.eviction_hard.is_empty());

    let node = Node::new("").drop_in("10.conf", "maxPods: 2");
    let config = loader.config_dir(node.drop_ins()).load().unwrap().config;
    assert_eq!((config.max_pods, config.read_only_port), (2, 10255));
    assert!(config.authentication.anonymous.enabled && config.eviction_hard.is_empty());
}

#[test]
fn the_command_line_is_over_all() {
    let flags = |config: &mut KubeletConfiguration| {
        config.max_pods = 7;
        config.feature_gates.insert("EventedPLEG".into(), false);
        Ok(())
    };
    let node = Node::new("maxPods: 5\nfeatureGates: {EventedPLEG: true, MemoryQoS: true}")
        .drop_in("a.conf", "maxPods: 6");
    let loaded = node.loader.load_with_flags(flags).unwrap();
    assert_eq!(loaded.config.max_pods, 7);
    assert_eq!(
        shown(&loaded.config, "featureGates"),
        json!({"EventedPLEG": false, "MemoryQoS": true})
    );
    assert!(!loaded.gates.enabled("EventedPLEG") && loaded.gates.enabled("MemoryQoS"));

    // A gate of the command line has a say in the file's defaults.
    let off = |config: &mut KubeletConfiguration| {
        config
            .feature_gates
            .insert("KubeletCrashLoopBackOffMax".into(), false);
        Ok(())
    };
    let loaded = Node::new("").loader.load_with_flags(off).unwrap();
    assert_eq!(
        loaded.config.crash_loop_back_off.max_container_restart_period,
        None
    );
}

#[test]
fn each_stage_rejects_its_own() {
    for (fields, stage) in [
        ("maxPods: ten", ConfigurationStage::Load),
        ("nosuch: 1", ConfigurationStage::Load),
        (
            "featureGates: {NoSuchGate: true}\nmaxPods: -1",
            ConfigurationStage::FeatureGates,
        ),
        ("maxPods: -1", ConfigurationStage::Validate),
    ] {
        let node = Node::new(fields);
        let error = node.rejected();
        assert_eq!(error.stage(), Some(stage), "{error}");
        let told = error.to_string();
        let names_file = told.contains(&*node.folder.path().join("config.yaml").to_string_lossy());
        assert_eq!(names_file, stage != ConfigurationStage::Validate, "{told}");
    }
    let gone = ConfigurationLoader::new()
        .config("/nowhere/config.yaml")
        .load()
        .unwrap_err();
    assert_eq!(gone.stage(), Some(ConfigurationStage::Load));
    assert!(gone.to_string().contains("/nowhere/config.yaml"), "{gone}");
}
