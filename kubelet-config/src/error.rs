//! The error of this crate.

use crate::kubelet_configuration::validation::ValidationErrors;

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can be wrong with what a node is told to run, or with how it is told.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The parts given to a builder do not fit together. All problems are told together.
    #[error("misconfigured: {}", .problems.join("; "))]
    Misconfigured {
        /// One line each.
        problems: Vec<String>,
    },

    /// The text is not the manifest of a pod.
    #[error("couldn't parse as pod: {message}")]
    Parse {
        /// What is wrong with it, and where in the text if that is known.
        message: String,
    },

    /// The manifest tells a pod that cannot be.
    #[error("invalid pod{}: {}", .pod.as_deref().map(|pod| format!(" {pod:?}")).unwrap_or_default(), .problems.join("; "))]
    Invalid {
        /// The pod's name, if it has one.
        pod: Option<String>,
        /// One line each, with the field and the value.
        problems: Vec<String>,
    },

    /// The manifest's pod refers to an object of the API server, which a static pod may not.
    #[error("pod {pod:?}: static pods may not reference {resource}")]
    ApiReference {
        /// The pod's name.
        pod: String,
        /// What it refers to, e.g. `secrets`.
        resource: &'static str,
    },

    /// The text is not a duration as Go writes them.
    #[error("{message}")]
    Duration {
        /// What is wrong with it.
        message: String,
    },

    /// Feature gates were set that cannot be.
    #[error("invalid feature gates: {}", .problems.join("; "))]
    FeatureGates {
        /// One line each, with the gate's name.
        problems: Vec<String>,
    },

    /// A configuration was read that a kubelet does not run with.
    #[error(transparent)]
    Validation(#[from] ValidationErrors),
}

impl From<Error> for kubelet_core::Error {
    fn from(error: Error) -> Self {
        let problems = match error {
            Error::Misconfigured { problems } => problems,
            other => vec![other.to_string()],
        };
        kubelet_core::Error::Misconfigured { problems }
    }
}
