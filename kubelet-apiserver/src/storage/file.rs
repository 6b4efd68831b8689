//! [`FileStorage`]: the entries in one file.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use kubelet_core::files;
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tower::BoxError;

use super::Storage;
use crate::error::{Error, Result};

const ENTRIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("entries");
/// How much of the file is in memory. The server has all objects in memory itself.
const CACHE: usize = 256 * 1024;

/// Keeps the entries in one file, with [redb](https://www.redb.org): each write is a transaction that `fsync` made durable, and
/// a file that was open when the machine crashed repairs itself. After an I/O error, such as a full disk, the next write opens the
/// file again.
///
/// The file is for the user of the process alone, because it has secrets and the key of the server.
#[derive(Debug)]
pub struct FileStorage {
    path: PathBuf,
    file: Mutex<File>,
}

/// Whether the file is open.
#[derive(Debug)]
enum File {
    Open(Database),
    /// After an error: redb refuses all work after an I/O error, until the file is opened again.
    Failed,
    /// For good.
    Closed,
}

impl FileStorage {
    /// Opens a file, or creates it. It may block.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`]: another process has the file open, it is no file of this kind, or an I/O error.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |source: BoxError| Error::Storage {
            what: path.display().to_string(),
            source,
        };
        let database = Self::open_database(path).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(File::Open(database)),
        })
    }

    /// Closes the file, so that it can be opened again, by this process or another one. It waits for a write in progress, and
    /// may block. Reads and writes fail from then on.
    ///
    /// Clones of an [`ApiServer`](crate::ApiServer) and its clients share the storage. If you cannot know when the last of them is
    /// dropped, call this when [`ApiServer::run`](crate::ApiServer::run) has returned.
    pub fn close(&self) {
        *self.file.lock() = File::Closed;
    }

    /// Works with the database. If the work fails, the next work opens the file again.
    fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> std::result::Result<T, BoxError>,
    ) -> std::result::Result<T, BoxError> {
        let mut file = self.file.lock();
        let database = match std::mem::replace(&mut *file, File::Failed) {
            File::Open(database) => database,
            // It is not created: a new file would have none of the objects.
            File::Failed => Self::open_at(&self.path, false)?,
            File::Closed => {
                *file = File::Closed;
                return Err(format!("{} is closed", self.path.display()).into());
            }
        };
        let done = work(&database)?;
        *file = File::Open(database);
        Ok(done)
    }

    fn open_database(path: &Path) -> std::result::Result<Database, BoxError> {
        if !path.try_exists()? {
            // A file that is not whole would be no database. So it gets its name when it is.
            let mut new = path.as_os_str().to_owned();
            new.push(".new");
            let new = PathBuf::from(new);
            files::remove(&new)?;
            drop(Self::open_at(&new, true)?);
            fs::rename(&new, path)?;
            sync(parent(path))?;
        }
        Self::open_at(path, false)
    }

    fn open_at(path: &Path, create: bool) -> std::result::Result<Database, BoxError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        let database = Database::builder().set_cache_size(CACHE).create_file(file)?;
        let transaction = database.begin_write()?;
        drop(transaction.open_table(ENTRIES)?);
        transaction.commit()?;
        Ok(database)
    }
}

impl Storage for FileStorage {
    fn load(&self) -> std::result::Result<Vec<(String, Vec<u8>)>, BoxError> {
        self.with(|database| {
            let transaction = database.begin_read()?;
            let table = transaction.open_table(ENTRIES)?;
            let mut entries = Vec::new();
            for entry in table.iter()? {
                let (name, value) = entry?;
                entries.push((name.value().to_owned(), value.value().to_vec()));
            }
            Ok(entries)
        })
    }

    fn write(&self, entries: &BTreeMap<String, Option<Vec<u8>>>) -> std::result::Result<(), BoxError> {
        self.with(|database| {
            // Its durability is immediate unless set.
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(ENTRIES)?;
                for (name, value) in entries {
                    match value {
                        Some(value) => drop(table.insert(name.as_str(), value.as_slice())?),
                        None => drop(table.remove(name.as_str())?),
                    }
                }
            }
            transaction.commit()?;
            Ok(())
        })
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn sync(folder: PathBuf) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use redb::StorageBackend;
    use redb::backends::InMemoryBackend;

    use super::*;

    /// A disk that can be full.
    #[derive(Debug, Default)]
    struct Disk {
        memory: InMemoryBackend,
        is_full: Arc<AtomicBool>,
    }

    impl Disk {
        fn has_space(&self) -> io::Result<()> {
            match self.is_full.load(Ordering::Relaxed) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.memory.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.memory.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.has_space()?;
            self.memory.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.has_space()?;
            self.memory.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.has_space()?;
            self.memory.write(offset, data)
        }
    }

    #[test]
    fn writes_again_after_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.redb");
        drop(FileStorage::open(&path).unwrap());
        let disk = Disk::default();
        let is_full = disk.is_full.clone();
        let database = Database::builder().create_with_backend(disk).unwrap();
        let storage = FileStorage {
            path,
            file: Mutex::new(File::Open(database)),
        };
        is_full.store(true, Ordering::Relaxed);
        let entries = BTreeMap::from([("pods/default/web".to_owned(), Some(b"{}".to_vec()))]);
        storage.write(&entries).unwrap_err();
        storage.write(&entries).unwrap();
        assert_eq!(
            storage.load().unwrap(),
            [("pods/default/web".to_owned(), b"{}".to_vec())]
        );
    }

    #[test]
    fn a_closed_file_can_be_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.redb");
        let storage = FileStorage::open(&path).unwrap();
        let entries = BTreeMap::from([("pods/default/web".to_owned(), Some(b"{}".to_vec()))]);
        storage.write(&entries).unwrap();
        FileStorage::open(&path).unwrap_err();
        storage.close();
        let next = FileStorage::open(&path).unwrap();
        assert_eq!(next.load().unwrap().len(), 1);
        // The first does not come back.
        drop(next);
        storage.write(&entries).unwrap_err();
        storage.load().unwrap_err();
    }
}
