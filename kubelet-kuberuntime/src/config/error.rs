//! The error of a config that cannot be generated.

use std::path::Path;

/// Why the config of a sandbox or container cannot be generated. The text is the kubelet's, for events and
/// `state.waiting.message`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConfigError {
    /// Something in the spec is invalid or not possible on this node.
    #[error("{0}")]
    Spec(String),

    /// A container refers to an object or key that does not exist.
    #[error("{0}")]
    NotFound(String),

    /// An amount in a list of resources cannot be read.
    #[error("{owner}: {list}.{resource}: {text:?} is not a quantity")]
    Quantity {
        /// The pod or container of the list.
        owner: String,
        /// `requests`, `limits`, `overhead`
        list: &'static str,
        /// `cpu`, `memory`…
        resource: String,
        /// The invalid text.
        text: String,
    },

    /// A config map or secret could not be read.
    #[error("{0}")]
    ConfigObjects(#[from] kubelet_core::Error),

    /// A file of the host could not be read or written.
    #[error("{path}: {message}")]
    Io {
        /// The path of the file.
        path: String,
        /// The error of the operating system.
        message: String,
    },
}

impl ConfigError {
    pub(super) fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::Io {
            path: path.display().to_string(),
            message: error.to_string(),
        }
    }
}
