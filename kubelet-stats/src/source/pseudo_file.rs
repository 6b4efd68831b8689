//! Files that the kernel writes at the moment they are read.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, open, openat};
use rustix::io::Errno;

use crate::{Error, Result};

/// A folder that exists.
pub(super) struct Opened {
    path: PathBuf,
    folder: OwnedFd,
}

impl Opened {
    /// `None` if there is no such folder.
    pub(super) fn new(path: PathBuf) -> Option<Self> {
        let folder = open_folder(&path).ok()?;
        Some(Self { path, folder })
    }

    /// The inode.
    pub(super) fn inode(&self) -> Option<u64> {
        Some(fstat(&self.folder).ok()?.st_ino)
    }
}

/// Reads files of one folder after the other, into one buffer. The folder is looked up once, not for each file.
pub(super) struct Folder {
    path: PathBuf,
    /// The folder, or why it cannot be opened.
    folder: Result<OwnedFd, Errno>,
    buffer: Vec<u8>,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            folder: open_folder(&path),
            path,
            buffer: vec![0; 8192],
        }
    }

    /// Goes on with a folder that is open.
    pub(super) fn enter(&mut self, opened: Opened) {
        self.folder = Ok(opened.folder);
        self.path = opened.path;
    }

    /// Without a folder yet.
    pub(super) fn none() -> Self {
        Self {
            path: PathBuf::new(),
            folder: Err(Errno::NOENT),
            buffer: vec![0; 8192],
        }
    }

    /// The folder itself.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Goes on with another folder. Returns whether it exists.
    pub(super) fn open(&mut self, path: PathBuf) -> bool {
        self.folder = open_folder(&path);
        self.path = path;
        self.folder.is_ok()
    }

    /// The inode of the folder, if it exists.
    pub(super) fn inode(&self) -> Option<u64> {
        Some(fstat(self.folder.as_ref().ok()?).ok()?.st_ino)
    }

    /// The whole text of a file; `None` if there is no such file.
    ///
    /// Each file of the kernel ends with a newline. A text without one is a part of a file, and its last number is wrong.
    pub(super) fn text(&mut self, file: &str) -> Result<Option<&str>> {
        let opened = match &self.folder {
            Ok(folder) => openat(folder, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()),
            Err(error) => Err(*error),
        };
        let read = match opened {
            Ok(opened) => read_into(File::from(opened), &mut self.buffer),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => Err(error.into()),
        };
        let length = read.map_err(|error| Error::read(self.path.join(file), error))?;
        let text = self
            .buffer
            .get(..length)
            .and_then(|bytes| std::str::from_utf8(bytes).ok());
        match text {
            Some(text) if text.is_empty() || text.ends_with('\n') => Ok(Some(text)),
            _ => Err(Error::format(
                self.path.join(file),
                "the file is cut off, or no text",
            )),
        }
    }

    /// The one number of a file. `max` is `u64::MAX`. `None` if there is no such file.
    pub(super) fn number(&mut self, file: &str) -> Result<Option<u64>> {
        let Some(text) = self.text(file)? else {
            return Ok(None);
        };
        match parse(text.trim()) {
            Some(number) => Ok(Some(number)),
            None => {
                let message = format!("{:?} is no number", text.trim());
                Err(Error::format(self.path.join(file), message))
            }
        }
    }

    /// As [`number`](Self::number); a missing file is an error.
    pub(super) fn required_number(&mut self, file: &str) -> Result<u64> {
        match self.number(file)? {
            Some(number) => Ok(number),
            None => Err(missing(self.path.join(file))),
        }
    }

    /// Calls `each` with key and number of each line. `None` if there is no such file.
    pub(super) fn numbers(&mut self, file: &str, mut each: impl FnMut(&str, u64)) -> Result<Option<()>> {
        let Some(text) = self.text(file)? else {
            return Ok(None);
        };
        let mut bad = None;
        for line in text.lines() {
            match line
                .split_once(' ')
                .and_then(|(key, value)| Some((key, parse(value)?)))
            {
                Some((key, value)) => each(key, value),
                None => bad = Some(format!("line {line:?} is no key and number")),
            }
        }
        match bad {
            None => Ok(Some(())),
            Some(message) => Err(Error::format(self.path.join(file), message)),
        }
    }
}

/// A number in the first line of a file. It is shorter than 256 bytes; of a longer file, only its beginning is read.
pub(super) fn first_line(path: &Path, number: impl FnOnce(&str) -> Option<u64>) -> Result<u64> {
    let failed = |error: Errno| Error::read(path, error.into());
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let mut buffer = [0; 256];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut buffer)).map_err(failed)?;
    let text = buffer
        .get(..length)
        .and_then(|bytes| std::str::from_utf8(bytes).ok());
    // A line without its end is a part of a line.
    let line = text.and_then(|text| Some(text.split_once('\n')?.0));
    let missing = || Error::format(path, "there is no number in the first line");
    line.and_then(number).ok_or_else(missing)
}

/// The file does not exist.
pub(super) fn missing(path: PathBuf) -> Error {
    Error::read(path, io::Error::from(io::ErrorKind::NotFound))
}

/// Opens a folder for the names in it.
fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    open(
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Reads a whole file into `buffer`, which grows if necessary. Returns the length.
fn read_into(mut file: File, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut length = 0;
    loop {
        if length == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        }
        let Some(rest) = buffer.get_mut(length..) else {
            return Ok(length);
        };
        let read = match file.read(rest) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        length += read;
        // The kernel fills the buffer as far as the file reaches: no second read has to find the end.
        let at_end = length < buffer.len() && buffer.get(..length).is_some_and(|read| read.ends_with(b"\n"));
        if read == 0 || at_end {
            return Ok(length);
        }
    }
}

/// A number of a cgroup file. Some kernels show negative numbers, by mistake: they count as 0 (`fscommon.ParseUint`).
pub(super) fn parse(text: &str) -> Option<u64> {
    if text == "max" {
        return Some(u64::MAX);
    }
    match text.strip_prefix('-') {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) => Some(0),
        Some(_) => None,
        None => text.parse().ok(),
    }
}
