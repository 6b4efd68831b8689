//! The error of this crate.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong in a test's surroundings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host lacks what a fixture takes, where it must not be passed over.
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
        /// What happened, with the end of its log.
        message: String,
    },

    /// A program of the host failed.
    #[error("{command}: {message}")]
    Command {
        /// The program and its arguments.
        command: String,
        /// How it ended and what it complained of.
        message: String,
    },

    /// A file could not be read or written, or a program not run.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// The API server in memory refused a request.
    #[cfg(feature = "api-server")]
    #[error(transparent)]
    Api(#[from] kubelet_apiserver::Error),

    /// What a test waits for did not come.
    #[error("{what}: not within {within:?}")]
    NotReached {
        /// What was waited for.
        what: String,
        /// How long, on tokio's clock or the host's.
        within: Duration,
    },

    /// What a test waits for did not come; something else was seen.
    #[error("{what}: not within {within:?}; last seen: {last}")]
    NeverSeen {
        /// What was waited for.
        what: String,
        /// How long.
        within: Duration,
        /// What was seen last.
        last: String,
    },

    /// Something was left behind that should have gone.
    #[error("left behind: {what}")]
    Leaked {
        /// Each thing, in words.
        what: String,
    },

    /// What a test waits for cannot come any more: whoever would change it is gone.
    #[error("{what}: will not come, since nothing changes any more")]
    Ended {
        /// What was waited for.
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
