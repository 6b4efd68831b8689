//! CRI on top of the five verbs.

mod containers;
mod disk_usage;
mod events;
mod image_service;
mod records;
mod request;
mod response;
mod runtime_service;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;
use tokio::sync::{OnceCell, broadcast};

use super::{ContainerRuntime, Result as VerbResult};
use crate::error::{Code, Error};
use disk_usage::Measured;
use events::Change;
use records::{ContainerEntry, Records, SandboxEntry};

type Result<T> = std::result::Result<T, Error>;

/// How many changes a slow reader of `GetContainerEvents` may lag behind before it misses some.
const EVENT_BUFFER: usize = 1024;

/// Makes a CRI runtime of a [`ContainerRuntime`]: implements [`RuntimeService`](crate::RuntimeService) and
/// [`ImageService`](crate::ImageService). Cheap to clone; clones share everything.
///
/// # What it lends
///
/// * **A sandbox is a record.** It is ready from `RunPodSandbox` until `StopPodSandbox`, whatever its containers do. It
///   isolates nothing: all pods share the host's network, and a pod that asks for a network of its own is told the
///   [`pod_ip`](CriAdapterBuilder::pod_ip), `127.0.0.1` if not set. Its namespace options are told back as they were
///   asked for, not as they are, since a kubelet makes a sandbox anew for as long as they differ. Refused are a host port
///   that is not the container's port, a runtime handler other than the runtime's name, user namespaces, sysctls, image
///   volumes, and users by name.
/// * **A container is a record, too**, with config, labels, annotations and log path; the runtime is asked for nothing
///   but its state. `CreateContainer` touches no verb, `StartContainer` calls start.
/// * **A start that failed** leaves the container exited with code 128 and reason `StartError`, as containerd does. A
///   container that the runtime no longer knows is exited with 137 and `ContainerStatusUnknown`.
/// * **Images**: without the capability every name is present, is its own id, and a pull of it is a success that
///   fetches nothing.
/// * **A file system**: `ImageFsInfo` reports the size of the runtime's [`data_dir`](ContainerRuntime::data_dir), or that
///   of the records' folder. It is measured at most every ten seconds.
///
/// Records are kept in memory, and in a folder if [`records_dir`](CriAdapterBuilder::records_dir) says so; a runtime
/// whose containers outlive the agent needs that, or they will not be found again.
///
/// # Deadlines
///
/// Each verb is given [`deadline`](CriAdapterBuilder::deadline); a stop its grace period on top, a command its own
/// timeout, a pull none. When it passes the call is dropped and the answer is [`Error::Timeout`].
///
/// # Cancel safety
///
/// A call that is dropped leaves records that tell the truth: a start cut short shows as what the runtime says of it,
/// or as a failed start if the runtime knows nothing of it. Nothing is spawned but the measurement of a folder, on a
/// blocking thread, which goes on to its end.
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
}

impl CriAdapter {
    /// An adapter of this runtime with everything else as it is by default.
    pub fn new(runtime: Arc<dyn ContainerRuntime>) -> Self {
        Self::builder(runtime).build()
    }

    /// Starts to configure an adapter of this runtime.
    pub fn builder(runtime: Arc<dyn ContainerRuntime>) -> CriAdapterBuilder {
        CriAdapterBuilder {
            runtime,
            records_dir: None,
            deadline: Duration::from_secs(120),
            pod_ip: "127.0.0.1".to_owned(),
            clock: Clock::system(),
        }
    }

    /// The records, read from disk on the first call.
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
            format!("the runtime {name:?} does not offer {capability}"),
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
}

impl CriAdapterBuilder {
    /// Keeps the records of sandboxes and containers in this folder, so that they survive the agent. It is made on the
    /// first call, readable by its owner alone: a record holds the container's environment. One adapter at a time.
    pub fn records_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.records_dir = Some(dir.into());
        self
    }

    /// How long a verb may take; 2 minutes if not set, the kubelet's `runtimeRequestTimeout`.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The IP told for pods that are not on the host's network; `127.0.0.1` if not set.
    pub fn pod_ip(mut self, ip: std::net::IpAddr) -> Self {
        self.pod_ip = ip.to_string();
        self
    }

    /// Where the time of records comes from; the system's clock if not set.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The adapter. Nothing is read, written or asked before its first call.
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
                changes: broadcast::Sender::new(EVENT_BUFFER),
            }),
        }
    }
}

/// Nanoseconds since the epoch, as CRI counts time; ends in the year 2262.
fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}
