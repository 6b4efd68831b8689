//! A DRA driver in memory, served on a unix socket or in the process of the agent, with faults.
//!
//! It prepares one device for each claim, unless a test sets others. It keeps what is prepared when its plugin is stopped and served
//! again, as a real driver does, and keeps what callers did wrong ([`MemoryDra::violations`]).

mod faults;
mod in_process;
mod plugin;
mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use kubelet_core::Calls;
use kubelet_resources::dra::health_v1alpha1::{DeviceHealth, NodeWatchResourcesResponse};
use kubelet_resources::dra::v1::{Claim, Device};
use parking_lot::Mutex;
use tokio::sync::watch;

pub use self::faults::{DraFault, DraTrouble};
pub use self::in_process::MemoryDraPlugins;
pub use self::serve::ServedDra;

/// A DRA driver in memory. Clones share its state.
///
/// ```
/// use kubelet_testing::dra_driver::{DraFault, DraMethod, DraTrouble, MemoryDra};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let driver = MemoryDra::new("gpu.example.com");
/// driver.fault(DraFault::on(DraMethod::Prepare).times(1).then(DraTrouble::AnswerLost));
/// let served = driver.serve(&dir.path().join("dra.sock"))?;
/// // Here the code under test calls the driver at the socket.
/// served.stop().await;
/// assert!(driver.violations().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryDra {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    calls: Calls<DraCall>,
    state: Mutex<State>,
    faults: Mutex<Vec<DraFault>>,
    health: watch::Sender<Option<NodeWatchResourcesResponse>>,
}

#[derive(Default)]
struct State {
    /// By UID.
    prepared: BTreeMap<String, Claim>,
    /// The UIDs of claims that a call is about at the moment.
    in_work: BTreeSet<String>,
    /// By name of the claim.
    devices: BTreeMap<String, Vec<Device>>,
    violations: Vec<String>,
    #[cfg(feature = "simulation")]
    unprepare_check: Option<UnprepareCheck>,
}

/// Returns what is wrong with the end of a claim, by its name.
#[cfg(feature = "simulation")]
type UnprepareCheck = Arc<dyn Fn(&str) -> Vec<String> + Send + Sync>;

/// The calls that change claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DraMethod {
    /// `NodePrepareResources`
    Prepare,
    /// `NodeUnprepareResources`
    Unprepare,
}

/// A call to a [`MemoryDra`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DraCall {
    /// Which call.
    pub method: DraMethod,
    /// The names of the claims.
    pub claims: Vec<String>,
}

/// E.g. `Prepare a b`.
impl fmt::Display for DraCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.method, self.claims.join(" "))
    }
}

impl MemoryDra {
    /// A driver with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            inner: Arc::new(Inner {
                name: name.into(),
                calls: Calls::new(),
                state: Mutex::default(),
                faults: Mutex::default(),
                health: watch::Sender::new(None),
            }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// From now on, it prepares these devices for the claim with this name.
    pub fn set_devices(&self, claim: impl Into<String>, devices: Vec<Device>) {
        self.inner.state.lock().devices.insert(claim.into(), devices);
    }

    /// Adds a fault. If several apply to one call, the one that was added first wins.
    pub fn fault(&self, fault: DraFault) {
        self.inner.faults.lock().push(fault);
    }

    /// Removes all faults. Calls that hang stay.
    pub fn clear_faults(&self) {
        self.inner.faults.lock().clear();
    }

    /// The calls to it, in order.
    pub fn calls(&self) -> &Calls<DraCall> {
        &self.inner.calls
    }

    /// The claims that are prepared, by name.
    pub fn prepared(&self) -> Vec<String> {
        let state = self.inner.state.lock();
        let mut names: Vec<String> = state.prepared.values().map(|claim| claim.name.clone()).collect();
        names.sort();
        names
    }

    /// What callers did that they must not: two calls about the same claim at once.
    pub fn violations(&self) -> Vec<String> {
        self.inner.state.lock().violations.clone()
    }

    /// The problems that this check returns for each claim that is unprepared count as violations.
    #[cfg(feature = "simulation")]
    pub(crate) fn check_unprepares(&self, check: impl Fn(&str) -> Vec<String> + Send + Sync + 'static) {
        self.inner.state.lock().unprepare_check = Some(Arc::new(check));
    }

    /// Reports the health of all its devices, to those who watch now or later.
    pub fn report_health(&self, devices: Vec<DeviceHealth>) {
        let report = NodeWatchResourcesResponse { devices };
        self.inner.health.send_replace(Some(report));
    }

    /// Serves on this socket until the returned value is stopped or dropped.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created.
    pub fn serve(&self, socket: &Path) -> std::io::Result<ServedDra> {
        ServedDra::start(self.clone(), socket)
    }

    /// The device for a claim, unless a test set others: pool `pool`, device `dev-NAME`, CDI id `DRIVER/device=NAME`.
    pub fn default_device(&self, claim: &str) -> Device {
        Device {
            request_names: Vec::new(),
            pool_name: "pool".to_owned(),
            device_name: format!("dev-{claim}"),
            cdi_device_ids: vec![format!("{}/device={claim}", self.inner.name)],
            share_id: None,
        }
    }
}
