//! [`CertificateStore`]: certificates on disk, in the kubelet's format.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;

use super::Certificate;
use crate::{Error, Result};

/// Stores certificates with their keys, each pair in one file (client-go's `certificate.FileStore`).
///
/// The folder holds one `<prefix>-<date>.pem` for each certificate so far, and the link `<prefix>-current.pem`
/// to the current one. Files have mode 0600. A new certificate is complete on disk before the link changes, and
/// the link changes in one step. So the link leads to the old or the new certificate at any time, even after a
/// crash.
///
/// The methods block on file operations.
#[derive(Clone, Debug)]
pub struct CertificateStore {
    prefix: String,
    dir: PathBuf,
    files: Option<(PathBuf, PathBuf)>,
}

impl CertificateStore {
    /// The prefix of a kubelet's client certificates.
    pub const CLIENT: &'static str = "kubelet-client";
    /// The prefix of a kubelet's serving certificates.
    pub const SERVER: &'static str = "kubelet-server";

    /// A store in this folder. The folder need not exist yet.
    pub fn new(prefix: impl Into<String>, dir: impl Into<PathBuf>) -> Self {
        CertificateStore {
            prefix: prefix.into(),
            dir: dir.into(),
            files: None,
        }
    }

    /// Other files to read while the store itself has no certificate: `tlsCertFile` and `tlsPrivateKeyFile`, or
    /// those of a kubeconfig.
    #[must_use]
    pub fn or_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.files = Some((certificate.into(), key.into()));
        self
    }

    /// The path of the link to the current certificate.
    pub fn current_path(&self) -> PathBuf {
        self.path("current")
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The current certificate: the one behind the link, else from the [other files](Self::or_files), else from
    /// `<prefix>.crt` and `<prefix>.key`.
    ///
    /// An update that a crash interrupted is completed first. A link to a missing file is ignored.
    ///
    /// # Errors
    ///
    /// [`Error::NoCertificate`] if there is none; [`Error::File`] or [`Error::Certificate`] if it cannot be
    /// read or is invalid.
    pub fn current(&self) -> Result<Certificate> {
        self.recover()?;
        let current = self.current_path();
        if exists(&current)? {
            return read_pair(&current, &current);
        }
        let named = |extension: &str| self.dir.join(format!("{}.{extension}", self.prefix));
        let mut looked_at = vec![match fs::read_link(&current) {
            Ok(target) => format!(
                "{} (a link to {}, which is missing)",
                current.display(),
                target.display()
            ),
            Err(_) => current.display().to_string(),
        }];
        for (certificate, key) in self.files.iter().cloned().chain([(named("crt"), named("key"))]) {
            if exists(&certificate)? && exists(&key)? {
                return read_pair(&certificate, &key);
            }
            looked_at.push(format!("{} with {}", certificate.display(), key.display()));
        }
        Err(Error::NoCertificate {
            looked_at: looked_at.join(", "),
        })
    }

    /// Makes a certificate the current one. Its file is named after `now`.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`] if the texts are not a certificate with its key, or if a regular file has the
    /// name of the link; [`Error::File`] if it cannot be written.
    pub fn update(&self, chain_pem: &[u8], key_pem: &[u8], now: Timestamp) -> Result<Certificate> {
        let date = now.strftime("%Y-%m-%d-%H-%M-%S").to_string();
        let path = self.path(&date);
        let certificate = Certificate::from_pem(chain_pem, key_pem, Some(&path))?;
        fs::create_dir_all(&self.dir).map_err(doing("make", &self.dir))?;
        let new = self.dir.join(format!("{}-{date}.pem.new", self.prefix));
        write_synced(
            &new,
            &format!("{}{}", certificate.chain_pem(), certificate.key_pem()),
        )
        .map_err(doing("write", &new))?;
        fs::rename(&new, &path).map_err(doing("write", &path))?;
        self.link(&path)?;
        Ok(certificate)
    }

    /// Points the link to a file, in one step.
    fn link(&self, path: &Path) -> Result<()> {
        let (current, updated) = (self.current_path(), self.path("updated"));
        is_link(&current)?;
        if is_link(&updated)? {
            fs::remove_file(&updated).map_err(doing("remove", &updated))?;
        }
        let target = std::path::absolute(path).map_err(doing("find", path))?;
        std::os::unix::fs::symlink(target, &updated).map_err(doing("make", &updated))?;
        fs::rename(&updated, &current).map_err(doing("write", &current))?;
        File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(doing("write", &self.dir))
    }

    /// A kubelet that was killed during an update may leave the new link next to the old one.
    fn recover(&self) -> Result<()> {
        let (current, updated) = (self.current_path(), self.path("updated"));
        if !exists(&current)? && is_link(&updated)? {
            fs::rename(&updated, &current).map_err(doing("write", &current))?;
        }
        Ok(())
    }

    fn path(&self, what: &str) -> PathBuf {
        self.dir.join(format!("{}-{what}.pem", self.prefix))
    }
}

/// Reads a certificate from one file and its key from another. Both may be the same file.
///
/// # Errors
///
/// [`Error::File`], [`Error::Certificate`].
pub(crate) fn read_pair(certificate: &Path, key: &Path) -> Result<Certificate> {
    let read = |path: &Path| fs::read(path).map_err(doing("read", path));
    let chain = read(certificate)?;
    let key_pem = if key == certificate {
        chain.clone()
    } else {
        read(key)?
    };
    Certificate::from_pem(&chain, &key_pem, Some(certificate))
}

/// Writes and syncs a file that only its owner may read. Replaces an existing one.
pub(crate) fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Makes errors that name the operation and the file.
pub(crate) fn doing(what: &'static str, file: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File {
        what,
        file: file.to_owned(),
        source,
    }
}

/// Whether the path exists; links are followed.
pub(crate) fn exists(path: &Path) -> Result<bool> {
    path.try_exists().map_err(doing("read", path))
}

/// Whether the path is a link; an error if it is anything else.
fn is_link(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(doing("read", path)(error)),
        Ok(metadata) if metadata.is_symlink() => Ok(true),
        Ok(_) => Err(Error::Certificate {
            file: path.to_owned(),
            problem: "it is a regular file, but should be a link".into(),
        }),
    }
}
