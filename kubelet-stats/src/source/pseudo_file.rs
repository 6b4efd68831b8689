//! Files that the kernel writes at the moment they are read.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, fstat, open, openat};
use rustix::io::Errno;

use crate::{Error, Result};

/// A folder that exists.
#[derive(Clone)]
pub(super) struct Opened {
    path: PathBuf,
    folder: Arc<OwnedFd>,
}

impl Opened {
    pub(super) fn new(path: PathBuf, folder: Arc<OwnedFd>) -> Self {
        Self { path, folder }
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
    folder: Result<Arc<OwnedFd>, Errno>,
    buffer: Buffer,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            folder: open_folder(CWD, &path).map(Arc::new),
            path,
            buffer: Buffer::default(),
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
            buffer: Buffer::default(),
        }
    }

    /// The folder itself.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Goes on with another folder. Returns whether it exists.
    pub(super) fn open(&mut self, path: PathBuf) -> bool {
        self.folder = open_folder(CWD, &path).map(Arc::new);
        self.path = path;
        self.folder.is_ok()
    }

    /// The inode of the folder, if it exists.
    pub(super) fn inode(&self) -> Option<u64> {
        Some(fstat(self.folder.as_ref().ok()?).ok()?.st_ino)
    }

    /// The whole text of a file that the kernel writes as one record; `None` if there is no such file.
    ///
    /// Each file of the kernel ends with a newline. A text without one is a part of a file, and its last number is wrong.
    pub(super) fn text(&mut self, file: &str) -> Result<Option<&str>> {
        self.read(file, Records::One)
    }

    /// As [`text`](Self::text), of a file with a record for each process, interface or mount.
    pub(super) fn records(&mut self, file: &str) -> Result<Option<&str>> {
        self.read(file, Records::Many)
    }

    fn read(&mut self, file: &str, records: Records) -> Result<Option<&str>> {
        let opened = match &self.folder {
            Ok(folder) => openat(folder, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()),
            Err(error) => Err(*error),
        };
        let read = match opened {
            Ok(opened) => self.buffer.read(File::from(opened), records),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => Err(error.into()),
        };
        let read = read.map_err(|error| Error::read(self.path.join(file), error))?;
        match std::str::from_utf8(read) {
            Ok(text) if text.is_empty() || text.ends_with('\n') => Ok(Some(text)),
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

/// How the kernel writes a file (`seq_file`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Records {
    /// At once. A read returns all of it, as far as the buffer reaches.
    One,
    /// One after the other, into pages of its own. A read returns the records that fit into them: the end of a record may
    /// be the end of the file or not.
    Many,
}

/// The text of one file at a time.
struct Buffer {
    /// Nearly all files fit into it. It is not on the heap: an allocator may return such a piece to the system and fetch it again,
    /// for each cgroup.
    short: [u8; 4096],
    /// In place of `short`, for a longer file.
    long: Vec<u8>,
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            short: [0; 4096],
            long: Vec::new(),
        }
    }
}

impl Buffer {
    /// Reads a whole file.
    fn read(&mut self, mut file: File, records: Records) -> io::Result<&[u8]> {
        let mut length = 0;
        loop {
            if length == self.bytes().len() {
                self.grow();
            }
            let Some(rest) = self.bytes().get_mut(length..) else {
                return Ok(&[]);
            };
            let read = match file.read(rest) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            length += read;
            // Of one record, no second read has to find the end.
            let is_full = length == self.bytes().len();
            let text = self.bytes().get(..length).unwrap_or_default();
            if read == 0 || (records == Records::One && !is_full && text.ends_with(b"\n")) {
                return Ok(self.bytes().get(..length).unwrap_or_default());
            }
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self.long.is_empty() {
            true => &mut self.short,
            false => &mut self.long,
        }
    }

    fn grow(&mut self) {
        if self.long.is_empty() {
            self.long = self.short.to_vec();
        }
        self.long.resize(self.long.len() * 2, 0);
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

/// Opens a folder for the names in it. A relative path begins in the folder `above`.
pub(super) fn open_folder(above: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    openat(
        above,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
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

#[cfg(test)]
mod tests {
    use std::sync::RwLock;

    use super::*;

    #[test]
    fn a_file_is_longer_than_the_buffer() {
        let folder = tempfile::tempdir().unwrap();
        let long = "12345678\n".repeat(2000);
        for length in [0, 9, 4094, 4095, 4096, 4097, 8191, 8192, 17_000] {
            let text = match length {
                0 => String::new(),
                length => format!("{}\n", &long[..length - 1]),
            };
            std::fs::write(folder.path().join("file"), &text).unwrap();
            let mut files = Folder::new(folder.path().to_owned());
            assert_eq!(files.text("file").unwrap(), Some(&*text));
            assert_eq!(files.records("file").unwrap(), Some(&*text));
            std::fs::write(folder.path().join("file"), "2\n").unwrap();
            assert_eq!(files.number("file").unwrap(), Some(2));
        }
    }

    /// The list of the threads of a cgroup is made as that of its processes.
    fn threads_of_own_cgroup() -> Option<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let mut places = text.lines().flat_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, name) = (parts.next().unwrap(), parts.next().unwrap());
            let name = name.trim_start_matches('/');
            match controllers {
                "" => {
                    [root.to_owned(), root.join("unified")].map(|root| root.join(name).join("cgroup.threads"))
                }
                _ => {
                    let first = controllers.split(',').next().unwrap();
                    [controllers, first].map(|folder| root.join(folder).join(name).join("tasks"))
                }
            }
        });
        places.find(|place| place.exists())
    }

    /// The kernel returns such a file in pieces, each of whole records.
    #[test]
    fn a_file_of_many_records_is_longer_than_a_page() {
        const THREADS: usize = 1000;
        let gate = RwLock::new(());
        let closed = gate.write();
        std::thread::scope(|scope| {
            let closed = closed;
            for _ in 0..THREADS {
                let small = std::thread::Builder::new().stack_size(64 * 1024);
                small.spawn_scoped(scope, || drop(gate.read())).unwrap();
            }
            // Each thread has a stack of its own. Other tests may run meanwhile, but the last place does not change.
            let whole = std::fs::read_to_string("/proc/self/maps").unwrap();
            let mut files = Folder::new("/proc/self".into());
            let maps = files.records("maps").unwrap().unwrap();
            assert!(
                maps.len() > 4096 && maps.lines().last() == whole.lines().last(),
                "{maps}"
            );
            let Some(place) = threads_of_own_cgroup() else {
                println!("SKIPPED: the cgroup of this process is not visible");
                return;
            };
            files.open(place.parent().unwrap().to_owned());
            let file = place.file_name().unwrap().to_str().unwrap();
            let threads = files.records(file).unwrap().unwrap().lines().count();
            assert!(threads > THREADS, "{threads}");
            drop(closed);
        });
    }
}
