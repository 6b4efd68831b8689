//! [`CertificateManager`]: keeps a certificate fresh.

mod builder;
mod handle;
mod rotation;

use std::fmt;
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

/// How often it is looked whether the certificate is still good (`UpdateTransport`).
const PERIOD: Duration = Duration::from_secs(10);

/// Keeps a certificate fresh (client-go's `certificate.Manager`): asks for one when there is none, when 70 to 90 % of its
/// lifetime have passed, and when it does not say any more what it should.
///
/// [`client`](Self::client) is the node's identity, [`serving`](Self::serving) its server's. A new certificate is
/// [kept on disk](CertificateStore) before it is used. When a request is refused, denied or not issued within 15 min, it asks
/// anew after 2, 4, 8 and 16 s and then each 32 s.
///
/// | metric | |
/// |---|---|
/// | `kubelet_certificate_manager_client_ttl_seconds`, `kubelet_certificate_manager_server_ttl_seconds` | seconds until the certificate ends, infinite without a valid one |
/// | `kubelet_certificate_manager_client_expiration_renew_errors`, `kubelet_server_expiration_renew_errors` | attempts that failed |
/// | `kubelet_certificate_manager_server_rotation_seconds` | how old serving certificates were when they were replaced |
pub struct CertificateManager {
    handle: CertificateHandle,
    settings: Settings,
    client: Option<Client>,
    bootstrap: Option<Client>,
    /// The certificate was given for the beginning only.
    force_rotation: bool,
}

/// What does not change.
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
    /// Sets up the manager of a node's client certificate: `system:node:<name>` of `system:nodes`, signed by
    /// `kubernetes.io/kube-apiserver-client-kubelet` (`NewKubeletClientCertificateManager`).
    pub fn client(node_name: &str, store: CertificateStore) -> CertificateManagerBuilder {
        CertificateManagerBuilder::new(Signer::Client, store, TemplateSource::client(node_name))
    }

    /// Sets up the manager of a node's serving certificate, for the addresses that the node has, signed by
    /// `kubernetes.io/kubelet-serving` (`NewKubeletServerCertificateManager`). As long as there are none, nothing is asked for;
    /// when one is added, a new certificate is.
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

    /// Who asks for certificates. Without a client the certificate is what it is, and never rotated.
    #[must_use]
    pub fn request_by(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Who asks as long as there is no valid certificate: with the credentials of a bootstrap kubeconfig.
    #[must_use]
    pub fn bootstrap_by(mut self, client: Client) -> Self {
        self.bootstrap = Some(client);
        self
    }

    /// What others hold: the newest certificate.
    pub fn handle(&self) -> CertificateHandle {
        self.handle.clone()
    }

    /// Keeps the certificate fresh until `shutdown`.
    ///
    /// # Errors
    ///
    /// [`Error::NoValidCertificate`] if there was no valid certificate for as long as
    /// [`exit_after`](CertificateManagerBuilder::exit_after) says though the API server answers: the agent should end, and be
    /// started again with credentials that are good.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time. A certificate that is being written then is written to its end.
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

impl fmt::Debug for CertificateManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateManager")
            .field("handle", &self.handle)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Tells how long the certificate lasts, and returns when there is no hope for one.
async fn look_after(handle: &CertificateHandle, signer: Signer, exit_after: Option<Duration>) -> Error {
    let mut available = Instant::now();
    let mut told = false;
    loop {
        metrics::ttl(signer, handle.ttl_seconds());
        if handle.current().is_some() {
            (available, told) = (Instant::now(), false);
        } else if exit_after.is_some_and(|exit_after| available.elapsed() > exit_after) {
            if handle.is_server_healthy() {
                return Error::NoValidCertificate {
                    since: available.elapsed(),
                    last_error: handle.last_error().unwrap_or_default(),
                };
            }
            if !std::mem::replace(&mut told, true) {
                tracing::error!(
                    "there is no valid client certificate and the API server does not answer; \
                     a restart may be needed to read new credentials"
                );
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}
