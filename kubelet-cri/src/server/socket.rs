//! The unix socket of a server.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::error::Error;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// The mode of folders that are created for a socket; the kubelet's.
const DIRECTORY_MODE: u32 = 0o750;

/// A unix socket that listens. Its file is removed when this is dropped, unless another socket has replaced it.
#[derive(Debug)]
pub struct CriSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket's file.
    file: (u64, u64),
}

impl CriSocket {
    /// Listens on `path` with the file mode `mode`: `0o600` for the own user only, `0o660` for the group as well. Every
    /// process that can connect can start containers. Missing folders are created with mode `0750`. The socket never
    /// has wider permissions than `mode`, not even for a moment.
    ///
    /// # Errors
    ///
    /// [`Error::Serve`], for example if another server listens there, or if the path is a file that is not a socket. A
    /// socket that a dead server left behind is replaced. Must be called within a tokio runtime with I/O. Cancel safe.
    pub async fn bind(path: impl AsRef<Path>, mode: u32) -> Result<Self, Error> {
        let path = path.as_ref();
        let failed = |error: io::Error| Error::Serve {
            socket: path.display().to_string(),
            message: error.to_string(),
        };
        make_room(path).await.map_err(failed)?;
        let listener = listen(path, mode).map_err(failed)?;
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        Ok(Self {
            listener,
            path: path.to_path_buf(),
            file: (metadata.dev(), metadata.ino()),
        })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for CriSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.file);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(socket = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Creates the folder, and removes the socket of a dead server.
async fn make_room(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory)?;
    }
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let in_use = |message| Err(io::Error::new(io::ErrorKind::AddrInUse, message));
    if !metadata.file_type().is_socket() {
        return in_use("the path is a file, not a socket");
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full backlog means that a server runs, too.
        Ok(_) => in_use("another server listens there"),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => in_use("another server listens there"),
        Err(error) => Err(error),
    }
}

fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    // The file gets the mode of the unbound socket, less the umask. So it is created without permissions, which are
    // widened afterwards.
    File::from(socket.as_fd().try_clone_to_owned()?).set_permissions(Permissions::from_mode(mode & 0o600))?;
    socket.bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn binds_with_its_mode_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/cri.sock");
        for mode in [0o600, 0o660] {
            let socket = CriSocket::bind(&path, mode).await.unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            drop(socket);
            assert!(!path.exists());
        }
    }

    #[tokio::test]
    async fn a_dead_servers_socket_is_replaced_and_a_living_ones_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cri.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = CriSocket::bind(&path, 0o600).await.unwrap();

        let error = CriSocket::bind(&path, 0o600).await.unwrap_err().to_string();
        assert!(
            error.contains("another server") && error.contains("cri.sock"),
            "{error}"
        );

        // Another file has replaced it, so it must not be removed.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        drop(socket);
        let error = CriSocket::bind(&path, 0o600).await.unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
