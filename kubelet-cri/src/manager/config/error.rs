//! Why no config can be made.

/// Why no config can be made for a sandbox or container; the text is what the kubelet shows of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(String);
