//! Why no config can be made.

use std::path::Path;

/// Why no config can be made for a sandbox or container. The text is what the kubelet shows of it, in events and in
/// `state.waiting.message`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConfigError {
    /// Something in the spec makes no sense or is not possible on this node.
    #[error("{0}")]
    Spec(String),

    /// A container refers to an object or a key of it that is not there.
    #[error("{0}")]
    NotFound(String),

    /// An amount in a list of resources cannot be read.
    #[error("{owner}: {list}.{resource}: {text:?} is not a quantity")]
    Quantity {
        /// The pod or container it is of.
        owner: String,
        /// `requests`, `limits`, `overhead`
        list: &'static str,
        /// `cpu`, `memory`…
        resource: String,
        /// What stands there.
        text: String,
    },

    /// A config map or secret could not be read.
    #[error("{0}")]
    ConfigObjects(#[from] kubelet_core::Error),

    /// A file of the host could not be read or written.
    #[error("{path}: {message}")]
    Io {
        /// Which.
        path: String,
        /// What the operating system said.
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
