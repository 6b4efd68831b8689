//! The errors of this crate.

use std::io;
use std::net::SocketAddr;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The error of this crate. It names the address, file or setting that it concerns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    File {
        /// The file.
        file: std::path::PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A certificate, key or bundle is not valid.
    #[error("{name}: {message}")]
    Certificate {
        /// Its file, or another name.
        name: String,
        /// What is wrong with it.
        message: String,
    },
    /// A setting is not valid.
    #[error("{setting}: {message}")]
    Setting {
        /// The field of the configuration: `tlsMinVersion`…
        setting: &'static str,
        /// What is wrong with it.
        message: String,
    },
}
