//! When and how a certificate is replaced.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_client::Client;
use tokio::time::{sleep, timeout};

use super::{CertificateManager, Settings};
use crate::certificate::bootstrap::FirstCertificate;
use crate::certificate::key::Key;
use crate::certificate::manager::CertificateHandle;
use crate::certificate::signing_request::{Request, Signer, wait_for_certificate};
use crate::certificate::template_source::TemplateSource;
use crate::certificate::{Certificate, CertificateTemplate, blocking, metrics};
use crate::{Error, Result};

/// How long a request may take to be approved and issued (`certificateWaitTimeout`).
const CERTIFICATE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The back-off between attempts: the first wait, the number of doublings, and the last wait.
const BACKOFF: Duration = Duration::from_secs(2);
const BACKOFF_STEPS: u32 = 4;
const BACKOFF_JITTER: f64 = 0.1;
const BACKOFF_END: Duration = Duration::from_secs(32);
/// How often the clock is checked: it may have been set, or the host suspended.
const CLOCK_PERIOD: Duration = Duration::from_secs(60);
/// The least time between two certificates.
const PAUSE: Duration = Duration::from_secs(1);

impl CertificateManager {
    /// Never returns.
    pub(super) async fn rotate(&mut self) {
        let Some(client) = self.client.clone() else {
            tracing::info!("certificates are not rotated, because there is no API server");
            return std::future::pending().await;
        };
        let mut changes = self.settings.templates.clone();
        loop {
            let template = self.until_due(&mut changes).await;
            self.force_rotation = false;
            let rotation = Rotation {
                client: &client,
                bootstrap: self.bootstrap.as_ref(),
                handle: &self.handle,
                settings: &self.settings,
                template: &template,
            };
            tokio::select! {
                biased;
                // The requested certificate is no longer needed.
                () = changes.other_than(&template) => {}
                () = rotation.run() => {}
            }
            self.handle.progress().done_waiting();
            sleep(PAUSE).await;
        }
    }

    /// Waits until a certificate is needed; returns its template.
    async fn until_due(&self, changes: &mut TemplateSource) -> CertificateTemplate {
        let mut deadline: Option<(Arc<Certificate>, Timestamp)> = None;
        loop {
            let Some(template) = changes.get() else {
                changes.changed().await;
                continue;
            };
            let newest = self.handle.newest().filter(|_| !self.force_rotation);
            let Some(newest) = newest else { return template };
            if let Some(missing) = template.missing_in(&newest) {
                tracing::info!(missing, "the certificate lacks required content");
                return template;
            }
            let due = match &deadline {
                Some((of, due)) if Arc::ptr_eq(of, &newest) => *due,
                _ => {
                    let due = rotation_deadline(&newest, &self.settings);
                    tracing::info!(not_after = %newest.not_after(), %due, "the certificate will be rotated");
                    deadline = Some((newest, due));
                    due
                }
            };
            let left = Duration::try_from(due.duration_since(self.handle.now())).unwrap_or_default();
            if left.is_zero() {
                return template;
            }
            tokio::select! {
                biased;
                () = changes.changed() => {}
                () = sleep(left.min(CLOCK_PERIOD)) => {}
            }
        }
    }
}

/// A time after 70 to 90 % of the certificate's lifetime (`jitteryDuration`).
fn rotation_deadline(certificate: &Certificate, settings: &Settings) -> Timestamp {
    let lifetime = Duration::try_from(certificate.lifetime()).unwrap_or_default();
    let after = settings
        .jitter
        .apply(lifetime, 0.2)
        .saturating_sub(lifetime.mul_f64(0.3));
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    certificate
        .not_before()
        .checked_add(after)
        .unwrap_or(Timestamp::MAX)
}

/// Tries until there is a certificate.
struct Rotation<'a> {
    client: &'a Client,
    bootstrap: Option<&'a Client>,
    handle: &'a CertificateHandle,
    settings: &'a Settings,
    template: &'a CertificateTemplate,
}

impl Rotation<'_> {
    async fn run(&self) {
        let mut failures = 0;
        loop {
            let progress = self.handle.progress();
            let attempt = timeout(CERTIFICATE_TIMEOUT, self.attempt()).await;
            match attempt.unwrap_or_else(|_| Err(progress.not_issued(CERTIFICATE_TIMEOUT))) {
                Ok(()) => return progress.done(None),
                Err(error) => {
                    tracing::error!(signer = self.settings.signer.name(), %error, "cannot get a new certificate");
                    metrics::renew_error(self.settings.signer);
                    progress.done(Some(&error));
                }
            }
            sleep(match failures {
                0..BACKOFF_STEPS => self
                    .settings
                    .jitter
                    .apply(BACKOFF * 2_u32.pow(failures), BACKOFF_JITTER),
                _ => BACKOFF_END,
            })
            .await;
            failures += 1;
        }
    }

    /// `rotateCerts`.
    async fn attempt(&self) -> Result<()> {
        let has_valid = self.handle.current().is_some();
        let client = self.bootstrap.filter(|_| !has_valid).unwrap_or(self.client);
        let certificate = if !has_valid && self.settings.signer == Signer::Client {
            let first = FirstCertificate {
                client,
                store: &self.settings.store,
                template: self.template,
                lifetime: self.settings.lifetime,
                clock: self.handle.clock(),
                disk: self.settings.disk,
                progress: self.handle.progress(),
            };
            first
                .get()
                .await
                .inspect_err(|error| self.handle.refused(error))?
        } else {
            self.next(client).await?
        };
        let missing = self.template.missing_in(&certificate);
        let certificate = Arc::new(certificate);
        tracing::info!(
            signer = self.settings.signer.name(),
            not_after = %certificate.not_after(),
            "received a new certificate"
        );
        if let Some(old) = self.handle.replace(certificate.clone()) {
            let age = self.handle.now().duration_since(old.not_before());
            metrics::rotated(self.settings.signer, age.as_secs_f64());
        }
        metrics::ttl(self.settings.signer, self.handle.ttl_seconds());
        match missing {
            None => Ok(()),
            // The same request would return the same again.
            Some(problem) => Err(Error::Certificate {
                file: certificate.file().map(ToOwned::to_owned).unwrap_or_default(),
                problem: format!("the issued certificate does not match the request: {problem}"),
            }),
        }
    }

    /// Requests a certificate with a new key.
    async fn next(&self, client: &Client) -> Result<Certificate> {
        let (settings, progress) = (self.settings, self.handle.progress());
        let key = blocking(settings.disk, || {
            Key::generate().map_err(|problem| Error::Certificate {
                file: "<memory>".into(),
                problem,
            })
        })
        .await?;
        let request = Request {
            signer: settings.signer,
            key: &key,
            template: self.template,
            name: None,
            lifetime: settings.lifetime,
        };
        let submitted = request.submit(client, self.handle.now()).await;
        let requested = submitted.inspect_err(|error| self.handle.refused(error))?;
        progress.requested(&requested.name, self.handle.now());
        let chain = wait_for_certificate(client, &requested).await?;
        let (store, key_pem, now) = (settings.store.clone(), key.to_pem(), self.handle.now());
        blocking(settings.disk, move || {
            store.update(&chain, key_pem.as_bytes(), now)
        })
        .await
    }
}
