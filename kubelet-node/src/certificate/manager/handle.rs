//! [`CertificateHandle`]: the newest certificate, for other parts of the agent.

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

/// The newest certificate of a [`CertificateManager`](super::CertificateManager). Clones share it.
///
/// It implements the certificate resolvers of rustls for clients and servers, so that each new connection uses
/// the newest certificate.
#[derive(Clone)]
pub struct CertificateHandle {
    shared: Arc<Shared>,
}

struct Shared {
    newest: watch::Sender<Option<Arc<Certificate>>>,
    clock: Clock,
    /// Another program keeps it fresh; it is returned even after it has expired.
    even_if_over: bool,
    server_healthy: AtomicBool,
    progress: Progress,
}

/// The state of a certificate signing request.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pending: Mutex<Option<PendingRequest>>,
    last_error: Mutex<Option<String>>,
}

/// A certificate signing request without a certificate yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingRequest {
    /// The name of the object.
    pub name: String,
    /// The start of the wait.
    pub since: Timestamp,
}

impl CertificateHandle {
    pub(super) fn new(newest: Option<Arc<Certificate>>, clock: Clock) -> Self {
        Self::make(newest, clock, false)
    }

    /// A handle of a certificate in files.
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

    /// The newest certificate, unless it has expired.
    pub fn current(&self) -> Option<Arc<Certificate>> {
        let is_shown = |newest: &Arc<Certificate>| self.shared.even_if_over || !newest.is_expired(self.now());
        self.newest().filter(is_shown)
    }

    /// Subscribes to the newest certificate, valid or not, and to each later one.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Certificate>>> {
        self.shared.newest.subscribe()
    }

    /// The pending request and the start of the wait, for preflight checks and for diagnosis.
    pub fn pending(&self) -> Option<PendingRequest> {
        self.shared.progress.pending.lock().clone()
    }

    /// Why the last attempt to get a certificate failed; `None` if it succeeded.
    pub fn last_error(&self) -> Option<String> {
        self.shared.progress.last_error.lock().clone()
    }

    /// Whether the API server is known to answer (`ServerHealthy`): it issued a certificate, or refused a
    /// request for good.
    pub fn is_server_healthy(&self) -> bool {
        self.shared.server_healthy.load(Ordering::Relaxed)
    }

    /// Seconds until the certificate expires, infinite without a valid one: the value of
    /// `kubelet_certificate_manager_*_ttl_seconds`.
    pub fn ttl_seconds(&self) -> f64 {
        self.current().map_or(f64::INFINITY, |certificate| {
            certificate.not_after().duration_since(self.now()).as_secs() as f64
        })
    }

    pub(in crate::certificate) fn newest(&self) -> Option<Arc<Certificate>> {
        self.shared.newest.borrow().clone()
    }

    /// Waits until there is a certificate, valid or not.
    pub(in crate::certificate) async fn first(&self) {
        let mut newest = self.subscribe();
        // The sender is part of `self`, so the channel stays open.
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

    /// Stores a new certificate; returns the previous one.
    pub(in crate::certificate) fn replace(&self, new: Arc<Certificate>) -> Option<Arc<Certificate>> {
        self.shared.server_healthy.store(true, Ordering::Relaxed);
        self.shared.newest.send_replace(Some(new))
    }

    /// What a refusal shows about the server (`updateServerError`).
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

    /// The requested certificate is no longer needed.
    pub(super) fn done_waiting(&self) {
        *self.pending.lock() = None;
    }

    /// The wait for the certificate has timed out.
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
