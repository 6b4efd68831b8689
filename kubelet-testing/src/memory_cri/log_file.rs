//! The log file of a container, in CRI's format.

use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;

/// Longer lines are split: containerd's `max_container_log_line_size`.
const MAX_LINE: usize = 16 * 1024;

/// An open log file: `<RFC 3339 time> <stdout|stderr> <F|P> <line>`.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Opens the file to append to it. Creates it and its folder if they do not exist.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        Ok(Self { path, file })
    }

    /// Reopens the file, because the old one was rotated away.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        Ok(())
    }

    pub(super) fn write(&mut self, at: Timestamp, stream: &str, text: &str) {
        let mut lines = Vec::new();
        for line in text.lines() {
            let mut rest = line;
            while rest.len() > MAX_LINE {
                let end = (1..=MAX_LINE)
                    .rfind(|end| rest.is_char_boundary(*end))
                    .unwrap_or(MAX_LINE);
                push(&mut lines, at, stream, 'P', &rest[..end]);
                rest = &rest[end..];
            }
            push(&mut lines, at, stream, 'F', rest);
        }
        // A full disk loses log lines; it does not end the container.
        if let Err(error) = self.file.write_all(&lines) {
            tracing::warn!(path = %self.path.display(), %error, "container log cannot be written");
        }
    }
}

fn push(lines: &mut Vec<u8>, at: Timestamp, stream: &str, tag: char, line: &str) {
    lines.extend_from_slice(format!("{at} {stream} {tag} {line}\n").as_bytes());
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}
