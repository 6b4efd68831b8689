//! The files of one container's log: the current one, and the rotated ones.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// `compressSuffix`
pub(super) const COMPRESSED: &str = ".gz";
/// `tmpSuffix`
pub(super) const TEMPORARY: &str = ".tmp";

/// The files beside a log file whose names are its name, a dot and a suffix.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RotatedFiles {
    /// The rotated files, oldest first.
    pub(super) in_use: Vec<PathBuf>,
    /// The leftovers of an unfinished rotation.
    pub(super) unused: Vec<PathBuf>,
}

impl RotatedFiles {
    /// Lists the files; a missing folder has no files (`filterUnusedLogs`).
    pub(super) fn of(log: &Path) -> io::Result<Self> {
        let (Some(dir), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
            return Ok(Self::default());
        };
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            entries => entries?,
        };
        let prefix = format!("{name}.");
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let is_one = |name: &str| name.starts_with(&prefix);
            if path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(is_one)
            {
                files.push(path);
            }
        }
        files.sort_unstable();
        let is_unused = |path: &PathBuf| {
            has_suffix(path, TEMPORARY)
                || (!has_suffix(path, COMPRESSED)
                    && files.binary_search(&with_suffix(path, COMPRESSED)).is_ok())
        };
        let (unused, in_use) = files.iter().cloned().partition(is_unused);
        Ok(Self { in_use, unused })
    }
}

/// Whether a name has this suffix.
pub(super) fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(suffix.as_bytes())
}

/// The name with a suffix.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_files_are_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        assert_eq!(
            RotatedFiles::of(&dir.path().join("none/0.log")).unwrap(),
            RotatedFiles::default()
        );
        for name in [
            "0.log",
            "10.log.20240101-000000",
            "0.log.20240102-000000",
            "0.log.20240101-000000.gz",
            "0.log.20240101-000000",
            "0.log.20240102-000000.tmp",
            "0.logs",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names = |files: Vec<PathBuf>| -> Vec<String> {
            let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
            files.into_iter().map(name).collect()
        };
        let files = RotatedFiles::of(&log).unwrap();
        assert_eq!(
            names(files.in_use),
            ["0.log.20240101-000000.gz", "0.log.20240102-000000"]
        );
        assert_eq!(
            names(files.unused),
            ["0.log.20240101-000000", "0.log.20240102-000000.tmp"]
        );
    }
}
