//! Pods that read like their manifests.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSecurityContext, PodSpec};

/// Builds a pod. What is not said is as the API server defaults it.
///
/// ```
/// use kubelet_testing::PodBuilder;
///
/// let pod = PodBuilder::new("web")
///     .namespace("shop")
///     .label("app", "web")
///     .init_container("setup", "busybox:1.36", |c| c.command(["true"]))
///     .container("main", "busybox:1.36", |c| c.command(["sleep", "infinity"]).env("COLOUR", "blue"))
///     .restart_policy("Never")
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
    /// A pod of this name in the namespace `default`.
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

    /// `metadata.uid`. Without it, it follows from seed, namespace and name: the same in each run.
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.pod.metadata.uid = Some(uid.into());
        self
    }

    /// Another number, another UID: for the successor of a pod of the same name. 0 if not set.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// One of `metadata.labels`.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.pod
            .metadata
            .labels
            .get_or_insert_default()
            .insert(key.into(), value.into());
        self
    }

    /// One of `metadata.annotations`.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.pod
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(key.into(), value.into());
        self
    }

    /// One more of `spec.containers`.
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

    /// One more of `spec.initContainers`.
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

    /// `spec.restartPolicy`: `Always` (if not set), `OnFailure` or `Never`.
    pub fn restart_policy(mut self, policy: &str) -> Self {
        self.spec.restart_policy = Some(policy.to_owned());
        self
    }

    /// `spec.terminationGracePeriodSeconds`; 30 if not set.
    pub fn termination_grace_period_seconds(mut self, seconds: i64) -> Self {
        self.spec.termination_grace_period_seconds = Some(seconds);
        self
    }

    /// `spec.hostNetwork: true`
    pub fn host_network(mut self) -> Self {
        self.spec.host_network = Some(true);
        self
    }

    /// Whatever else it needs.
    pub fn spec(mut self, edit: impl FnOnce(&mut PodSpec)) -> Self {
        edit(&mut self.spec);
        self
    }

    /// The pod.
    pub fn build(mut self) -> Arc<Pod> {
        let metadata = &mut self.pod.metadata;
        if metadata.uid.is_none() {
            let of = |text: &Option<String>| text.clone().unwrap_or_default();
            metadata.uid = Some(uid(self.seed, &of(&metadata.namespace), &of(&metadata.name)));
        }
        self.pod.spec = Some(self.spec);
        Arc::new(self.pod)
    }
}

/// Builds a container of a pod: see [`PodBuilder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ContainerBuilder {
    container: Container,
}

impl ContainerBuilder {
    fn new(name: &str, image: &str) -> Self {
        let container = Container {
            name: name.to_owned(),
            image: Some(image.to_owned()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            termination_message_path: Some("/dev/termination-log".to_owned()),
            termination_message_policy: Some("File".to_owned()),
            ..Container::default()
        };
        Self { container }
    }

    /// `command`
    pub fn command<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> Self {
        self.container.command = Some(command.into_iter().map(Into::into).collect());
        self
    }

    /// `args`
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.container.args = Some(args.into_iter().map(Into::into).collect());
        self
    }

    /// One more of `env`.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let variable = EnvVar {
            name: name.into(),
            value: Some(value.into()),
            ..EnvVar::default()
        };
        self.container.env.get_or_insert_default().push(variable);
        self
    }

    /// `restartPolicy` of the container: `Always` makes a sidecar of an init container.
    pub fn restart_policy(mut self, policy: &str) -> Self {
        self.container.restart_policy = Some(policy.to_owned());
        self
    }

    /// Whatever else it needs.
    pub fn with(mut self, edit: impl FnOnce(&mut Container)) -> Self {
        edit(&mut self.container);
        self
    }
}

/// A UID that looks like one: a 128-bit FNV-1a hash.
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
}
