//! Images that are mounted as volumes, and the pull secrets of images (`getImageVolumes`, `getPullSecretsForPod`).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use kubelet_core::runtime::SyncFailure;
use kubelet_core::{EventType, PodExt};

use crate::containers::ContainerEvents;
use crate::images::WantedImage;
use crate::runtime::CriRuntime;
use kubelet_cri::v1;

/// The prefix of a runtime's error if it cannot mount an image.
const IMAGE_VOLUME_MOUNT_FAILED: &str = "ImageVolumeMountFailed";

/// The image of each volume, or the error, by volume name.
pub(crate) type ImageVolumes = BTreeMap<String, Result<v1::ImageSpec, SyncFailure>>;

impl CriRuntime {
    /// The pull secrets of the pod. A secret that cannot be read is skipped, with an event.
    pub(crate) async fn pull_secrets(&self, pod: &Pod) -> Vec<Arc<Secret>> {
        let named = pod
            .spec
            .iter()
            .flat_map(|spec| spec.image_pull_secrets.iter().flatten());
        let names = named
            .map(|secret| secret.name.as_str())
            .filter(|name| !name.is_empty());
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let (mut secrets, mut missing) = (Vec::new(), Vec::new());
        for name in names {
            match self.config_objects.secret(namespace, name).await {
                Ok(Some(secret)) => secrets.push(secret),
                Ok(None) => missing.push(name),
                Err(error) => {
                    tracing::warn!(pod = %pod.key(), uid = pod.uid_str(), secret = name, %error,
                        "cannot read a pull secret");
                    missing.push(name);
                }
            }
        }
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.record_pod_event(
                pod,
                EventType::Warning,
                "FailedToRetrieveImagePullSecret",
                message,
            );
        }
        secrets
    }

    /// Pulls the images of the pod's image volumes, if needed.
    pub(crate) async fn image_volumes(
        &self,
        pod: &Pod,
        pull_secrets: &[Arc<Secret>],
        sandbox_config: &v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> ImageVolumes {
        let mut images = ImageVolumes::new();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some(source) = &volume.image else { continue };
            let reference = source.reference.as_deref().unwrap_or_default();
            let wanted = WantedImage {
                pod,
                image: reference,
                pull_policy: source.pull_policy.as_deref(),
                field_path: None,
                pull_secrets,
                sandbox_config,
                runtime_handler,
            };
            let ensured = self.images.ensure_image_exists(&wanted).await;
            let image = ensured.map(|image_ref| v1::ImageSpec {
                image: image_ref,
                user_specified_image: reference.to_owned(),
                runtime_handler: runtime_handler.to_owned(),
                annotations: pod.metadata.annotations.clone().unwrap_or_default(),
                ..Default::default()
            });
            images.insert(volume.name.clone(), image);
        }
        images
    }
}

/// The images that the container mounts (`toKubeContainerImageVolumes`).
///
/// # Errors
///
/// The error of the last image that is not available. There is an event for each.
pub(crate) fn mounted_images(
    images: &ImageVolumes,
    container: &Container,
    events: &ContainerEvents<'_>,
) -> Result<BTreeMap<String, v1::ImageSpec>, SyncFailure> {
    let mut mounted = BTreeMap::new();
    let mut last_failure = None;
    for mount in container.volume_mounts.iter().flatten() {
        match images.get(&mount.name) {
            None => {}
            Some(Ok(image)) => {
                mounted.insert(mount.name.clone(), image.clone());
            }
            Some(Err(failure)) => {
                events.warning("Failed", format!("Error: {}", failure.reason));
                last_failure = Some(failure.clone());
            }
        }
    }
    last_failure.map_or(Ok(mounted), Err)
}

/// `incrementImageVolumeMetrics`
pub(crate) fn count_mounted_images(
    mounted: &BTreeMap<String, v1::ImageSpec>,
    container: &Container,
    started: &Result<(), SyncFailure>,
) {
    if mounted.is_empty() {
        return;
    }
    metrics::counter!("kubelet_image_volume_requested_total").increment(mounted.len() as u64);
    let failed = started.as_ref().is_err_and(|failure| {
        failure.reason == "CreateContainerError" && failure.message.starts_with(IMAGE_VOLUME_MOUNT_FAILED)
    });
    let mounts = container.volume_mounts.iter().flatten();
    let mounts = mounts.filter(|mount| mounted.contains_key(&mount.name)).count() as u64;
    match failed {
        true => metrics::counter!("kubelet_image_volume_mounted_errors_total").increment(mounts),
        false => metrics::counter!("kubelet_image_volume_mounted_succeed_total").increment(mounts),
    }
}
