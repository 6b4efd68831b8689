//! The error of this crate.

use std::path::PathBuf;

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of plugins and of their registration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The handler refuses the plugin. The plugin gets this message.
    #[error("{message}")]
    Refused {
        /// Why.
        message: String,
    },

    /// A step of the registration failed. It is retried after a back-off.
    #[error("RegisterPlugin error -- {message}")]
    Registration {
        /// The step, and why it failed.
        message: String,
    },

    /// The parts do not make a watcher.
    #[error("misconfigured: {message}")]
    Misconfigured {
        /// The problem.
        message: String,
    },

    /// The folder of sockets cannot be read.
    #[error("{}: {source}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl Error {
    /// [`Error::Refused`] with this message, for a [`PluginHandler`](crate::PluginHandler).
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
        }
    }

    pub(crate) fn registration(message: impl Into<String>) -> Self {
        Self::Registration {
            message: message.into(),
        }
    }
}
