//! The mounts of a container (`makeMounts` of `kubelet_pods.go`), without reading files of the host.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use kubelet_core::{MountedVolume, PodExt};

use super::environment::Environment;
use super::expansion::expand;
use super::{ConfigError, ContainerInputs, NodeSettings, Result};
use kubelet_cri::v1;

/// A mount, and its sub-path, which must still be resolved on the host.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlannedMount {
    /// The mount; its host path is that of the whole volume.
    pub(super) mount: v1::Mount,
    /// The part of the volume that is mounted.
    pub(super) sub_path: Option<SubPath>,
}

/// A path below a volume, without any `..`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SubPath {
    /// Relative.
    pub(super) path: PathBuf,
    /// The name of the volume mount, for errors.
    pub(super) volume_mount: String,
    /// The name of the container, for errors.
    pub(super) container: String,
    /// The mount point for the runtime: `<pod dir>/volume-subpaths/<volume>/<container>/<index>`
    /// (`getSubpathBindTarget`). `None`: it is not mounted, and the runtime gets the path in the volume.
    pub(super) mount_point: Option<PathBuf>,
}

/// The mounts of the container's spec, in its order.
pub(super) fn plan_mounts(
    node: &NodeSettings,
    inputs: &ContainerInputs<'_>,
    environment: &Environment,
) -> Result<Vec<PlannedMount>> {
    let container = inputs.container;
    let mounts = container.volume_mounts.iter().flatten();
    mounts
        .enumerate()
        .map(|(index, mount)| plan_mount(node, inputs, environment, index, mount))
        .collect()
}

/// The block devices of the container's spec, in its order (`makeBlockVolumes`).
pub(super) fn block_devices(
    container: &Container,
    volumes: &BTreeMap<String, MountedVolume>,
) -> Result<Vec<v1::Device>> {
    let wanted = container.volume_devices.iter().flatten();
    let devices = wanted.map(|wanted| {
        let volume = volumes.get(&wanted.name).filter(|volume| volume.is_block);
        let volume = volume.ok_or_else(|| {
            ConfigError::Spec(format!(
                "cannot find volume {:?} to pass into container {:?}",
                wanted.name, container.name
            ))
        })?;
        Ok(v1::Device {
            host_path: volume.path.display().to_string(),
            container_path: wanted.device_path.clone(),
            permissions: if volume.read_only { "r" } else { "mrw" }.to_owned(),
        })
    });
    devices.collect()
}

fn plan_mount(
    node: &NodeSettings,
    inputs: &ContainerInputs<'_>,
    environment: &Environment,
    index: usize,
    mount: &VolumeMount,
) -> Result<PlannedMount> {
    let container = &inputs.container.name;
    let image = inputs.image_volumes.get(&mount.name);
    let volume = inputs.volumes.get(&mount.name).filter(|volume| !volume.is_block);
    if image.is_none() && volume.is_none() {
        return Err(ConfigError::Spec(format!(
            "cannot find volume {:?} to mount into container {container:?}",
            mount.name
        )));
    }
    let sub_path = sub_path(mount, environment)?;
    let must_be_read_only = volume.is_some_and(|volume| volume.read_only);
    let must_be_labeled = volume.is_some_and(|volume| volume.selinux_relabel);
    let mut planned = v1::Mount {
        container_path: absolute(&mount.mount_path),
        readonly: mount.read_only.unwrap_or(false) || must_be_read_only || image.is_some(),
        recursive_read_only: recursive_read_only(mount, inputs.handler.recursive_read_only_mounts)?,
        selinux_relabel: node.selinux && must_be_labeled && image.is_none(),
        propagation: propagation(mount)? as i32,
        ..Default::default()
    };
    let mut rest = None;
    match (image, volume) {
        (Some(image), _) => {
            planned.image = Some(image.clone());
            planned.image_sub_path = sub_path
                .map(|path| path.display().to_string())
                .unwrap_or_default();
        }
        (None, volume) => {
            planned.host_path = volume
                .map(|volume| volume.path.display().to_string())
                .unwrap_or_default();
            let inner_name = volume
                .map(|volume| &volume.inner_name)
                .filter(|name| !name.is_empty());
            rest = sub_path.map(|path| SubPath {
                path,
                volume_mount: mount.name.clone(),
                container: container.clone(),
                mount_point: node.mount_sub_paths.then(|| {
                    let dir = node.root_dir.pod_volume_subpaths_dir(&inputs.pod.uid());
                    dir.join(inner_name.unwrap_or(&mount.name))
                        .join(container)
                        .join(index.to_string())
                }),
            });
        }
    }
    Ok(PlannedMount {
        mount: planned,
        sub_path: rest,
    })
}

/// `subPath`, or `subPathExpr` with all its variables replaced.
fn sub_path(mount: &VolumeMount, environment: &Environment) -> Result<Option<PathBuf>> {
    let mut text = Cow::Borrowed(mount.sub_path.as_deref().unwrap_or_default());
    if let Some(expression) = mount.sub_path_expr.as_deref().filter(|text| !text.is_empty()) {
        text = Cow::Owned(expand_sub_path(expression, environment)?);
    }
    if text.is_empty() {
        return Ok(None);
    }
    let path = Path::new(text.as_ref());
    if path.is_absolute() {
        return Err(ConfigError::Spec(format!(
            "error SubPath `{text}` must not be an absolute path"
        )));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(ConfigError::Spec(format!(
            "unable to provision SubPath `{text}`: must not contain '..'"
        )));
    }
    Ok(Some(path.to_owned()))
}

/// Unlike elsewhere, a variable that is unknown or empty is an error (`ExpandContainerVolumeMounts`).
fn expand_sub_path(expression: &str, environment: &Environment) -> Result<String> {
    let mut missing = BTreeSet::new();
    let path = expand(expression, |name| {
        let value = environment.get(name).filter(|value| !value.is_empty());
        match value {
            Some(value) => String::from_utf8_lossy(value),
            None => {
                missing.insert(name.to_owned());
                Cow::Borrowed("")
            }
        }
    });
    if missing.is_empty() {
        return Ok(path);
    }
    let names: Vec<String> = missing.into_iter().collect();
    Err(ConfigError::Spec(format!(
        "missing value for {}",
        names.join(", ")
    )))
}

fn absolute(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    }
}

/// `translateMountPropagation`
fn propagation(mount: &VolumeMount) -> Result<v1::MountPropagation> {
    match mount.mount_propagation.as_deref() {
        None | Some("None") => Ok(v1::MountPropagation::PropagationPrivate),
        Some("HostToContainer") => Ok(v1::MountPropagation::PropagationHostToContainer),
        Some("Bidirectional") => Ok(v1::MountPropagation::PropagationBidirectional),
        Some(other) => Err(ConfigError::Spec(format!(
            "invalid MountPropagation mode: {other:?}"
        ))),
    }
}

/// `resolveRecursiveReadOnly`
fn recursive_read_only(mount: &VolumeMount, supported: bool) -> Result<bool> {
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    let problem = match (mode, mount.mount_propagation.as_deref()) {
        _ if mount.read_only != Some(true) => "but it is not read-only".to_owned(),
        (_, Some(other)) if other != "None" => format!("but it is not compatible with propagation {other:?}"),
        ("IfPossible", _) => return Ok(supported),
        ("Enabled", _) if supported => return Ok(true),
        ("Enabled", _) => "but it is not supported by the runtime".to_owned(),
        (other, _) => {
            return Err(ConfigError::Spec(format!(
                "failed to resolve recursive read-only mode: unknown recursive read-only mode {other:?}"
            )));
        }
    };
    Err(ConfigError::Spec(format!(
        "failed to resolve recursive read-only mode: volume {:?} requested recursive read-only mode, {problem}",
        mount.name
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::VolumeMount;

    fn environment() -> Environment {
        let variables = [("A", "x"), ("EMPTY", ""), ("UP", "..")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.into()));
        variables.into()
    }

    #[test]
    fn sub_paths_stay_within() {
        let cases = [
            // subPath, subPathExpr, result
            (None, None, Ok(None)),
            (Some("a/b"), None, Ok(Some("a/b"))),
            (Some("..data"), None, Ok(Some("..data"))),
            (None, Some("$(A)/$$(A)"), Ok(Some("x/$(A)"))),
            (
                None,
                Some("$(NO)/$(EMPTY)/$(ANY)"),
                Err("missing value for ANY, EMPTY, NO"),
            ),
            (
                Some("/a"),
                None,
                Err("error SubPath `/a` must not be an absolute path"),
            ),
            (
                Some("a/../../b"),
                None,
                Err("unable to provision SubPath `a/../../b`: must not contain '..'"),
            ),
            (
                None,
                Some("$(UP)/b"),
                Err("unable to provision SubPath `../b`: must not contain '..'"),
            ),
        ];
        for (path, expression, result) in cases {
            let mount = VolumeMount {
                sub_path: path.map(str::to_owned),
                sub_path_expr: expression.map(str::to_owned),
                ..Default::default()
            };
            let found = sub_path(&mount, &environment()).map_err(|error| error.to_string());
            let result = result.map(|path| path.map(PathBuf::from)).map_err(str::to_owned);
            assert_eq!(found, result, "{path:?} {expression:?}");
        }
    }

    #[test]
    fn recursive_read_only_needs_the_runtime_and_a_read_only_mount() {
        let problem = |rest: &str| {
            Err(format!(
                "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, {rest}"
            ))
        };
        let cases = [
            // mode, read-only, propagation, supported, result
            (None, false, None, true, Ok(false)),
            (Some("Disabled"), true, None, true, Ok(false)),
            (Some("IfPossible"), true, None, true, Ok(true)),
            (Some("IfPossible"), true, Some("None"), false, Ok(false)),
            (Some("Enabled"), true, None, true, Ok(true)),
            (
                Some("Enabled"),
                true,
                None,
                false,
                problem("but it is not supported by the runtime"),
            ),
            (
                Some("Enabled"),
                false,
                None,
                true,
                problem("but it is not read-only"),
            ),
            (
                Some("IfPossible"),
                true,
                Some("Bidirectional"),
                true,
                problem("but it is not compatible with propagation \"Bidirectional\""),
            ),
        ];
        for (mode, read_only, propagation, supported, result) in cases {
            let mount = VolumeMount {
                name: "v".into(),
                read_only: Some(read_only),
                recursive_read_only: mode.map(str::to_owned),
                mount_propagation: propagation.map(str::to_owned),
                ..Default::default()
            };
            let found = recursive_read_only(&mount, supported).map_err(|error| error.to_string());
            assert_eq!(found, result, "{mode:?} {read_only} {propagation:?} {supported}");
        }
    }

    #[test]
    fn block_devices_are_devices_and_not_mounts() {
        let mut block = MountedVolume::new("/links/pv");
        block.is_block = true;
        let mut read_only = block.clone();
        read_only.read_only = true;
        let volumes = BTreeMap::from([
            ("rw".to_owned(), block),
            ("ro".to_owned(), read_only),
            ("files".to_owned(), MountedVolume::new("/files")),
        ]);
        let device = |name: &str, permissions: &str| v1::Device {
            host_path: "/links/pv".to_owned(),
            container_path: format!("/dev/{name}"),
            permissions: permissions.to_owned(),
        };
        let missing = |name: &str| {
            Err(format!(
                "cannot find volume {name:?} to pass into container \"c\""
            ))
        };
        for (name, expected) in [
            ("rw", Ok(vec![device("rw", "mrw")])),
            ("ro", Ok(vec![device("ro", "r")])),
            ("files", missing("files")),
            ("other", missing("other")),
        ] {
            let container = serde_json::json!({"name": "c",
                "volumeDevices": [{"name": name, "devicePath": format!("/dev/{name}")}]});
            let container = serde_json::from_value(container).unwrap();
            let found = block_devices(&container, &volumes).map_err(|error| error.to_string());
            assert_eq!(found, expected, "{name}");
        }
    }
}
