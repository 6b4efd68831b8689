//! The file `dra_health_state`: what drivers reported about their devices.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::Disk;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex as AsyncMutex;

use super::checkpoint::as_go_writes;
use super::health::{DEFAULT_HEALTH_TIMEOUT, Health, HealthCache, Known, Now, after};
use crate::checkpoint::StateStore;

/// The name of the file with the health of devices.
pub const DRA_HEALTH_STATE: &str = "dra_health_state";

/// `DriverHealthState`
#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Driver {
    /// By `POOL/DEVICE`. `null` is a map that Go did not make.
    devices: Option<BTreeMap<String, Device>>,
}

/// `DeviceHealth`
#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Device {
    pool_name: String,
    device_name: String,
    health: String,
    last_updated: String,
    /// In nanoseconds. 0 is the default.
    health_check_timeout: i64,
    message: String,
}

/// The contents of the file.
fn write(cache: &HealthCache) -> serde_json::Result<Vec<u8>> {
    let drivers = cache.drivers.iter().map(|(driver, devices)| {
        let devices = devices.iter().map(|((pool, name), known)| {
            let device = Device {
                pool_name: pool.clone(),
                device_name: name.clone(),
                health: known.health.as_str().to_owned(),
                last_updated: known.updated.to_string(),
                health_check_timeout: i64::try_from(known.timeout.as_nanos()).unwrap_or(i64::MAX),
                message: known.message.clone(),
            };
            (format!("{pool}/{name}"), device)
        });
        let devices = Some(devices.collect());
        (driver.as_str(), Driver { devices })
    });
    let drivers: BTreeMap<&str, Driver> = drivers.collect();
    Ok(as_go_writes(serde_json::to_string(&drivers)?).into_bytes())
}

/// What is in the file. Reports go on to age while no agent runs.
fn read(contents: &[u8], now: Now) -> serde_json::Result<HealthCache> {
    let drivers: Option<BTreeMap<String, Driver>> = serde_json::from_slice(contents)?;
    let drivers = drivers
        .unwrap_or_default()
        .into_iter()
        .map(|(driver, of_driver)| {
            let devices = of_driver.devices.unwrap_or_default().into_values();
            let devices = devices.map(|device| {
                let known = known(&device, now);
                ((device.pool_name, device.device_name), known)
            });
            (driver, devices.collect())
        });
    Ok(HealthCache {
        drivers: drivers.collect(),
    })
}

fn known(device: &Device, now: Now) -> Known {
    let timeout = match u64::try_from(device.health_check_timeout).unwrap_or(0) {
        0 => DEFAULT_HEALTH_TIMEOUT,
        nanoseconds => Duration::from_nanos(nanoseconds),
    };
    let updated = device.last_updated.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    // The clock may have been set back meanwhile.
    let age = Duration::try_from(now.wall.duration_since(updated)).unwrap_or_default();
    Known {
        health: Health::of(&device.health),
        message: device.message.clone(),
        timeout,
        updated,
        expires: after(now.instant, timeout.saturating_sub(age)),
    }
}

/// Keeps the file up to date.
pub(super) struct HealthFile {
    store: Arc<dyn StateStore>,
    disk: Disk,
    /// One write at a time, and a write always has the latest reports.
    writing: Arc<AsyncMutex<()>>,
    /// Whether a change of the reports is not in the file yet.
    unwritten: AtomicBool,
}

impl HealthFile {
    pub(super) fn new(store: Arc<dyn StateStore>, disk: Disk) -> Self {
        Self {
            store,
            disk,
            writing: Arc::default(),
            unwritten: AtomicBool::new(false),
        }
    }

    /// What the agent before wrote. A file that cannot be used is logged and ignored, as the kubelet does.
    pub(super) async fn read(&self, now: Now) -> HealthCache {
        let store = Arc::clone(&self.store);
        let contents = self.disk.run(move || store.read(DRA_HEALTH_STATE)).await;
        let cache = contents.and_then(|contents| match contents {
            Some(contents) => Ok(read(&contents, now).map_err(io::Error::other)?),
            None => Ok(HealthCache::default()),
        });
        cache.unwrap_or_else(|error| {
            tracing::error!(%error, "Failed to load health checkpoint, proceeding with empty cache");
            HealthCache::default()
        })
    }

    /// The reports have changed: the next [`write`](Self::write) writes them.
    pub(super) fn changed(&self) {
        self.unwritten.store(true, Ordering::Release);
    }

    /// Writes the reports if they have changed. A failure is logged: after a restart, the health of devices may be unknown for a moment.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, a write that began runs to its end before the next one begins. If none began, the next call writes.
    pub(super) async fn write(&self, cache: &Mutex<HealthCache>) {
        let writing = Arc::clone(&self.writing).lock_owned().await;
        if !self.unwritten.swap(false, Ordering::AcqRel) {
            return;
        }
        let contents = write(&cache.lock()).map_err(io::Error::other);
        let store = Arc::clone(&self.store);
        let work = move || {
            let result = contents.and_then(|contents| store.write(DRA_HEALTH_STATE, &contents));
            drop(writing);
            result
        };
        if let Err(error) = self.disk.run(work).await {
            tracing::error!(%error, "Failed to save health checkpoint after update. Kubelet restart may lose the device health information.");
        }
    }
}
