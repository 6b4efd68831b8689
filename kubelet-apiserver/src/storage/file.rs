//! [`FileStorage`]: the entries in one file.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tower::BoxError;

use super::Storage;
use crate::error::{Error, Result};

const ENTRIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("entries");
/// How much of the file is in memory. The server has all objects in memory itself.
const CACHE: usize = 256 * 1024;

/// Keeps the entries in one file, with [redb](https://www.redb.org): each write is a transaction that `fsync` made durable, and
/// a file that was open when the machine crashed repairs itself.
///
/// The file is for the user of the process alone, because it has secrets and the key of the server.
#[derive(Debug)]
pub struct FileStorage {
    database: Database,
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
        Ok(Self { database })
    }

    fn open_database(path: &Path) -> std::result::Result<Database, BoxError> {
        if !path.try_exists()? {
            // A file that is not whole would be no database. So it gets its name when it is.
            let mut new = path.as_os_str().to_owned();
            new.push(".new");
            let new = PathBuf::from(new);
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
            drop(Self::open_at(&new)?);
            fs::rename(&new, path)?;
            sync(parent(path))?;
        }
        Self::open_at(path)
    }

    fn open_at(path: &Path) -> std::result::Result<Database, BoxError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
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
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(ENTRIES)?;
        let mut entries = Vec::new();
        for entry in table.iter()? {
            let (name, value) = entry?;
            entries.push((name.value().to_owned(), value.value().to_vec()));
        }
        Ok(entries)
    }

    fn write(&self, entries: &BTreeMap<String, Option<Vec<u8>>>) -> std::result::Result<(), BoxError> {
        // Its durability is immediate unless set.
        let transaction = self.database.begin_write()?;
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
