//! Builds a runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::Clock;
use kubelet_core::runtime::streaming::StreamingServer;
use kubelet_cri::v1;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::addresses::AddressRange;
use super::events::Watchers;
use super::images::Images;
use super::state::{Away, State};
use super::stats::CONTAINERD_IMAGES_DIR;
use super::store::Store;
use super::streams::Streaming;
use super::{Faults, Inner, Latency, MemoryCri};
use crate::Calls;

/// Builds a [`MemoryCri`] with settings other than the defaults.
///
/// ```
/// use kubelet_core::Clock;
/// use kubelet_testing::memory_cri::{Latency, MemoryCri};
///
/// let runtime = MemoryCri::builder(Clock::system())
///     .seed(42)
///     .latency(Latency::none())
///     .pod_cidr([10, 244, 1, 0], 24)
///     .runtime_handler("kata")
///     .build();
/// ```
#[derive(Debug)]
#[must_use]
pub struct MemoryCriBuilder {
    clock: Clock,
    seed: u64,
    latency: Latency,
    name: String,
    version: String,
    pod_cidrs: Vec<(IpAddr, u8)>,
    handlers: BTreeSet<String>,
    user_namespaces: bool,
    cgroup_driver: v1::CgroupDriver,
    log_root: Option<PathBuf>,
    images_dir: PathBuf,
    open_registry: bool,
    streaming: Option<Streaming>,
    record_looks: bool,
    request_timeout: Option<Duration>,
}

impl MemoryCriBuilder {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            seed: 0,
            latency: Latency::containerd(),
            name: "memory".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pod_cidrs: Vec::new(),
            handlers: BTreeSet::from([String::new(), "runc".to_owned()]),
            user_namespaces: true,
            cgroup_driver: v1::CgroupDriver::Cgroupfs,
            log_root: None,
            images_dir: CONTAINERD_IMAGES_DIR.into(),
            open_registry: true,
            streaming: None,
            record_looks: false,
            request_timeout: None,
        }
    }

    /// The seed of ids and of faults with a rate. The default is 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The latencies of calls. The default is [`Latency::containerd`].
    pub fn latency(mut self, latency: Latency) -> Self {
        self.latency = latency;
        self
    }

    /// The runtime name and version in `Version`. The defaults are `memory` and this crate's version. A kubelet puts
    /// the name into its container ids: `memory://…`.
    pub fn name(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.name = name.into();
        self.version = version.into();
        self
    }

    /// A network for the pods, `address/prefix`. The default is 10.88.0.0/16. With a second network of the other
    /// family, pods get two addresses.
    pub fn pod_cidr(mut self, address: impl Into<IpAddr>, prefix: u8) -> Self {
        self.pod_cidrs.push((address.into(), prefix));
        self
    }

    /// Adds a runtime handler besides `runc` and the default one.
    pub fn runtime_handler(mut self, name: impl Into<String>) -> Self {
        self.handlers.insert(name.into());
        self
    }

    /// No handler reports support for user namespaces, as in containerd 1.6 and 1.7.
    pub fn without_user_namespaces(mut self) -> Self {
        self.user_namespaces = false;
        self
    }

    /// The cgroup driver in `RuntimeConfig`. The default is cgroupfs.
    pub fn cgroup_driver(mut self, driver: v1::CgroupDriver) -> Self {
        self.cgroup_driver = driver;
        self
    }

    /// Writes the logs of containers whose log files are below this folder. It writes them when the runtime is next
    /// called after they are due. Without this setting, it writes no logs.
    pub fn write_logs_below(mut self, folder: impl Into<PathBuf>) -> Self {
        self.log_root = Some(folder.into());
        self
    }

    /// The folder in `ImageFsInfo`. The default is containerd's. The runtime writes nothing there. A Go kubelet looks
    /// up the file system of this folder; if the folder does not exist, it neither evicts pods nor removes images. So
    /// name an existing folder if a Go kubelet uses this runtime.
    pub fn images_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.images_dir = folder.into();
        self
    }

    /// Only [published](MemoryCri::publish) images can be pulled. Without this setting, any image can be pulled.
    pub fn closed_registry(mut self) -> Self {
        self.open_registry = false;
        self
    }

    /// The URL in the responses of `Exec`, `Attach` and `PortForward`, `http://host:port`. The test must listen
    /// there. Without this setting, these calls return `Unimplemented`.
    pub fn streaming_url(mut self, base: impl Into<String>) -> Self {
        self.streaming = Some(Streaming::At(base.into()));
        self
    }

    /// The server of the streams of `Exec`, `Attach` and `PortForward`, whose URLs they return. A command has the output
    /// and exit code of [`script_exec`](MemoryCri::script_exec); its input is read and dropped. An attached container has
    /// no output; the client is connected until it ends. A forwarded port returns what it gets.
    pub fn streaming(mut self, server: Arc<dyn StreamingServer>) -> Self {
        self.streaming = Some(Streaming::By(server));
        self
    }

    /// Also records calls that only read, such as lists and statuses ([`Call::only_looks`](super::Call::only_looks)).
    /// An idle agent makes some thousand of them in an hour.
    pub fn record_looks(mut self) -> Self {
        self.record_looks = true;
        self
    }

    /// A call that hangs because of a fault fails with `DeadlineExceeded` after this time, as with the kubelet's
    /// client (`runtimeRequestTimeout`). Without this setting, it hangs until its caller drops it.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = Some(timeout);
        self
    }

    /// Builds the runtime.
    pub fn build(mut self) -> MemoryCri {
        if self.pod_cidrs.is_empty() {
            self.pod_cidrs.push((Ipv4Addr::new(10, 88, 0, 0).into(), 16));
        }
        let faults = Faults::new(self.seed);
        let state = State {
            clock: self.clock,
            seed: self.seed,
            faults: faults.clone(),
            log_root: self.log_root,
            images_dir: self.images_dir,
            sandboxes: Store::default(),
            containers: Store::default(),
            pods: BTreeMap::new(),
            sandbox_names: BTreeMap::new(),
            container_names: BTreeMap::new(),
            scripts: Vec::new(),
            execs: Vec::new(),
            images: Images::new(self.open_registry),
            addresses: self
                .pod_cidrs
                .into_iter()
                .map(|(address, prefix)| AddressRange::new(address, prefix))
                .collect(),
            watchers: Watchers::default(),
            tallies: BTreeMap::new(),
            violations: Vec::new(),
            #[cfg(feature = "simulation")]
            start_check: None,
            away: Away::No,
            runtime_trouble: None,
            network_trouble: None,
            due: BTreeSet::new(),
            ids: 0,
            // The host has some processes of its own.
            pids: 1000,
            last_made: 0,
        };
        let inner = Inner {
            clock: self.clock,
            latency: self.latency,
            name: self.name,
            version: self.version,
            handlers: self.handlers,
            user_namespaces: self.user_namespaces,
            cgroup_driver: self.cgroup_driver,
            streaming: self.streaming,
            record_looks: self.record_looks,
            request_timeout: self.request_timeout,
            calls: Calls::new(),
            faults,
            state: Mutex::new(state),
            changes: watch::Sender::new(()),
            crashes: watch::Sender::new(()),
        };
        MemoryCri {
            inner: Arc::new(inner),
        }
    }
}
