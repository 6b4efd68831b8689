//! The error of this crate.

/// Why logs cannot be read or rotated.
///
/// All other calls of this crate return what the runtime answered, [`kubelet_cri::Error`], or what their trait of
/// `kubelet-core` asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The runtime refused a call.
    #[error(transparent)]
    Cri(#[from] kubelet_cri::Error),

    /// A container's log cannot be read or rotated.
    #[error("{message}")]
    Log {
        /// The log file.
        path: String,
        /// The cause, in the kubelet's words.
        message: String,
    },

    /// The settings of log rotation are not valid.
    #[error("{message}")]
    InvalidPolicy {
        /// The setting and what is wrong with it.
        message: String,
    },
}
