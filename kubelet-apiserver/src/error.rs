//! The error of this crate.

use super::status_error::StatusError;

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call of [`ApiServer`](super::ApiServer) without HTTP failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused the request.
    #[error("{code} {reason}: {message}")]
    Api {
        /// The HTTP status.
        code: u16,
        /// `Status.reason`; empty for none.
        reason: String,
        /// `Status.message`.
        message: String,
    },
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
