//! The error of this crate.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host lacks what a fixture needs, and `CI` is set.
    #[error("{what} needs {needs}")]
    Missing {
        /// The fixture.
        what: &'static str,
        /// All that is missing.
        needs: String,
    },

    /// A containerd did not come up or did not stay up.
    #[error("containerd: {message}")]
    Containerd {
        /// What happened, and the end of its log.
        message: String,
    },

    /// A program of the host failed.
    #[error("{command}: {message}")]
    Command {
        /// The program and its arguments.
        command: String,
        /// Its exit status and its output.
        message: String,
    },

    /// A file could not be read or written, or a program could not be run.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// The API server in memory returned an error.
    #[cfg(feature = "api-server")]
    #[error(transparent)]
    Api(#[from] kubelet_apiserver::Error),

    /// A wait timed out.
    #[error("{what}: not reached within {within:?}")]
    NotReached {
        /// What the test waited for.
        what: String,
        /// How long it waited, on tokio's clock or the host's.
        within: Duration,
    },

    /// A wait timed out. The error contains the last value.
    #[error("{what}: not reached within {within:?}; last value: {last}")]
    NeverSeen {
        /// What the test waited for.
        what: String,
        /// How long it waited.
        within: Duration,
        /// The last value.
        last: String,
    },

    /// A test leaked something.
    #[error("left behind: {what}")]
    Leaked {
        /// A list of what it leaked.
        what: String,
    },

    /// The test waits for a change that can never come: all senders are gone.
    #[error("{what}: cannot be reached, because the value cannot change any more")]
    Ended {
        /// What the test waited for.
        what: String,
    },
}

impl Error {
    #[cfg(all(feature = "containerd", target_os = "linux"))]
    pub(crate) fn io(path: impl AsRef<std::path::Path>, source: io::Error) -> Self {
        Error::Io {
            path: path.as_ref().to_owned(),
            source,
        }
    }
}
