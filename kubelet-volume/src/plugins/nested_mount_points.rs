//! The places in a volume where other volumes are mounted (`nested_volumes.go`).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, VolumeMount};

use crate::filesystem::clean_path::clean_path;
use crate::filesystem::make_dir::make_dirs;

/// The folders that the volume needs because a container mounts another volume there, relative to the volume
/// (`getNestedMountpoints`).
pub(super) fn nested_mount_points(volume: &str, pod: &Pod) -> Result<BTreeSet<String>, String> {
    let mut nested = BTreeSet::new();
    let Some(spec) = &pod.spec else { return Ok(nested) };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mounts = containers
        .map(|container| &container.volume_mounts)
        .chain(ephemeral.map(|container| &container.volume_mounts));
    for mounts in mounts.flatten() {
        of_container(volume, mounts, &mut nested)?;
    }
    Ok(nested)
}

fn of_container(volume: &str, mounts: &[VolumeMount], nested: &mut BTreeSet<String>) -> Result<(), String> {
    let all: BTreeSet<String> = mounts.iter().map(|mount| clean_path(&mount.mount_path)).collect();
    for mount in mounts.iter().filter(|mount| mount.name == volume) {
        let own = clean_path(&mount.mount_path);
        if own.starts_with("../") {
            return Err(format!("invalid container mount point {own}"));
        }
        let below: BTreeSet<&str> = all
            .iter()
            .filter_map(|path| path.strip_prefix(&own)?.strip_prefix('/'))
            .filter(|path| !path.is_empty())
            .collect();
        // What is below another one is in that volume.
        let is_outer = |path: &&&str| {
            let is_below = |outer: &&str| path.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
            !below.iter().any(is_below)
        };
        nested.extend(below.iter().filter(is_outer).map(|path| (*path).to_owned()));
    }
    Ok(())
}

/// `MakeNestedMountpoints`
pub(super) fn make(dir: &Path, nested: &BTreeSet<String>) -> io::Result<()> {
    for path in nested {
        make_dirs(&dir.join(path), 0o755).map_err(|error| {
            let message = format!("unable to create nested volume mountpoints: {error}");
            io::Error::other(message)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_the_outermost_mount_points_are_made() {
        type Expected<'a> = Result<&'a [&'a str], &'a str>;
        let cases: [(&[(&str, &str)], Expected<'_>); 5] = [
            (&[("v", "/dir"), ("w", "/other")], Ok(&[])),
            (
                &[("v", "/dir"), ("w", "/dir/nested"), ("x", "/dir/nested/other")],
                Ok(&["nested"]),
            ),
            (
                &[
                    ("v", "/dir"),
                    ("w", "/dir/a-b"),
                    ("x", "/dir/a"),
                    ("y", "/dir/a/b"),
                ],
                Ok(&["a", "a-b"]),
            ),
            (
                &[("v", "/dir"), ("w", "/dir2"), ("x", "/dir//c/../d/")],
                Ok(&["d"]),
            ),
            (&[("v", "../dir")], Err("invalid container mount point ../dir")),
        ];
        for (mounts, expected) in cases {
            let mounts: Vec<Value> = mounts
                .iter()
                .map(|(name, path)| json!({"name": name, "mountPath": path}))
                .collect();
            let pod = json!({"spec": {"containers": [{"name": "c", "volumeMounts": mounts}]}});
            let nested = nested_mount_points("v", &serde_json::from_value(pod).unwrap());
            let expected = expected.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
            assert_eq!(nested, expected.map_err(str::to_owned));
        }
    }
}
