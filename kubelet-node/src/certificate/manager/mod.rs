//! [`CertificateManager`]: keeps a certificate fresh.

mod builder;
mod handle;
mod rotation;

use std::time::Duration;

use kube_client::Client;
use kubelet_core::{Disk, Jitter};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::signing_request::Signer;
use super::template_source::TemplateSource;
use super::{CertificateStore, metrics};
use crate::{Error, Result};

pub use builder::CertificateManagerBuilder;
pub(crate) use handle::Progress;
pub use handle::{CertificateHandle, PendingRequest};

/// How often the certificate is checked (`UpdateTransport`).
const PERIOD: Duration = Duration::from_secs(10);

/// Keeps a certificate fresh (client-go's `certificate.Manager`). It requests a new one if there is none, after
/// 70 to 90 % of the lifetime, and when the required content changes.
///
/// [`client`](Self::client) manages the node's identity, [`serving`](Self::serving) the certificate of its
/// server. A new certificate is [stored on disk](CertificateStore) before it is used. If a request is refused,
/// denied, or not issued within 15 min, it is retried after 2, 4, 8 and 16 s and then every 32 s.
///
/// | metric | |
/// |---|---|
/// | `kubelet_certificate_manager_client_ttl_seconds`, `kubelet_certificate_manager_server_ttl_seconds` | seconds until the certificate expires, infinite without a valid one |
/// | `kubelet_certificate_manager_client_expiration_renew_errors`, `kubelet_server_expiration_renew_errors` | failed attempts |
/// | `kubelet_certificate_manager_server_rotation_seconds` | the age of serving certificates at their replacement |
pub struct CertificateManager {
    handle: CertificateHandle,
    settings: Settings,
    client: Option<Client>,
    bootstrap: Option<Client>,
    /// The current certificate is only an initial one.
    force_rotation: bool,
}

/// The fixed settings.
#[derive(Debug)]
struct Settings {
    signer: Signer,
    store: CertificateStore,
    templates: TemplateSource,
    lifetime: Option<Duration>,
    exit_after: Option<Duration>,
    jitter: Jitter,
    disk: Disk,
}

impl CertificateManager {
    /// Manages a node's client certificate: `system:node:<name>` in `system:nodes`, signed by
    /// `kubernetes.io/kube-apiserver-client-kubelet` (`NewKubeletClientCertificateManager`).
    pub fn client(node_name: &str, store: CertificateStore) -> CertificateManagerBuilder {
        CertificateManagerBuilder::new(Signer::Client, store, TemplateSource::client(node_name))
    }

    /// Manages a node's serving certificate for the node's addresses, signed by `kubernetes.io/kubelet-serving`
    /// (`NewKubeletServerCertificateManager`). Without addresses it requests nothing. When an address is added,
    /// it requests a new certificate.
    pub fn serving(
        node_name: &str,
        store: CertificateStore,
        addresses: tokio::sync::watch::Receiver<Vec<k8s_openapi::api::core::v1::NodeAddress>>,
    ) -> CertificateManagerBuilder {
        CertificateManagerBuilder::new(
            Signer::Serving,
            store,
            TemplateSource::serving(node_name, addresses),
        )
    }

    /// The client that requests certificates. Without it the certificate is never rotated.
    #[must_use]
    pub fn request_by(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The client that requests certificates while there is no valid one: with the credentials of a bootstrap
    /// kubeconfig.
    #[must_use]
    pub fn bootstrap_by(mut self, client: Client) -> Self {
        self.bootstrap = Some(client);
        self
    }

    /// A handle to the newest certificate.
    pub fn handle(&self) -> CertificateHandle {
        self.handle.clone()
    }

    /// Keeps the certificate fresh until `shutdown`.
    ///
    /// # Errors
    ///
    /// [`Error::NoValidCertificate`] if there was no valid certificate for the time of
    /// [`exit_after`](CertificateManagerBuilder::exit_after) although the API server answers. The agent should
    /// then exit and be started again with valid credentials.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. A certificate that is being written is still completed.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<()> {
        metrics::describe();
        let handle = self.handle.clone();
        let signer = self.settings.signer;
        let exit_after = self.settings.exit_after;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            error = look_after(&handle, signer, exit_after) => Err(error),
            () = self.rotate() => Ok(()),
        }
    }
}

kubelet_core::impl_debug!(CertificateManager: handle, settings);

/// Reports the remaining lifetime; returns when a new certificate can no longer be expected.
async fn look_after(handle: &CertificateHandle, signer: Signer, exit_after: Option<Duration>) -> Error {
    let mut available = Instant::now();
    let mut logged = false;
    loop {
        metrics::ttl(signer, handle.ttl_seconds());
        if handle.current().is_some() {
            (available, logged) = (Instant::now(), false);
        } else if exit_after.is_some_and(|exit_after| available.elapsed() > exit_after) {
            if handle.is_server_healthy() {
                return Error::NoValidCertificate {
                    since: available.elapsed(),
                    last_error: handle.last_error().unwrap_or_default(),
                };
            }
            if !std::mem::replace(&mut logged, true) {
                tracing::error!(
                    "there is no valid client certificate and the API server does not answer; \
                     a restart may be needed to read new credentials"
                );
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}
