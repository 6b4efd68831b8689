//! The record files: one in the folder of each pod.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::record::Record;
use crate::files::{self, Replace};
use crate::{Clock, PodUid};

pub(super) const FILE: &str = "checkpoint.json";
/// An unreadable record is renamed to this, so that it can be examined.
const SET_ASIDE: &str = "checkpoint.json.unreadable";

/// Writes a new file and renames it over the old record, so that there is always a complete one. `durably`: it is
/// synced to the disk before this returns.
pub(super) fn write(dir: &Path, record: &[u8], durably: bool) -> io::Result<()> {
    let replace = Replace {
        private: false,
        durable: durably,
    };
    replace.write(&dir.join(FILE), &dir.join(format!(".{FILE}")), record)
}

/// Reads all records below the folder of pods. An unreadable record is logged and renamed; the others are read.
pub(super) fn read_all(pods_dir: &Path, clock: &Clock) -> io::Result<FxHashMap<PodUid, Record>> {
    let pods = match fs::read_dir(pods_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FxHashMap::default()),
        pods => pods?,
    };
    let mut found = FxHashMap::default();
    for pod in pods.flatten() {
        let Some(uid) = pod.file_name().to_str().map(PodUid::new) else {
            continue;
        };
        let file = pod.path().join(FILE);
        match read(&file, &uid, clock) {
            Ok(Some(record)) => drop(found.insert(uid, record)),
            Ok(None) => {}
            Err(problem) => {
                let aside: PathBuf = pod.path().join(SET_ASIDE);
                let set_aside = fs::rename(&file, &aside);
                tracing::warn!(%uid, file = %file.display(), problem, ?set_aside,
                    "Cannot read the record of a pod, renamed it");
            }
        }
    }
    Ok(found)
}

fn read(file: &Path, uid: &PodUid, clock: &Clock) -> Result<Option<Record>, String> {
    let json = files::read(file).map_err(|error| error.to_string())?;
    json.map(|json| Record::from_json(&json, uid, clock)).transpose()
}
