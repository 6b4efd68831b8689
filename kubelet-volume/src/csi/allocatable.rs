//! Keeps the number of volumes that a node can have up to date (`csi_node_updater.go`, feature gate
//! `MutableCSINodeAllocatableCount`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::node_info::{CsiNodeInfo, DriverInfo};
use super::objects::CsiObjects;
use super::registry::CsiDrivers;
use crate::{Error, Result};

/// Asks each driver with `nodeAllocatableUpdatePeriodSeconds` regularly how many volumes the node can have.
pub struct AllocatableUpdater {
    drivers: CsiDrivers,
    objects: Arc<dyn CsiObjects>,
    node_info: Arc<dyn CsiNodeInfo>,
}

struct Due {
    period: Duration,
    at: Instant,
    is_asked: bool,
}

impl AllocatableUpdater {
    /// Reports what the drivers in `drivers` answer with `node_info`.
    pub fn new(drivers: CsiDrivers, objects: Arc<dyn CsiObjects>, node_info: Arc<dyn CsiNodeInfo>) -> Self {
        Self {
            drivers,
            objects,
            node_info,
        }
    }

    /// Asks drivers until `shutdown`. A driver that hangs holds up no other.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; calls that are under way end with it.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut registered = self.drivers.changes();
        let mut objects = self.objects.driver_changes();
        let mut due: BTreeMap<String, Due> = BTreeMap::new();
        let mut asked = JoinSet::new();
        let mut must_read = true;
        loop {
            if std::mem::take(&mut must_read) {
                self.read_periods(&mut due).await;
            }
            let now = Instant::now();
            for (name, due) in due.iter_mut().filter(|(_, due)| !due.is_asked && due.at <= now) {
                due.is_asked = true;
                let (name, drivers, node_info) = (name.clone(), self.drivers.clone(), self.node_info.clone());
                asked.spawn(async move {
                    if let Err(error) = update_allocatable(&drivers, &*node_info, &name).await {
                        tracing::error!(driver = %name, %error, "Failed to update CSIDriver");
                    }
                    name
                });
            }
            let next = due.values().filter(|due| !due.is_asked).map(|due| due.at).min();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = asked.join_next() => {
                    if let Some(due) = ended.ok().and_then(|name| due.get_mut(&name)) {
                        due.is_asked = false;
                        // A driver that was slow is not asked for what it has missed.
                        due.at = (due.at + due.period).max(Instant::now());
                    }
                }
                changed = registered.changed() => must_read = changed.is_ok(),
                () = changed_in(&mut objects) => must_read = true,
                () = async {
                    match next {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
        asked.shutdown().await;
    }

    async fn read_periods(&self, due: &mut BTreeMap<String, Due>) {
        let names = self.drivers.names();
        due.retain(|name, _| names.contains(name));
        for name in names {
            let driver = match self.objects.driver(&name).await {
                Ok(driver) => driver,
                Err(error) => {
                    tracing::debug!(driver = %name, %error, "cannot read a CSIDriver");
                    continue;
                }
            };
            let seconds = driver.and_then(|driver| driver.spec.node_allocatable_update_period_seconds);
            let period = seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0);
            let Some(period) = period.map(Duration::from_secs) else {
                due.remove(&name);
                continue;
            };
            if due.get(&name).is_none_or(|due| due.period != period) {
                let at = Instant::now() + period;
                let is_asked = false;
                due.insert(name, Due { period, at, is_asked });
            }
        }
    }
}

async fn changed_in(changes: &mut Option<watch::Receiver<u64>>) {
    match changes {
        Some(receiver) => {
            if receiver.changed().await.is_err() {
                *changes = None;
                std::future::pending().await
            }
        }
        None => std::future::pending().await,
    }
}

/// Asks the driver how many volumes the node can have, and reports it (`updateCSIDriver`).
pub(crate) async fn update_allocatable(
    drivers: &CsiDrivers,
    node_info: &dyn CsiNodeInfo,
    name: &str,
) -> Result<()> {
    let session = drivers.session(name, false);
    let mut session = session.map_err(|error| {
        Error::failed(format!(
            "failed to create CSI client for driver {name:?}: {error}"
        ))
    })?;
    let info = session.info().await;
    let info = info
        .map_err(|error| Error::failed(format!("failed to get NodeGetInfo from driver {name:?}: {error}")))?;
    let updated = node_info.update(name, &DriverInfo::from(info)).await;
    updated.map_err(|error| Error::failed(format!("failed to update driver {name:?}: {error}")))
}
