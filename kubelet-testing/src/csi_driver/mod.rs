//! A CSI driver in memory, served on a unix socket or in the process of the agent, with faults.
//!
//! It needs no root: a volume that is published is a folder (or, for a block device, a file) that holds the volume's name,
//! so that a test sees what is mounted. It keeps its volumes when it is stopped and served again, as a real driver does.
//! It checks the order of calls, and keeps what was wrong ([`MemoryCsi::violations`]).

mod calls;
mod faults;
mod mounts;
mod node_service;
mod serve;
mod volumes;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_core::Calls;
use kubelet_volume::csi::v1::node_server::Node;
use kubelet_volume::csi::v1::node_service_capability::rpc::Type as Capability;
use kubelet_volume::csi::v1::{NodeGetInfoResponse, NodeGetVolumeStatsResponse, VolumeUsage, volume_usage};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub use self::calls::{CsiCall, CsiMethod, CsiRequest};
pub use self::faults::{CsiFault, CsiTrouble};
use self::mounts::Mounts;
use self::node_service::Service;
pub use self::serve::ServedCsi;
use self::volumes::Volumes;
use crate::MemoryMounter;

/// The file in a published volume, with the id of the volume as content.
pub const VOLUME_FILE: &str = "csi-volume";

/// A CSI driver in memory. Clones share its state.
///
/// ```
/// # use std::time::Duration;
/// use kubelet_testing::csi_driver::{CsiFault, CsiMethod, CsiTrouble, MemoryCsi};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let driver = MemoryCsi::new("disk.example.com");
/// driver.fault(CsiFault::on(CsiMethod::NodePublishVolume).times(1).then(CsiTrouble::AnswerLost));
/// let served = driver.serve(&dir.path().join("csi.sock"))?;
/// // Here the code under test calls the driver at the socket.
/// served.stop().await;
/// assert!(driver.violations().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryCsi {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    calls: Calls<CsiCall>,
    state: Mutex<State>,
    faults: Mutex<Vec<CsiFault>>,
    mounts: Mounts,
}

struct State {
    capabilities: Vec<Capability>,
    info: NodeGetInfoResponse,
    stats: NodeGetVolumeStatsResponse,
    volumes: Volumes,
}

impl fmt::Debug for MemoryCsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCsi")
            .field("name", &self.inner.name)
            .field("staged", &self.staged())
            .field("published", &self.published())
            .finish_non_exhaustive()
    }
}

impl MemoryCsi {
    /// A driver with this name, which can stage, expand and measure volumes.
    pub fn new(name: impl Into<String>) -> Self {
        Self::build(name.into(), Mounts::None)
    }

    /// The same, but volumes are mounted: folders below `backing`, bound to their targets. Needs root.
    pub fn with_bind_mounts(name: impl Into<String>, backing: impl Into<PathBuf>) -> Self {
        Self::build(name.into(), Mounts::Bound(backing.into()))
    }

    /// The same, but volumes are mounted in this table: staged ones where they are staged, and from there where they are
    /// published.
    pub fn with_memory_mounts(name: impl Into<String>, mounter: MemoryMounter) -> Self {
        Self::build(name.into(), Mounts::InMemory(mounter))
    }

    fn build(name: String, mounts: Mounts) -> Self {
        let info = NodeGetInfoResponse {
            node_id: format!("node-of-{name}"),
            ..Default::default()
        };
        let usage = |unit: volume_usage::Unit| VolumeUsage {
            available: 60,
            total: 100,
            used: 40,
            unit: unit.into(),
        };
        let stats = NodeGetVolumeStatsResponse {
            usage: vec![
                usage(volume_usage::Unit::Bytes),
                usage(volume_usage::Unit::Inodes),
            ],
            volume_condition: None,
        };
        Self {
            inner: Arc::new(Inner {
                name,
                calls: Calls::new(),
                state: Mutex::new(State {
                    capabilities: vec![
                        Capability::StageUnstageVolume,
                        Capability::ExpandVolume,
                        Capability::GetVolumeStats,
                    ],
                    info,
                    stats,
                    volumes: Volumes::default(),
                }),
                faults: Mutex::default(),
                mounts,
            }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// From now on, it reports these capabilities, whether they are true or not.
    pub fn set_capabilities(&self, capabilities: impl IntoIterator<Item = Capability>) {
        self.inner.state.lock().capabilities = capabilities.into_iter().collect();
    }

    /// From now on, it answers `NodeGetInfo` with this.
    pub fn set_info(&self, info: NodeGetInfoResponse) {
        self.inner.state.lock().info = info;
    }

    /// From now on, it answers `NodeGetVolumeStats` with this, however senseless.
    pub fn set_stats(&self, stats: NodeGetVolumeStatsResponse) {
        self.inner.state.lock().stats = stats;
    }

    /// Adds a fault. If several apply to one call, the one that was added first wins.
    pub fn fault(&self, fault: CsiFault) {
        self.inner.faults.lock().push(fault);
    }

    /// Removes all faults. Calls that hang stay.
    pub fn clear_faults(&self) {
        self.inner.faults.lock().clear();
    }

    /// The calls to it, in order.
    pub fn calls(&self) -> &Calls<CsiCall> {
        &self.inner.calls
    }

    /// Where each staged volume is, by volume.
    pub fn staged(&self) -> Vec<(String, PathBuf)> {
        self.inner.state.lock().volumes.staged()
    }

    /// Where each published volume is, by volume and path.
    pub fn published(&self) -> Vec<(String, PathBuf)> {
        self.inner.state.lock().volumes.published()
    }

    /// What callers did that CSI forbids: a volume staged at two paths, published without being staged, or unstaged while
    /// it is published.
    pub fn violations(&self) -> Vec<String> {
        self.inner.state.lock().volumes.violations.clone()
    }

    /// The host loses power: nothing is staged or published any more, the folders of the mounts are empty.
    pub fn lose_all(&self) {
        self.inner.state.lock().volumes.lose_all();
    }

    /// The driver's node service, for
    /// [`CsiDrivers::add_in_process`](kubelet_volume::csi::CsiDrivers::add_in_process): without a socket. A call that
    /// meets a fault by which the driver dies is never answered, and the driver lives on.
    pub fn node_service(&self) -> impl Node + Clone + use<> {
        Service {
            driver: self.clone(),
            dies: CancellationToken::new(),
        }
    }

    /// Serves on this socket until the returned value is stopped or dropped.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created.
    pub fn serve(&self, socket: &Path) -> std::io::Result<ServedCsi> {
        ServedCsi::start(self.clone(), socket)
    }
}
