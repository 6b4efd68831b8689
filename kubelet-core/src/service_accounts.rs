//! The service accounts of pods.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};

use crate::{Error, PodExt, Result};

/// Reads the service accounts of pods and issues their tokens, for credential provider plugins
/// (`GetServiceAccountFunc`, `getServiceAccountTokenFunc`). For volumes, see
/// [`ServiceAccountTokens`](crate::ServiceAccountTokens).
#[async_trait]
pub trait ServiceAccounts: Send + Sync {
    /// The service account of the pod, as the API server has it now. It is `default` if the pod's spec names none.
    ///
    /// # Errors
    ///
    /// [`Error::SyncPod`] with the message of the API server, e.g. that there is no such account.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    async fn account(&self, pod: &Pod) -> Result<ServiceAccount>;

    /// A token of the pod's service account for this audience, bound to the pod, if the account has this UID. If it was
    /// deleted and created again with the same name, this returns no token of the old account.
    ///
    /// # Errors
    ///
    /// [`Error::SyncPod`] with the message of the API server, e.g. that the account has another UID.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    async fn account_token(&self, pod: &Pod, account_uid: &str, audience: &str) -> Result<String>;
}

/// No service accounts: for an agent without an API server.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServiceAccounts;

#[async_trait]
impl ServiceAccounts for NoServiceAccounts {
    async fn account(&self, pod: &Pod) -> Result<ServiceAccount> {
        Err(standalone(pod))
    }

    async fn account_token(&self, pod: &Pod, _: &str, _: &str) -> Result<String> {
        Err(standalone(pod))
    }
}

fn standalone(pod: &Pod) -> Error {
    Error::SyncPod {
        pod: pod.key(),
        uid: pod.uid(),
        message: "cannot get ServiceAccounts when kubelet is in standalone mode".to_owned(),
    }
}
