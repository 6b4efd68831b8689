//! The files of an image: the module, and its names.

use std::io;
use std::path::{Path, PathBuf};

use kubelet_cri::verbs::ImageInfo;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A module has no user. So a pod with `runAsNonRoot` may run it.
const NOBODY: i64 = 65534;

/// What is known of an image.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Record {
    /// The digest of the module.
    pub(crate) id: String,
    pub(crate) names: Vec<String>,
    size: u64,
}

impl Record {
    /// The image of a module, without names.
    pub(crate) fn of(wasm: &[u8]) -> Self {
        Self { id: digest(wasm), names: Vec::new(), size: wasm.len() as u64 }
    }

    pub(crate) fn info(&self) -> ImageInfo {
        let mut info = ImageInfo::named(&self.id);
        info.names.clone_from(&self.names);
        info.size = self.size;
        info.uid = Some(NOBODY);
        info
    }

    /// The file of the module.
    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.wasm", self.hex()))
    }

    fn hex(&self) -> &str {
        self.id.trim_start_matches("sha256:")
    }

    pub(crate) fn write(&self, dir: &Path, wasm: &[u8]) -> io::Result<()> {
        replace(&self.path(dir), wasm)?;
        self.write_names(dir)
    }

    fn write_names(&self, dir: &Path) -> io::Result<()> {
        replace(&dir.join(format!("{}.json", self.hex())), &serde_json::to_vec(self)?)
    }

    /// Another image has this name now.
    pub(crate) fn lose(&mut self, name: &str, dir: &Path) -> io::Result<()> {
        let before = self.names.len();
        self.names.retain(|known| known != name);
        if self.names.len() < before { self.write_names(dir) } else { Ok(()) }
    }

    pub(crate) fn remove(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_file(dir.join(format!("{}.json", self.hex())))?;
        std::fs::remove_file(self.path(dir))
    }
}

/// The images of a folder. One whose files are not complete is pulled again.
pub(crate) fn all(dir: &Path) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        match serde_json::from_slice::<Record>(&std::fs::read(&path)?) {
            Ok(record) if record.path(dir).exists() => records.push(record),
            _ => tracing::warn!(path = %path.display(), "not the record of an image"),
        }
    }
    Ok(records)
}

/// `sha256:` and the digest in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex = |digest: String, byte: u8| digest + &format!("{byte:02x}");
    Sha256::digest(bytes).into_iter().fold("sha256:".to_owned(), hex)
}

/// A reader sees the earlier file or this one, never a part.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("partial");
    std::fs::write(&partial, bytes)?;
    std::fs::rename(partial, path)
}
