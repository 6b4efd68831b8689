//! The error of this crate.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be measured. Cheap to clone: callers that wait for one reading all receive its error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
    /// A file has not the format that the kernel documents.
    #[error("{}: {message}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The line or value that was not understood.
        message: String,
    },
    /// There is no such cgroup (`memory.ErrDataNotFound`).
    #[error("cgroup stats not found for {name:?}")]
    NoCgroup {
        /// Its name.
        name: String,
    },
    /// No file system is known for a path.
    #[error("no file system is known for {}", path.display())]
    NoFileSystem {
        /// The path.
        path: PathBuf,
    },
    /// A file system does not answer.
    #[error("{}: the file system did not answer within {after:?}", path.display())]
    FileSystemHangs {
        /// The path.
        path: PathBuf,
        /// The deadline.
        after: Duration,
    },
    /// A call to the runtime failed.
    #[error(transparent)]
    Runtime(#[from] kubelet_core::Error),
    /// The node is not known yet.
    #[error("failed to get node info: {0}")]
    Node(String),
}

impl Error {
    /// The error of reading `path`.
    pub(crate) fn read(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Read {
            path: path.into(),
            source: Arc::new(source),
        }
    }

    /// `path` is not in its format.
    pub(crate) fn format(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Format {
            path: path.into(),
            message: message.into(),
        }
    }

    /// The file or cgroup is gone: it ended, which is no fault.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::NoCgroup { .. } => true,
            Self::Read { source, .. } => {
                // A file of a cgroup that was removed while it was open: ENODEV. A process that ended: ESRCH.
                source.kind() == std::io::ErrorKind::NotFound || matches!(source.raw_os_error(), Some(3 | 19))
            }
            _ => false,
        }
    }
}
