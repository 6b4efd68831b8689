//! The change between a known pod and its update from the source, by the rules of the kubelet.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubelet_core::annotations::{CONFIG_FIRST_SEEN, CONFIG_MIRROR, CONFIG_SOURCE};
use kubelet_core::{Clock, PodExt};

/// The annotations that belong to the node and not to the source: a source cannot change them, and a change
/// in them is none.
const LOCAL_ANNOTATIONS: [&str; 3] = [CONFIG_SOURCE, CONFIG_MIRROR, CONFIG_FIRST_SEEN];

/// How a pod differs from what was known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// In nothing that the node looks at.
    Nothing,
    /// Only in its status.
    Status,
    /// In what matters to running it.
    Update,
    /// In what matters to running it, and it is to be deleted.
    GracefulDelete,
}

/// How `update` differs from `known`.
pub(crate) fn change(known: &Pod, update: &Pod) -> Change {
    let (old, new) = (&known.metadata, &update.metadata);
    let same = spec_eq(&known.spec, &update.spec)
        && old.labels == new.labels
        && old.deletion_timestamp == new.deletion_timestamp
        && old.deletion_grace_period_seconds == new.deletion_grace_period_seconds
        && foreign_annotations(old).eq(foreign_annotations(new));
    if !same {
        return if update.is_deleting() {
            Change::GracefulDelete
        } else {
            Change::Update
        };
    }
    if status_eq(&known.status, &update.status) {
        Change::Nothing
    } else {
        Change::Status
    }
}

/// A new pod, annotated with its source and the time.
pub(crate) fn first_seen(update: Arc<Pod>, source: &str, clock: &Clock) -> Arc<Pod> {
    with_pod(update, |pod| {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_SOURCE.into(), source.into());
        annotations.insert(CONFIG_FIRST_SEEN.into(), clock.now().to_string());
    })
}

/// The pod after an update: what its source now says, but the identity and the local annotations it had.
pub(crate) fn updated(known: &Pod, update: Arc<Pod>, source: &str) -> Arc<Pod> {
    with_pod(update, |pod| {
        let mut annotations = pod.metadata.annotations.take().unwrap_or_default();
        annotations.insert(CONFIG_SOURCE.into(), source.into());
        for key in LOCAL_ANNOTATIONS {
            if let Some(value) = known.annotation(key) {
                annotations.insert(key.into(), value.into());
            }
        }
        // The resource version, the owners and the rest stay those of the first sight, as in the kubelet.
        pod.metadata = ObjectMeta {
            annotations: Some(annotations),
            labels: pod.metadata.labels.take(),
            deletion_timestamp: pod.metadata.deletion_timestamp.take(),
            deletion_grace_period_seconds: pod.metadata.deletion_grace_period_seconds,
            generation: pod.metadata.generation,
            ..identity(&known.metadata)
        };
    })
}

/// The known pod with the status of the update.
pub(crate) fn reconciled(known: &Pod, update: Arc<Pod>) -> Arc<Pod> {
    with_pod(update, |pod| pod.metadata = known.metadata.clone())
}

/// Changes a pod in place if there is no other reference to it, else a copy.
fn with_pod(mut pod: Arc<Pod>, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    change(Arc::make_mut(&mut pod));
    pod
}

/// The metadata that no update changes.
fn identity(known: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        creation_timestamp: known.creation_timestamp.clone(),
        finalizers: known.finalizers.clone(),
        generate_name: known.generate_name.clone(),
        managed_fields: known.managed_fields.clone(),
        name: known.name.clone(),
        namespace: known.namespace.clone(),
        owner_references: known.owner_references.clone(),
        resource_version: known.resource_version.clone(),
        self_link: known.self_link.clone(),
        uid: known.uid.clone(),
        ..ObjectMeta::default()
    }
}

fn foreign_annotations(metadata: &ObjectMeta) -> impl Iterator<Item = (&String, &String)> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    let annotations = metadata.annotations.as_ref().unwrap_or(&NONE);
    annotations
        .iter()
        .filter(|(key, _)| !LOCAL_ANNOTATIONS.contains(&key.as_str()))
}

/// An absent spec is an empty one: in the kubelet's type it cannot be absent.
fn spec_eq(a: &Option<PodSpec>, b: &Option<PodSpec>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b,
        (None, None) => true,
        (Some(one), None) | (None, Some(one)) => *one == PodSpec::default(),
    }
}

/// An absent status is an empty one.
fn status_eq(a: &Option<PodStatus>, b: &Option<PodStatus>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b,
        (None, None) => true,
        (Some(one), None) | (None, Some(one)) => *one == PodStatus::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_a_change() {
        let base = json!({
            "metadata": {"name": "p", "uid": "1", "annotations": {"a": "1", "kubernetes.io/config.seen": "then"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        });
        let cases: [(&str, &str, Value, Change); 12] = [
            (
                "a resource version",
                "/metadata/resourceVersion",
                json!("9"),
                Change::Nothing,
            ),
            ("an owner", "/metadata/finalizers", json!(["x"]), Change::Nothing),
            (
                "a local annotation",
                "/metadata/annotations/kubernetes.io~1config.seen",
                json!("now"),
                Change::Nothing,
            ),
            (
                "a mirror mark",
                "/metadata/annotations/kubernetes.io~1config.mirror",
                json!("x"),
                Change::Nothing,
            ),
            (
                "a config hash",
                "/metadata/annotations/kubernetes.io~1config.hash",
                json!("x"),
                Change::Update,
            ),
            (
                "an annotation",
                "/metadata/annotations/a",
                json!("2"),
                Change::Update,
            ),
            ("a label", "/metadata/labels", json!({"l": "1"}), Change::Update),
            (
                "an image",
                "/spec/containers/0/image",
                json!("i:2"),
                Change::Update,
            ),
            (
                "a grace period",
                "/metadata/deletionGracePeriodSeconds",
                json!(3),
                Change::Update,
            ),
            (
                "a deletion",
                "/metadata/deletionTimestamp",
                json!("2024-01-01T00:00:00Z"),
                Change::GracefulDelete,
            ),
            ("a phase", "/status", json!({"phase": "Running"}), Change::Status),
            ("an empty status", "/status", json!({}), Change::Nothing),
        ];
        for (what, path, value, expected) in cases {
            let mut update = base.clone();
            let (parent, key) = path.rsplit_once('/').unwrap();
            let parent = if parent.is_empty() {
                &mut update
            } else {
                update.pointer_mut(parent).unwrap()
            };
            match key.parse::<usize>() {
                Ok(index) => parent[index] = value,
                Err(_) => parent[key.replace("~1", "/")] = value,
            }
            assert_eq!(change(&pod(base.clone()), &pod(update)), expected, "{what}");
        }
    }
}
