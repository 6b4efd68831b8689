//! Binds the pod of a manifest to a node: name, UID, annotations.

use k8s_openapi::api::core::v1::{Pod, Toleration};
use kubelet_core::annotations::CONFIG_HASH;

use super::Location;

/// The namespace of a pod that sets none.
const NAMESPACE_DEFAULT: &str = "default";

/// Binds the pod to the node (`applyDefaults` of the kubelet's `config` package). `uid` is what a pod
/// without one gets.
pub(super) fn bind(pod: &mut Pod, node_name: &str, location: Location<'_>, uid: String) {
    let metadata = &mut pod.metadata;
    let uid = metadata.uid.take().filter(|uid| !uid.is_empty()).unwrap_or(uid);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_HASH.into(), uid.clone());
    metadata.uid = Some(uid);
    let name = metadata.name.take().unwrap_or_default();
    metadata.name = Some(format!("{name}-{}", node_name.to_lowercase()));
    metadata.namespace.get_or_insert_with(|| NAMESPACE_DEFAULT.into());

    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node_name.into());
    if matches!(location, Location::File(_)) {
        tolerate_node_problems(spec.tolerations.get_or_insert_default());
    }
    pod.status.get_or_insert_default().phase = Some("Pending".into());
}

/// Problems of the node do not evict static pods.
fn tolerate_node_problems(tolerations: &mut Vec<Toleration>) {
    let wanted = Toleration {
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        ..Toleration::default()
    };
    let mut found = false;
    for toleration in tolerations.iter_mut() {
        let same = Toleration {
            toleration_seconds: None,
            ..toleration.clone()
        };
        if same == wanted {
            *toleration = wanted.clone();
            found = true;
        }
    }
    if !found {
        tolerations.push(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_toleration_is_there_once() {
        let toleration = |seconds| Toleration {
            operator: Some("Exists".into()),
            effect: Some("NoExecute".into()),
            toleration_seconds: seconds,
            ..Toleration::default()
        };
        let mut tolerations = vec![toleration(Some(30))];
        tolerate_node_problems(&mut tolerations);
        assert_eq!(tolerations, [toleration(None)]);
        tolerate_node_problems(&mut tolerations);
        assert_eq!(tolerations, [toleration(None)]);
    }
}
