//! [`CertificateHandle`]: what others see of a certificate manager.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;
use parking_lot::Mutex;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::Error;
use crate::certificate::Certificate;

/// The newest certificate of a [`CertificateManager`](super::CertificateManager). Clones are the same handle.
///
/// In rustls it resolves the certificate of clients and servers: each new connection presents the newest.
#[derive(Clone)]
pub struct CertificateHandle {
    shared: Arc<Shared>,
}

struct Shared {
    newest: watch::Sender<Option<Arc<Certificate>>>,
    clock: Clock,
    /// Somebody else keeps it fresh: it is what it is.
    even_if_over: bool,
    server_healthy: AtomicBool,
    progress: Progress,
}

/// What a request for a certificate has come to.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pending: Mutex<Option<PendingRequest>>,
    last_error: Mutex<Option<String>>,
}

/// A certificate signing request that is not issued yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingRequest {
    /// Of the object.
    pub name: String,
    /// The time from which on it has been waited for.
    pub since: Timestamp,
}

impl CertificateHandle {
    pub(super) fn new(newest: Option<Arc<Certificate>>, clock: Clock) -> Self {
        Self::make(newest, clock, false)
    }

    /// Of a certificate in files.
    pub(in crate::certificate) fn of_files(newest: Arc<Certificate>, clock: Clock) -> Self {
        Self::make(Some(newest), clock, true)
    }

    fn make(newest: Option<Arc<Certificate>>, clock: Clock, even_if_over: bool) -> Self {
        let shared = Shared {
            newest: watch::Sender::new(newest),
            clock,
            even_if_over,
            server_healthy: AtomicBool::new(even_if_over),
            progress: Progress::default(),
        };
        CertificateHandle {
            shared: Arc::new(shared),
        }
    }

    /// The newest certificate, unless it is over.
    pub fn current(&self) -> Option<Arc<Certificate>> {
        let is_shown = |newest: &Arc<Certificate>| self.shared.even_if_over || !newest.is_expired(self.now());
        self.newest().filter(is_shown)
    }

    /// The newest certificate, valid or not, and each that follows.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Certificate>>> {
        self.shared.newest.subscribe()
    }

    /// The request that is being waited for, and since when: for preflight checks and for whoever asks why.
    pub fn pending(&self) -> Option<PendingRequest> {
        self.shared.progress.pending.lock().clone()
    }

    /// Why the last attempt at a new certificate failed; `None` when it did not.
    pub fn last_error(&self) -> Option<String> {
        self.shared.progress.last_error.lock().clone()
    }

    /// Whether the API server is known to answer (`ServerHealthy`): it issued a certificate, or refused a request for good.
    pub fn is_server_healthy(&self) -> bool {
        self.shared.server_healthy.load(Ordering::Relaxed)
    }

    /// Seconds until the certificate ends, infinite without a valid one: the value of
    /// `kubelet_certificate_manager_*_ttl_seconds`.
    pub fn ttl_seconds(&self) -> f64 {
        self.current().map_or(f64::INFINITY, |certificate| {
            certificate.not_after().duration_since(self.now()).as_secs() as f64
        })
    }

    pub(in crate::certificate) fn newest(&self) -> Option<Arc<Certificate>> {
        self.shared.newest.borrow().clone()
    }

    /// Until there is a certificate, valid or not.
    pub(in crate::certificate) async fn first(&self) {
        let mut newest = self.subscribe();
        // Its sender is here, too: it is not closed.
        let _ = newest.wait_for(Option::is_some).await;
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    pub(super) fn clock(&self) -> Clock {
        self.shared.clock
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.shared.progress
    }

    /// A new certificate; returns the one before.
    pub(in crate::certificate) fn replace(&self, new: Arc<Certificate>) -> Option<Arc<Certificate>> {
        self.shared.server_healthy.store(true, Ordering::Relaxed);
        self.shared.newest.send_replace(Some(new))
    }

    /// What a refusal tells of the server (`updateServerError`).
    pub(super) fn refused(&self, error: &Error) {
        if let Error::Api { .. } | Error::Timeout { .. } = error {
            let answers = matches!(error.code(), Some(401 | 403 | 404));
            self.shared.server_healthy.store(answers, Ordering::Relaxed);
        }
    }

    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        self.current().map(|certificate| certificate.certified_key())
    }
}

impl Progress {
    pub(crate) fn requested(&self, name: &str, now: Timestamp) {
        tracing::info!(
            csr = name,
            "waiting for the certificate signing request to be approved and issued"
        );
        *self.pending.lock() = Some(PendingRequest {
            name: name.into(),
            since: now,
        });
    }

    pub(crate) fn done(&self, error: Option<&Error>) {
        *self.pending.lock() = None;
        *self.last_error.lock() = error.map(ToString::to_string);
    }

    /// What was asked for is not wanted any more.
    pub(super) fn done_waiting(&self) {
        *self.pending.lock() = None;
    }

    /// The time for a certificate is over.
    pub(crate) fn not_issued(&self, waited: Duration) -> Error {
        let name = self
            .pending
            .lock()
            .as_ref()
            .map(|pending| pending.name.clone())
            .unwrap_or_default();
        Error::CertificateNotIssued { name, waited }
    }
}

impl ResolvesClientCert for CertificateHandle {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.certified_key()
    }

    fn has_certs(&self) -> bool {
        self.current().is_some()
    }
}

impl ResolvesServerCert for CertificateHandle {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certified_key()
    }
}

impl fmt::Debug for CertificateHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateHandle")
            .field("newest", &self.newest())
            .field("progress", &self.shared.progress)
            .finish_non_exhaustive()
    }
}
