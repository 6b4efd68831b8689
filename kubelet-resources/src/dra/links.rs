//! Work in the background: plugins stay connected, the health of their devices is followed, and slices of drivers that are gone are deleted.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kubelet_core::Jitter;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::ClaimObjects;
use super::health_watch::HealthWatch;
use super::plugin::{Connection, DriverPlugin};
use super::plugins::Plugins;
use super::table::ToKeep;

/// Back-off between tries to connect (`backoff.DefaultConfig` of grpc-go): first, factor, last.
const CONNECT_BACK_OFF: (Duration, f64, Duration) = (Duration::from_secs(1), 1.6, Duration::from_secs(120));
/// How long a try to connect may take (`minConnectTimeout` of grpc-go).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Back-off between tries to delete slices (`wipeResourceSlices`): first and last.
const WIPE_BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5 * 60));
/// Spreads the tries of many nodes (grpc-go and `wipeResourceSlices` have the same).
const JITTER: f64 = 0.2;

/// What the background work needs.
#[derive(Clone)]
pub(super) struct Background {
    pub(super) plugins: Arc<Plugins>,
    pub(super) objects: Arc<dyn ClaimObjects>,
    pub(super) jitter: Jitter,
    /// `None` if the health of devices is not wanted.
    pub(super) health: Option<Arc<HealthWatch>>,
}

impl Background {
    /// Never ends. At the start, it deletes the slices of all drivers: none of them is registered yet, and some may never come back.
    pub(super) async fn run(&self) {
        let mut running: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        running.push(Box::pin(self.wipe(None)));
        let mut changes = self.plugins.changes.subscribe();
        loop {
            let (new, due, next) = {
                let mut table = self.plugins.table.lock();
                (table.take_new(), table.take_due(Instant::now()), table.next_due())
            };
            for plugin in new {
                running.push(Box::pin(async move {
                    let (gone, driver, id) = (plugin.gone.clone(), plugin.driver.clone(), plugin.id);
                    gone.run_until_cancelled(self.keep_connected(plugin)).await;
                    self.health_ended(&driver, id).await;
                }));
            }
            for (driver, is_back) in due {
                running.push(Box::pin(async move {
                    let wiped = is_back.run_until_cancelled(self.wipe(Some(&driver))).await;
                    if wiped.is_some() {
                        self.plugins.table.lock().wiped(&driver);
                    }
                }));
            }
            let next_due = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // The sender lives as long as this.
                _ = changes.changed() => {}
                () = next_due => {}
                Some(()) = running.next() => {}
            }
        }
    }

    /// Connects to a plugin, and again each time the connection breaks.
    async fn keep_connected(&self, plugin: ToKeep) {
        let ToKeep {
            driver,
            id,
            endpoint,
            service,
            ..
        } = plugin;
        let (first, factor, last) = CONNECT_BACK_OFF;
        let mut wait = first;
        loop {
            let dialed = timeout(CONNECT_TIMEOUT, self.plugins.dialer.dial(&endpoint, service)).await;
            if let Ok(Ok(Connection { plugin, closed })) = dialed {
                tracing::debug!(driver, endpoint = %endpoint.display(), "Connected to DRA plugin");
                let set = |connection| {
                    let now = Instant::now();
                    self.plugins
                        .change(|table| table.set_connection(&driver, id, connection, now));
                };
                set(Some(Arc::clone(&plugin)));
                let begun = Instant::now();
                tokio::select! {
                    biased;
                    () = closed => {}
                    () = self.follow_health(&driver, id, plugin) => {}
                }
                set(None);
                self.health_ended(&driver, id).await;
                tracing::debug!(driver, endpoint = %endpoint.display(), "Lost the connection to DRA plugin");
                // At once, except if the plugin accepts connections and drops them.
                if begun.elapsed() >= first {
                    wait = first;
                    continue;
                }
            }
            sleep(self.jitter.apply(wait, JITTER)).await;
            wait = wait.mul_f64(factor).min(last);
        }
    }

    /// Never ends.
    async fn follow_health(&self, driver: &str, id: u64, plugin: Arc<dyn DriverPlugin>) {
        match &self.health {
            Some(health) => health.follow(driver, id, plugin).await,
            None => std::future::pending().await,
        }
    }

    async fn health_ended(&self, driver: &str, id: u64) {
        if let Some(health) = &self.health {
            health.ended(driver, id).await;
        }
    }

    /// Deletes the slices of a driver, or of all, until that succeeds.
    async fn wipe(&self, driver: Option<&str>) {
        let (mut wait, last) = WIPE_BACK_OFF;
        while let Err(error) = self.objects.delete_slices(driver).await {
            tracing::info!(driver, %error, "Cannot delete ResourceSlices, will retry");
            sleep(self.jitter.apply(wait, JITTER)).await;
            wait = (wait * 2).min(last);
        }
    }
}
