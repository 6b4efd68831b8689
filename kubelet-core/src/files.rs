//! Files that may be missing, and files that are replaced as a whole. All calls block.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Reads a file. `None` if it does not exist.
///
/// # Errors
///
/// If it exists and cannot be read.
pub fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    if_there(fs::read(file))
}

/// Removes a file, if it exists.
///
/// # Errors
///
/// If it exists and cannot be removed.
pub fn remove(file: &Path) -> io::Result<()> {
    if_there(fs::remove_file(file)).map(drop)
}

fn if_there<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

/// How a file is replaced.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replace {
    /// Only its owner may read it.
    pub private: bool,
    /// It survives a loss of power: file and folder are flushed to the disk.
    pub durable: bool,
}

impl Replace {
    /// Writes `temporary`, and renames it to `file` in the same folder. A reader finds all of the old contents, or all of
    /// the new ones. A file or link that already has the temporary name is removed.
    ///
    /// # Errors
    ///
    /// If `file` was not replaced. It is as it was, unless just the folder could not be flushed.
    pub fn write(self, file: &Path, temporary: &Path, contents: &[u8]) -> io::Result<()> {
        remove(temporary)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        if self.private {
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        let mut new = options.open(temporary)?;
        new.write_all(contents)?;
        if self.durable {
            new.sync_all()?;
        }
        drop(new);
        fs::rename(temporary, file)?;
        match file.parent() {
            Some(folder) if self.durable && cfg!(unix) => {
                let named = !folder.as_os_str().is_empty();
                File::open(if named { folder } else { Path::new(".") })?.sync_all()
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_neither_read_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state");
        assert_eq!(read(&file).unwrap(), None);
        remove(&file).unwrap();
        assert!(read(folder.path()).is_err() && remove(folder.path()).is_err());
        fs::write(&file, "one").unwrap();
        assert_eq!(read(&file).unwrap().unwrap(), b"one");
        remove(&file).unwrap();
        assert!(!file.exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_replaced_whatever_has_the_temporary_name() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let [file, temporary, other] = ["state", "state.new", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "other").unwrap();
        symlink(&other, &temporary).unwrap();
        let durable = Replace {
            private: true,
            durable: true,
        };
        durable.write(&file, &temporary, b"one").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&temporary, "what a crash left").unwrap();
        Replace::default().write(&file, &temporary, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::read(&other).unwrap(), b"other");
        assert!(!temporary.exists());
    }
}
