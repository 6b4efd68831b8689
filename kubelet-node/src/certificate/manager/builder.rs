//! [`CertificateManagerBuilder`]: sets up a certificate manager.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{Clock, Disk, Jitter};

use super::{CertificateHandle, CertificateManager, Settings};
use crate::certificate::signing_request::Signer;
use crate::certificate::template_source::TemplateSource;
use crate::certificate::{Certificate, CertificateStore, blocking};
use crate::{Error, Result};

/// Sets up a [`CertificateManager`].
#[derive(Debug)]
pub struct CertificateManagerBuilder {
    settings: Settings,
    clock: Clock,
    first: Option<Certificate>,
    ignore_kept: bool,
}

impl CertificateManagerBuilder {
    pub(super) fn new(signer: Signer, store: CertificateStore, templates: TemplateSource) -> Self {
        CertificateManagerBuilder {
            settings: Settings {
                signer,
                store,
                templates,
                lifetime: None,
                exit_after: None,
                jitter: Jitter::default(),
                disk: Disk::default(),
            },
            clock: Clock::system(),
            first: None,
            ignore_kept: false,
        }
    }

    /// A certificate to begin with as long as there is none of the node's own, to be replaced at once: that of an
    /// administrator's kubeconfig (`BootstrapCertificatePEM`).
    #[must_use]
    pub fn first(mut self, certificate: Certificate) -> Self {
        self.first = Some(certificate);
        self
    }

    /// Begins without the certificate that is kept: it was found to be of no use.
    #[must_use]
    pub(crate) fn ignore_kept(mut self) -> Self {
        self.ignore_kept = true;
        self
    }

    /// How long certificates are to last (`expirationSeconds`, 10 min at least). Unless it is said, as in the kubelet, the
    /// signer decides.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.settings.lifetime = Some(lifetime);
        self
    }

    /// Whether a host name without an address is enough to ask for a serving certificate: the feature gate
    /// `AllowDNSOnlyNodeCSR`, off unless it is said otherwise.
    #[must_use]
    pub fn allow_dns_only(mut self, allow: bool) -> Self {
        self.settings.templates.allow_dns_only(allow);
        self
    }

    /// How long the agent lives on without a valid certificate though the API server answers (`exitAfter`): see
    /// [`run`](CertificateManager::run). For ever, unless it is said otherwise; the kubelet ends after 5 min.
    #[must_use]
    pub fn exit_after(mut self, exit_after: Duration) -> Self {
        self.settings.exit_after = Some(exit_after);
        self
    }

    /// What tells the time; the system's clock unless it is said otherwise.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Where jitter comes from; a seed of the system's choice unless it is said otherwise.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.settings.jitter = jitter;
        self
    }

    /// Where file work is done and keys are made: by another thread unless it is said otherwise.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.settings.disk = disk;
        self
    }

    /// Reads the certificate that is kept (`NewManager`). One that is over is logged, and counts as none.
    ///
    /// # Errors
    ///
    /// [`Error::File`] or [`Error::Certificate`] if there is one that cannot be read, makes no sense, or is another node's. The
    /// file is named.
    pub async fn open(self) -> Result<CertificateManager> {
        let (store, now) = (self.settings.store.clone(), self.clock.now());
        let (signer, ignore_kept) = (self.settings.signer, self.ignore_kept);
        let (templates, first) = (self.settings.templates.clone(), self.first);
        let (newest, force_rotation) = blocking(self.settings.disk, move || {
            let mut over = None;
            if !ignore_kept && let Some(kept) = kept(&store)? {
                if signer == Signer::Client {
                    super::super::check_node(&kept, templates.node_name())?;
                }
                if !kept.is_expired(now) {
                    return Ok((Some(kept), false));
                }
                let file = kept
                    .file()
                    .map(|file| file.display().to_string())
                    .unwrap_or_default();
                tracing::warn!(file, not_after = %kept.not_after(), "the certificate is over");
                over = Some(kept);
            }
            let Some(first) = first else {
                // The clock may be what is wrong, and be set: nobody is shown one that is over.
                return Ok((over, true));
            };
            if let Err(error) = store.update(first.chain_pem().as_bytes(), first.key_pem().as_bytes(), now) {
                tracing::warn!(%error, "cannot keep the certificate that was given to begin with");
            }
            Ok((Some(first), true))
        })
        .await?;
        Ok(CertificateManager {
            handle: CertificateHandle::new(newest.map(Arc::new), self.clock),
            settings: self.settings,
            client: None,
            bootstrap: None,
            force_rotation,
        })
    }
}

fn kept(store: &CertificateStore) -> Result<Option<Certificate>> {
    match store.current() {
        Err(Error::NoCertificate { looked_at }) => {
            tracing::info!(looked_at, "there is no certificate yet");
            Ok(None)
        }
        kept => kept.map(Some),
    }
}
