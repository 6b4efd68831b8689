//! Follows what drivers report about the health of their devices, and reports the pods that it concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kubelet_core::{Clock, PodUid, ResourceUpdates};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::{Code, Status};

use super::claims::Claims;
use super::health::{Changes, DeviceName, HealthCache, Now};
use super::health_file::HealthFile;
use super::health_v1alpha1::NodeWatchResourcesResponse;
use super::plugin::DriverPlugin;

/// The wait before a stream that ended is opened again (`DRAPluginManager.add`).
const RETRY_PERIOD: Duration = Duration::from_secs(5);

/// The health of devices, kept up to date.
pub(super) struct HealthWatch {
    pub(super) cache: Mutex<HealthCache>,
    file: HealthFile,
    /// The plugins of each driver that report at the moment.
    streams: Mutex<BTreeMap<String, BTreeSet<u64>>>,
    /// The next report may end at another time.
    reported: Notify,
    claims: Claims,
    updates: Option<ResourceUpdates>,
    clock: Clock,
}

impl HealthWatch {
    /// With what the agent before knew.
    pub(super) async fn start(
        file: HealthFile,
        claims: Claims,
        updates: Option<ResourceUpdates>,
        clock: Clock,
    ) -> Self {
        let cache = file.read(now(clock)).await;
        Self {
            cache: Mutex::new(cache),
            file,
            streams: Mutex::default(),
            reported: Notify::new(),
            claims,
            updates,
            clock,
        }
    }

    /// Follows the reports of one plugin. Never ends; a plugin that has no such service has none until it is connected again.
    ///
    /// # Cancel safety
    ///
    /// May be dropped. Call [`ended`](Self::ended) then.
    pub(super) async fn follow(&self, driver: &str, id: u64, plugin: Arc<dyn DriverPlugin>) {
        loop {
            let status = match plugin.watch_health().await {
                Ok(mut reports) => {
                    self.began(driver, id);
                    let end = loop {
                        match reports.next().await {
                            Some(Ok(report)) => self.report(driver, report).await,
                            Some(Err(status)) => break Some(status),
                            None => break None,
                        }
                    };
                    self.ended(driver, id).await;
                    end
                }
                Err(status) => Some(status),
            };
            let code = status.as_ref().map(Status::code);
            if code == Some(Code::Unimplemented) {
                tracing::debug!(driver, "The DRA plugin does not report the health of its devices");
                pending::<()>().await;
            }
            tracing::debug!(
                driver,
                ?code,
                "The stream of the health of devices ended, will retry"
            );
            sleep(RETRY_PERIOD).await;
        }
    }

    fn began(&self, driver: &str, id: u64) {
        let mut streams = self.streams.lock();
        streams.entry(driver.to_owned()).or_default().insert(id);
    }

    /// The plugin reports no longer. If no other plugin of its driver does, nothing is known about the devices of the driver. Repeatable.
    pub(super) async fn ended(&self, driver: &str, id: u64) {
        if self.was_last(driver, id) {
            let changes = self.cache.lock().clear(driver, Instant::now());
            self.apply(driver, changes).await;
        } else {
            // The call before this one may have been dropped before it wrote.
            self.file.write(&self.cache).await;
        }
    }

    /// Forgets the plugin. Returns whether it was the last of its driver that reported.
    fn was_last(&self, driver: &str, id: u64) -> bool {
        let mut streams = self.streams.lock();
        let Some(of_driver) = streams.get_mut(driver) else {
            return false;
        };
        of_driver.remove(&id);
        let is_last = of_driver.is_empty();
        if is_last {
            streams.remove(driver);
        }
        is_last
    }

    async fn report(&self, driver: &str, report: NodeWatchResourcesResponse) {
        let now = now(self.clock);
        let changes = self.cache.lock().update(driver, report.devices, now);
        self.reported.notify_one();
        self.apply(driver, changes).await;
    }

    async fn apply(&self, driver: &str, changes: Changes) {
        self.concerns(driver, &changes.devices);
        if changes.must_write {
            self.file.changed();
        }
        self.file.write(&self.cache).await;
    }

    /// Reports the pods that have one of these devices.
    fn concerns(&self, driver: &str, devices: &BTreeSet<DeviceName>) {
        let Some(updates) = self.updates.as_ref().filter(|_| !devices.is_empty()) else {
            return;
        };
        let claims = self.claims.lock();
        for claim in claims.by_key.values().map(|info| &info.state) {
            let of_driver = claim.driver_state.get(driver);
            let mut its_devices = of_driver.iter().flat_map(|state| state.devices.iter().flatten());
            let is_concerned = its_devices
                .any(|device| devices.contains(&(device.pool_name.clone(), device.device_name.clone())));
            if is_concerned {
                let pods = claim.pod_uids.keys();
                pods.for_each(|uid| updates.push(PodUid::new(uid)));
            }
        }
    }

    /// Forgets reports when they are no longer valid. Never ends.
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    pub(super) async fn forget_expired(&self) {
        loop {
            let next = self.cache.lock().next_expiry();
            let expiry = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.reported.notified() => continue,
                () = expiry => {}
            }
            let expired = self.cache.lock().expire(now(self.clock));
            for (driver, devices) in &expired {
                self.concerns(driver, devices);
            }
            if !expired.is_empty() {
                self.file.changed();
                self.file.write(&self.cache).await;
            }
        }
    }
}

fn now(clock: Clock) -> Now {
    Now {
        instant: Instant::now(),
        wall: clock.now(),
    }
}
