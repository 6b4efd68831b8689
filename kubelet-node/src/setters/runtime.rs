//! `images`, `runtimeHandlers` and `features`: what the runtime reports.

use std::cmp::Reverse;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{
    ContainerImage, Node, NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures,
};

use super::{LastAnswer, status};
use crate::{NodeRuntime, NodeStatusSetter, Result, RuntimeImage};

/// How many names of an image are reported (`MaxNamesPerImageInNodeStatus`).
const MAX_NAMES: usize = 5;

/// The largest images (`nodestatus.Images`).
pub(crate) struct Images {
    pub(crate) runtime: Arc<dyn NodeRuntime>,
    /// How many; `None` means all.
    pub(crate) most: Option<usize>,
    pub(crate) last_images: LastAnswer<Vec<RuntimeImage>>,
}

#[async_trait]
impl NodeStatusSetter for Images {
    fn name(&self) -> &str {
        "images"
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        let mut images = self
            .last_images
            .ask("images", self.runtime.images())
            .await
            .unwrap_or_default();
        images.sort_by(|a, b| (Reverse(a.size), Reverse(&a.id)).cmp(&(Reverse(b.size), Reverse(&b.id))));
        let images = images
            .into_iter()
            .take(self.most.unwrap_or(usize::MAX))
            .map(|image| {
                let names = image.repo_digests.into_iter().chain(image.repo_tags);
                ContainerImage {
                    names: Some(names.take(MAX_NAMES).collect::<Vec<_>>()).filter(|names| !names.is_empty()),
                    size_bytes: i64::try_from(image.size).ok().filter(|size| *size != 0),
                }
            });
        let images: Vec<_> = images.collect();
        status(node).images = Some(images).filter(|images| !images.is_empty());
        Ok(())
    }
}

/// The features of the runtime and of its handlers (`nodestatus.RuntimeHandlers`, `nodestatus.NodeFeatures`).
pub(crate) struct Handlers {
    pub(crate) runtime: Arc<dyn NodeRuntime>,
}

#[async_trait]
impl NodeStatusSetter for Handlers {
    fn name(&self) -> &str {
        "runtimeHandlers"
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        let mut handlers = self.runtime.handlers();
        handlers.sort_by(|a, b| a.name.cmp(&b.name));
        let handlers: Vec<_> = handlers
            .into_iter()
            .map(|handler| NodeRuntimeHandler {
                name: Some(handler.name).filter(|name| !name.is_empty()),
                features: Some(NodeRuntimeHandlerFeatures {
                    recursive_read_only_mounts: Some(handler.recursive_read_only_mounts),
                    user_namespaces: Some(handler.user_namespaces),
                }),
            })
            .collect();
        let status = status(node);
        status.runtime_handlers = Some(handlers).filter(|handlers| !handlers.is_empty());
        if let Some(features) = self.runtime.features() {
            status.features = Some(NodeFeatures {
                supplemental_groups_policy: Some(features.supplemental_groups_policy),
            });
        }
        Ok(())
    }
}
