//! Builds pods; the code reads like a manifest.

mod container;
pub mod probe;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EmptyDirVolumeSource, HostPathVolumeSource, Pod, PodSecurityContext,
    PodSpec, SecretVolumeSource, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

pub use container::ContainerBuilder;

/// `0644`
const DEFAULT_MODE: i32 = 0o644;

/// Builds a pod, with the API server's defaults.
///
/// Methods set the fields that tests use often. [`spec`](Self::spec), [`metadata`](Self::metadata) and
/// [`ContainerBuilder::with`] give access to the API types for all others.
///
/// ```
/// use kubelet_testing::PodBuilder;
///
/// # use kubelet_testing::probe;
/// let pod = PodBuilder::new("web")
///     .namespace("shop")
///     .label("app", "web")
///     .config_map_volume("settings", "web-settings")
///     .init_container("setup", "busybox:1.36", |c| c.command(["true"]))
///     .sidecar("proxy", "proxy:2", |c| c.port(9000).startup_probe(probe::tcp_socket(9000)))
///     .container("main", "busybox:1.36", |c| {
///         c.command(["httpd", "-f"])
///             .env("COLOUR", "blue")
///             .port(8080)
///             .request("cpu", "100m")
///             .limit("memory", "64Mi")
///             .mount("settings", "/etc/web")
///             .readiness_probe(probe::http_get("/ready", 8080))
///     })
///     .node_name("node-1")
///     .termination_grace_period_seconds(5)
///     .build();
/// assert_eq!(pod.spec.as_ref().unwrap().containers[0].name, "main");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PodBuilder {
    pod: Pod,
    spec: PodSpec,
    seed: u64,
}

impl PodBuilder {
    /// A pod with this name in the namespace `default`.
    pub fn new(name: impl Into<String>) -> Self {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.into());
        pod.metadata.namespace = Some("default".to_owned());
        let spec = PodSpec {
            restart_policy: Some("Always".to_owned()),
            termination_grace_period_seconds: Some(30),
            dns_policy: Some("ClusterFirst".to_owned()),
            enable_service_links: Some(true),
            security_context: Some(PodSecurityContext::default()),
            ..PodSpec::default()
        };
        Self { pod, spec, seed: 0 }
    }

    /// `metadata.namespace`
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.pod.metadata.namespace = Some(namespace.into());
        self
    }

    /// `metadata.uid`. The default follows from seed, namespace and name, so it is the same in each run.
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.pod.metadata.uid = Some(uid.into());
        self
    }

    /// Sets the seed of the UID, for a new pod with the name of an old one. The default is 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Adds to `metadata.labels`.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.pod
            .metadata
            .labels
            .get_or_insert_default()
            .insert(key.into(), value.into());
        self
    }

    /// Adds to `metadata.annotations`.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.pod
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(key.into(), value.into());
        self
    }

    /// Adds to `spec.containers`.
    pub fn container(
        mut self,
        name: &str,
        image: &str,
        build: impl FnOnce(ContainerBuilder) -> ContainerBuilder,
    ) -> Self {
        self.spec
            .containers
            .push(build(ContainerBuilder::new(name, image)).container);
        self
    }

    /// Adds to `spec.initContainers`.
    pub fn init_container(
        mut self,
        name: &str,
        image: &str,
        build: impl FnOnce(ContainerBuilder) -> ContainerBuilder,
    ) -> Self {
        let container = build(ContainerBuilder::new(name, image)).container;
        self.spec.init_containers.get_or_insert_default().push(container);
        self
    }

    /// Adds a sidecar: an element of `spec.initContainers` with `restartPolicy: Always`.
    pub fn sidecar(
        self,
        name: &str,
        image: &str,
        build: impl FnOnce(ContainerBuilder) -> ContainerBuilder,
    ) -> Self {
        self.init_container(name, image, |container| build(container.restart_policy("Always")))
    }

    /// `spec.restartPolicy`: `Always` (the default), `OnFailure` or `Never`.
    pub fn restart_policy(mut self, policy: &str) -> Self {
        self.spec.restart_policy = Some(policy.to_owned());
        self
    }

    /// `spec.terminationGracePeriodSeconds`; the default is 30.
    pub fn termination_grace_period_seconds(mut self, seconds: i64) -> Self {
        self.spec.termination_grace_period_seconds = Some(seconds);
        self
    }

    /// `spec.hostNetwork: true`
    pub fn host_network(mut self) -> Self {
        self.spec.host_network = Some(true);
        self
    }

    /// `spec.nodeName`
    pub fn node_name(mut self, name: impl Into<String>) -> Self {
        self.spec.node_name = Some(name.into());
        self
    }

    /// `spec.serviceAccountName`
    pub fn service_account_name(mut self, name: impl Into<String>) -> Self {
        self.spec.service_account_name = Some(name.into());
        self
    }

    /// `spec.runtimeClassName`
    pub fn runtime_class_name(mut self, name: impl Into<String>) -> Self {
        self.spec.runtime_class_name = Some(name.into());
        self
    }

    /// `spec.priority`, which admission sets from a priority class.
    pub fn priority(mut self, priority: i32) -> Self {
        self.spec.priority = Some(priority);
        self
    }

    /// `spec.activeDeadlineSeconds`
    pub fn active_deadline_seconds(mut self, seconds: i64) -> Self {
        self.spec.active_deadline_seconds = Some(seconds);
        self
    }

    /// Adds to `spec.volumes`; `edit` sets the source.
    pub fn volume(mut self, name: impl Into<String>, edit: impl FnOnce(&mut Volume)) -> Self {
        let mut volume = Volume {
            name: name.into(),
            ..Volume::default()
        };
        edit(&mut volume);
        self.spec.volumes.get_or_insert_default().push(volume);
        self
    }

    /// Adds a volume of kind `emptyDir`.
    pub fn empty_dir_volume(self, name: impl Into<String>) -> Self {
        self.volume(name, |volume| {
            volume.empty_dir = Some(EmptyDirVolumeSource::default())
        })
    }

    /// Adds a volume of kind `hostPath`.
    pub fn host_path_volume(self, name: impl Into<String>, path: impl Into<String>) -> Self {
        let source = HostPathVolumeSource {
            path: path.into(),
            type_: Some(String::new()),
        };
        self.volume(name, |volume| volume.host_path = Some(source))
    }

    /// Adds a volume of kind `configMap`.
    pub fn config_map_volume(self, name: impl Into<String>, config_map: impl Into<String>) -> Self {
        let source = ConfigMapVolumeSource {
            name: config_map.into(),
            default_mode: Some(DEFAULT_MODE),
            ..ConfigMapVolumeSource::default()
        };
        self.volume(name, |volume| volume.config_map = Some(source))
    }

    /// Adds a volume of kind `secret`.
    pub fn secret_volume(self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        let source = SecretVolumeSource {
            secret_name: Some(secret.into()),
            default_mode: Some(DEFAULT_MODE),
            ..SecretVolumeSource::default()
        };
        self.volume(name, |volume| volume.secret = Some(source))
    }

    /// Adds the pod's controller to `metadata.ownerReferences`.
    pub fn controlled_by(
        mut self,
        api_version: impl Into<String>,
        kind: impl Into<String>,
        name: impl Into<String>,
        uid: impl Into<String>,
    ) -> Self {
        let owner = OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        self.pod
            .metadata
            .owner_references
            .get_or_insert_default()
            .push(owner);
        self
    }

    /// `metadata.deletionTimestamp` and `metadata.deletionGracePeriodSeconds`: the pod is being deleted.
    pub fn deleted(mut self, at: Time, grace_seconds: i64) -> Self {
        self.pod.metadata.deletion_timestamp = Some(at);
        self.pod.metadata.deletion_grace_period_seconds = Some(grace_seconds);
        self
    }

    /// `status`, as the API has it. See [`PodStatusBuilder`](crate::PodStatusBuilder).
    pub fn status(mut self, status: impl Into<k8s_openapi::api::core::v1::PodStatus>) -> Self {
        self.pod.status = Some(status.into());
        self
    }

    /// Edits any other field of the metadata.
    pub fn metadata(mut self, edit: impl FnOnce(&mut ObjectMeta)) -> Self {
        edit(&mut self.pod.metadata);
        self
    }

    /// Edits any other field of the spec.
    pub fn spec(mut self, edit: impl FnOnce(&mut PodSpec)) -> Self {
        edit(&mut self.spec);
        self
    }

    /// Returns the pod.
    pub fn build(mut self) -> Arc<Pod> {
        let metadata = &mut self.pod.metadata;
        if metadata.uid.is_none() {
            let of = |text: &Option<String>| text.clone().unwrap_or_default();
            metadata.uid = Some(uid(self.seed, &of(&metadata.namespace), &of(&metadata.name)));
        }
        let host_network = self.spec.host_network == Some(true);
        let init = self.spec.init_containers.iter_mut().flatten();
        for container in init.chain(&mut self.spec.containers) {
            default_container(container, host_network);
        }
        self.pod.spec = Some(self.spec);
        Arc::new(self.pod)
    }
}

/// The API server's other defaults: a limit without a request is also the request, and on the host's network a
/// container port is a host port.
fn default_container(container: &mut Container, host_network: bool) {
    if let Some(resources) = &mut container.resources
        && let Some(limits) = &resources.limits
    {
        let requests = resources.requests.get_or_insert_default();
        for (resource, limit) in limits {
            requests.entry(resource.clone()).or_insert_with(|| limit.clone());
        }
    }
    for port in container.ports.iter_mut().flatten() {
        if host_network && port.host_port.is_none() {
            port.host_port = Some(port.container_port);
        }
    }
}

/// A text in the form of a UID: a 128-bit FNV-1a hash.
fn uid(seed: u64, namespace: &str, name: &str) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let text = format!("{seed}/{namespace}/{name}");
    let hash = text
        .bytes()
        .fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    let mut uid = format!("{hash:032x}");
    for at in [20, 16, 12, 8] {
        uid.insert(at, '-');
    }
    uid
}

#[cfg(test)]
mod tests {
    use kubelet_core::PodExt;

    use super::*;

    #[test]
    fn a_uid_is_given_or_follows_from_seed_and_key() {
        let web = || PodBuilder::new("web");
        assert_eq!(web().build().uid(), web().build().uid());
        assert_eq!(web().build().uid_str().len(), 36);
        assert_ne!(web().build().uid(), web().seed(1).build().uid());
        assert_ne!(web().build().uid(), web().namespace("other").build().uid());
        assert_eq!(web().uid("8a3f").build().uid_str(), "8a3f");
    }

    #[test]
    fn it_reads_like_its_manifest() {
        let pod = PodBuilder::new("web")
            .uid("8a3f")
            .controlled_by("apps/v1", "ReplicaSet", "web-1", "77aa")
            .config_map_volume("settings", "web-settings")
            .sidecar("proxy", "proxy:2", |c| {
                c.port(9000).startup_probe(probe::tcp_socket(9000))
            })
            .container("main", "busybox:1.36", |c| {
                c.env_from_field("POD_IP", "status.podIP")
                    .named_port("http", 8080)
                    .limit("memory", "64Mi")
                    .request("cpu", "100m")
                    .mount("settings", "/etc/web")
                    .liveness_probe(probe::http_get("/live", 8080))
                    .pre_stop(["sleep", "5"])
            })
            .host_network()
            .node_name("node-1")
            .build();
        let expected = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "default", "uid": "8a3f",
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "77aa",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
                "enableServiceLinks": true, "securityContext": {}, "hostNetwork": true, "nodeName": "node-1",
                "volumes": [{ "name": "settings", "configMap": { "name": "web-settings", "defaultMode": 420 } }],
                "initContainers": [{
                    "name": "proxy", "image": "proxy:2", "restartPolicy": "Always",
                    "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "ports": [{ "containerPort": 9000, "hostPort": 9000, "protocol": "TCP" }],
                    "startupProbe": {
                        "tcpSocket": { "port": 9000 }, "timeoutSeconds": 1, "periodSeconds": 10,
                        "successThreshold": 1, "failureThreshold": 3,
                    },
                }],
                "containers": [{
                    "name": "main", "image": "busybox:1.36",
                    "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "env": [{
                        "name": "POD_IP",
                        "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "status.podIP" } },
                    }],
                    "ports": [{ "name": "http", "containerPort": 8080, "hostPort": 8080, "protocol": "TCP" }],
                    "resources": {
                        "limits": { "memory": "64Mi" }, "requests": { "memory": "64Mi", "cpu": "100m" },
                    },
                    "volumeMounts": [{ "name": "settings", "mountPath": "/etc/web" }],
                    "livenessProbe": {
                        "httpGet": { "path": "/live", "port": 8080, "scheme": "HTTP" }, "timeoutSeconds": 1,
                        "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                    },
                    "lifecycle": { "preStop": { "exec": { "command": ["sleep", "5"] } } },
                }],
            },
        });
        assert_eq!(serde_json::to_value(&*pod).unwrap(), expected);
    }
}
