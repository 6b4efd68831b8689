//! The owner of a volume's files (`VolumeOwnership`).

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, SecurityContext};

/// The group's permissions for files, and those added for folders.
const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const FOLDER: u32 = 0o2110;

/// Gives everything below `folder`, and then `folder` itself, to the pod's group. Failures are logged.
pub(crate) fn give_to_group(folder: &Path, group: u32, read_only: bool) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(folder)? {
            give_to_group(&entry?.path(), group, read_only)?;
        }
    }
    let mask = if read_only { READ_ONLY } else { READ_WRITE } | if metadata.is_dir() { FOLDER } else { 0 };
    let mut given = lchown(folder, None, Some(group));
    // The mode of a link is that of its target.
    if !metadata.is_symlink() {
        let mode = Permissions::from_mode(metadata.permissions().mode() | mask);
        given = given.and_then(|()| fs::set_permissions(folder, mode));
    }
    if let Err(error) = given {
        tracing::error!(path = %folder.display(), group, %error, "Cannot give a file of a volume to the pod's group");
    }
    Ok(())
}

/// `securityContext.fsGroup`
pub(crate) fn fs_group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(context.fs_group?).ok()
}

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
