//! Finds the file in which a log continues.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::super::files::{COMPRESSED, RotatedFiles, has_suffix};
use super::segment::{FileId, Open, RotatedName, Segment};

/// The place of a file in a log.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// See [`Open::id`].
    id: Option<FileId>,
    /// See [`Open::older`].
    older: RotatedName,
}

impl Place {
    pub(super) fn of(open: &Open) -> Self {
        Self {
            id: open.id,
            older: open.older.clone(),
        }
    }

    /// Opens the file that was written after this one, which has been rotated: another rotated file, or the current one.
    /// `None`: there is no current file for a moment, because a rotation is under way.
    ///
    /// A rotation at any moment makes it miss no file. A file that was removed is skipped.
    pub(super) fn open_next(mut self, log: &Path) -> io::Result<Option<Open>> {
        loop {
            if let Some(next) = self.newer(log)?.into_iter().next() {
                let segment = Segment::rotated(next);
                match segment.open() {
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        self = Self {
                            id: None,
                            older: RotatedName::of(&segment.path),
                        };
                        continue;
                    }
                    opened => return opened.map(Some),
                }
            }
            let mut opened = match Segment::current(log).open() {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            // The name may have changed hands since the files were listed. Then the file that had it in between comes
            // first, unless that is the opened one.
            let newer = self.newer(log)?;
            if newer.first().is_none_or(|path| is_file(path, opened.id)) {
                opened.older = self.older;
                return Ok(Some(opened));
            }
        }
    }

    /// The rotated files that are newer than this one, oldest first.
    fn newer(&mut self, log: &Path) -> io::Result<Vec<PathBuf>> {
        let mut newer = RotatedFiles::of(log)?.in_use;
        newer.retain(|path| RotatedName::of(path) > self.older);
        if self.id.is_none() {
            return Ok(newer);
        }
        let itself = newer.iter().position(|path| is_file(path, self.id)).or_else(|| {
            // A compressed file has another id. It is then the oldest one, unless it was removed.
            let compressed = |path: &PathBuf| has_suffix(path, COMPRESSED) || !path.exists();
            newer.first().is_some_and(compressed).then_some(0)
        });
        if let Some(itself) = itself {
            *self = Self {
                id: None,
                older: RotatedName::of(&newer[itself]),
            };
            newer.drain(..=itself);
        }
        Ok(newer)
    }
}

fn is_file(path: &Path, id: Option<FileId>) -> bool {
    fs::metadata(path).is_ok_and(|metadata| Some(FileId::of(&metadata)) == id)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::thread;

    use super::super::super::rotation::compress;
    use super::*;

    /// Each file has one number. It is complete before the log is rotated.
    #[test]
    fn rotations_between_two_steps_of_the_reader_lose_and_repeat_nothing() {
        const FILES: usize = 300;
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        fs::write(&log, "0 ").unwrap();
        let rotated = |number: usize| dir.path().join(format!("0.log.{number:08}"));
        let mut open = Segment::current(&log).open().unwrap();
        let read = thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..FILES {
                    if number > 1 && number % 3 == 0 {
                        compress(&rotated(number - 1)).unwrap();
                    }
                    fs::rename(&log, rotated(number)).unwrap();
                    let next = dir.path().join("next");
                    fs::write(&next, format!("{number} ")).unwrap();
                    fs::rename(next, &log).unwrap();
                }
            });
            let mut read = String::new();
            loop {
                open.source.as_mut().unwrap().read_to_string(&mut read).unwrap();
                if read.ends_with(&format!(" {} ", FILES - 1)) {
                    return read;
                }
                let is_rotated = || open.id.is_none() || (log.exists() && !is_file(&log, open.id));
                while !is_rotated() {
                    thread::yield_now();
                }
                open = loop {
                    match Place::of(&open).open_next(&log).unwrap() {
                        Some(next) => break next,
                        None => thread::yield_now(),
                    }
                };
            }
        });
        let written: String = (0..FILES).map(|number| format!("{number} ")).collect();
        assert!(read == written, "read {} of {} bytes", read.len(), written.len());
    }
}
