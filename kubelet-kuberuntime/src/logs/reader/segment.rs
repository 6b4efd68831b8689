//! One file of a log, and how it is read.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::super::files::{COMPRESSED, RotatedFiles, has_suffix, with_suffix};

/// A file of a log that is not opened yet.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    /// Whether it is the current file.
    pub(super) is_current: bool,
    /// Where to begin, in bytes.
    pub(super) start: u64,
    /// How many lines to skip from there.
    pub(super) skip_lines: u64,
    /// The current file in which `start` was found.
    pub(super) id: Option<FileId>,
}

/// Where the bytes of a file come from.
pub(super) enum Source {
    Plain(File),
    Compressed(Box<dyn Read + Send + Sync>),
}

impl Read for Source {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(bytes),
            Self::Compressed(source) => source.read(bytes),
        }
    }
}

/// An open file of a log.
pub(super) struct Open {
    /// `None` during a read.
    pub(super) source: Option<Source>,
    /// Its id, if it had the log's name when it was opened. A rotated file has none: its name identifies it.
    pub(super) id: Option<FileId>,
    /// All rotated files up to this name are older. If the file was rotated when it was opened, this is its own name.
    pub(super) older: RotatedName,
}

/// The name of a rotated file without the suffix of compressed files. Names sort by time.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RotatedName(Vec<u8>);

impl RotatedName {
    pub(super) fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(OsStr::new("")).as_encoded_bytes();
        Self(
            name.strip_suffix(COMPRESSED.as_bytes())
                .unwrap_or(name)
                .to_owned(),
        )
    }
}

/// Identifies a file independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    pub(super) fn of(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(metadata.dev(), metadata.ino())
    }
}

impl Segment {
    pub(super) fn current(log: &Path) -> Self {
        Self {
            path: log.to_owned(),
            is_current: true,
            start: 0,
            skip_lines: 0,
            id: None,
        }
    }

    pub(super) fn rotated(path: PathBuf) -> Self {
        Self {
            path,
            is_current: false,
            start: 0,
            skip_lines: 0,
            id: None,
        }
    }

    pub(super) fn is_compressed(&self) -> bool {
        !self.is_current && has_suffix(&self.path, COMPRESSED)
    }

    pub(super) fn open(&self) -> io::Result<Open> {
        // Listed before the open, so that a later rotation is not among them.
        let older = match self.is_current {
            true => RotatedFiles::of(&self.path)?
                .in_use
                .last()
                .map(|path| RotatedName::of(path)),
            false => Some(RotatedName::of(&self.path)),
        };
        let older = older.unwrap_or_default();
        let (mut file, compressed) = match File::open(&self.path) {
            // It may have been compressed since it was listed.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && !self.is_current && !self.is_compressed() =>
            {
                let file = File::open(with_suffix(&self.path, COMPRESSED)).map_err(|_| error)?;
                (file, true)
            }
            file => (file?, self.is_compressed()),
        };
        if compressed {
            let mut source = BufReader::new(MultiGzDecoder::new(file));
            for _ in 0..self.skip_lines {
                source.skip_until(b'\n')?;
            }
            return Ok(Open {
                source: Some(Source::Compressed(Box::new(source))),
                id: None,
                older,
            });
        }
        let id = match self.is_current {
            true => Some(FileId::of(&file.metadata()?)),
            false => None,
        };
        file.seek(SeekFrom::Start(self.start))?;
        Ok(Open {
            source: Some(Source::Plain(file)),
            id,
            older,
        })
    }
}
