//! The files of a projected volume (`pkg/volume/projected`), as far as the default volume of every pod needs them: a
//! service account token, a config map, and downward API fields.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapProjection, DownwardAPIProjection, DownwardAPIVolumeFile, Pod, ProjectedVolumeSource,
    VolumeProjection,
};

use super::atomic_writer::{Payload, ProjectedFile};
use super::ownership::{fs_group, fs_user};
use kubelet_core::{ConfigObjects, Error, PodExt, ServiceAccountTokens};

/// `ProjectedVolumeSourceDefaultMode`
const DEFAULT_MODE: i32 = 0o644;
/// The mode of secrets that have an owner or a group.
const OWN_MODE: u32 = 0o600;

/// Whether all sources of the volume are supported.
pub(crate) fn is_offered(volume: &ProjectedVolumeSource) -> bool {
    volume.sources.iter().flatten().all(|source| {
        let names = source
            .downward_api
            .as_ref()
            .map(|names| names.items.iter().flatten());
        let others = source.secret.is_some()
            || source.cluster_trust_bundle.is_some()
            || source.pod_certificate.is_some();
        !others && names.into_iter().flatten().all(|file| field_of(file).is_some())
    })
}

/// All files of the volume, or the first error (`collectData`).
pub(crate) async fn payload(
    pod: &Arc<Pod>,
    volume: &ProjectedVolumeSource,
    objects: &dyn ConfigObjects,
    tokens: &dyn ServiceAccountTokens,
) -> Result<Payload, String> {
    let mode = volume.default_mode.unwrap_or(DEFAULT_MODE);
    let mut files = Payload::new();
    for source in volume.sources.iter().flatten() {
        let VolumeProjection {
            service_account_token,
            config_map,
            downward_api,
            ..
        } = source;
        if let Some(wanted) = service_account_token {
            let token = tokens.token(pod, wanted).await.map_err(in_words)?;
            let (owner, has_owner) = (fs_user(pod), fs_user(pod).is_some() || fs_group(pod).is_some());
            let file = ProjectedFile {
                data: token.text.into_bytes(),
                mode: if has_owner { OWN_MODE } else { bits(mode) },
                owner,
            };
            files.insert(wanted.path.clone(), file);
        }
        if let Some(wanted) = config_map {
            let namespace = &pod.key().namespace;
            let found = objects.config_map(namespace, &wanted.name).await;
            let is_optional = wanted.optional.unwrap_or(false);
            match found.map_err(in_words)? {
                Some(found) => from_config_map(&mut files, wanted, &found, mode)?,
                None if is_optional => {}
                None => return Err(format!("configmap {:?} not found", wanted.name)),
            }
        }
        if let Some(wanted) = downward_api {
            from_pod(&mut files, wanted, pod, mode);
        }
    }
    Ok(files)
}

/// `configmap.MakePayload`
fn from_config_map(
    files: &mut Payload,
    wanted: &ConfigMapProjection,
    found: &ConfigMap,
    mode: i32,
) -> Result<(), String> {
    let (text, binary) = (found.data.as_ref(), found.binary_data.as_ref());
    let mut add = |path: &str, data: &[u8], mode: i32| files.insert(path.to_owned(), file(data, mode));
    let Some(items) = wanted.items.as_ref().filter(|items| !items.is_empty()) else {
        for (key, data) in text.into_iter().flatten() {
            add(key, data.as_bytes(), mode);
        }
        for (key, data) in binary.into_iter().flatten() {
            add(key, &data.0, mode);
        }
        return Ok(());
    };
    for item in items {
        let text = text.and_then(|text| text.get(&item.key)).map(String::as_bytes);
        let binary = binary.and_then(|binary| binary.get(&item.key));
        match text.or(binary.map(|data| data.0.as_slice())) {
            Some(data) => _ = add(&item.path, data, item.mode.unwrap_or(mode)),
            None if wanted.optional.unwrap_or(false) => {}
            None => {
                return Err(format!(
                    "configmap references non-existent config key: {}",
                    item.key
                ));
            }
        }
    }
    Ok(())
}

fn from_pod(files: &mut Payload, wanted: &DownwardAPIProjection, pod: &Pod, mode: i32) {
    for item in wanted.items.iter().flatten() {
        let value = match field_of(item) {
            Some(Field::Name) => pod.key().name.to_string(),
            Some(Field::Namespace) => pod.key().namespace.to_string(),
            Some(Field::Uid) => pod.uid().to_string(),
            None => continue,
        };
        files.insert(
            item.path.clone(),
            file(value.as_bytes(), item.mode.unwrap_or(mode)),
        );
    }
}

enum Field {
    Name,
    Namespace,
    Uid,
}

fn field_of(file: &DownwardAPIVolumeFile) -> Option<Field> {
    match file.field_ref.as_ref()?.field_path.as_str() {
        "metadata.name" => Some(Field::Name),
        "metadata.namespace" => Some(Field::Namespace),
        "metadata.uid" => Some(Field::Uid),
        _ => None,
    }
}

fn file(data: &[u8], mode: i32) -> ProjectedFile {
    ProjectedFile {
        data: data.to_owned(),
        mode: bits(mode),
        owner: None,
    }
}

fn bits(mode: i32) -> u32 {
    mode.cast_unsigned() & 0o777
}

/// The caller adds the pod.
fn in_words(error: Error) -> String {
    match error {
        Error::SyncPod { message, .. } => message,
        error => error.to_string(),
    }
}
