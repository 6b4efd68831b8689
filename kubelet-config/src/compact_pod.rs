//! A pod in no more memory than it needs.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, Volume};

/// Gives back the room that decoding left in the pod's lists, for elements that do not come: a list of one element has room
/// for four, and elements are large. With what every pod has, that is a third of it.
pub(crate) fn compact(pod: &mut Pod) {
    if let Some(spec) = &mut pod.spec {
        shrink_containers(&mut spec.containers);
        if let Some(containers) = &mut spec.init_containers {
            shrink_containers(containers);
        }
        if let Some(volumes) = &mut spec.volumes {
            volumes.shrink_to_fit();
            volumes.iter_mut().for_each(shrink_sources);
        }
        shrink(&mut spec.tolerations);
        shrink(&mut spec.image_pull_secrets);
    }
    if let Some(status) = &mut pod.status {
        shrink(&mut status.conditions);
        shrink(&mut status.pod_ips);
        shrink(&mut status.host_ips);
        shrink_statuses(&mut status.container_statuses);
        shrink_statuses(&mut status.init_container_statuses);
    }
}

fn shrink<T>(list: &mut Option<Vec<T>>) {
    if let Some(list) = list {
        list.shrink_to_fit();
    }
}

fn shrink_containers(containers: &mut Vec<Container>) {
    containers.shrink_to_fit();
    for container in containers {
        shrink(&mut container.env);
        shrink(&mut container.env_from);
        shrink(&mut container.ports);
        shrink(&mut container.volume_mounts);
        shrink(&mut container.command);
        shrink(&mut container.args);
    }
}

fn shrink_sources(volume: &mut Volume) {
    if let Some(projected) = &mut volume.projected {
        shrink(&mut projected.sources);
    }
}

fn shrink_statuses(statuses: &mut Option<Vec<ContainerStatus>>) {
    shrink(statuses);
    for status in statuses.iter_mut().flatten() {
        shrink(&mut status.volume_mounts);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_lost_but_room() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {
                "containers": [{"name": "main", "env": [{"name": "A", "value": "b"}], "volumeMounts": [{"name": "token", "mountPath": "/t"}]}],
                "initContainers": [{"name": "setup"}],
                "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 0}],
            },
        });
        let decoded: Pod = serde_json::from_value(pod.clone()).unwrap();
        let mut compacted = decoded.clone();
        compact(&mut compacted);
        assert_eq!(compacted, decoded);
        let status = compacted.status.unwrap();
        assert_eq!(status.conditions.unwrap().capacity(), 1);
        assert_eq!(status.container_statuses.unwrap().capacity(), 1);
        assert_eq!(compacted.spec.unwrap().volumes.unwrap().capacity(), 1);
    }
}
