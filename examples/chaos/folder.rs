//! The folder of a run. A run removes its folder after success, so the folder must be the run's alone.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The environment variable with the folder of this run, for the inner stages.
pub(crate) const VARIABLE: &str = "CHAOS_FOLDER";
/// The logs of all programs, in the folder. The run that makes it owns the folder.
const LOGS: &str = "logs";

/// The folder of this run, inside.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os(VARIABLE).map(PathBuf::from).unwrap()
}

/// A folder that only this run uses.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    /// Whether this run made the folder, and did not only find it empty.
    is_made: bool,
}

impl RunFolder {
    /// Makes this folder, or takes it if it is empty. Without a path it makes one in TMPDIR. It must not be in one of the
    /// `forbidden` folders.
    pub(crate) fn claim(path: Option<&Path>, forbidden: &[&str]) -> Result<Self, String> {
        let Some(path) = path else {
            let folder = tempfile::Builder::new().prefix("chaos-").tempdir();
            let folder = folder.map_err(|error| format!("no temporary folder: {error}"))?.keep();
            return Self { path: folder, is_made: true }.claimed(forbidden);
        };
        let failed = |error| format!("--folder {}: {error}", path.display());
        let is_made = match fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(failed(error)),
        };
        if !is_made && fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(format!("--folder {}: it must be new or empty", path.display()));
        }
        Self { path: path.to_owned(), is_made }.claimed(forbidden)
    }

    fn claimed(mut self, forbidden: &[&str]) -> Result<Self, String> {
        let failed = |path: &Path, error| format!("folder {}: {error}", path.display());
        self.path = self.path.canonicalize().map_err(|error| failed(&self.path, error))?;
        if let Some(forbidden) = forbidden.iter().find(|forbidden| self.path.starts_with(forbidden)) {
            if self.is_made {
                let _ = fs::remove_dir(&self.path);
            }
            let path = self.path.display();
            return Err(format!("folder {path}: it must not be in {forbidden}, which each run replaces"));
        }
        // Of two runs that found it empty, one makes this folder.
        fs::create_dir(self.logs()).map_err(|error| failed(&self.logs(), error))?;
        Ok(self)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join(LOGS)
    }

    /// Removes what the run wrote, and the folder if the run made it.
    pub(crate) fn remove(self) {
        if self.is_made {
            let _ = fs::remove_dir_all(&self.path);
            return;
        }
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let path = entry.path();
            let _ = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_folder_is_made_and_removed() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("run");
        let folder = RunFolder::claim(Some(&path), &[]).unwrap();
        assert_eq!(folder.path(), path.canonicalize().unwrap());
        fs::write(folder.path().join("file"), "").unwrap();
        folder.remove();
        assert!(!path.exists());
    }

    #[test]
    fn an_empty_folder_is_taken_and_stays_empty() {
        let empty = tempfile::tempdir().unwrap();
        let folder = RunFolder::claim(Some(empty.path()), &[]).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        fs::create_dir(folder.path().join("etcd")).unwrap();
        folder.remove();
        assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_with_files_is_refused_and_stays() {
        let used = tempfile::tempdir().unwrap();
        fs::write(used.path().join("file"), "of others").unwrap();
        let error = RunFolder::claim(Some(used.path()), &[]).unwrap_err();
        assert!(error.contains("it must be new or empty"), "{error}");
        assert_eq!(fs::read_dir(used.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_folder_of_another_run_is_refused() {
        let empty = tempfile::tempdir().unwrap();
        let _first = RunFolder::claim(Some(empty.path()), &[]).unwrap();
        RunFolder::claim(Some(empty.path()), &[]).unwrap_err();
        // Both found it empty.
        let second = RunFolder { path: empty.path().to_owned(), is_made: false };
        second.claimed(&[]).unwrap_err();
    }

    #[test]
    fn a_file_and_a_folder_that_a_run_replaces_are_refused() {
        let above = tempfile::tempdir().unwrap();
        let file = above.path().join("file");
        fs::write(&file, "").unwrap();
        RunFolder::claim(Some(&file), &[]).unwrap_err();
        let replaced = above.path().canonicalize().unwrap();
        let below = replaced.join("run");
        let error = RunFolder::claim(Some(&below), &[replaced.to_str().unwrap()]).unwrap_err();
        assert!(error.contains("it must not be in"), "{error}");
        assert!(!below.exists());
        RunFolder::claim(Some(&above.path().join("no/such")), &[]).unwrap_err();
    }
}
