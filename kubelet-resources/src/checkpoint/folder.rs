//! State files in a folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

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
        match fs::read(self.path(name)) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // Always the same name: what a crash leaves is overwritten.
        let temporary = self.folder.join(format!(".{name}.new"));
        let mut file = File::create(&temporary)?;
        restrict(&file)?;
        file.write_all(contents)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, self.path(name))?;
        File::open(&self.folder)?.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The kubelet's files are readable by their owner only.
#[cfg(unix)]
fn restrict(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn restrict(_: &File) -> io::Result<()> {
    Ok(())
}
