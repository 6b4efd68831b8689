//! The files of the records (`fsPullRecordsAccessor`).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use kubelet_core::files::{self, Replace};
use sha2::{Digest, Sha256};

use super::super::keyring::hex;
use super::record::Record;

const PREFIX: &str = "sha256-";
const TEMPORARY: &str = ".tmp";

/// The file name of the record of this image or image reference.
pub(super) fn file_name(image: &str) -> String {
    format!("{PREFIX}{}", hex(&Sha256::digest(image)))
}

/// Writes the record, or removes it.
pub(super) fn set<T: Record>(dir: &Path, key: &str, record: Option<&T>) -> io::Result<()> {
    let path = dir.join(file_name(key));
    let Some(record) = record else {
        return files::remove(&path);
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let temporary = PathBuf::from(format!("{}{TEMPORARY}", path.display()));
    let replace = Replace {
        private: true,
        durable: false,
    };
    replace.write(&path, &temporary, &record.to_json()?)
}

/// All records of a folder, in the order of their names; those that cannot be used by their file names.
pub(super) fn read_all<T: Record>(dir: &Path) -> (Vec<T>, Vec<String>) {
    let (mut records, mut unusable) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::error!(dir = %dir.display(), %error, "cannot read the records of image pulls");
            }
            return (records, unusable);
        }
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(PREFIX) && !name.ends_with(TEMPORARY))
        .collect();
    names.sort_unstable();
    for name in names {
        let read = fs::read(dir.join(&name)).map_err(|error| error.to_string());
        match read.and_then(|json| T::from_json(&json)) {
            Ok(record) => records.push(record),
            Err(problem) => {
                tracing::error!(dir = %dir.display(), name, problem, "cannot read a record of an image pull");
                unusable.push(name);
            }
        }
    }
    (records, unusable)
}
