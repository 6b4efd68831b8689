//! Five verbs for a runtime of one's own.
//!
//! Whoever runs something that is not a Linux container (WebAssembly, microVMs, batch jobs, processes) has to say five
//! things about it: [list](ContainerRuntime::list), [inspect](ContainerRuntime::inspect),
//! [start](ContainerRuntime::start), [stop](ContainerRuntime::stop) and [remove](ContainerRuntime::remove). There is
//! no gRPC in these signatures, no sandbox and no image; [`CriAdapter`] lends all that and makes of the five verbs a
//! full [`RuntimeService`](crate::RuntimeService) and [`ImageService`](crate::ImageService). Init containers, restart
//! policy, back-off and hooks then come from the runtime manager of this crate, or from any kubelet through
//! the `server` feature.
//!
//! What else a runtime can do is a *capability*: [`Exec`], [`Attach`], [`PortForward`], [`Logs`], [`Stats`],
//! [`Images`], [`Events`]. It is asked for, and `None` unless you say otherwise. A call that needs a missing one is
//! refused with [`Code::Unimplemented`](crate::Code::Unimplemented) and a message that names it; nothing is passed
//! over in silence.
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
//! /// Runs nothing, and remembers it.
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
mod error;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

pub use adapter::{CriAdapter, CriAdapterBuilder};
pub use capabilities::{
    Attach, Attached, ByteStream, Events, Exec, ExecOutput, ImageInfo, Images, Logs, PortForward, Stats,
    Usage,
};
pub use container::{
    Container, ContainerKey, ContainerSpec, ContainerState, EnvVar, Exit, Limits, Mount, PodInfo,
};
pub use error::{ErrorClass, Result, RuntimeError};

/// A runtime of one's own, at the height of containers: five verbs and the capabilities it has.
///
/// Answers to what the kubelet asks of a runtime below `pkg/kubelet/kuberuntime`, with the sandbox left out.
///
/// # What a caller relies on
///
/// * A container is known by its [`ContainerKey`] alone, the id in the runtime's own world is nobody's business.
/// * [`start`](Self::start) is idempotent by key, also over a restart of the agent if containers outlive it.
/// * A container that ended stays in the list, with how it ended, until it is removed.
/// * [`stop`](Self::stop) and [`remove`](Self::remove) of what is not there are successes.
/// * Calls come from many tasks at once, also several for one container.
///
/// # Cancel safety
///
/// Each call has a deadline, which the adapter enforces by dropping the call's future: at any await the call may
/// end there. What it had begun must then be either undone or seen in the list, never hidden.
#[async_trait]
pub trait ContainerRuntime: Send + Sync {
    /// The runtime's name, one word: the first part of its container ids, `NAME://…`, and what `crictl version` says.
    fn name(&self) -> &str;

    /// The runtime's version, for humans.
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// All containers that were started and not removed, those that ended too.
    async fn list(&self) -> Result<Vec<Container>>;

    /// One container; [`ErrorClass::Gone`] if there is none of this key. The default looks it up in the list.
    async fn inspect(&self, key: &ContainerKey) -> Result<Container> {
        self.list()
            .await?
            .into_iter()
            .find(|container| container.key == *key)
            .ok_or_else(|| RuntimeError::gone(key, "no such container"))
    }

    /// Starts a container and returns once it runs. If one of this key was started before, it is returned as it is:
    /// running or ended, it is not started again.
    async fn start(&self, spec: &ContainerSpec) -> Result<Container>;

    /// Asks the container to end, ends it by force after `grace`, and returns once it has ended. A grace of zero is
    /// force at once. A second stop with a shorter grace may come while the first is waiting, and must be heeded.
    /// What ended already, or is not there, is a success.
    async fn stop(&self, key: &ContainerKey, grace: Duration) -> Result<()>;

    /// Forgets a container that ended, and whatever is kept of it but its log. What is not there is a success. The
    /// adapter stops a container before it removes it.
    async fn remove(&self, key: &ContainerKey) -> Result<()>;

    /// The folder of the host in which containers keep what they write. The adapter reports its size, and the file
    /// system that it is on (CRI `ImageFsInfo`). Without it, the adapter reports the folder of its own records.
    fn data_dir(&self) -> Option<&Path> {
        None
    }

    /// Runs commands in containers: `kubectl exec`, exec probes and hooks.
    fn exec(&self) -> Option<&dyn Exec> {
        None
    }

    /// Gives the standard streams of a running container: `kubectl attach`.
    fn attach(&self) -> Option<&dyn Attach> {
        None
    }

    /// Connects to ports of a pod: `kubectl port-forward`.
    fn port_forward(&self) -> Option<&dyn PortForward> {
        None
    }

    /// Can open a log file anew after it was rotated away.
    fn logs(&self) -> Option<&dyn Logs> {
        None
    }

    /// Measures what containers use.
    fn stats(&self) -> Option<&dyn Stats> {
        None
    }

    /// Has images. Without it, every image counts as present and is never pulled.
    fn images(&self) -> Option<&dyn Images> {
        None
    }

    /// Says by itself when a container changed. Without it, changes are found by listing.
    fn events(&self) -> Option<&dyn Events> {
        None
    }
}
