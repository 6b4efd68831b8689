//! Volume files that are updated atomically.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::strtime;

/// The link to the folder with the current files (`dataDirName`).
const DATA: &str = "..data";
/// The next link, before it is renamed (`newDataDirName`).
const NEW_DATA: &str = "..data_tmp";

/// A file of a volume (`FileProjection`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProjectedFile {
    pub(crate) data: Vec<u8>,
    pub(crate) mode: u32,
    /// The owner; by default, the agent's user.
    pub(crate) owner: Option<u32>,
}

/// The files of a volume by path. Paths contain no `..`.
pub(crate) type Payload = BTreeMap<String, ProjectedFile>;

/// Makes `payload` the content of the volume in `folder`, atomically for readers. Each top-level name is a link into
/// `..data`, which is a link to a timestamped folder that is replaced as a whole (`AtomicWriter.Write`). Unchanged
/// files are not written again. `finish` is called on the new files before they become visible.
pub(crate) fn write(
    folder: &Path,
    payload: &Payload,
    now: Timestamp,
    finish: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    payload.keys().try_for_each(|path| check(path))?;
    let old = match fs::read_link(folder.join(DATA)) {
        Ok(old) => Some(folder.join(old)),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let surplus = old
        .as_ref()
        .map(|old| surplus(old, payload))
        .transpose()?
        .unwrap_or_default();
    let replaced = if surplus.is_empty() && old.as_ref().is_some_and(|old| holds(old, payload)) {
        None
    } else {
        let new = new_folder(folder, now)?;
        publish(folder, &new, payload, finish).inspect_err(|_| _ = fs::remove_dir_all(&new))?;
        old
    };
    link_all(folder, payload)?;
    for gone in surplus {
        fs::remove_file(folder.join(gone))?;
    }
    replaced.map_or(Ok(()), fs::remove_dir_all)
}

/// `validatePath`
fn check(path: &str) -> io::Result<()> {
    let parts = || path.split('/');
    let is_good = !path.is_empty()
        && path.len() <= 4096
        && !path.starts_with("..")
        && parts().all(|part| !part.is_empty() && !matches!(part, "." | "..") && part.len() <= 255);
    if is_good {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "invalid path: must be relative and without '..': {path}"
    )))
}

/// Top-level names in the volume's folder that are no longer among its files.
fn surplus(old: &Path, payload: &Payload) -> io::Result<BTreeSet<PathBuf>> {
    let wanted: BTreeSet<&str> = payload.keys().filter_map(|path| path.split('/').next()).collect();
    let there = match fs::read_dir(old) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        there => there?,
    };
    let mut surplus = BTreeSet::new();
    for entry in there {
        let name = entry?.file_name();
        if name.to_str().is_none_or(|name| !wanted.contains(name)) {
            surplus.insert(name.into());
        }
    }
    Ok(surplus)
}

/// `shouldWritePayload`
fn holds(old: &Path, payload: &Payload) -> bool {
    payload
        .iter()
        .all(|(path, file)| fs::read(old.join(path)).is_ok_and(|data| data == file.data))
}

/// `..2006_01_02_15_04_05.NNN`: a folder that does not exist yet (`newTimestampDir`).
fn new_folder(folder: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let time = strtime::format("..%Y_%m_%d_%H_%M_%S", now).map_err(io::Error::other)?;
    let mut number = now.subsec_nanosecond().unsigned_abs();
    loop {
        let new = folder.join(format!("{time}.{number}"));
        match fs::create_dir(&new) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
            Ok(()) => {
                fs::set_permissions(&new, Permissions::from_mode(0o755))?;
                return Ok(new);
            }
        }
    }
}

fn publish(
    folder: &Path,
    new: &Path,
    payload: &Payload,
    finish: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    for (path, file) in payload {
        let path = new.join(path);
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o777).create(parent)?;
        }
        let mut options = OpenOptions::new();
        let mut opened = options.write(true).create_new(true).mode(0o600).open(&path)?;
        opened.write_all(&file.data)?;
        fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
        if let Some(owner) = file.owner {
            lchown(&path, Some(owner), None)?;
        }
    }
    finish()?;
    let next = folder.join(NEW_DATA);
    match fs::remove_file(&next) {
        // Left by an agent that was killed.
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    symlink(new.file_name().unwrap_or_default(), &next)?;
    fs::rename(&next, folder.join(DATA))
}

/// `createUserVisibleFiles`
fn link_all(folder: &Path, payload: &Payload) -> io::Result<()> {
    for (path, file) in payload {
        let name = path.split('/').next().unwrap_or_default();
        let link = folder.join(name);
        if fs::symlink_metadata(&link).is_ok() {
            continue;
        }
        symlink(Path::new(DATA).join(name), &link)?;
        if let Some(owner) = file.owner {
            lchown(&link, Some(owner), None)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |text: &str| ProjectedFile {
            data: text.into(),
            mode: 0o640,
            owner: None,
        };
        files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), file(text)))
            .collect()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_change_all_at_once_and_only_when_they_differ() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let first = payload(&[("token", "a"), ("deep/er", "b")]);
        write(folder, &first, now, || Ok(())).unwrap();
        assert_eq!(
            names(folder),
            ["..2026_01_01_00_00_00.0", "..data", "deep", "token"]
        );
        assert_eq!(
            fs::read_link(folder.join("token")).unwrap(),
            Path::new("..data/token")
        );
        assert_eq!(fs::read_to_string(folder.join("deep/er")).unwrap(), "b");
        let mode = fs::metadata(folder.join("token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);

        // The same once more is no change.
        write(folder, &first, now, || panic!("nothing to finish")).unwrap();
        assert_eq!(names(folder)[0], "..2026_01_01_00_00_00.0");

        // An open file keeps what it had; the old folder and what is no more a file go.
        let second = payload(&[("token", "c"), ("ca.crt", "d")]);
        write(folder, &second, now, || Ok(())).unwrap();
        assert_eq!(
            names(folder),
            ["..2026_01_01_00_00_00.1", "..data", "ca.crt", "token"]
        );
        assert_eq!(fs::read_to_string(folder.join("token")).unwrap(), "c");
    }

    #[test]
    fn what_fails_before_the_end_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let now = Timestamp::UNIX_EPOCH;
        write(folder, &payload(&[("a", "1")]), now, || Ok(())).unwrap();
        let before = names(folder);
        let failed = write(folder, &payload(&[("a", "2")]), now, || {
            Err(io::Error::other("no"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no");
        assert_eq!(names(folder), before);
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "1");
        for bad in ["", "/a", "../a", "a/../b", "..a"] {
            write(folder, &payload(&[(bad, "")]), now, || Ok(())).unwrap_err();
        }
        assert_eq!(names(folder), before);
    }
}
