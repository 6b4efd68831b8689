//! The certificates of a node: bootstrap, rotation, storage, and clients that use them.
//!
//! * [`ApiServerAccess`]: makes clients from a kubeconfig, or from a bootstrap kubeconfig with a token, and
//!   keeps them working.
//! * [`CertificateManager`]: keeps a client or serving certificate fresh.
//! * [`Connections`]: clients that use the newest certificate and keep their watches when it changes.
//! * [`CertificateStore`]: certificates on disk, in the kubelet's format.
//! * [`Bootstrap`]: requests the first certificate, for agents that do not rotate certificates.
//! * [`self_signed_serving_certificate`]: a serving certificate without a signer.
//! * [`CertificateFiles`]: a serving certificate that another program keeps fresh.
//!
//! They answer to the kubelet's `pkg/kubelet/certificate` and client-go's `util/certificate`, and use the same
//! files. An agent and a kubelet can replace each other on a node.
//!
//! # Example: a month of certificates that last a day
//!
//! ```
//! use std::time::Duration;
//!
//! use kubelet_core::{Clock, Disk};
//! use kubelet_node::certificate::{CertificateManager, CertificateStore};
//! use kubelet_testing::{ApiServer, User};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse()?);
//! let server = ApiServer::builder().sign_certificates().clock(clock).build();
//!
//! let manager = CertificateManager::client("node-1", CertificateStore::new(CertificateStore::CLIENT, dir))
//!     .lifetime(Duration::from_secs(24 * 3600))
//!     .clock(clock)
//!     .disk(Disk::inline())
//!     .open()
//!     .await?
//!     .request_by(server.client_as(User::node("node-1")))
//!     .bootstrap_by(server.client());
//! let (certificates, shutdown) = (manager.handle(), CancellationToken::new());
//! let running = tokio::spawn(manager.run(shutdown.clone()));
//!
//! let mut newest = certificates.subscribe();
//! for _ in 0..30 {
//!     newest.changed().await?;
//!     let certificate = certificates.current().ok_or("no certificate")?;
//!     assert_eq!(certificate.common_name(), "system:node:node-1");
//! }
//! assert!(clock.now() > "2026-01-20T00:00:00Z".parse()?);
//! assert!(dir.join("kubelet-client-current.pem").is_symlink());
//!
//! shutdown.cancel();
//! running.await??;
//! # Ok(())
//! # }
//! ```

mod access;
mod bootstrap;
mod connect;
mod connections;
mod files;
mod key;
mod kubeconfig;
mod lanes;
mod manager;
mod metrics;
mod pair;
mod retry_after;
mod self_signed;
mod signing_request;
mod store;
mod template;
mod template_source;

pub use access::{ApiServerAccess, ApiServerAccessBuilder};
pub use bootstrap::Bootstrap;
pub use connect::{Connect, connect};
pub use connections::Connections;
pub use files::CertificateFiles;
pub use manager::{CertificateHandle, CertificateManager, CertificateManagerBuilder, PendingRequest};
pub use pair::Certificate;
pub use self_signed::self_signed_serving_certificate;
pub use store::CertificateStore;
pub use template::CertificateTemplate;

use std::path::PathBuf;

use kubelet_core::Disk;

use crate::{Error, Result};

/// Runs file operations, or makes keys, without blocking other tasks.
async fn blocking<T: Send + 'static>(
    disk: Disk,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    // The only possible error is a panic of the thread.
    let done = disk.run(|| Ok(work())).await;
    done.map_err(|source| Error::File {
        what: "work on",
        file: PathBuf::new(),
        source,
    })?
}

/// A kubelet with another node's certificate would act as that node.
fn check_node(certificate: &Certificate, node_name: &str) -> Result<()> {
    match certificate.common_name().strip_prefix("system:node:") {
        Some(other) if other != node_name => Err(Error::Certificate {
            file: certificate.file().map(ToOwned::to_owned).unwrap_or_default(),
            problem: format!("it belongs to node {other:?}, but this is node {node_name:?}"),
        }),
        _ => Ok(()),
    }
}

fn pem_block(label: &str, der: &[u8]) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(label, der), lines)
}
