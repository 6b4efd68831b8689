//! The service account tokens of pods.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, ServiceAccountTokenProjection};

use crate::{Error, PodExt, PodUid, Result};

/// Issues tokens with which pods authenticate to an API server (the kubelet's `token.Manager`).
#[async_trait]
pub trait ServiceAccountTokens: Send + Sync {
    /// A token of the pod's service account, bound to the pod, with enough lifetime left.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    async fn token(&self, pod: &Arc<Pod>, wanted: &ServiceAccountTokenProjection) -> Result<String>;

    /// The pod is gone: drop its tokens (`DeleteServiceAccountToken`).
    fn forget(&self, uid: &PodUid);
}

/// No tokens: for an agent without an API server.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServiceAccountTokens;

#[async_trait]
impl ServiceAccountTokens for NoServiceAccountTokens {
    async fn token(&self, pod: &Arc<Pod>, _: &ServiceAccountTokenProjection) -> Result<String> {
        Err(Error::SyncPod {
            pod: pod.key(),
            uid: pod.uid(),
            message: "no API server to issue service account tokens".to_owned(),
        })
    }

    fn forget(&self, _: &PodUid) {}
}
