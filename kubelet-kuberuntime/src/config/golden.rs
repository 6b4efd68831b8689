//! Compares our configs with those that kubelet v1.36.2 sent for the same pods.
//!
//! `tests/data/pods.json.gz` has, for each recorded pod, the object as the API server stored it, and the configs of
//! `RunPodSandbox` and `CreateContainer` in protobuf's JSON. The tests do not compare the order of environment
//! variables and of resolver options, which is random in the kubelet, and the random names of termination logs. They
//! use the recorded references of images and paths of volumes.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};
use kubelet_core::cgroups::CgroupDriver;
use kubelet_core::{ConfigObjects, ContainerAdditions, LogEvents, RootDir, VolumeLease, annotations};
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage as _, SerializeOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use super::service_environment::tests::{Listed, service};
use super::*;
use crate::sandbox::user_namespaces::{has_user_namespace, refuses_user_namespace};

/// One test for each recording. After `differs` is the reason why it is not equal. Such a test fails once the recording
/// is equal.
macro_rules! recordings {
    ($($name:ident $(differs $why:literal)?),* $(,)?) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        mod pods {
            $(
                #[tokio::test]
                async fn $name() {
                    let differs: &[&str] = &[$($why)?];
                    super::check(&stringify!($name).replace('_', "-"), differs.first().copied()).await;
                }
            )*
        }
    };
}

recordings! {
    active_deadline,
    apparmor_unconfined,
    capabilities,
    command_not_found,
    dns_cluster_first_host_net,
    dns_default,
    dns_none,
    eight_containers,
    env_config_map,
    env_config_map_missing,
    env_duplicate_names,
    env_from,
    env_resource_refs,
    env_resource_refs_unset,
    env_secret,
    env_secret_key_missing,
    ephemeral_storage,
    hook_post_start_exec,
    hook_post_start_fails,
    hook_pre_stop_sleep,
    host_aliases,
    host_network_with_ports,
    host_pid_ipc,
    host_users_false,
    hostname_as_fqdn,
    hostname_override,
    hostname_subdomain,
    image_name_invalid,
    image_volume,
    init_fails_always,
    init_fails_never,
    init_two,
    liveness_fails,
    many_labels,
    minimal,
    node_selector_mismatch,
    ports,
    privileged,
    probes_all,
    proc_mount_default,
    qos_burstable_requests,
    qos_cpu_only,
    qos_guaranteed,
    qos_two_containers_mixed,
    readiness_gate,
    readiness_tcp_never,
    restart_always_crash,
    restart_never_failure,
    restart_never_success,
    restart_on_failure,
    run_as_non_root_ok,
    run_as_user_container,
    selinux_options,
    service_account_token_off,
    service_links_off,
    service_links_on,
    share_process_namespace,
    sidecar,
    sidecar_job,
    stdin_tty,
    supplemental_groups_policy,
    sysctl_forbidden,
    termination_message_from_logs,
    termination_message_path,
    two_containers,
    two_one_fails_never,
    volume_config_map_missing,
    volume_empty_dir,
    volume_host_path,
    volume_projected,
    volume_recursive_read_only,
    volume_secret,
    volume_sub_path differs "the config has the resolved path of the sub-path, not a bind mount of it",
    working_dir,
}

#[test]
fn every_recording_has_its_test() {
    let recorded: Vec<String> = RECORDINGS.keys().map(|name| name.replace('-', "_")).collect();
    assert_eq!(NAMES, recorded);
}

#[derive(Deserialize)]
struct Recording {
    name: String,
    object: Pod,
    pod_ips: Vec<String>,
    sandboxes: Vec<Value>,
    containers: Vec<Value>,
    /// The error, if the kubelet refused to generate a config.
    refusal: Option<String>,
}

static RECORDINGS: LazyLock<BTreeMap<String, Recording>> = LazyLock::new(|| {
    let compressed = include_bytes!("../../tests/data/pods.json.gz");
    let mut json = String::new();
    flate2::read::GzDecoder::new(&compressed[..])
        .read_to_string(&mut json)
        .unwrap();
    let recordings: Vec<Recording> = serde_json::from_str(&json).unwrap();
    recordings
        .into_iter()
        .map(|recording| (recording.name.clone(), recording))
        .collect()
});

async fn check(name: &str, differs: Option<&str>) {
    let differences = differences(&RECORDINGS[name]).await;
    match differs {
        None => assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n")),
        Some(why) => assert!(!differences.is_empty(), "{name} is equal now: {why}"),
    }
}

/// The recorded node, with other folders.
struct Node {
    settings: NodeSettings,
    files: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        let resolv_conf = files.path().join("resolv.conf");
        std::fs::write(&resolv_conf, "nameserver 192.0.2.53\n").unwrap();
        let settings = NodeSettings {
            root_dir: RootDir::new(files.path().join("root")),
            pod_logs_dir: files.path().join("logs"),
            node_ips: vec!["10.99.0.1".parse().unwrap()].into(),
            cluster_dns: vec!["10.0.0.10".parse().unwrap()],
            cluster_domain: "cluster.local".into(),
            resolv_conf: Some(resolv_conf),
            cgroup_driver: CgroupDriver::Cgroupfs { root: "/".into() },
            memory_capacity: 24_684_100 << 10,
            allocatable_cpu_millis: 2000,
            allocatable_memory: 24_581_700 << 10,
            huge_page_sizes: vec!["2MB".into(), "1GB".into()],
            swap_controller: true,
            // Not every user may mount.
            mount_sub_paths: false,
            ..Default::default()
        };
        Self { settings, files }
    }

    /// Replaces the folders by the default ones.
    fn in_place(&self, json: &Value) -> Value {
        let files = self.files.path().display();
        let text = json
            .to_string()
            .replace(&format!("{files}/root"), "/var/lib/kubelet")
            .replace(&format!("{files}/logs"), "/var/log/pods");
        serde_json::from_str(&text).unwrap()
    }
}

struct Objects;

#[async_trait]
impl ConfigObjects for Objects {
    async fn config_map(&self, _: &str, name: &str) -> kubelet_core::Result<Option<Arc<ConfigMap>>> {
        let data = [("alpha", "one"), ("beta", "two")];
        let data = data.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let object = ConfigMap {
            data: Some(data.into()),
            ..Default::default()
        };
        Ok((name == "cm").then(|| Arc::new(object)))
    }

    async fn secret(&self, _: &str, name: &str) -> kubelet_core::Result<Option<Arc<Secret>>> {
        let data = [("user", "admin"), ("pass", "s3cret")];
        let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.into())));
        let object = Secret {
            data: Some(data.into()),
            ..Default::default()
        };
        Ok((name == "sec").then(|| Arc::new(object)))
    }
}

async fn differences(recording: &Recording) -> Vec<String> {
    let node = Node::new();
    let pod = with_source(recording);
    let mut differences = Vec::new();
    for recorded in &recording.sandboxes {
        let recorded: v1::PodSandboxConfig = message("PodSandboxConfig", recorded);
        let attempt = recorded.metadata.as_ref().unwrap().attempt;
        let ours = pod_sandbox_config(
            &node.settings,
            &pod,
            attempt,
            user_namespace(&pod),
            Recorders::both(&LogEvents),
        );
        let ours = node.in_place(&json("PodSandboxConfig", &ours.unwrap()));
        compare(
            "sandbox",
            &ours,
            &json("PodSandboxConfig", &recorded),
            &mut differences,
        );
    }
    for recorded in &recording.containers {
        let recorded: v1::ContainerConfig = message("ContainerConfig", recorded);
        let name = recorded.metadata.as_ref().unwrap().name.clone();
        let ours = container_like(&node, &pod, &recording.pod_ips, &recorded).await;
        let ours = node.in_place(&normal(json("ContainerConfig", &ours.unwrap())));
        compare(
            &name,
            &ours,
            &normal(json("ContainerConfig", &recorded)),
            &mut differences,
        );
    }
    if let Some(refusal) = &recording.refusal {
        let ours = refused(&node, &pod, &recording.pod_ips).await;
        if ours.as_ref() != Some(refusal) {
            differences.push(format!("refusal: ours {ours:?}, recorded {refusal:?}"));
        }
    }
    differences
}

/// The object with the kubelet's additions from its pod config.
fn with_source(recording: &Recording) -> Pod {
    let mut pod = recording.object.clone();
    let sandbox = recording.sandboxes.first();
    let seen = sandbox.map(|sandbox| sandbox["annotations"][annotations::CONFIG_FIRST_SEEN].clone());
    let own = pod.metadata.annotations.get_or_insert_default();
    own.insert(annotations::CONFIG_SOURCE.into(), "api".into());
    if let Some(Value::String(seen)) = seen {
        own.insert(annotations::CONFIG_FIRST_SEEN.into(), seen);
    }
    pod
}

async fn container_like(
    node: &Node,
    pod: &Pod,
    pod_ips: &[String],
    recorded: &v1::ContainerConfig,
) -> Result<v1::ContainerConfig> {
    let metadata = recorded.metadata.as_ref().unwrap();
    let container = container_named(pod, &metadata.name);
    let mut volumes = BTreeMap::new();
    let mut image_volumes = BTreeMap::new();
    for mount in container.volume_mounts.iter().flatten() {
        let at = recorded
            .mounts
            .iter()
            .find(|at| at.container_path == mount.mount_path);
        let at = at.unwrap();
        if mount.sub_path.is_some() {
            let volume = node.files.path().join("root/pods/volumes").join(&mount.name);
            std::fs::create_dir_all(&volume).unwrap();
            volumes.insert(mount.name.clone(), mounted(pod, &mount.name, volume));
        } else if let Some(image) = &at.image {
            image_volumes.insert(mount.name.clone(), image.clone());
        } else {
            volumes.insert(mount.name.clone(), mounted(pod, &mount.name, &at.host_path));
        }
    }
    let inputs = ContainerInputs {
        pod,
        container,
        restart_count: metadata.attempt,
        pod_ips,
        image_ref: &recorded.image.as_ref().unwrap().image,
        image_user: &ImageUser::default(),
        volumes: &volumes,
        lease: &VolumeLease::default(),
        image_volumes: &image_volumes,
        services: &services_of_the_recording(),
        config_objects: &Objects,
        target: None,
        handler: HandlerFeatures::default(),
        user_namespace: &user_namespace_of_host(),
        additions: &ContainerAdditions::default(),
    };
    container_config(&node.settings, &inputs).await
}

/// A volume with the attributes of its kind.
fn mounted(pod: &Pod, name: &str, path: impl Into<PathBuf>) -> MountedVolume {
    let volumes = pod.spec.as_ref().unwrap().volumes.as_ref().unwrap();
    let of_pod = volumes.iter().find(|volume| volume.name == name).unwrap();
    let from_api = of_pod.config_map.is_some()
        || of_pod.downward_api.is_some()
        || of_pod.projected.is_some()
        || of_pod.secret.is_some();
    let mut volume = MountedVolume::new(path);
    volume.read_only = from_api;
    volume.selinux_relabel = from_api || of_pod.empty_dir.is_some();
    volume
}

/// The first error of the configs of the pod's containers.
async fn refused(node: &Node, pod: &Pod, pod_ips: &[String]) -> Option<String> {
    let sandbox = pod_sandbox_config(
        &node.settings,
        pod,
        0,
        user_namespace(pod),
        Recorders::both(&LogEvents),
    );
    if let Err(error) = sandbox {
        return Some(error.to_string());
    }
    for container in &pod.spec.as_ref().unwrap().containers {
        let volumes = container.volume_mounts.iter().flatten();
        let inputs = ContainerInputs {
            pod,
            container,
            restart_count: 0,
            pod_ips,
            image_ref: "",
            image_user: &ImageUser::default(),
            volumes: &volumes
                .map(|mount| (mount.name.clone(), MountedVolume::new("/v")))
                .collect(),
            lease: &VolumeLease::default(),
            image_volumes: &BTreeMap::new(),
            services: &services_of_the_recording(),
            config_objects: &Objects,
            target: None,
            handler: HandlerFeatures::default(),
            user_namespace: &user_namespace_of_host(),
            additions: &ContainerAdditions::default(),
        };
        if let Err(error) = container_config(&node.settings, &inputs).await {
            return Some(error.to_string());
        }
    }
    None
}

/// The runtime of the recording could not create any.
fn user_namespace(pod: &Pod) -> Result<v1::UserNamespace, String> {
    let refusal = has_user_namespace(pod).then(|| refuses_user_namespace("", None));
    match refusal.flatten() {
        Some(refusal) => Err(refusal),
        None => Ok(user_namespace_of_host()),
    }
}

/// The services of the recorded API server: its own, and one in the pods' namespace.
fn services_of_the_recording() -> Listed {
    let https = json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]);
    let named = json!([{"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080}]);
    Listed(Some(vec![
        service("default", "kubernetes", "10.0.0.1", https),
        service("golden", "mysvc", "10.0.0.112", named),
    ]))
}

fn container_named<'a>(pod: &'a Pod, name: &str) -> &'a Container {
    let spec = pod.spec.as_ref().unwrap();
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.find(|container| container.name == name).unwrap()
}

/// Replaces random parts by fixed ones.
fn normal(mut config: Value) -> Value {
    if let Some(Value::Array(envs)) = config.get_mut("envs") {
        envs.sort_by_key(|env| env["key"].to_string());
    }
    for mount in config["mounts"].as_array_mut().into_iter().flatten() {
        let path = mount["host_path"].as_str().unwrap_or_default();
        if let Some((folder, _)) = path
            .rsplit_once('/')
            .filter(|(folder, _)| folder.contains("/containers/"))
        {
            mount["host_path"] = format!("{folder}/<id>").into();
        }
    }
    config
}

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../kubelet-cri/proto");
    let files = protox::compile(["runtime/v1/api.proto"], [proto]).unwrap();
    DescriptorPool::from_file_descriptor_set(files).unwrap()
});

fn message<T: prost::Message + Default>(name: &str, json: &Value) -> T {
    let descriptor = POOL.get_message_by_name(&format!("runtime.v1.{name}")).unwrap();
    DynamicMessage::deserialize(descriptor, json)
        .unwrap()
        .transcode_to()
        .unwrap()
}

fn json<T: prost::Message>(name: &str, message: &T) -> Value {
    let descriptor = POOL.get_message_by_name(&format!("runtime.v1.{name}")).unwrap();
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).unwrap();
    assert_eq!(dynamic.descriptor().name(), name);
    let options = SerializeOptions::new().use_proto_field_name(true);
    let mut value = dynamic
        .serialize_with_options(serde_json::value::Serializer, &options)
        .unwrap();
    if let Some(Value::Array(options)) = value.pointer_mut("/dns_config/options") {
        options.sort_by_key(Value::to_string);
    }
    value
}

fn compare(path: &str, ours: &Value, recorded: &Value, differences: &mut Vec<String>) {
    match (ours, recorded) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                compare(&format!("{path}.{key}"), &of(a), &of(b), differences);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{index}]"), a, b, differences);
            }
        }
        (a, b) if a != b => differences.push(format!("{path}: ours {a}, recorded {b}")),
        _ => {}
    }
}
