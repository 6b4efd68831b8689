//! What can go wrong with a node.

/// The error of this crate. It names the node, the object or the file it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server refused a request, or could not be asked.
    #[error("{what}: {source}")]
    Api {
        /// The request: its verb and its object.
        what: String,
        /// Why.
        #[source]
        source: Box<kube_client::Error>,
    },
}

/// A result whose error is this crate's.
pub type Result<T, E = Error> = std::result::Result<T, E>;
