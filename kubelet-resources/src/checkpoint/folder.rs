//! State files in a folder.

use std::fs;
use std::io;
use std::path::PathBuf;

use kubelet_core::files::{self, Replace};

use super::StateStore;

/// A folder with state files: the kubelet's root folder, usually `/var/lib/kubelet`.
///
/// A file is written under a temporary name and renamed. Both the file and the folder are flushed to the disk before a write
/// returns.
#[derive(Clone, Debug)]
pub struct StateFolder {
    folder: PathBuf,
}

impl StateFolder {
    /// The folder. It is made with the first write if it does not exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }
}

impl StateStore for StateFolder {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        files::read(&self.path(name))
    }

    fn write(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // Always the same name: what a crash leaves is overwritten.
        let temporary = self.folder.join(format!(".{name}.new"));
        // As the kubelet's files.
        let replace = Replace {
            private: true,
            durable: true,
        };
        replace.write(&self.path(name), &temporary, contents)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
