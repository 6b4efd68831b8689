//! The keys of a config map as files (`pkg/volume/configmap`).

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath, Volume};
use kubelet_core::{ConfigObjectKind, ConfigObjectRef, PodExt, VolumeUsage};

use super::empty_dir::Medium;
use super::errors::in_words;
use super::in_tree::Host;
use super::wrapped;
use crate::filesystem::atomic_writer::{Payload, ProjectedFile};
use crate::{Attributes, Error, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec};

/// The default of `defaultMode` in the API (`ConfigMapVolumeSourceDefaultMode` and others).
pub(super) const DEFAULT_MODE: i32 = 0o644;

/// `configMap` volumes. Their files are on the disk.
pub(super) struct ConfigMapPlugin {
    host: Arc<Host>,
}

impl ConfigMapPlugin {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self { host }
    }
}

fn source(spec: &VolumeSpec) -> Option<&ConfigMapVolumeSource> {
    spec.pod_volume()?.config_map.as_ref()
}

#[async_trait]
impl VolumePlugin for ConfigMapPlugin {
    fn name(&self) -> &str {
        "kubernetes.io/configmap"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        source(spec).is_some()
    }

    fn attributes(&self, _: &PodMount) -> Attributes {
        wrapped::ATTRIBUTES
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        let source = source(&mount.spec).ok_or_else(|| Error::failed("the volume has no configMap"))?;
        let wanted = Wanted {
            items: source.items.as_deref().unwrap_or_default(),
            mode: source.default_mode.unwrap_or(DEFAULT_MODE),
            is_optional: source.optional.unwrap_or(false),
        };
        let namespace = &mount.pod.key().namespace;
        let found = read(&self.host, namespace, &source.name, wanted.is_optional).await;
        let payload = found.and_then(|found| payload(&wanted, &found));
        let payload = payload.map_err(Error::failed)?;
        wrapped::write(&self.host, mount, &Medium::Disk, payload).await?;
        Ok(SetUp::default())
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        wrapped::tear_down(&self.host, mounted).await
    }

    fn config_objects(&self, mount: &PodMount) -> Vec<ConfigObjectRef> {
        let source = source(&mount.spec);
        source
            .map(|source| object(mount, ConfigObjectKind::ConfigMap, &source.name))
            .into_iter()
            .collect()
    }

    fn supports_mount_options(&self) -> bool {
        false
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(VolumeSpec::of_pod(Arc::new(Volume {
            name: found.name.clone(),
            config_map: Some(ConfigMapVolumeSource {
                name: found.name.clone(),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        })))
    }

    async fn usage(&self, mounted: &OnDisk, _: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        self.host.measure_files(mounted.dir.clone()).await.map(Some)
    }
}

/// Which keys become files.
pub(super) struct Wanted<'a> {
    /// These, or all if there are none.
    pub(super) items: &'a [KeyToPath],
    /// The mode of files without one of their own.
    pub(super) mode: i32,
    /// Missing objects and keys are left out.
    pub(super) is_optional: bool,
}

/// An object of the pod's namespace.
pub(super) fn object(mount: &PodMount, kind: ConfigObjectKind, name: &str) -> ConfigObjectRef {
    ConfigObjectRef {
        kind,
        namespace: mount.pod.key().namespace.clone(),
        name: name.into(),
    }
}

/// The config map; an empty one if it is missing and optional.
pub(super) async fn read(
    host: &Host,
    namespace: &str,
    name: &str,
    is_optional: bool,
) -> Result<Arc<ConfigMap>, String> {
    let found = host.config_objects.config_map(namespace, name).await;
    match found.map_err(in_words)? {
        Some(found) => Ok(found),
        None if is_optional => Ok(Arc::default()),
        None => Err(format!("configmap {name:?} not found")),
    }
}

/// `configmap.MakePayload`
pub(super) fn payload(wanted: &Wanted<'_>, found: &ConfigMap) -> Result<Payload, String> {
    let (text, binary) = (found.data.as_ref(), found.binary_data.as_ref());
    let mut files = Payload::new();
    if wanted.items.is_empty() {
        let text = text.into_iter().flatten();
        files.extend(text.map(|(key, data)| (key.clone(), file(data.as_bytes(), wanted.mode))));
        let binary = binary.into_iter().flatten();
        files.extend(binary.map(|(key, data)| (key.clone(), file(&data.0, wanted.mode))));
    }
    for item in wanted.items {
        let text = text.and_then(|text| text.get(&item.key)).map(String::as_bytes);
        let binary = binary.and_then(|binary| binary.get(&item.key));
        match text.or(binary.map(|data| data.0.as_slice())) {
            Some(data) => {
                let file = file(data, item.mode.unwrap_or(wanted.mode));
                files.insert(item.path.clone(), file);
            }
            None if wanted.is_optional => {}
            None => {
                return Err(format!(
                    "configmap references non-existent config key: {}",
                    item.key
                ));
            }
        }
    }
    Ok(files)
}

/// A file that belongs to the agent's user.
pub(super) fn file(data: &[u8], mode: i32) -> ProjectedFile {
    ProjectedFile {
        data: data.to_owned(),
        mode: mode.cast_unsigned() & 0o777,
        owner: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn keys_become_files() {
        let found = json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AAE="}});
        let found: ConfigMap = serde_json::from_value(found).unwrap();
        let all = [("a", "1", 0o644), ("b", "2", 0o644), ("c", "\0\u{1}", 0o644)];
        let two = [("x/c", "\0\u{1}", 0o400), ("y", "1", 0o644)];
        type Files<'a> = &'a [(&'a str, &'a str, u32)];
        let cases: [(Value, bool, Result<Files<'_>, &str>); 4] = [
            (json!([]), false, Ok(&all)),
            (
                json!([{"key": "c", "path": "x/c", "mode": 256}, {"key": "a", "path": "y"}]),
                false,
                Ok(&two),
            ),
            (
                json!([{"key": "no", "path": "p"}]),
                false,
                Err("configmap references non-existent config key: no"),
            ),
            (json!([{"key": "no", "path": "p"}]), true, Ok(&[])),
        ];
        for (items, is_optional, expected) in cases {
            let items: Vec<KeyToPath> = serde_json::from_value(items).unwrap();
            let wanted = Wanted {
                items: &items,
                mode: DEFAULT_MODE,
                is_optional,
            };
            let owned =
                |(path, text, mode): &(&str, &str, u32)| ((*path).to_owned(), (*text).to_owned(), *mode);
            let expected = expected.map(|files| files.iter().map(owned).collect::<Vec<_>>());
            let text = |file: ProjectedFile| String::from_utf8(file.data).unwrap();
            let shown = |(path, file): (String, ProjectedFile)| (path, file.mode, text(file));
            let files = payload(&wanted, &found).map(|files| {
                let files = files.into_iter().map(shown);
                files.map(|(path, mode, text)| (path, text, mode)).collect()
            });
            assert_eq!(files, expected.map_err(str::to_owned));
        }
    }
}
