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
    /// The API server did not answer in time.
    #[error("{what}: no answer within {} s", after.as_secs())]
    Timeout {
        /// The request: its verb and its object.
        what: String,
        /// How long was waited.
        after: Duration,
    },
    /// The host's network could not be asked.
    #[error("{what}: {source}")]
    Network {
        /// What was asked for.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A part of the configuration means nothing.
    #[error("{what}: {why}")]
    Invalid {
        /// The field or flag, with its value.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// More is kept back from pods than there is (`validateNodeAllocatable`).
    #[error("invalid Node Allocatable configuration. {problems}")]
    Reservation {
        /// Of each resource that this is so with, a sentence.
        problems: String,
    },
    /// The machine has swap, and the agent is not to run on such a one (`failSwapOn`).
    #[error("running with swap on is not supported, please disable swap or set --fail-swap-on flag to false")]
    SwapOn,
    /// The node has no address that it could be known by.
    #[error("node {node}: {why}")]
    NoAddress {
        /// The node's name.
        node: String,
        /// What was looked at.
        why: String,
    },
    /// What somebody else was to tell about the node: the error for setters of an embedder, too.
    #[error("{what}: {source}")]
    Told {
        /// What was asked for.
        what: String,
        /// Why it was not told.
        #[source]
        source: BoxError,
    },
}

/// Whatever went wrong in a part of the embedder's.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A result whose error is this crate's.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn api(what: impl Into<String>, source: kube_client::Error) -> Self {
        Self::Api {
            what: what.into(),
            source: Box::new(source),
        }
    }

    /// The code of the API server's answer, where it answered.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => match &**source {
                kube_client::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }
}
