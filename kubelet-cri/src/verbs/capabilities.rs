//! The optional capabilities of a runtime, beside the five verbs.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodUid;
pub use kubelet_core::runtime::streaming::{ByteStream, ClientStreams};
use tokio::io::AsyncWriteExt as _;

use super::container::ContainerKey;
use super::error::{Result, RuntimeError};

/// Runs commands in running containers: exec probes and hooks (CRI `ExecSync`), and `kubectl exec` (CRI `Exec`).
#[async_trait]
pub trait Exec: Send + Sync {
    /// Runs a command to its end and returns its output.
    ///
    /// # Cancel safety
    ///
    /// At the timeout, the adapter drops the call: kill the command then.
    async fn exec_sync(&self, key: &ContainerKey, command: &[String]) -> Result<ExecOutput>;

    /// Runs a command with these streams until it ends and all its output was written. Returns its exit code; 128+n if
    /// signal n ended it. With [`terminal`](ClientStreams::terminal), the command gets a terminal.
    ///
    /// [`CriAdapter`](super::CriAdapter) offers it to clients through its
    /// [streaming server](super::CriAdapterBuilder::streaming). By default it calls [`exec_sync`](Self::exec_sync) and writes the
    /// output at the end of the command.
    ///
    /// # Errors
    ///
    /// If the command cannot be started, or its output cannot be written. By default, a command with input or a terminal is
    /// [unsupported](super::ErrorClass::Unsupported).
    ///
    /// # Cancel safety
    ///
    /// The adapter drops the call when the client is gone: kill the command then.
    async fn exec(&self, key: &ContainerKey, command: &[String], streams: ClientStreams) -> Result<i32> {
        if streams.stdin.is_some() || streams.terminal.is_some() {
            return Err(RuntimeError::unsupported(
                key,
                "the runtime does not support commands with input or a terminal",
            ));
        }
        let output = self.exec_sync(key, command).await?;
        for (stream, written) in [(streams.stdout, output.stdout), (streams.stderr, output.stderr)] {
            if let Some(mut stream) = stream {
                let written = stream.write_all(&written).await;
                written.map_err(|error| RuntimeError::transient(key, error.to_string()))?;
            }
        }
        Ok(output.exit_code)
    }
}

/// The result of a command in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Its exit code; 128+n if signal n ended it.
    pub exit_code: i32,
}

/// Attaches clients to the standard streams of a running container (CRI `Attach`).
///
/// [`CriAdapter`](super::CriAdapter) offers it to clients through its
/// [streaming server](super::CriAdapterBuilder::streaming).
#[async_trait]
pub trait Attach: Send + Sync {
    /// Connects these streams with those of the container's main process, from now on. Returns when the container has
    /// ended and its output was written. A slow client must not stop the container.
    ///
    /// # Errors
    ///
    /// If the container does not run, or does not have a requested stream.
    ///
    /// # Cancel safety
    ///
    /// The adapter drops the call when the client is gone. The container runs on.
    async fn attach(&self, key: &ContainerKey, streams: ClientStreams) -> Result<()>;
}

/// Connects to ports of a pod (CRI `PortForward`).
///
/// [`CriAdapter`](super::CriAdapter) offers it to clients through its
/// [streaming server](super::CriAdapterBuilder::streaming).
#[async_trait]
pub trait PortForward: Send + Sync {
    /// A connection to a TCP port of the pod.
    async fn connect(&self, pod: &PodUid, port: u16) -> Result<Box<dyn ByteStream>>;
}

/// Follows the rotation of log files (CRI `ReopenContainerLog`).
#[async_trait]
pub trait Logs: Send + Sync {
    /// Reopens the log file of a running container at its path, and returns once all further output goes there. The
    /// earlier file was renamed by the rotation.
    async fn reopen(&self, key: &ContainerKey) -> Result<()>;
}

/// Measures the usage of containers (CRI `ContainerStats`, `ListContainerStats`).
#[async_trait]
pub trait Stats: Send + Sync {
    /// The present usage of a container.
    async fn usage(&self, key: &ContainerKey) -> Result<Usage>;
}

/// The usage of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// When it was measured.
    pub at: Timestamp,
    /// CPU time since the start of the container.
    pub cpu: Duration,
    /// Working set: memory that cannot be reclaimed, in bytes.
    pub memory_working_set_bytes: u64,
    /// Memory that is no file's, in bytes. `None` if it is not known.
    pub memory_rss_bytes: Option<u64>,
    /// All memory in use, in bytes. `None` if it is not known.
    pub memory_usage_bytes: Option<u64>,
}

/// Manages images (CRI `ImageService`).
#[async_trait]
pub trait Images: Send + Sync {
    /// All images that are present.
    async fn list(&self) -> Result<Vec<ImageInfo>>;

    /// The image with this name or id, if it is present.
    async fn status(&self, image: &str) -> Result<Option<ImageInfo>>;

    /// Pulls an image. There is no deadline; the pull is dropped when the pod is deleted.
    async fn pull(&self, image: &str) -> Result<ImageInfo>;

    /// Pulls an image with credentials: those of a pull secret, of the node's files or of a credential provider. A kubelet
    /// that has several tries them one after the other. By default it calls [`pull`](Self::pull) without them.
    async fn pull_with_login(&self, image: &str, login: &RegistryLogin) -> Result<ImageInfo> {
        let _ = login;
        self.pull(image).await
    }

    /// Deletes an image. Succeeds if the image does not exist.
    async fn remove(&self, image: &str) -> Result<()>;

    /// The folder of the host with the images, if it differs from the folder of the containers. A kubelet removes
    /// unused images when the file system of this folder is full (CRI `ImageFsInfo`).
    fn dir(&self) -> Option<&Path> {
        None
    }
}

/// Credentials for a registry (CRI `AuthConfig`). What is not set is empty. A kubelet sends a user name and a password.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryLogin {
    /// The user name.
    pub username: String,
    /// Its password.
    pub password: String,
    /// Exchanged for an access token.
    pub identity_token: String,
    /// A bearer token for the registry.
    pub registry_token: String,
}

impl RegistryLogin {
    /// A user name and its password.
    pub fn basic(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            username: username.into(),
            password: password.into(),
            ..Self::default()
        }
    }
}

/// Prints which credentials are set, never their values.
impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = |value: &str| if value.is_empty() { "" } else { "[REDACTED]" };
        f.debug_struct("RegistryLogin")
            .field("username", &self.username)
            .field("password", &secret(&self.password))
            .field("identity_token", &secret(&self.identity_token))
            .field("registry_token", &secret(&self.registry_token))
            .finish()
    }
}

/// An image that is present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageInfo {
    /// Its id: `imageID` in the API.
    pub id: String,
    /// Its names, `NAME:TAG`.
    pub names: Vec<String>,
    /// Its size in bytes.
    pub size: u64,
    /// The numeric user of its containers, if the image sets one.
    pub uid: Option<i64>,
    /// Whether it is pinned: a kubelet that frees disk space does not remove it.
    pub pinned: bool,
}

impl ImageInfo {
    /// An image of which only the name is known. The name is its id, too.
    pub fn named(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            id: name.clone(),
            names: vec![name],
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, duplex, empty};

    use super::*;
    use crate::verbs::ErrorClass;

    /// A runtime that implements `exec_sync` alone.
    struct Simple;

    #[async_trait]
    impl Exec for Simple {
        async fn exec_sync(&self, _: &ContainerKey, command: &[String]) -> Result<ExecOutput> {
            Ok(ExecOutput {
                stdout: command.concat().into_bytes(),
                stderr: b"warning".to_vec(),
                exit_code: 3,
            })
        }
    }

    #[test]
    fn credentials_are_not_printed() {
        let mut login = RegistryLogin::basic("joe", "secret-1");
        login.identity_token = "secret-2".to_owned();
        login.registry_token = "secret-3".to_owned();
        let text = format!("{login:?}");
        assert!(text.contains("joe") && !text.contains("secret"), "{text}");
    }

    #[tokio::test]
    async fn a_command_without_input_needs_no_streams_of_the_runtime() {
        let (key, command) = (ContainerKey::new("uid", "main", 0), ["hello".to_owned()]);
        let ((stdout, mut out), (stderr, mut err)) = (duplex(64), duplex(64));
        let mut streams = ClientStreams::default();
        streams.stdout = Some(Box::new(stdout));
        streams.stderr = Some(Box::new(stderr));
        assert_eq!(Simple.exec(&key, &command, streams).await.unwrap(), 3);
        let (mut first, mut second) = (String::new(), String::new());
        out.read_to_string(&mut first).await.unwrap();
        err.read_to_string(&mut second).await.unwrap();
        assert_eq!((&*first, &*second), ("hello", "warning"));

        let mut streams = ClientStreams::default();
        streams.stdin = Some(Box::new(empty()));
        let refused = Simple.exec(&key, &command, streams).await.unwrap_err();
        assert_eq!(refused.class, ErrorClass::Unsupported);
    }
}
