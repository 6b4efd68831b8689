//! The errors of this crate.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The error of this crate. It names the node, the object or the file that it concerns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server refused a request, or the request failed on its way.
    #[cfg(feature = "apiserver")]
    #[error("{what}: {source}")]
    Api {
        /// The request: verb and object.
        what: String,
        /// The cause.
        #[source]
        source: Box<kube_client::Error>,
    },
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", file.display())]
    File {
        /// The attempted operation: `read`, `write`…
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file does not hold a valid certificate or key, or holds the wrong one.
    #[error("{}: {problem}", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// The problem.
        problem: String,
    },
    /// No certificate exists yet.
    #[error("no certificate found; looked at {looked_at}")]
    NoCertificate {
        /// The files that were tried.
        looked_at: String,
    },
    /// A kubeconfig cannot be read or is invalid.
    #[error("kubeconfig {}: {problem}", file.display())]
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A certificate signing request cannot be made, or the existing one does not match.
    #[error("certificate signing request {name}: {problem}")]
    SigningRequest {
        /// The name of the object.
        name: String,
        /// The problem.
        problem: String,
    },
    /// A certificate signing request was denied.
    #[error("certificate signing request {name} is denied, reason: {reason}, message: {message}")]
    CertificateDenied {
        /// The name of the object.
        name: String,
        /// The reason in the condition.
        reason: String,
        /// The message in the condition.
        message: String,
    },
    /// The signer could not sign a certificate signing request.
    #[error("certificate signing request {name} failed, reason: {reason}, message: {message}")]
    CertificateFailed {
        /// The name of the object.
        name: String,
        /// The reason in the condition.
        reason: String,
        /// The message in the condition.
        message: String,
    },
    /// A certificate signing request was not approved or not signed in time.
    #[error("certificate signing request {name} was not approved and issued within {waited:?}")]
    CertificateNotIssued {
        /// The name of the object; empty if the object was not created.
        name: String,
        /// How long the agent waited.
        waited: Duration,
    },
    /// The node had no valid client certificate for too long, while the API server answered.
    #[error("no valid client certificate for {since:?}, although the API server answers: {last_error}")]
    NoValidCertificate {
        /// How long.
        since: Duration,
        /// The result of the last attempt to get one.
        last_error: String,
    },
    /// The API server did not answer in time.
    #[error("{what}: no answer within {} s", after.as_secs())]
    Timeout {
        /// The request: verb and object.
        what: String,
        /// How long the agent waited.
        after: Duration,
    },
    /// The host's network cannot be read.
    #[error("{what}: {source}")]
    Network {
        /// The information that was requested.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A value in the configuration is invalid.
    #[error("{what}: {why}")]
    Invalid {
        /// The field or flag, with its value.
        what: String,
        /// The problem.
        why: String,
    },
    /// The reservations exceed the node's capacity (`validateNodeAllocatable`).
    #[error("invalid Node Allocatable configuration. {problems}")]
    Reservation {
        /// One sentence for each such resource.
        problems: String,
    },
    /// The machine has swap, and `failSwapOn` is set.
    #[error("running with swap on is not supported, please disable swap or set --fail-swap-on flag to false")]
    SwapOn,
    /// Settings of the kernel differ from those that a kubelet needs, or cannot be read or set.
    #[error("kernel settings: {problems}")]
    KernelSettings {
        /// Each setting with its problem.
        problems: String,
    },
    /// The program `iptables` cannot run, or failed.
    #[error("{what}: {why}")]
    Iptables {
        /// What was tried.
        what: String,
        /// What the program printed.
        why: String,
    },
    /// Shutdowns of the host cannot be watched or delayed.
    #[error("node shutdown: {problem}")]
    Shutdown {
        /// The problem.
        problem: String,
    },
    /// The node has no usable address.
    #[error("node {node}: {why}")]
    NoAddress {
        /// The node's name.
        node: String,
        /// The reason.
        why: String,
    },
    /// A [`NodeStatusSetter`](crate::NodeStatusSetter) of the embedder failed.
    #[error("{what}: {source}")]
    Setter {
        /// What the setter tried to get.
        what: String,
        /// The cause.
        #[source]
        source: BoxError,
    },
}

/// The error type of parts that the embedder provides.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(feature = "apiserver")]
impl Error {
    pub(crate) fn api(what: impl Into<String>, source: kube_client::Error) -> Self {
        Self::Api {
            what: what.into(),
            source: Box::new(source),
        }
    }

    /// The status code of the API server's answer, if it answered.
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
