//! The managers' state files, as the kubelet v1.36 reads and writes them.
//!
//! A file is JSON with a checksum: 32-bit FNV-1a of a text that describes the values with the Go types of the kubelet.
//! Answers to `pkg/kubelet/checkpointmanager`.

mod folder;
mod go_text;

use std::io;
use std::path::PathBuf;

pub use self::folder::StateFolder;
pub(crate) use self::go_text::{GoText, checksum};
pub use crate::cpu::checkpoint::{read_cpu_state, write_cpu_state};
pub use crate::memory::checkpoint::{read_memory_state, write_memory_state};

/// Where state files are. [`StateFolder`] is a folder of the file system.
pub trait StateStore: Send + Sync {
    /// Reads a file. `None` if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a file as a whole: after a crash at any moment, the file is either the old or the new one.
    ///
    /// # Errors
    ///
    /// If it cannot be written. The old file is then still there.
    fn write(&self, name: &str, contents: &[u8]) -> io::Result<()>;

    /// Where the file is, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// Why a state file cannot be used: the texts of the kubelet, to be wrapped by the manager.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The checksum is wrong.
    Corrupt,
    /// Anything else.
    Other(String),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Corrupt => f.write_str("checkpoint is corrupted"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self::Other(match error.is_eof() {
            true => "unexpected end of JSON input".to_owned(),
            false => error.to_string(),
        })
    }
}
