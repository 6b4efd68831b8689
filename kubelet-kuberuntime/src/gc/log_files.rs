//! The paths of the logs of pods and containers, and of the legacy links to them.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use kubelet_core::{PodKey, PodUid, files};

/// The longest name of a file in ext4 (`ext4MaxFileNameLen`).
const MAX_FILE_NAME: usize = 255;

/// The UID in the name of a pod's log folder (`parsePodUIDFromLogsDirectory`).
pub(crate) fn uid_of_logs_dir(name: &str) -> PodUid {
    PodUid::new(name.rsplit('_').next().unwrap_or_default())
}

/// `<name>_<namespace>_<container>-<id>.log` (`legacyLogSymlink`).
pub(crate) fn link_name(id: &str, container: &str, pod: &PodKey) -> String {
    let mut name = format!("{}_{container}-{id}", pod.full_name());
    let at_most = MAX_FILE_NAME - ".log".len();
    if let Some((cut, _)) = name
        .char_indices()
        .find(|(start, c)| start + c.len_utf8() > at_most)
    {
        name.truncate(cut);
    }
    name + ".log"
}

/// The container id in the name of a link; a runtime accepts six characters as an id
/// (`getContainerIDFromLegacyLogSymlink`).
pub(crate) fn id_of_link(name: &str) -> Option<&str> {
    let (_, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    (id.len() >= 6).then_some(id)
}

/// The restart count of a container by its logs: one more than the highest number of a log file in the folder
/// (`calcRestartCountByLogDir`).
pub(crate) fn restart_count_by_logs(dir: &Path) -> Result<u32> {
    let files = match fs::read_dir(dir) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut count = 0;
    for file in files {
        let file = file?;
        let name = file.file_name();
        let number = name.to_str().and_then(|name| {
            let (number, _) = name.split_once(".log")?;
            number
                .starts_with(|c: char| c.is_ascii_digit())
                .then(|| number.parse::<u32>().ok())?
        });
        if let Some(number) = number
            && !file.file_type()?.is_dir()
        {
            count = count.max(number.saturating_add(1));
        }
    }
    Ok(count)
}

/// Removes a log file and its rotated files. Succeeds if there are none.
pub(crate) fn remove_logs(path: &Path) -> Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    let files = match fs::read_dir(dir) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(named(dir, error)),
    };
    for file in files {
        let file = file?;
        if file
            .file_name()
            .to_str()
            .is_some_and(|file| file.starts_with(name))
        {
            remove_file(&file.path())?;
        }
    }
    Ok(())
}

/// Removes a file or link. Succeeds if it does not exist.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    files::remove(path).map_err(|error| named(path, error))
}

fn named(path: &Path, error: Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let pod = PodKey::new("ns", "web");
        let name = link_name("0123456789", "main", &pod);
        assert_eq!(name, "web_ns_main-0123456789.log");
        assert_eq!(id_of_link(&name), Some("0123456789"));
        assert_eq!(id_of_link("web_ns_main-01.log"), None);
        assert_eq!(link_name("0123456789", &"m".repeat(300), &pod).len(), 255);
        assert_eq!(uid_of_logs_dir("ns_web_u-1").as_str(), "u-1");
    }

    #[test]
    fn what_a_folder_of_logs_tells_of_restarts() {
        let cases: [(&[&str], u32); 11] = [
            (&["0.log.rotated-log"], 1),
            (&["0.log"], 1),
            (&["0.log", "1.log", "2.log"], 3),
            (&["0.log.rotated", "1.log", "2.log"], 3),
            (&["5.log.rotated", "6.log.rotated"], 7),
            (&["5.log.rotated", "6.log", "7.log"], 8),
            (&[], 0),
            (&["a.log.rotated", "b.log.rotated", "12log.rotated"], 0),
            (&["145.log.log.rotated"], 146),
            (
                &[
                    "9223372036854775808.log",
                    "23.log",
                    "23a.log",
                    "1a.log.rotated",
                    "+99.log",
                ],
                24,
            ),
            (&["rotated.23.log", "mylog42.log"], 0),
        ];
        for (names, count) in cases {
            let dir = tempfile::tempdir().unwrap();
            for name in names {
                std::fs::write(dir.path().join(name), "").unwrap();
            }
            assert_eq!(restart_count_by_logs(dir.path()).unwrap(), count, "{names:?}");
        }
    }

    #[test]
    fn restarts_are_counted_and_logs_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(restart_count_by_logs(&dir.path().join("none")).unwrap(), 0);
        for name in ["0.log", "2.log", "2.log.20240101-000000.gz", "x.log", "other"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(restart_count_by_logs(dir.path()).unwrap(), 3);
        remove_logs(&dir.path().join("2.log")).unwrap();
        assert_eq!(restart_count_by_logs(dir.path()).unwrap(), 1);
    }
}
