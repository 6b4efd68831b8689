//! The error of this crate.

/// Why logs cannot be read or rotated.
///
/// All other calls of this crate return the runtime's error, [`kubelet_cri::Error`], or the error of their trait in
/// `kubelet-core`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call of the runtime failed.
    #[error(transparent)]
    Cri(#[from] kubelet_cri::Error),

    /// A container's log cannot be read or rotated.
    #[error("{message}")]
    Log {
        /// The log file.
        path: String,
        /// The kubelet's message.
        message: String,
    },

    /// The settings of log rotation are not valid.
    #[error("{message}")]
    InvalidPolicy {
        /// The setting and the problem.
        message: String,
    },
}
