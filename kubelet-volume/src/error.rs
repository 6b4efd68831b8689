//! The error of this crate.

use std::io;
use std::path::{Path, PathBuf};

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of volumes. The manager adds the pod and the volume: a plugin names what failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operation failed and has changed nothing that must be undone. It is retried after a back-off.
    #[error("{message}")]
    Failed {
        /// What failed, in the kubelet's words.
        message: String,
    },

    /// The operation failed, or is not over, and may have mounted something: it is retried, and if the volume is no
    /// longer wanted it is unmounted as if it were mounted (`UncertainProgressError`).
    #[error("{message}")]
    Uncertain {
        /// What failed, in the kubelet's words.
        message: String,
    },

    /// The volume cannot be used on this node, however often the operation is retried: the pod waits with this message.
    #[error("{message}")]
    Unsupported {
        /// The volume or option, and why.
        message: String,
    },

    /// The volume cannot grow to this size, however often it is retried (`InfeasibleError`).
    #[error("{message}")]
    Infeasible {
        /// The reason, in the driver's words.
        message: String,
    },

    /// The volume cannot grow while pods use it: it is not retried before it is mounted again
    /// (`FailedPreconditionError`).
    #[error("{message}")]
    FailedPrecondition {
        /// The reason, in the driver's words.
        message: String,
    },

    /// This process may not mount. Files that should be in memory are then on the disk.
    #[error("{message}")]
    NotPermitted {
        /// What failed, in the kubelet's words.
        message: String,
    },

    /// A call to the file system failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The path that the call was about.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// The parts do not make a volume manager. All problems are reported together.
    #[error("misconfigured: {}", .problems.join("; "))]
    Misconfigured {
        /// The problems.
        problems: Vec<String>,
    },
}

impl Error {
    /// [`Error::Failed`] with this message.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed {
            message: message.into(),
        }
    }

    /// [`Error::Uncertain`] with this message.
    pub fn uncertain(message: impl Into<String>) -> Self {
        Self::Uncertain {
            message: message.into(),
        }
    }

    /// [`Error::Io`] about this path.
    pub fn io(path: impl AsRef<Path>, source: io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// Whether the operation may have had an effect although it failed.
    pub fn is_uncertain(&self) -> bool {
        matches!(self, Self::Uncertain { .. })
    }
}
