//! The service account tokens of pods.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
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
    async fn token(
        &self,
        pod: &Arc<Pod>,
        wanted: &ServiceAccountTokenProjection,
    ) -> Result<ServiceAccountToken>;

    /// The pod is gone: drop its tokens (`DeleteServiceAccountToken`).
    fn forget(&self, uid: &PodUid);
}

/// A token, and how long it can be used.
#[derive(Clone)]
pub struct ServiceAccountToken {
    /// The token.
    pub text: String,
    /// When to get a new one: well before it expires. `None` if it never expires.
    pub renew_at: Option<Timestamp>,
    /// When the API server no longer accepts it.
    pub expires_at: Option<Timestamp>,
}

impl ServiceAccountToken {
    /// A token that never expires.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            renew_at: None,
            expires_at: None,
        }
    }
}

// Without the token.
crate::impl_debug!(ServiceAccountToken: renew_at, expires_at);

/// No tokens: for an agent without an API server.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServiceAccountTokens;

#[async_trait]
impl ServiceAccountTokens for NoServiceAccountTokens {
    async fn token(&self, pod: &Arc<Pod>, _: &ServiceAccountTokenProjection) -> Result<ServiceAccountToken> {
        Err(Error::SyncPod {
            pod: pod.key(),
            uid: pod.uid(),
            message: "no API server to issue service account tokens".to_owned(),
        })
    }

    fn forget(&self, _: &PodUid) {}
}
