//! The termination message of a container: the content of its termination message path, or the end of its log.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use kubelet_core::Disk;

use crate::config::AnnotatedContainerInfo;
use kubelet_cri::v1;

/// The most bytes of the file (`MaxContainerTerminationMessageLength`).
const MAX_MESSAGE: u64 = 4096;
/// The most bytes of the log (`MaxContainerTerminationMessageLogLength`).
const MAX_LOG_MESSAGE: usize = 2048;
/// The most lines of the log (`MaxContainerTerminationMessageLogLines`).
const MAX_LOG_LINES: usize = 80;
/// How much of the end of the log is read. It has 80 short lines or a few of the longest, in both cases more than
/// [`MAX_LOG_MESSAGE`].
const LOG_TAIL: u64 = 64 * 1024;

/// The termination message of a container that has exited; may be empty (`getTerminationMessage`).
pub(crate) async fn termination_message(
    status: &v1::ContainerStatus,
    annotated: &AnnotatedContainerInfo,
    disk: Disk,
) -> String {
    let path = &annotated.termination_message_path;
    let mount = status
        .mounts
        .iter()
        .find(|mount| !path.is_empty() && mount.container_path == *path);
    // A container that could not be started has no log.
    let log_may_do = annotated.termination_message_policy == "FallbackToLogsOnError"
        && status.exit_code != 0
        && status.reason != "ContainerCannotRun";
    let last_words = LastWords {
        file: mount.map(|mount| mount.host_path.clone()),
        log: log_may_do.then(|| status.log_path.clone()),
    };
    if last_words.file.is_none() && last_words.log.is_none() {
        return String::new();
    }
    let read = disk.run(move || Ok(last_words.read())).await;
    read.unwrap_or_else(|error| format!("Error on reading termination message: {error}"))
}

/// The files that may have the termination message.
struct LastWords {
    /// Its termination message file.
    file: Option<String>,
    /// Its log, if the policy allows it.
    log: Option<String>,
}

impl LastWords {
    fn read(&self) -> String {
        if let Some(path) = &self.file {
            match read_end(path, MAX_MESSAGE) {
                Ok(message) if !message.is_empty() || self.log.is_none() => {
                    return String::from_utf8_lossy(&message).into_owned();
                }
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return format!("Error on reading termination log {path}: {error}");
                }
                Ok(_) | Err(_) => {}
            }
        }
        let Some(path) = &self.log else {
            return String::new();
        };
        match read_end(path, LOG_TAIL) {
            Ok(log) => String::from_utf8_lossy(&last_output(&log)).into_owned(),
            Err(error) => {
                format!(
                    "Error on reading termination message from logs: failed to open log file {path:?}: {error}"
                )
            }
        }
    }
}

fn read_end(path: impl AsRef<Path>, at_most: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(at_most)))?;
    let mut end = Vec::new();
    file.take(at_most).read_to_end(&mut end)?;
    Ok(end)
}

/// The end of the output in the last lines of a CRI log (`<time> <stream> <tags> <output>`), both streams in order.
fn last_output(log: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = log
        .split_inclusive(|byte| *byte == b'\n')
        .rev()
        .take(MAX_LOG_LINES)
        .collect();
    lines.reverse();
    let mut output = Vec::new();
    for line in lines {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let (_time, Some(b"stdout" | b"stderr"), Some(tags), Some(text)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        output.extend_from_slice(text);
        if tags.split(|byte| *byte == b':').next() != Some(b"P") {
            output.push(b'\n');
        }
    }
    output.split_off(output.len().saturating_sub(MAX_LOG_MESSAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log() {
        let log = b"r of a line\n\
            2024-01-01T00:00:00.0Z stdout P ab\n\
            2024-01-01T00:00:00.0Z stdout F cd\n\
            2024-01-01T00:00:00.0Z stderr F  oh no\n";
        assert_eq!(last_output(log), b"abcd\n oh no\n");
        let many = b"2024-01-01T00:00:00.0Z stdout F x\n".repeat(100);
        assert_eq!(last_output(&many), b"x\n".repeat(80));
        let long = [b"2024-01-01T00:00:00.0Z stdout F ".as_slice(), &[b'y'; 5000]].concat();
        assert_eq!(
            last_output(&long),
            [b'y'; 2047].iter().copied().chain(*b"\n").collect::<Vec<u8>>()
        );
    }

    #[tokio::test]
    async fn the_file_first_then_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let (file, log) = (dir.path().join("message"), dir.path().join("0.log"));
        std::fs::write(&log, "t stderr F from the log\n").unwrap();
        let mut status = v1::ContainerStatus {
            exit_code: 1,
            log_path: log.display().to_string(),
            mounts: vec![v1::Mount {
                container_path: "/dev/termination-log".into(),
                host_path: file.display().to_string(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut annotated = AnnotatedContainerInfo {
            termination_message_path: "/dev/termination-log".into(),
            termination_message_policy: "FallbackToLogsOnError".into(),
            ..Default::default()
        };
        assert_eq!(
            termination_message(&status, &annotated, Disk::default()).await,
            "from the log\n"
        );
        std::fs::write(&file, "").unwrap();
        assert_eq!(
            termination_message(&status, &annotated, Disk::default()).await,
            "from the log\n"
        );
        std::fs::write(&file, "b".repeat(5000)).unwrap();
        assert_eq!(
            termination_message(&status, &annotated, Disk::default()).await,
            "b".repeat(4096)
        );
        std::fs::write(&file, "").unwrap();
        status.exit_code = 0;
        assert_eq!(
            termination_message(&status, &annotated, Disk::default()).await,
            ""
        );
        status.exit_code = 1;
        annotated.termination_message_policy = "File".into();
        assert_eq!(
            termination_message(&status, &annotated, Disk::default()).await,
            ""
        );
    }
}
