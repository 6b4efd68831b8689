//! The error of this crate.

use std::fmt;
use std::path::{Path, PathBuf};

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

    /// The manifest tells a list in which there are pods that cannot be.
    #[error("invalid pod list: {}", .problems.join("; "))]
    InvalidList {
        /// One line each, with the index.
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

    /// The node's configuration was rejected. All problems are told together.
    #[error("{stage}: {}{}", .file.as_deref().map(|file| format!("{}: ", file.display())).unwrap_or_default(), .problems.join("; "))]
    Configuration {
        /// How far it came.
        stage: ConfigurationStage,
        /// The file, if it is one that is to blame.
        file: Option<PathBuf>,
        /// One line each, with the field and, if known, the line.
        problems: Vec<String>,
    },

    /// Feature gates were set that cannot be.
    #[error("invalid feature gates: {}", .problems.join("; "))]
    FeatureGates {
        /// One line each, with the gate's name.
        problems: Vec<String>,
    },

    /// An argument of the command line that is no flag of the kubelet's, or lacks its value.
    #[error("{message}: {argument}")]
    Argument {
        /// What it is about.
        argument: String,
        /// What is wrong with it.
        message: String,
    },

    /// The value of a flag is not of its type.
    #[error("invalid argument {value:?} for \"--{flag}\" flag: {message}")]
    Flag {
        /// The flag's name, without the dashes.
        flag: String,
        /// What was given.
        value: String,
        /// What is wrong with it.
        message: String,
    },

    /// The command line has an argument that is no flag; the kubelet has no commands.
    #[error("unknown command {command}")]
    UnknownCommand {
        /// The first of these arguments.
        command: String,
    },

    /// The node may not give itself labels that it was told to (`--node-labels`).
    #[error("invalid node labels: {}", .problems.join("; "))]
    NodeLabels {
        /// One line each, with the label.
        problems: Vec<String>,
    },

    /// A configuration was read that a kubelet does not run with.
    #[error(transparent)]
    Validation(#[from] ValidationErrors),
}

/// How far a node's configuration came before it was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigurationStage {
    /// The configuration file was read.
    Load,
    /// The drop-in files were merged into it.
    DropIns,
    /// The command line was read, or applied to it.
    Flags,
    /// What the command line has besides flags was looked at.
    Arguments,
    /// The flags that are no fields of it were validated.
    ValidateFlags,
    /// The feature gates were set.
    FeatureGates,
    /// The whole was validated.
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
    /// How far the node's configuration came before it was rejected, if this is about one.
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
