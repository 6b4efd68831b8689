//! Volume files that are updated atomically (`AtomicWriter`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::fmt::strtime;
use kubelet_core::{LockedVolume, VolumeLeases, files};

use super::remove_all::remove_all;

/// The link to the folder with the current files (`dataDirName`).
const DATA: &str = "..data";
/// The next link, before it is renamed (`newDataDirName`).
const NEW_DATA: &str = "..data_tmp";
/// The longest path, and the longest name in it (`maxPathLength`, `maxFileNameLength`).
const LONGEST: (usize, usize) = (4096, 255);

/// A file of a volume (`FileProjection`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProjectedFile {
    pub(crate) data: Vec<u8>,
    pub(crate) mode: u32,
    /// The owner; by default, the agent's user.
    pub(crate) owner: Option<u32>,
}

/// The files of a volume by path.
pub(crate) type Payload = BTreeMap<String, ProjectedFile>;

/// Whether files were ever published in the folder.
pub(crate) fn is_written(folder: &Path) -> bool {
    fs::symlink_metadata(folder.join(DATA)).is_ok()
}

/// Makes `payload` the content of the volume in `folder`, atomically for readers. Each top-level name is a link into
/// `..data`, which is a link to a timestamped folder that is replaced as a whole (`AtomicWriter.Write`). Nothing is
/// written if nothing changed. `finish` is called on the new files before they become visible.
///
/// The files are visible at once. Those that they replace are kept while a lease holds one of them.
pub(crate) fn write(
    leases: &VolumeLeases,
    folder: &Path,
    payload: &Payload,
    now: Timestamp,
    finish: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let payload = &cleaned(payload)?;
    leases.locked(folder, |volume| write_locked(volume, payload, now, finish))?
}

fn write_locked(
    volume: &LockedVolume<'_>,
    payload: &Payload,
    now: Timestamp,
    finish: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let folder = volume.path();
    let old = match fs::read_link(folder.join(DATA)) {
        Ok(old) => Some(folder.join(old)),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let surplus = old.as_ref().map(|old| surplus(old, payload)).transpose()?;
    let surplus = surplus.unwrap_or_default();
    let is_current = surplus.is_empty() && old.as_ref().is_some_and(|old| holds(old, payload));
    if !is_current {
        let new = new_folder(folder, now)?;
        publish(folder, &new, payload, finish).inspect_err(|_| _ = remove_all(&new))?;
    }
    link_all(folder, payload)?;
    for gone in surplus {
        files::remove(&folder.join(gone))?;
    }
    let removed = remove_old(volume);
    if is_current && let Err(error) = &removed {
        // An agent that was killed has left it. The files are as they should be.
        tracing::warn!(volume = %folder.display(), %error, "Cannot remove files that were replaced");
        return Ok(());
    }
    removed
}

/// The payload with the shortest form of each path (`validatePayload`).
fn cleaned(payload: &Payload) -> io::Result<Payload> {
    let clean = |(path, file): (&String, &ProjectedFile)| {
        validate(path)?;
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
        let path = parts.collect::<Vec<_>>().join("/");
        match path.is_empty() {
            true => Err(invalid(format!("must not be empty: {path:?}"))),
            false => Ok((path, file.clone())),
        }
    };
    payload.iter().map(clean).collect()
}

/// `validatePath`
fn validate(path: &str) -> io::Result<()> {
    if path.is_empty() {
        return Err(invalid(format!("must not be empty: {path:?}")));
    }
    if path.starts_with('/') {
        return Err(invalid(format!("must be relative path: {path}")));
    }
    if path.len() > LONGEST.0 {
        let longest = LONGEST.0;
        return Err(invalid(format!(
            "must be less than or equal to {longest} characters"
        )));
    }
    for part in path.split('/') {
        if part == ".." {
            return Err(invalid(format!("must not contain '..': {path}")));
        }
        if part.len() > LONGEST.1 {
            let longest = LONGEST.1;
            let message = format!("filenames must be less than or equal to {longest} characters");
            return Err(invalid(message));
        }
    }
    // `./..x` is `..x` too.
    let first = path.split('/').find(|part| !matches!(*part, "" | "."));
    if first.is_some_and(|first| first.starts_with("..")) {
        return Err(invalid(format!("must not start with '..': {path}")));
    }
    Ok(())
}

fn invalid(why: String) -> io::Error {
    io::Error::other(format!("invalid path: {why}"))
}

/// The top-level names that are no longer wanted, if anything below the old folder is not (`pathsToRemove`). A path that
/// goes while its top-level name stays counts, so that the files are written again.
fn surplus(old: &Path, payload: &Payload) -> io::Result<BTreeSet<PathBuf>> {
    let mut wanted = BTreeSet::new();
    for path in payload.keys() {
        wanted.extend(Path::new(path).ancestors().map(Path::to_owned));
    }
    let mut surplus = BTreeSet::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(dir) = pending.pop() {
        let entries = match fs::read_dir(old.join(&dir)) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            if !wanted.contains(&path) {
                surplus.insert(path);
            } else if entry.file_type()?.is_dir() {
                pending.push(path);
            }
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
            DirBuilder::new().recursive(true).mode(0o777).create(parent)?;
        }
        let mut options = OpenOptions::new();
        let mut opened = options.write(true).create_new(true).mode(0o600).open(&path)?;
        opened.write_all(&file.data)?;
        opened.set_permissions(Permissions::from_mode(file.mode))?;
        if let Some(owner) = file.owner {
            lchown(&path, Some(owner), None)?;
        }
    }
    finish()?;
    let next = folder.join(NEW_DATA);
    // An agent that was killed may have left it.
    files::remove(&next)?;
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

/// Removes the files that [`write`] has kept, as far as no lease holds them any more. Nothing, if the volume is gone.
pub(crate) fn remove_superseded(leases: &VolumeLeases, folder: &Path) -> io::Result<()> {
    let removed = leases.locked(folder, remove_old);
    match removed.flatten() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes the timestamped folders that are not current: the last one, and those of an agent that was killed. One that a
/// lease holds stays.
fn remove_old(volume: &LockedVolume<'_>) -> io::Result<()> {
    let folder = volume.path();
    let current = fs::read_link(folder.join(DATA))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_timestamped = name.as_encoded_bytes().starts_with(b"..") && entry.file_type()?.is_dir();
        if is_timestamped && name != current.as_os_str() && !volume.is_held(&entry.path()) {
            remove_all(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt as _;
    use kubelet_core::{PodUid, VolumeLease};
    use proptest::prelude::*;

    use super::*;

    /// Without any lease.
    fn write(
        folder: &Path,
        payload: &Payload,
        now: Timestamp,
        finish: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        super::write(&VolumeLeases::default(), folder, payload, now, finish)
    }

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
        let first = payload(&[("token", "a"), ("deep/er", "b"), ("deep//./est", "x")]);
        write(folder, &first, now, || Ok(())).unwrap();
        assert!(is_written(folder));
        assert_eq!(
            names(folder),
            ["..2026_01_01_00_00_00.0", "..data", "deep", "token"]
        );
        let link = fs::read_link(folder.join("token")).unwrap();
        assert_eq!(link, Path::new("..data/token"));
        assert_eq!(fs::read_to_string(folder.join("deep/er")).unwrap(), "b");
        let mode = fs::metadata(folder.join("token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);

        // The same once more is no change.
        write(folder, &first, now, || panic!("nothing to finish")).unwrap();
        assert_eq!(names(folder)[0], "..2026_01_01_00_00_00.0");

        // A file in a folder goes: everything is written again.
        write(folder, &payload(&[("token", "a"), ("deep/er", "b")]), now, || {
            Ok(())
        })
        .unwrap();
        assert_eq!(names(folder)[0], "..2026_01_01_00_00_00.1");
        assert_eq!(names(&folder.join("deep")), ["er"]);

        // The old folder goes, what is no longer a file, and what a killed agent left.
        fs::create_dir(folder.join("..2025_01_01_00_00_00.7")).unwrap();
        symlink("..2025_01_01_00_00_00.7", folder.join(NEW_DATA)).unwrap();
        let second = payload(&[("token", "c"), ("ca.crt", "d")]);
        write(folder, &second, now, || Ok(())).unwrap();
        assert_eq!(
            names(folder),
            ["..2026_01_01_00_00_00.0", "..data", "ca.crt", "token"]
        );
        assert_eq!(fs::read_to_string(folder.join("token")).unwrap(), "c");

        // A link that is missing is made again.
        fs::remove_file(folder.join("token")).unwrap();
        write(folder, &second, now, || panic!("nothing to finish")).unwrap();
        assert_eq!(fs::read_to_string(folder.join("token")).unwrap(), "c");
    }

    #[test]
    fn a_reader_sees_one_version_or_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_owned();
        let at = |number: u32| Timestamp::from_second(number.into()).unwrap();
        let version = |number: u32| payload(&[("a", &number.to_string()), ("b/c", &number.to_string())]);
        write(&folder, &version(0), at(0), || Ok(())).unwrap();
        let reader = std::thread::spawn({
            let folder = folder.clone();
            move || {
                // A reader that opens the folder keeps one version, as long as that exists.
                let (mut same, mut last) = (0, 0);
                while last < 300 {
                    let data = fs::read_link(folder.join(DATA)).unwrap();
                    let read = |name| fs::read_to_string(folder.join(&data).join(name));
                    if let (Ok(a), Ok(b)) = (read("a"), read("b/c")) {
                        assert_eq!(a, b);
                        (same, last) = (same + 1, a.parse().unwrap());
                    }
                    assert!(fs::symlink_metadata(folder.join("a")).is_ok());
                }
                same
            }
        });
        for number in 1..=300 {
            write(&folder, &version(number), at(number), || Ok(())).unwrap();
        }
        assert!(reader.join().unwrap() > 0);
    }

    #[test]
    fn what_fails_before_the_end_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let now = Timestamp::UNIX_EPOCH;
        write(folder, &payload(&[("a", "1")]), now, || Ok(())).unwrap();
        let before = names(folder);
        let refuse = || Err(io::Error::other("no"));
        let failed = write(folder, &payload(&[("a", "2")]), now, refuse);
        assert_eq!(failed.unwrap_err().to_string(), "no");
        write(folder, &payload(&[("a", "2"), ("a/b", "2")]), now, || Ok(())).unwrap_err();
        assert_eq!(names(folder), before);
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "1");
    }

    /// What the simulated agent does.
    #[derive(Clone, Debug)]
    enum Do {
        /// Writes the next version, of these keys.
        Write(usize),
        /// Prepares a container with these keys.
        Prepare(usize),
        /// One of the starts ends.
        End(usize),
        /// What was noted as superseded is removed.
        Remove,
        /// The agent dies, and with it all leases. The next one sets the volume up.
        Die,
    }

    const KEYS: [&[&str]; 3] = [&["a", "b"], &["a", "b", "deep/c"], &["b"]];

    fn any_do() -> impl Strategy<Value = Do> {
        prop_oneof![
            4 => (0..KEYS.len()).prop_map(Do::Write),
            3 => (0..KEYS.len()).prop_map(Do::Prepare),
            2 => any::<usize>().prop_map(Do::End),
            2 => Just(Do::Remove),
            1 => Just(Do::Die),
        ]
    }

    /// A container that starts.
    struct Starting {
        _lease: VolumeLease,
        version: String,
        places: Vec<PathBuf>,
    }

    impl Starting {
        /// Finds its files as the runtime manager does.
        fn prepare(leases: &VolumeLeases, folder: &Path, keys: &[&str]) -> Option<Self> {
            let lease = leases.lease(&PodUid::new("pod"));
            let found = lease.locked(folder, |volume| {
                let places = keys.iter().map(|key| volume.path().join(key).canonicalize());
                let places: Vec<PathBuf> = places.collect::<io::Result<_>>().ok()?;
                places.iter().for_each(|place| lease.hold(place));
                let version = fs::read_to_string(&places[0]).unwrap();
                Some((places, version))
            });
            let (places, version) = found.unwrap()?;
            Some(Self {
                _lease: lease,
                version,
                places,
            })
        }

        /// It still finds all its files, and they are of one version.
        fn check(&self) {
            for place in &self.places {
                assert_eq!(
                    fs::read_to_string(place).unwrap(),
                    self.version,
                    "{}",
                    place.display()
                );
            }
        }
    }

    /// Removes what is freed already, as the engine does.
    fn remove_freed(leases: &VolumeLeases) {
        let freed = leases.freed().now_or_never().unwrap_or_default();
        for volume in freed {
            remove_superseded(leases, &volume).unwrap();
        }
    }

    /// The timestamped folders.
    fn versions(folder: &Path) -> usize {
        let is_version = |name: &String| name.starts_with("..") && name != DATA;
        names(folder).into_iter().filter(is_version).count()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Whatever the order: new files are visible at once, who starts keeps one version of all its files, no more
        /// versions are kept than starts hold, and one is left at the end.
        #[test]
        fn who_starts_keeps_one_version_and_at_the_end_one_is_left(steps in proptest::collection::vec(any_do(), 1..40)) {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path();
            let (mut leases, mut starting) = (VolumeLeases::default(), Vec::<Starting>::new());
            // The clock stands still, so names are used again.
            let now = Timestamp::UNIX_EPOCH;
            let write = |leases: &VolumeLeases, version: usize, keys: usize| {
                let text = version.to_string();
                let files: Vec<(&str, &str)> = KEYS[keys].iter().map(|key| (*key, text.as_str())).collect();
                super::write(leases, folder, &payload(&files), now, || Ok(())).unwrap();
                for key in KEYS[keys] {
                    assert_eq!(fs::read_to_string(folder.join(key)).unwrap(), text);
                }
            };
            let (mut version, mut keys) = (0, 0);
            write(&leases, version, keys);
            for step in steps {
                match step {
                    Do::Write(of) => {
                        (version, keys) = (version + 1, of);
                        write(&leases, version, keys);
                    }
                    Do::Prepare(of) => starting.extend(Starting::prepare(&leases, folder, KEYS[of])),
                    Do::End(which) if !starting.is_empty() => {
                        starting.swap_remove(which % starting.len());
                    }
                    Do::End(_) => {}
                    Do::Remove => {
                        remove_freed(&leases);
                        let held: BTreeSet<&str> = starting.iter().map(|one| one.version.as_str()).collect();
                        prop_assert!(versions(folder) <= held.len() + 1, "{:?}", names(folder));
                    }
                    Do::Die => {
                        starting.clear();
                        leases = VolumeLeases::default();
                        write(&leases, version, keys);
                        prop_assert_eq!(versions(folder), 1);
                    }
                }
                starting.iter().for_each(Starting::check);
            }
            starting.clear();
            remove_freed(&leases);
            prop_assert_eq!(versions(folder), 1);
            prop_assert_eq!(fs::read_to_string(folder.join("b")).unwrap(), version.to_string());
        }
    }

    #[test]
    fn threads_that_start_containers_and_write_do_not_disturb_each_other() {
        let root = tempfile::tempdir().unwrap();
        let (folder, leases) = (root.path(), VolumeLeases::default());
        let stop = AtomicBool::new(false);
        let put = |number: u32| {
            let (text, keys) = (number.to_string(), KEYS[usize::try_from(number).unwrap() % 2]);
            let files: Vec<(&str, &str)> = keys.iter().map(|key| (*key, text.as_str())).collect();
            let now = Timestamp::from_second(number.into()).unwrap();
            super::write(&leases, folder, &payload(&files), now, || Ok(())).unwrap();
        };
        put(0);
        std::thread::scope(|scope| {
            let starters: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut versions = BTreeSet::new();
                        while !stop.load(Ordering::Relaxed) {
                            let starting = Starting::prepare(&leases, folder, KEYS[0]).unwrap();
                            (0..20).for_each(|_| starting.check());
                            versions.insert(starting.version);
                        }
                        versions.len()
                    })
                })
                .collect();
            for number in 1..=100 {
                put(number);
                remove_freed(&leases);
            }
            stop.store(true, Ordering::Relaxed);
            assert!(starters.into_iter().all(|starter| starter.join().unwrap() > 0));
        });
        remove_freed(&leases);
        assert_eq!(versions(folder), 1);
    }

    #[test]
    fn a_volume_that_is_gone_has_nothing_to_remove() {
        let root = tempfile::tempdir().unwrap();
        let leases = VolumeLeases::default();
        remove_superseded(&leases, &root.path().join("none")).unwrap();
        fs::create_dir(root.path().join("..2026")).unwrap();
        remove_superseded(&leases, root.path()).unwrap();
        assert_eq!(
            names(root.path()),
            ["..2026"],
            "it is not known which version is current"
        );
    }

    #[test]
    fn hostile_paths_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (long_name, long_path) = ("n".repeat(256), "n/".repeat(2049));
        for (path, why) in [
            ("", "invalid path: must not be empty: \"\""),
            (".", "invalid path: must not be empty: \"\""),
            ("/a", "invalid path: must be relative path: /a"),
            ("../a", "invalid path: must not contain '..': ../a"),
            ("a/../b", "invalid path: must not contain '..': a/../b"),
            ("..a", "invalid path: must not start with '..': ..a"),
            ("./..data", "invalid path: must not start with '..': ./..data"),
            (
                &long_name,
                "invalid path: filenames must be less than or equal to 255 characters",
            ),
            (
                &long_path,
                "invalid path: must be less than or equal to 4096 characters",
            ),
        ] {
            let payload = payload(&[(path, "")]);
            let error = write(folder.path(), &payload, Timestamp::UNIX_EPOCH, || Ok(()));
            assert_eq!(error.unwrap_err().to_string(), why);
        }
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn large_payloads_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Payload::new();
        for number in 0..1_000 {
            files.extend(payload(&[(&format!("file-{number}"), "x")]));
        }
        files.extend(payload(&[("large", &"y".repeat(1 << 20))]));
        write(folder.path(), &files, Timestamp::UNIX_EPOCH, || Ok(())).unwrap();
        assert_eq!(names(folder.path()).len(), 1_000 + 1 + 2);
    }
}
