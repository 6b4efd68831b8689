//! Five verbs for your own runtime.
//!
//! If you run something that is not a Linux container (WebAssembly, microVMs, batch jobs, processes), implement five
//! methods: [list](ContainerRuntime::list), [inspect](ContainerRuntime::inspect), [start](ContainerRuntime::start),
//! [stop](ContainerRuntime::stop) and [remove](ContainerRuntime::remove). Their signatures have no gRPC, no sandbox and
//! no image. [`CriAdapter`] adds all that: it makes of the five verbs a full [`RuntimeService`](crate::RuntimeService)
//! and [`ImageService`](crate::ImageService). Init containers, restart policy, back-off and hooks then come from the
//! runtime manager in the crate `kubelet-kuberuntime`, or from any kubelet through the feature `server`.
//!
//! Everything else that a runtime can do is a *capability*: [`Exec`], [`Attach`], [`PortForward`], [`Logs`], [`Stats`],
//! [`Images`], [`Events`]. Each has a method that returns `None` by default. A call that needs a missing capability
//! fails with [`Code::Unimplemented`](crate::Code::Unimplemented) and a message that names the capability.
//!
//! If a pod is more to your runtime than its containers (a virtual machine, a network), there is the capability [`Pods`]: the
//! adapter begins the pod before its first container, and ends it after the last one. Without it, a pod is only a record.
//!
//! `kubectl exec`, `attach` and `port-forward` also need a streaming server, which serves the capabilities at URLs
//! ([`CriAdapterBuilder::streaming`]).
//!
//! # A runtime in thirty lines
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//!
//! use kubelet_core::Clock;
//! use kubelet_cri::CriAdapter;
//! use kubelet_cri::verbs::{Container, ContainerKey, ContainerRuntime, ContainerSpec, Result};
//!
//! /// Runs nothing, and keeps a list of what it was asked to run.
//! #[derive(Default)]
//! struct Pretend {
//!     containers: Mutex<BTreeMap<ContainerKey, Container>>,
//!     clock: Clock,
//! }
//!
//! #[async_trait::async_trait]
//! impl ContainerRuntime for Pretend {
//!     fn name(&self) -> &str {
//!         "pretend"
//!     }
//!     async fn list(&self) -> Result<Vec<Container>> {
//!         Ok(self.containers.lock().unwrap().values().cloned().collect())
//!     }
//!     async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
//!         let mut containers = self.containers.lock().unwrap();
//!         let fresh = || Container::running(spec.key.clone(), self.clock.now());
//!         Ok(containers.entry(spec.key.clone()).or_insert_with(fresh).clone())
//!     }
//!     async fn stop(&self, key: &ContainerKey, _grace: Duration) -> Result<()> {
//!         if let Some(container) = self.containers.lock().unwrap().get_mut(key) {
//!             container.exited(0, self.clock.now());
//!         }
//!         Ok(())
//!     }
//!     async fn remove(&self, key: &ContainerKey) -> Result<()> {
//!         self.containers.lock().unwrap().remove(key);
//!         Ok(())
//!     }
//! }
//!
//! let runtime = CriAdapter::builder(Arc::new(Pretend::default())).build();
//! # fn services<T: kubelet_cri::RuntimeService + kubelet_cri::ImageService>(_: T) {}
//! # services(runtime);
//! ```

mod adapter;
mod capabilities;
mod container;
pub(crate) mod container_log;
mod error;
mod events;
mod pod;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

pub use adapter::{CriAdapter, CriAdapterBuilder};
pub use capabilities::{
    Attach, ByteStream, ClientStreams, Exec, ExecOutput, ImageInfo, Images, Logs, PortForward, RegistryLogin,
    Stats, Usage,
};
pub use container::{
    Container, ContainerKey, ContainerSpec, ContainerState, EnvVar, Exit, Limits, Mount, PodInfo,
};
pub use container_log::{ContainerLog, LogStream};
pub use error::{ErrorClass, Result, RuntimeError};
pub use events::{Ends, Events};
pub use pod::{DnsSettings, Pod, PodKey, PodSpec, Pods};

/// Your own runtime at the level of containers: five verbs, and optional capabilities.
///
/// This is what the kubelet's `pkg/kubelet/kuberuntime` needs from a runtime, without the sandbox.
///
/// # What a caller may rely on
///
/// * A container is identified only by its [`ContainerKey`]. The caller never sees the runtime's own ids.
/// * [`start`](Self::start) is idempotent by key, also across a restart of the agent if containers outlive it.
/// * A container that ended stays in the list, with its exit state, until it is removed.
/// * [`stop`](Self::stop) and [`remove`](Self::remove) succeed for a container that does not exist.
/// * Calls come from many tasks at once. Several may be for one container.
///
/// # Cancel safety
///
/// Each call has a deadline. The adapter enforces it by dropping the call's future, so a call may end at any await.
/// Work that was begun must then be undone, or its result must be in the list.
#[async_trait]
pub trait ContainerRuntime: Send + Sync {
    /// The runtime's name, one word: the first part of container ids, `NAME://…`, and the name in `crictl version`.
    fn name(&self) -> &str;

    /// The runtime's version, for humans.
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// All containers that were started and not removed, including those that ended.
    async fn list(&self) -> Result<Vec<Container>>;

    /// One container; [`ErrorClass::Gone`] if there is none with this key. By default it is looked up in the list.
    async fn inspect(&self, key: &ContainerKey) -> Result<Container> {
        self.list()
            .await?
            .into_iter()
            .find(|container| container.key == *key)
            .ok_or_else(|| RuntimeError::gone(key, "no such container"))
    }

    /// Starts a container and returns once it runs. If one with this key was started before, it is returned in its
    /// present state, running or ended, and not started again.
    async fn start(&self, spec: &ContainerSpec) -> Result<Container>;

    /// Sends the stop signal, kills the container after `grace`, and returns once it has ended. A grace period of zero
    /// kills at once. A second stop with a shorter grace period may come while the first one waits, and its grace
    /// period then applies. Succeeds if the container has already ended or does not exist.
    async fn stop(&self, key: &ContainerKey, grace: Duration) -> Result<()>;

    /// Removes a container that ended and all its files except its log. Succeeds if it does not exist. The adapter
    /// stops a container before it removes it.
    async fn remove(&self, key: &ContainerKey) -> Result<()>;

    /// The folder of the host to which containers write. The adapter reports its size and its file system (CRI
    /// `ImageFsInfo`). Without it, the adapter reports the folder of its own records.
    fn data_dir(&self) -> Option<&Path> {
        None
    }

    /// Begins and ends pods. Without it, a pod is no more than its containers, and has the host's network.
    fn pods(&self) -> Option<&dyn Pods> {
        None
    }

    /// Runs commands in containers: `kubectl exec`, exec probes and hooks.
    fn exec(&self) -> Option<&dyn Exec> {
        None
    }

    /// Attaches to the standard streams of a running container: `kubectl attach`.
    fn attach(&self) -> Option<&dyn Attach> {
        None
    }

    /// Connects to ports of a pod: `kubectl port-forward`.
    fn port_forward(&self) -> Option<&dyn PortForward> {
        None
    }

    /// Reopens log files after a rotation.
    fn logs(&self) -> Option<&dyn Logs> {
        None
    }

    /// Measures the usage of containers.
    fn stats(&self) -> Option<&dyn Stats> {
        None
    }

    /// Manages images. Without it, every image counts as present and is never pulled.
    fn images(&self) -> Option<&dyn Images> {
        None
    }

    /// Reports when a container changed. Without it, a caller finds changes by listing.
    fn events(&self) -> Option<&dyn Events> {
        None
    }
}
