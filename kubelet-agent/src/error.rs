//! The error of this crate.

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an agent cannot be built, or why it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings do not make an agent. All problems are reported together.
    #[error("misconfigured: {}", .problems.join("; "))]
    Misconfigured {
        /// The problems, each with the name of the setting.
        problems: Vec<String>,
    },
    /// A part of the agent panicked.
    #[error("{part}: {source}")]
    Panicked {
        /// The part.
        part: &'static str,
        /// What tokio reports.
        #[source]
        source: tokio::task::JoinError,
    },
    /// A file, a folder or a socket.
    #[error("{what}: {source}")]
    Io {
        /// What failed, with its path or address.
        what: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another user of this machine can use a folder or a file that is for the agent alone (feature `api`).
    #[error("{path}: {problem}", path = .path.display())]
    NotPrivate {
        /// The folder or the file.
        path: std::path::PathBuf,
        /// Who can use it, and what to do.
        problem: String,
    },
    /// The program around the agent cannot start (feature `program`).
    #[error("{0}")]
    Program(String),
    /// From `kubelet-core`.
    #[error(transparent)]
    Core(#[from] kubelet_core::Error),
    /// From `kubelet-config`.
    #[error(transparent)]
    Config(#[from] kubelet_config::Error),
    /// From `kubelet-cri`.
    #[error(transparent)]
    Cri(#[from] kubelet_cri::Error),
    /// From `kubelet-kuberuntime`.
    #[error(transparent)]
    Runtime(#[from] kubelet_kuberuntime::Error),
    /// From `kubelet-apiserver`.
    #[cfg(feature = "api")]
    #[error(transparent)]
    ApiServer(#[from] kubelet_apiserver::Error),
    /// From `kubelet-eviction`.
    #[error(transparent)]
    Eviction(#[from] kubelet_eviction::Error),
    /// From `kubelet-node`.
    #[error(transparent)]
    Node(#[from] kubelet_node::Error),
    /// From `kubelet-plugins`.
    #[cfg(feature = "plugins")]
    #[error(transparent)]
    Plugins(#[from] kubelet_plugins::Error),
    /// From `kubelet-resources`.
    #[error(transparent)]
    Resources(#[from] kubelet_resources::Error),
    /// From `kubelet-server`.
    #[cfg(feature = "server")]
    #[error(transparent)]
    Server(#[from] kubelet_server::Error),
    /// From `kubelet-volume`.
    #[error(transparent)]
    Volume(#[from] kubelet_volume::Error),
}

/// A single field of the configuration that is no valid value.
pub(crate) fn invalid(field: &str, value: &str, error: impl std::fmt::Display) -> Error {
    Error::Misconfigured {
        problems: vec![format!("{field} {value:?}: {error}")],
    }
}

#[cfg(any(feature = "http", feature = "server"))]
pub(crate) fn address(field: &str, value: &str) -> Result<std::net::IpAddr> {
    value
        .parse()
        .map_err(|error: std::net::AddrParseError| invalid(field, value, error))
}

pub(crate) fn port(field: &str, value: i32) -> Result<u16> {
    value
        .try_into()
        .map_err(|error: std::num::TryFromIntError| invalid(field, &value.to_string(), error))
}
