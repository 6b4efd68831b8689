//! The error of this crate.

use super::status_error::StatusError;

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server refused a request that was made without HTTP.
    #[error("{code} {reason}: {message}")]
    Api {
        /// The HTTP status.
        code: u16,
        /// `Status.reason`; empty for none.
        reason: String,
        /// `Status.message`.
        message: String,
    },

    /// The storage of the server failed.
    #[error("storage {what}: {source}")]
    Storage {
        /// The file or the entry.
        what: String,
        /// What happened.
        source: tower::BoxError,
    },

    /// The machine has no `kubectl`.
    #[error("kubectl is missing (install it, or set KUBECTL to its path; Debian: kubernetes-client)")]
    NoKubectl,
}

impl From<StatusError> for Error {
    fn from(error: StatusError) -> Self {
        Error::Api {
            code: error.code,
            reason: error.reason.to_owned(),
            message: error.message,
        }
    }
}
