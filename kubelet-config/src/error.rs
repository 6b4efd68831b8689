//! The error of this crate.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::kubelet_configuration::validation::ValidationErrors;

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A builder got parts that do not work together. The error lists all problems.
    #[error("misconfigured: {}", .problems.join("; "))]
    Misconfigured {
        /// One line each.
        problems: Vec<String>,
    },

    /// The text is not a manifest of a pod.
    #[error("couldn't parse as pod: {message}")]
    Parse {
        /// The problem, with its place in the text if it is known.
        message: String,
    },

    /// The pod of the manifest is invalid.
    #[error("invalid pod{}: {}", .pod.as_deref().map(|pod| format!(" {pod:?}")).unwrap_or_default(), .problems.join("; "))]
    Invalid {
        /// The pod's name, if it has one.
        pod: Option<String>,
        /// One line each, with the field and the value.
        problems: Vec<String>,
    },

    /// The manifest is a list with invalid pods.
    #[error("invalid pod list: {}", .problems.join("; "))]
    InvalidList {
        /// One line each, with the index.
        problems: Vec<String>,
    },

    /// The pod of the manifest refers to an object of the API server. A static pod must not do that.
    #[error("pod {pod:?}: static pods may not reference {resource}")]
    ApiReference {
        /// The pod's name.
        pod: String,
        /// What it refers to, e.g. `secrets`.
        resource: &'static str,
    },

    /// The configuration of the node is invalid. The error lists all problems.
    #[error("{stage}: {}{}", .file.as_deref().map(|file| format!("{}: ", file.display())).unwrap_or_default(), .problems.join("; "))]
    Configuration {
        /// The stage that rejected it.
        stage: ConfigurationStage,
        /// The file with the problem, if it is in one file.
        file: Option<PathBuf>,
        /// One line each, with the field and, if known, the line.
        problems: Vec<String>,
    },

    /// Feature gates have values that they cannot have.
    #[error("invalid feature gates: {}", .problems.join("; "))]
    FeatureGates {
        /// One line each, with the gate's name.
        problems: Vec<String>,
    },

    /// An argument of the command line is not a flag of the kubelet, or its value is missing.
    #[error("{message}: {argument}")]
    Argument {
        /// The argument.
        argument: String,
        /// What is wrong with it.
        message: String,
    },

    /// The value of a flag is not of its type.
    #[error("invalid argument {value:?} for \"--{flag}\" flag: {message}")]
    Flag {
        /// The flag's name, without the dashes.
        flag: String,
        /// The value.
        value: String,
        /// What is wrong with it.
        message: String,
    },

    /// The command line has an argument that is not a flag. The kubelet has no commands.
    #[error("unknown command {command}")]
    UnknownCommand {
        /// The first of these arguments.
        command: String,
    },

    /// `--node-labels` has labels that a node must not give itself, or invalid labels.
    #[error("invalid node labels: {}", .problems.join("; "))]
    NodeLabels {
        /// One line each, with the label.
        problems: Vec<String>,
    },

    /// The configuration was read, but it is invalid.
    #[error(transparent)]
    Validation(#[from] ValidationErrors),
}

/// The stage that rejected the configuration of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigurationStage {
    /// The configuration file was read.
    Load,
    /// The drop-in files were merged into it.
    DropIns,
    /// The command line was read, or applied to it.
    Flags,
    /// The arguments that are not flags were checked.
    Arguments,
    /// The flags that are not fields of the configuration were validated.
    ValidateFlags,
    /// The feature gates were set.
    FeatureGates,
    /// The configuration was validated.
    Validate,
}

impl fmt::Display for ConfigurationStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "load",
            Self::DropIns => "drop-ins",
            Self::Flags => "flags",
            Self::Arguments => "arguments",
            Self::ValidateFlags => "validateFlags",
            Self::FeatureGates => "featureGates",
            Self::Validate => "validate",
        })
    }
}

impl Error {
    /// The stage that rejected the configuration, if this is an error of the configuration.
    pub fn stage(&self) -> Option<ConfigurationStage> {
        match self {
            Self::Configuration { stage, .. } => Some(*stage),
            Self::FeatureGates { .. } => Some(ConfigurationStage::FeatureGates),
            Self::Argument { .. } | Self::Flag { .. } => Some(ConfigurationStage::Flags),
            Self::UnknownCommand { .. } => Some(ConfigurationStage::Arguments),
            Self::NodeLabels { .. } => Some(ConfigurationStage::ValidateFlags),
            Self::Validation(_) => Some(ConfigurationStage::Validate),
            _ => None,
        }
    }

    pub(crate) fn configuration(stage: ConfigurationStage, problems: Vec<String>) -> Self {
        Self::Configuration {
            stage,
            file: None,
            problems,
        }
    }

    /// The same problems, as those of a stage of the configuration.
    pub(crate) fn at_stage(self, stage: ConfigurationStage) -> Self {
        match self {
            Self::FeatureGates { problems } | Self::Misconfigured { problems } => {
                Self::configuration(stage, problems)
            }
            Self::Configuration { .. } => self,
            other => Self::configuration(stage, vec![other.to_string()]),
        }
    }

    /// The same, about this file.
    pub(crate) fn in_file(mut self, path: &Path) -> Self {
        if let Self::Configuration { file, .. } = &mut self {
            file.get_or_insert_with(|| path.to_owned());
        }
        self
    }
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
