//! The errors of this crate.

use std::path::PathBuf;

/// Any error, as traits of this crate return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why something failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A threshold, grace period or minimum reclaim cannot be read.
    #[error("{field}[{signal}]: {reason}")]
    Configuration {
        /// The field of `KubeletConfiguration`.
        field: &'static str,
        /// The signal.
        signal: String,
        /// What is wrong.
        reason: String,
    },
    /// A file of the kernel cannot be opened, read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The summary lacks the memory that a notifier needs.
    #[error("the summary has no usage, working set and available memory of {of}")]
    IncompleteSummary {
        /// The node, or its pods.
        of: &'static str,
    },
    /// The kernel does not notify about what was asked for.
    #[error("the kernel does not notify about memory: {0}")]
    NotSupported(String),
}

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;
