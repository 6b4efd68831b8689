//! The file that keeps when the last shutdown began and ended.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use kubelet_core::files::{self, Replace};
use serde::{Deserialize, Serialize};

/// `localStorageStateFile`
const NAME: &str = "graceful_node_shutdown_state";
/// How Go writes a time that was never set.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// When the last shutdown began and ended (`state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LastShutdown {
    pub(super) start: Option<Timestamp>,
    pub(super) end: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(default)]
    start_time: String,
    #[serde(default)]
    end_time: String,
}

/// The file (`localStorage`).
#[derive(Clone, Debug)]
pub(super) struct StateFile {
    path: PathBuf,
}

impl StateFile {
    /// In this folder.
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            path: folder.join(NAME),
        }
    }

    /// A file that does not exist means that there was no shutdown.
    pub(super) fn load(&self) -> io::Result<LastShutdown> {
        let Some(json) = files::read(&self.path)? else {
            return Ok(LastShutdown::default());
        };
        let stored: Stored = serde_json::from_slice(&json)?;
        Ok(LastShutdown {
            start: parse(&stored.start_time)?,
            end: parse(&stored.end_time)?,
        })
    }

    /// Replaces the file as a whole.
    pub(super) fn store(&self, last: LastShutdown) -> io::Result<()> {
        let written =
            |time: Option<Timestamp>| time.map_or_else(|| NEVER.to_owned(), |time| time.to_string());
        let stored = Stored {
            start_time: written(last.start),
            end_time: written(last.end),
        };
        let new = self.path.with_file_name(format!(".tmp-{NAME}"));
        Replace::default().write(&self.path, &new, &serde_json::to_vec(&stored)?)
    }
}

fn parse(time: &str) -> io::Result<Option<Timestamp>> {
    match time {
        "" | NEVER => Ok(None),
        time => time
            .parse()
            .map(Some)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_shutdown_is_kept_as_the_kubelet_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path());
        assert_eq!(file.load().unwrap(), LastShutdown::default());
        let time = |second| Some(Timestamp::from_second(second).unwrap());
        for (end, text) in [
            (
                None,
                r#"{"startTime":"1970-01-01T00:00:05Z","endTime":"0001-01-01T00:00:00Z"}"#,
            ),
            (
                time(9),
                r#"{"startTime":"1970-01-01T00:00:05Z","endTime":"1970-01-01T00:00:09Z"}"#,
            ),
        ] {
            let last = LastShutdown { start: time(5), end };
            file.store(last).unwrap();
            let path = folder.path().join("graceful_node_shutdown_state");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(file.load().unwrap(), last);
        }
        fs::write(
            folder.path().join(NAME),
            r#"{"startTime":"2021-06-01T10:00:00.123+02:00"}"#,
        )
        .unwrap();
        assert!(file.load().unwrap().start.is_some());
        fs::write(folder.path().join(NAME), "nonsense").unwrap();
        assert!(file.load().is_err());
    }
}
