//! [`CertificateManagerBuilder`]: configures a certificate manager.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{Clock, Disk, Jitter};

use super::{CertificateHandle, CertificateManager, Settings};
use crate::certificate::signing_request::Signer;
use crate::certificate::template_source::TemplateSource;
use crate::certificate::{Certificate, CertificateStore, blocking};
use crate::{Error, Result};

/// Configures a [`CertificateManager`].
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

    /// A certificate to use until the node has one of its own, from an administrator's kubeconfig
    /// (`BootstrapCertificatePEM`). It is replaced at once.
    #[must_use]
    pub fn first(mut self, certificate: Certificate) -> Self {
        self.first = Some(certificate);
        self
    }

    /// Ignores the stored certificate, because it is unusable.
    #[must_use]
    pub(crate) fn ignore_kept(mut self) -> Self {
        self.ignore_kept = true;
        self
    }

    /// The requested lifetime of certificates (`expirationSeconds`, at least 10 min). By default the signer
    /// decides, as with the kubelet.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.settings.lifetime = Some(lifetime);
        self
    }

    /// Whether a host name without an IP address is enough to request a serving certificate: the feature gate
    /// `AllowDNSOnlyNodeCSR`, off by default.
    #[must_use]
    pub fn allow_dns_only(mut self, allow: bool) -> Self {
        self.settings.templates.allow_dns_only(allow);
        self
    }

    /// How long [`run`](CertificateManager::run) continues without a valid certificate while the API server
    /// answers (`exitAfter`). Default: without limit; the kubelet exits after 5 min.
    #[must_use]
    pub fn exit_after(mut self, exit_after: Duration) -> Self {
        self.settings.exit_after = Some(exit_after);
        self
    }

    /// The source of the time. Default: the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The source of jitter. Default: seeded by the system.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.settings.jitter = jitter;
        self
    }

    /// How file operations run and keys are made. Default: on another thread.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.settings.disk = disk;
        self
    }

    /// Reads the stored certificate (`NewManager`). An expired one is logged and ignored.
    ///
    /// # Errors
    ///
    /// [`Error::File`] or [`Error::Certificate`] name the file if the stored certificate cannot be read, is
    /// invalid, or belongs to another node.
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
                tracing::warn!(file, not_after = %kept.not_after(), "the certificate has expired");
                over = Some(kept);
            }
            let Some(first) = first else {
                // The host's clock may be wrong and be corrected later. Until then the expired certificate is
                // not used.
                return Ok((over, true));
            };
            if let Err(error) = store.update(first.chain_pem().as_bytes(), first.key_pem().as_bytes(), now) {
                tracing::warn!(%error, "cannot store the initial certificate");
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
            tracing::info!(looked_at, "no certificate found yet");
            Ok(None)
        }
        kept => kept.map(Some),
    }
}
