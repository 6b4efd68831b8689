//! `/etc/projects` and `/etc/projid`: which folders belong to which project, and what the projects are called.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use super::ProjectId;
use crate::filesystem::path_error::path_io_error;

/// The permissions of a file that does not exist yet.
const PERMISSIONS: u32 = 0o644;
/// How often a file that is replaced while we wait for its lock is opened again.
const TRIES: usize = 100;

/// Where the two files are.
#[derive(Clone, Debug)]
pub(super) struct ProjectFiles {
    /// Lines `1048577:/the/folder`.
    pub(super) projects: PathBuf,
    /// Lines `volume1048577:1048577`.
    pub(super) names: PathBuf,
}

impl ProjectFiles {
    /// The project of a folder. It takes no lock: the files are only ever replaced as a whole.
    pub(super) fn find(&self, dir: &Path) -> io::Result<Option<ProjectId>> {
        match fs::read(&self.projects) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(path_io_error("open", &self.projects, &error)),
            Ok(content) => Ok(Lines::parse(&content, of_folder).of(dir.as_os_str().as_bytes())),
        }
    }

    /// Waits until no other program changes the files, and reads them (`openAndLockProjectFiles`). It creates files that do
    /// not exist. The lock ends when the result is dropped.
    ///
    /// # Errors
    ///
    /// If one of them is no plain file, among others.
    pub(super) fn lock(&self) -> io::Result<LockedFiles> {
        let (projects, names) = (locked(&self.projects)?, locked(&self.names)?);
        Ok(LockedFiles {
            projects: Lines::parse(&projects.read()?, of_folder),
            names: Lines::parse(&names.read()?, of_name),
            files: (projects, names),
        })
    }
}

/// The files, which nobody else changes now.
pub(super) struct LockedFiles {
    files: (Locked, Locked),
    projects: Lines,
    names: Lines,
}

impl LockedFiles {
    /// The project of a folder.
    pub(super) fn find(&self, dir: &Path) -> Option<ProjectId> {
        self.projects.of(dir.as_os_str().as_bytes())
    }

    /// All projects that have a folder or a name.
    pub(super) fn ids(&self) -> BTreeSet<ProjectId> {
        let all = self.projects.0.iter().chain(&self.names.0);
        all.filter_map(|line| Some(line.meaning.as_ref()?.0)).collect()
    }

    /// Writes down that the folder belongs to the project (`addDirToProject`).
    pub(super) fn add(mut self, dir: &Path, id: ProjectId) -> io::Result<()> {
        self.projects
            .push([format!("{id}:").as_bytes(), dir.as_os_str().as_bytes()].concat());
        let is_new = !self.names.has(id);
        if is_new {
            self.names.push(format!("volume{id}:{id}").into_bytes());
        }
        self.write(is_new)
    }

    /// Removes the line of the folder, and after the last folder of a project its name (`removeDirFromProject`).
    pub(super) fn remove(mut self, dir: &Path, id: ProjectId) -> io::Result<()> {
        let (dir, before) = (dir.as_os_str().as_bytes(), self.projects.0.len());
        let is_it = |line: &Line| matches!(&line.meaning, Some((of, data)) if *of == id && data == dir);
        self.projects.0.retain(|line| !is_it(line));
        if self.projects.0.len() == before {
            return Ok(());
        }
        let is_last = !self.projects.has(id);
        if is_last {
            self.names.0.retain(|line| line.id() != Some(id));
        }
        self.write(is_last)
    }

    /// Replaces the files, after both were written (`writeProjectFiles`).
    fn write(&self, with_names: bool) -> io::Result<()> {
        let (projects, names) = &self.files;
        let new_projects = projects.write_beside(&self.projects)?;
        if with_names {
            names.write_beside(&self.names)?.replace(&names.path)?;
        }
        new_projects.replace(&projects.path)
    }
}

/// The lines of a file, in their order. What is no entry, a comment for example, stays as it is.
struct Lines(Vec<Line>);

struct Line {
    text: Vec<u8>,
    /// The project, and its folder or name.
    meaning: Option<(ProjectId, Vec<u8>)>,
}

impl Line {
    fn id(&self) -> Option<ProjectId> {
        Some(self.meaning.as_ref()?.0)
    }
}

type Parse = fn(&[u8]) -> Option<(ProjectId, Vec<u8>)>;

impl Lines {
    fn parse(content: &[u8], parse: Parse) -> Self {
        let content = content.strip_suffix(b"\n").unwrap_or(content);
        let lines = content.split(|byte| *byte == b'\n').map(|text| Line {
            text: text.to_vec(),
            meaning: parse(text),
        });
        match content.is_empty() {
            true => Self(Vec::new()),
            false => Self(lines.collect()),
        }
    }

    fn of(&self, data: &[u8]) -> Option<ProjectId> {
        let mut entries = self.0.iter().filter_map(|line| line.meaning.as_ref());
        Some(entries.find(|(_, of)| of == data)?.0)
    }

    fn has(&self, id: ProjectId) -> bool {
        self.0.iter().any(|line| line.id() == Some(id))
    }

    fn push(&mut self, text: Vec<u8>) {
        // It is never looked up again.
        self.0.push(Line { text, meaning: None });
    }
}

/// `1048577:/the/folder`
fn of_folder(line: &[u8]) -> Option<(ProjectId, Vec<u8>)> {
    let at = line.iter().position(|byte| *byte == b':')?;
    Some((number(&line[..at])?, line[at + 1..].to_vec()))
}

/// `volume1048577:1048577`
fn of_name(line: &[u8]) -> Option<(ProjectId, Vec<u8>)> {
    let at = line.iter().position(|byte| *byte == b':')?;
    let is_comment = at == 0 || line[0] == b'#';
    let entry = || Some((number(&line[at + 1..])?, line[..at].to_vec()));
    (!is_comment).then(entry).flatten()
}

fn number(digits: &[u8]) -> Option<ProjectId> {
    let are_digits = digits.iter().all(u8::is_ascii_digit);
    are_digits
        .then(|| std::str::from_utf8(digits).ok()?.parse().ok())
        .flatten()
}

/// A locked file.
struct Locked {
    file: File,
    path: PathBuf,
}

/// Locks the file at the path. Whoever had the lock before may have replaced it: then the new file is locked.
fn locked(path: &Path) -> io::Result<Locked> {
    let failed = |error: io::Error| path_io_error("open", path, &error);
    for _ in 0..TRIES {
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(CWD, path, flags, Mode::from_raw_mode(PERMISSIONS)) {
            Err(Errno::LOOP | Errno::ISDIR) => return Err(not_plain(path)),
            opened => File::from(opened.map_err(|error| failed(error.into()))?),
        };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(not_plain(path));
        }
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        let (locked, now) = (file.metadata().map_err(failed)?, fs::symlink_metadata(path));
        if now.is_ok_and(|now| (now.dev(), now.ino()) == (locked.dev(), locked.ino())) {
            let path = path.to_owned();
            return Ok(Locked { file, path });
        }
    }
    let path = path.display();
    Err(io::Error::other(format!(
        "{path} was replaced during each of {TRIES} attempts to lock it"
    )))
}

fn not_plain(path: &Path) -> io::Error {
    let path = path.display();
    io::Error::other(format!("{path} exists but is not a plain file, cannot continue"))
}

impl Locked {
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        (&self.file).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Writes a file that can replace this one.
    fn write_beside(&self, lines: &Lines) -> io::Result<Written> {
        let mode = self.file.metadata()?.permissions().mode() & 0o777;
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{}", std::process::id()));
        let path = PathBuf::from(path);
        // Left by a program that was killed.
        drop(fs::remove_file(&path));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&path)?;
        let written = Written { path: Some(path) };
        file.set_permissions(Permissions::from_mode(mode))?;
        let content: Vec<u8> = lines
            .0
            .iter()
            .flat_map(|line| [&line.text[..], b"\n"].concat())
            .collect();
        file.write_all(&content)?;
        file.sync_all()?;
        Ok(written)
    }
}

/// A file that is removed unless it replaces another.
struct Written {
    path: Option<PathBuf>,
}

impl Written {
    fn replace(mut self, old: &Path) -> io::Result<()> {
        match self.path.take() {
            Some(path) => fs::rename(&path, old).inspect_err(|_| drop(fs::remove_file(&path))),
            None => Ok(()),
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            drop(fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROJECTS: &str = "# This is a /etc/projects header\n1048578:/quota/d\n";
    const NAMES: &str = "# This is a /etc/projid header\nxxxxxx:1048579\n";

    fn files(root: &Path) -> ProjectFiles {
        ProjectFiles {
            projects: root.join("projects"),
            names: root.join("projid"),
        }
    }

    fn content(files: &ProjectFiles) -> (String, String) {
        let read = |path| fs::read_to_string(path).unwrap();
        (read(&files.projects), read(&files.names))
    }

    #[test]
    fn folders_are_added_and_removed_and_all_else_stays() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        fs::write(&files.projects, PROJECTS).unwrap();
        fs::write(&files.names, NAMES).unwrap();
        fs::set_permissions(&files.names, Permissions::from_mode(0o640)).unwrap();
        let (a, b) = (Path::new("/quota1/a"), Path::new("/quota1/b:c"));
        let found = files.lock().unwrap();
        assert_eq!(found.ids(), BTreeSet::from([1_048_578, 1_048_579]));
        assert_eq!(found.find(Path::new("/quota/d")), Some(1_048_578));
        found.add(a, 1_048_577).unwrap();
        files.lock().unwrap().add(b, 1_048_580).unwrap();
        assert_eq!(files.find(b).unwrap(), Some(1_048_580));
        let expected = (
            format!("{PROJECTS}1048577:/quota1/a\n1048580:/quota1/b:c\n"),
            format!("{NAMES}volume1048577:1048577\nvolume1048580:1048580\n"),
        );
        assert_eq!(content(&files), expected);
        files.lock().unwrap().remove(b, 1_048_577).unwrap();
        assert_eq!(content(&files), expected);
        files.lock().unwrap().remove(a, 1_048_577).unwrap();
        files.lock().unwrap().remove(b, 1_048_580).unwrap();
        assert_eq!(content(&files), (PROJECTS.to_owned(), NAMES.to_owned()));
        assert_eq!(files.find(b).unwrap(), None);
        let mode = fs::metadata(&files.names).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_project_keeps_its_name_until_its_last_folder_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        let (a, b) = (Path::new("/a"), Path::new("/b"));
        files.lock().unwrap().add(a, 7).unwrap();
        files.lock().unwrap().add(b, 7).unwrap();
        let name = "volume7:7\n".to_owned();
        assert_eq!(content(&files), ("7:/a\n7:/b\n".to_owned(), name.clone()));
        files.lock().unwrap().remove(a, 7).unwrap();
        assert_eq!(content(&files), ("7:/b\n".to_owned(), name));
        files.lock().unwrap().remove(b, 7).unwrap();
        assert_eq!(content(&files), (String::new(), String::new()));
    }

    #[test]
    fn only_plain_files_are_replaced() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        assert_eq!(files.find(Path::new("/a")).unwrap(), None);
        let other = root.path().join("other");
        fs::write(&other, PROJECTS).unwrap();
        std::os::unix::fs::symlink(&other, &files.projects).unwrap();
        let error = files.lock().err().unwrap().to_string();
        assert!(
            error.ends_with("projects exists but is not a plain file, cannot continue"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&other).unwrap(), PROJECTS);
        fs::remove_file(&files.projects).unwrap();
        fs::create_dir(&files.names).unwrap();
        let error = files.lock().err().unwrap().to_string();
        assert!(
            error.ends_with("projid exists but is not a plain file, cannot continue"),
            "{error}"
        );
    }

    #[test]
    fn programs_that_change_the_files_at_once_lose_nothing() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let files = &files;
                scope.spawn(move || {
                    for number in 0..25 {
                        let id = 1 + thread * 100 + number;
                        let dir = PathBuf::from(format!("/{id}"));
                        files.lock().unwrap().add(&dir, id).unwrap();
                    }
                });
            }
        });
        assert_eq!(files.lock().unwrap().ids().len(), 100);
    }
}
