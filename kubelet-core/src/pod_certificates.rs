//! The certificates of pods, for projected volumes.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::broadcast;

use crate::{PodUid, Result};

/// Requests and renews the certificates of `podCertificate` sources (the kubelet's `podcertificate.Manager`).
#[async_trait]
pub trait PodCertificates: Send + Sync {
    /// The key and the certificate chain of the source with this index among the sources of the projected volume
    /// (`GetPodCertificateCredentialBundle`). The first call for a source requests it.
    ///
    /// # Errors
    ///
    /// While it is not issued, and when it was denied.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    async fn credential(&self, pod: &Arc<Pod>, volume: &str, source_index: usize) -> Result<PodCredential>;

    /// The pods of which a certificate was issued, renewed or refused. `None`, the default: changes are not observed.
    fn changes(&self) -> Option<broadcast::Receiver<PodUid>> {
        None
    }

    /// The pod is gone: drop its keys (`ForgetPod`).
    fn forget(&self, uid: &PodUid);
}

/// A private key and its certificates.
#[derive(Clone)]
pub struct PodCredential {
    /// The private key, PEM.
    pub key: Vec<u8>,
    /// The certificates, the pod's own first, PEM.
    pub chain: Vec<u8>,
}

// Without the key.
crate::impl_debug!(PodCredential);
