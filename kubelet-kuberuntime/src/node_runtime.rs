//! A CRI runtime's part of the node status.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use kubelet_core::{NodeRuntime, RuntimeFeatures, RuntimeHandler, RuntimeImage};
use parking_lot::Mutex;

use crate::image_gc::{ImageGcManager, ImageList};
use kubelet_cri::KUBELET_API_VERSION;
use kubelet_cri::{RuntimeService, v1};

/// A CRI runtime's part of the node status: its name and version, its handlers and features, which are read together
/// with the version, and the images of an [`ImageGcManager`].
///
/// ```
/// use std::sync::Arc;
///
/// use kubelet_core::NodeRuntime;
/// use kubelet_cri::{RuntimeService, v1};
/// use kubelet_kuberuntime::CriNodeRuntime;
///
/// # async fn print(services: Arc<dyn RuntimeService>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let name = services.version(v1::VersionRequest::default()).await?.runtime_name;
/// let runtime = CriNodeRuntime::new(services, name);
/// println!("{}://{}", runtime.runtime_type(), runtime.version().await?);
/// # Ok(())
/// # }
/// ```
pub struct CriNodeRuntime {
    services: Arc<dyn RuntimeService>,
    name: String,
    /// Not the manager: it holds the runtime, which may hold this.
    images: OnceLock<ImageList>,
    reported: Mutex<Reported>,
}

/// From the last status.
#[derive(Default)]
struct Reported {
    handlers: Vec<RuntimeHandler>,
    features: Option<RuntimeFeatures>,
}

impl CriNodeRuntime {
    /// A runtime with this name (`VersionResponse.runtime_name`).
    pub fn new(services: Arc<dyn RuntimeService>, name: impl Into<String>) -> Self {
        Self {
            services,
            name: name.into(),
            images: OnceLock::new(),
            reported: Mutex::default(),
        }
    }

    /// Sets the source of images; without it the list of images is empty. Only the first call has an effect.
    pub fn set_images(&self, images: ImageGcManager) {
        let _ = self.images.set(images.list());
    }
}

#[async_trait]
impl NodeRuntime for CriNodeRuntime {
    fn runtime_type(&self) -> &str {
        &self.name
    }

    async fn update_pod_cidr(&self, pod_cidrs: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let request = v1::UpdateRuntimeConfigRequest {
            runtime_config: Some(v1::RuntimeConfig {
                network_config: Some(v1::NetworkConfig {
                    pod_cidr: pod_cidrs.to_owned(),
                }),
            }),
        };
        self.services.update_runtime_config(request).await?;
        Ok(())
    }

    async fn version(&self) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let request = v1::VersionRequest {
            version: KUBELET_API_VERSION.to_owned(),
        };
        let version = self.services.version(request).await?;
        let status = self.services.status(v1::StatusRequest { verbose: false }).await?;
        *self.reported.lock() = Reported {
            handlers: status.runtime_handlers.into_iter().map(handler).collect(),
            features: status.features.map(|features| RuntimeFeatures {
                supplemental_groups_policy: features.supplemental_groups_policy,
            }),
        };
        Ok(version.runtime_version)
    }

    async fn images(&self) -> Result<Vec<RuntimeImage>, Box<dyn std::error::Error + Send + Sync>> {
        let images = self
            .images
            .get()
            .map(|list| list.lock().clone())
            .unwrap_or_default();
        let image = |image: &v1::Image| RuntimeImage {
            id: image.id.clone(),
            repo_digests: image.repo_digests.clone(),
            repo_tags: image.repo_tags.clone(),
            size: image.size,
        };
        Ok(images.iter().map(image).collect())
    }

    fn handlers(&self) -> Vec<RuntimeHandler> {
        self.reported.lock().handlers.clone()
    }

    fn features(&self) -> Option<RuntimeFeatures> {
        self.reported.lock().features
    }
}

kubelet_core::impl_debug!(CriNodeRuntime: name);

fn handler(handler: v1::RuntimeHandler) -> RuntimeHandler {
    let features = handler.features.unwrap_or_default();
    RuntimeHandler {
        name: handler.name,
        recursive_read_only_mounts: features.recursive_read_only_mounts,
        user_namespaces: features.user_namespaces,
    }
}
