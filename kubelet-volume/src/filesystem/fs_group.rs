//! The group and the user that the files of a pod's volumes belong to.

use k8s_openapi::api::core::v1::{Pod, SecurityContext};

/// The user of all containers of the pod, if they have the same one (`FsUserFrom`).
pub(crate) fn fs_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec
        .security_context
        .as_ref()
        .and_then(|context| context.run_as_user);
    let of = |context: &Option<SecurityContext>| context.as_ref().and_then(|it| it.run_as_user).or(of_pod);
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mut users = containers
        .map(|container| of(&container.security_context))
        .chain(ephemeral.map(|container| of(&container.security_context)));
    let first = users.next()??;
    users
        .all(|user| user == Some(first))
        .then(|| u32::try_from(first).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_user_of_all_containers_counts() {
        for (pod, containers, expected) in [
            (None, vec![None], None),
            (Some(7), vec![None, None], Some(7)),
            (Some(7), vec![None, Some(8)], None),
            (None, vec![Some(8), Some(8)], Some(8)),
            (None, vec![Some(8), None], None),
        ] {
            let containers: Vec<_> = containers
                .into_iter()
                .map(|user| json!({"name": "c", "securityContext": {"runAsUser": user}}))
                .collect();
            let pod = json!({"metadata": {},
                "spec": {"securityContext": {"runAsUser": pod}, "containers": containers}});
            assert_eq!(
                fs_user(&serde_json::from_value(pod.clone()).unwrap()),
                expected,
                "{pod}"
            );
        }
    }
}
