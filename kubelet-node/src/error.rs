//! What can go wrong with a node.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The error of this crate. It names the node, the object or the file it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server refused a request, or could not be asked.
    #[error("{what}: {source}")]
    Api {
        /// The request: its verb and its object.
        what: String,
        /// Why.
        #[source]
        source: Box<kube_client::Error>,
    },
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", file.display())]
    File {
        /// What was tried: `read`, `write`…
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is in a file is no certificate, no key, or not the right one.
    #[error("{}: {problem}", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no certificate yet.
    #[error("there is no certificate; looked at {looked_at}")]
    NoCertificate {
        /// The files that it could have been in.
        looked_at: String,
    },
    /// A kubeconfig cannot be read, or makes no sense.
    #[error("kubeconfig {}: {problem}", file.display())]
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A certificate signing request cannot be made, or is none of ours.
    #[error("certificate signing request {name}: {problem}")]
    SigningRequest {
        /// The name of the object.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A certificate signing request was denied.
    #[error("certificate signing request {name} is denied, reason: {reason}, message: {message}")]
    CertificateDenied {
        /// The name of the object.
        name: String,
        /// Of the condition.
        reason: String,
        /// Of the condition.
        message: String,
    },
    /// The signer could not sign a certificate signing request.
    #[error("certificate signing request {name} failed, reason: {reason}, message: {message}")]
    CertificateFailed {
        /// The name of the object.
        name: String,
        /// Of the condition.
        reason: String,
        /// Of the condition.
        message: String,
    },
    /// Nobody approved or signed a certificate signing request in time.
    #[error("certificate signing request {name} was not approved and issued within {waited:?}")]
    CertificateNotIssued {
        /// The name of the object; empty if it could not even be made.
        name: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// There has been no valid client certificate for too long, though the API server answers.
    #[error("no valid client certificate for {since:?} though the API server answers: {last_error}")]
    NoValidCertificate {
        /// For how long.
        since: Duration,
        /// What came of the last attempt to get one.
        last_error: String,
    },
}

/// A result whose error is this crate's.
pub type Result<T, E = Error> = std::result::Result<T, E>;
