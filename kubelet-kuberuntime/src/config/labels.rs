//! Writes the labels and annotations of sandboxes and containers, and reads them back (`kuberuntime/labels.go`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerPort, LifecycleHandler, Pod};
use kubelet_core::labels::{CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID};
use kubelet_core::{PodKey, PodUid};
use serde::de::DeserializeOwned;

use super::{go_json, hash_container};

/// Annotation (`podDeletionGracePeriodLabel`): the grace period, in seconds, of the pod's deletion.
pub(crate) const POD_DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
/// Annotation (`podTerminationGracePeriodLabel`): the grace period, in seconds, of the pod's spec.
pub(crate) const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotation (`containerHashLabel`): the container's hash in hexadecimal.
pub(crate) const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// Annotation (`containerRestartCountLabel`): how often the container was started before.
pub(crate) const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation (`containerTerminationMessagePathLabel`): the path of the termination message in the container.
pub(crate) const CONTAINER_TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Annotation (`containerTerminationMessagePolicyLabel`): whether the log may replace a missing message.
pub(crate) const CONTAINER_TERMINATION_MESSAGE_POLICY: &str =
    "io.kubernetes.container.terminationMessagePolicy";
/// Annotation (`containerPreStopHandlerLabel`): its pre-stop hook as JSON.
pub(crate) const CONTAINER_PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// Annotation (`containerPortsLabel`): its ports as JSON.
pub(crate) const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";

type Map = BTreeMap<String, String>;

/// The labels of a pod's sandbox (`newPodLabels`).
pub(crate) fn pod_labels(pod: &Pod) -> Map {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(identity_labels(pod));
    labels
}

/// The annotations of a pod's sandbox (`newPodAnnotations`).
pub(crate) fn pod_annotations(pod: &Pod) -> Map {
    pod.metadata.annotations.clone().unwrap_or_default()
}

/// The labels of a container (`newContainerLabels`).
pub(crate) fn container_labels(container: &Container, pod: &Pod) -> Map {
    let name = (CONTAINER_NAME.to_owned(), container.name.clone());
    identity_labels(pod).into_iter().chain([name]).collect()
}

/// The annotations of a container (`newContainerAnnotations`).
pub(crate) fn container_annotations(container: &Container, pod: &Pod, restart_count: u32) -> Map {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut annotations = Map::new();
    let mut set = |key: &str, value: String| annotations.insert(key.to_owned(), value);

    set(CONTAINER_HASH, format!("{:x}", hash_container(container)));
    set(CONTAINER_RESTART_COUNT, restart_count.to_string());
    set(
        CONTAINER_TERMINATION_MESSAGE_PATH,
        text(&container.termination_message_path),
    );
    set(
        CONTAINER_TERMINATION_MESSAGE_POLICY,
        text(&container.termination_message_policy),
    );
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        set(POD_DELETION_GRACE_PERIOD, seconds.to_string());
    }
    let grace_period = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds);
    if let Some(seconds) = grace_period {
        set(POD_TERMINATION_GRACE_PERIOD, seconds.to_string());
    }
    let pre_stop = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref());
    if let Some(handler) = pre_stop {
        set(CONTAINER_PRE_STOP_HANDLER, go_json::lifecycle_handler(handler));
    }
    if let Some(ports) = container.ports.as_deref().filter(|ports| !ports.is_empty()) {
        set(CONTAINER_PORTS, go_json::container_ports(ports));
    }
    annotations
}

fn identity_labels(pod: &Pod) -> [(String, String); 3] {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    [
        (POD_NAME.to_owned(), text(&pod.metadata.name)),
        (POD_NAMESPACE.to_owned(), text(&pod.metadata.namespace)),
        (POD_UID.to_owned(), text(&pod.metadata.uid)),
    ]
}

/// The data in the labels of a sandbox or container (`labeledPodSandboxInfo`, `labeledContainerInfo`). One without
/// these labels does not belong to the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabeledInfo {
    /// The pod's UID; empty without a label.
    pub(crate) uid: PodUid,
    /// The pod's namespace and name; empty without labels.
    pub(crate) key: PodKey,
    /// The container's name; empty for a sandbox.
    pub(crate) container_name: String,
}

impl LabeledInfo {
    /// Reads them (`getPodSandboxInfoFromLabels`, `getContainerInfoFromLabels`).
    pub(crate) fn from_labels(labels: &Map) -> Self {
        let get = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
        Self {
            uid: PodUid::new(get(POD_UID)),
            key: PodKey::new(get(POD_NAMESPACE), get(POD_NAME)),
            container_name: get(CONTAINER_NAME).to_owned(),
        }
    }
}

/// The data in the annotations of a container (`annotatedContainerInfo`): enough to stop a container whose pod is not
/// known any more.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AnnotatedContainerInfo {
    /// The hash of its spec; 0 if unknown.
    pub(crate) hash: u64,
    /// How often it was started before.
    pub(crate) restart_count: u32,
    /// Seconds.
    pub(crate) pod_deletion_grace_period: Option<i64>,
    /// Seconds.
    pub(crate) pod_termination_grace_period: Option<i64>,
    /// The path of the termination message in the container; may be empty.
    pub(crate) termination_message_path: String,
    /// `File` or `FallbackToLogsOnError`
    pub(crate) termination_message_policy: String,
    /// Its pre-stop hook.
    pub(crate) pre_stop_handler: Option<LifecycleHandler>,
    /// Its ports.
    pub(crate) container_ports: Vec<ContainerPort>,
}

impl AnnotatedContainerInfo {
    /// Reads them (`getContainerInfoFromAnnotations`). An annotation that cannot be read is logged and counts as
    /// absent.
    pub(crate) fn from_annotations(annotations: &Map) -> Self {
        let text = |key: &str| annotations.get(key).cloned().unwrap_or_default();
        Self {
            hash: parse(annotations, CONTAINER_HASH, |hash| u64::from_str_radix(hash, 16)).unwrap_or(0),
            restart_count: parse(annotations, CONTAINER_RESTART_COUNT, str::parse).unwrap_or(0),
            pod_deletion_grace_period: parse(annotations, POD_DELETION_GRACE_PERIOD, str::parse),
            pod_termination_grace_period: parse(annotations, POD_TERMINATION_GRACE_PERIOD, str::parse),
            termination_message_path: text(CONTAINER_TERMINATION_MESSAGE_PATH),
            termination_message_policy: text(CONTAINER_TERMINATION_MESSAGE_POLICY),
            pre_stop_handler: parse(annotations, CONTAINER_PRE_STOP_HANDLER, from_json),
            container_ports: parse(annotations, CONTAINER_PORTS, from_json).unwrap_or_default(),
        }
    }
}

fn from_json<T: DeserializeOwned>(json: &str) -> serde_json::Result<T> {
    serde_json::from_str(json)
}

fn parse<T, E: std::fmt::Display>(
    annotations: &Map,
    key: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let value = annotations.get(key)?;
    parse(value)
        .inspect_err(|error| tracing::error!(annotation = key, value, %error, "cannot read an annotation"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ExecAction, Lifecycle, PodSpec};

    #[test]
    fn what_is_written_is_read_back() {
        let container = Container {
            name: "main".into(),
            image: Some("busybox".into()),
            termination_message_path: Some("/dev/termination-log".into()),
            termination_message_policy: Some("File".into()),
            lifecycle: Some(Lifecycle {
                pre_stop: Some(LifecycleHandler {
                    exec: Some(ExecAction {
                        command: Some(vec!["sh".into(), "-c".into(), "a && b".into()]),
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ports: Some(vec![ContainerPort {
                container_port: 80,
                ..Default::default()
            }]),
            ..Default::default()
        };
        let mut pod = Pod {
            spec: Some(PodSpec {
                termination_grace_period_seconds: Some(7),
                ..Default::default()
            }),
            ..Default::default()
        };
        pod.metadata.name = Some("web".into());
        pod.metadata.namespace = Some("default".into());
        pod.metadata.uid = Some("u-1".into());
        pod.metadata.deletion_grace_period_seconds = Some(3);

        let labels = LabeledInfo::from_labels(&container_labels(&container, &pod));
        assert_eq!(labels.uid.as_str(), "u-1");
        assert_eq!(labels.key, PodKey::new("default", "web"));
        assert_eq!(labels.container_name, "main");

        let info = AnnotatedContainerInfo::from_annotations(&container_annotations(&container, &pod, 4));
        let expected = AnnotatedContainerInfo {
            hash: hash_container(&container),
            restart_count: 4,
            pod_deletion_grace_period: Some(3),
            pod_termination_grace_period: Some(7),
            termination_message_path: "/dev/termination-log".into(),
            termination_message_policy: "File".into(),
            pre_stop_handler: container.lifecycle.and_then(|lifecycle| lifecycle.pre_stop),
            container_ports: container.ports.unwrap_or_default(),
        };
        assert_eq!(info, expected);
    }

    #[test]
    fn what_cannot_be_read_is_absent() {
        let annotations = Map::from([
            (CONTAINER_HASH.to_owned(), "xyz".to_owned()),
            (CONTAINER_RESTART_COUNT.to_owned(), "-1".to_owned()),
            (CONTAINER_PRE_STOP_HANDLER.to_owned(), "{".to_owned()),
        ]);
        assert_eq!(
            AnnotatedContainerInfo::from_annotations(&annotations),
            AnnotatedContainerInfo::default()
        );
        let unlabeled = LabeledInfo::from_labels(&Map::new());
        assert!(unlabeled.uid.is_empty() && unlabeled.container_name.is_empty());
    }
}
