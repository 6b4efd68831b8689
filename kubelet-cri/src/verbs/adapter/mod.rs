//! CRI on top of the five verbs.

mod containers;
mod disk_usage;
mod events;
mod image_service;
mod pods;
mod records;
mod request;
mod response;
mod runtime_service;
mod streaming;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;
use kubelet_core::runtime::streaming::StreamingServer;
use tokio::sync::{OnceCell, broadcast};

use super::{ContainerRuntime, Result as VerbResult};
use crate::error::{Code, Error};
use disk_usage::Measured;
use events::Change;
use records::{ContainerEntry, Records, SandboxEntry};

type Result<T> = std::result::Result<T, Error>;

/// Makes a CRI runtime of a [`ContainerRuntime`]: implements [`RuntimeService`](crate::RuntimeService) and
/// [`ImageService`](crate::ImageService). It is cheap to clone; clones share all state.
///
/// # What it adds
///
/// * **A sandbox is a record.** It is ready from `RunPodSandbox` until `StopPodSandbox`, independent of its containers.
///   It isolates nothing: all pods share the host's network. A pod that is not on the host's network gets the IP
///   [`pod_ip`](CriAdapterBuilder::pod_ip), `127.0.0.1` by default. The status of a sandbox repeats the requested
///   namespace options, although they have no effect, because a kubelet replaces a sandbox whose options differ. The
///   adapter refuses a host port that differs from the container's port, a runtime handler other than the runtime's
///   name, user namespaces, sysctls, image volumes, and users by name.
/// * **With the capability [`Pods`](super::Pods), a sandbox is a pod of the runtime.** `RunPodSandbox` begins it and fails if that fails;
///   `StopPodSandbox` ends it. The pod may have its own addresses. Once the runtime does not list it any more, the sandbox is not ready.
/// * **A container is a record, too**, with config, labels, annotations and log path. The runtime provides only its
///   state. `CreateContainer` calls no verb, `StartContainer` calls start.
/// * **After a failed start**, the container is exited with code 128 and reason `StartError`, as in containerd. A
///   container that the runtime does not list any more is exited with code 137 and reason `ContainerStatusUnknown`.
/// * **Images**: without the capability [`Images`](super::Images), every image name counts as present and is its own
///   id. A pull succeeds and does nothing.
/// * **A file system**: `ImageFsInfo` reports the size of the runtime's [`data_dir`](ContainerRuntime::data_dir), or
///   that of the records' folder. The adapter measures it at most every ten seconds.
///
/// * **Streams**: with a [streaming server](CriAdapterBuilder::streaming), `Exec`, `Attach` and `PortForward` return its
///   URLs. The runtime's capability is called when a client has connected.
///
/// Records are kept in memory, and also in a folder if [`records_dir`](CriAdapterBuilder::records_dir) is set. Set it
/// if containers outlive the agent; otherwise the next agent does not find them.
///
/// # Deadlines
///
/// Each verb has the deadline [`deadline`](CriAdapterBuilder::deadline). A stop adds its grace period, a command adds
/// its own timeout, and a pull has no deadline. At the deadline the adapter drops the verb and returns
/// [`Error::Timeout`].
///
/// # Cancel safety
///
/// A dropped call leaves correct records. After a cancelled start, the container has the state that the runtime
/// reports, or counts as a failed start if the runtime does not list it. The adapter spawns only the measurement of a
/// folder, on a blocking thread, which continues to its end.
#[derive(Clone)]
pub struct CriAdapter {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Arc<dyn ContainerRuntime>,
    records: Records,
    loaded: OnceCell<()>,
    deadline: Duration,
    pod_ip: String,
    clock: Clock,
    changes: broadcast::Sender<Change>,
    measured: Measured,
    streaming: Option<Arc<dyn StreamingServer>>,
}

impl CriAdapter {
    /// An adapter of this runtime with the default settings.
    pub fn new(runtime: Arc<dyn ContainerRuntime>) -> Self {
        Self::builder(runtime).build()
    }

    /// Returns a builder of an adapter of this runtime.
    pub fn builder(runtime: Arc<dyn ContainerRuntime>) -> CriAdapterBuilder {
        CriAdapterBuilder {
            runtime,
            records_dir: None,
            deadline: Duration::from_secs(120),
            pod_ip: "127.0.0.1".to_owned(),
            clock: Clock::system(),
            streaming: None,
        }
    }

    /// The records. The first call reads them from disk.
    async fn records(&self, call: &'static str) -> Result<&Records> {
        let inner = &*self.inner;
        inner
            .loaded
            .get_or_try_init(async || {
                inner
                    .records
                    .load()
                    .map_err(|error| Error::internal(call, "", error))
            })
            .await?;
        Ok(&inner.records)
    }

    async fn sandbox(&self, call: &'static str, id: &str) -> Result<Arc<SandboxEntry>> {
        self.records(call)
            .await?
            .sandbox(id)
            .ok_or_else(|| Error::not_found(call, id))
    }

    async fn container(&self, call: &'static str, id: &str) -> Result<Arc<ContainerEntry>> {
        self.records(call)
            .await?
            .container(id)
            .ok_or_else(|| Error::not_found(call, id))
    }

    /// Calls a verb within the deadline and `extra`.
    async fn within<T>(
        &self,
        call: &'static str,
        id: &str,
        extra: Duration,
        verb: impl Future<Output = VerbResult<T>>,
    ) -> Result<T> {
        let after = self.inner.deadline.saturating_add(extra);
        match tokio::time::timeout(after, verb).await {
            Ok(answer) => answer.map_err(|error| error.into_call(call, id)),
            Err(_) => Err(Error::Timeout {
                call,
                id: id.to_owned(),
                after,
            }),
        }
    }

    /// The refusal of a call that needs a capability the runtime does not have.
    fn missing(&self, call: &'static str, id: &str, capability: &str) -> Error {
        let name = self.inner.runtime.name();
        Error::call(
            Code::Unimplemented,
            call,
            id,
            format!("the runtime {name:?} does not support {capability}"),
        )
    }

    fn now(&self) -> i64 {
        nanos(self.inner.clock.now())
    }
}

/// Configures a [`CriAdapter`].
#[must_use]
pub struct CriAdapterBuilder {
    runtime: Arc<dyn ContainerRuntime>,
    records_dir: Option<PathBuf>,
    deadline: Duration,
    pod_ip: String,
    clock: Clock,
    streaming: Option<Arc<dyn StreamingServer>>,
}

impl CriAdapterBuilder {
    /// Keeps the records of sandboxes and containers in this folder, so that they survive a restart of the agent. The
    /// first call creates it, readable only by its owner, because a record has the container's environment. Only one
    /// adapter may use it at a time.
    pub fn records_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.records_dir = Some(dir.into());
        self
    }

    /// How long a verb may take; 2 minutes by default, the kubelet's `runtimeRequestTimeout`.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The reported IP of pods that are not on the host's network and have no [addresses](super::Pod::addresses) of their own;
    /// `127.0.0.1` by default.
    pub fn pod_ip(mut self, ip: std::net::IpAddr) -> Self {
        self.pod_ip = ip.to_string();
        self
    }

    /// The clock of the records; the system's clock by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The server that serves the streams of `Exec`, `Attach` and `PortForward` at URLs. Without it, the adapter refuses
    /// these calls. The runtime needs the capabilities [`Exec`](super::Exec), [`Attach`](super::Attach) and
    /// [`PortForward`](super::PortForward).
    pub fn streaming(mut self, server: Arc<dyn StreamingServer>) -> Self {
        self.streaming = Some(server);
        self
    }

    /// Returns the adapter. It reads, writes and calls nothing before its own first call.
    pub fn build(self) -> CriAdapter {
        CriAdapter {
            inner: Arc::new(Inner {
                runtime: self.runtime,
                records: Records::new(self.records_dir),
                measured: Measured::default(),
                loaded: OnceCell::new(),
                deadline: self.deadline,
                pod_ip: self.pod_ip,
                clock: self.clock,
                streaming: self.streaming,
                changes: broadcast::Sender::new(super::events::BUFFER),
            }),
        }
    }
}

/// Nanoseconds since the epoch, as in CRI. The last representable year is 2262.
fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}
