//! The plugins that are registered, and which drivers' slices are to be deleted: state without I/O.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::plugin::{DraService, DriverPlugin};
use crate::{Error, Result};

/// All plugins, by driver in the order in which they registered (`DRAPluginManager.store`).
pub(super) struct PluginTable {
    plugins: BTreeMap<String, Vec<Registered>>,
    wipes: BTreeMap<String, Wipe>,
    delay: Duration,
    next_id: u64,
}

/// A registered plugin of a driver.
pub(super) struct Registered {
    pub(super) id: u64,
    pub(super) endpoint: PathBuf,
    pub(super) service: DraService,
    /// Cancelled when the plugin deregisters.
    pub(super) gone: CancellationToken,
    connection: Option<Arc<dyn DriverPlugin>>,
    /// Somebody keeps it connected.
    is_kept: bool,
}

/// What happens to the slices of a driver that cannot be used.
enum Wipe {
    Waiting(Instant),
    /// The token is cancelled when the driver is back.
    Running(CancellationToken),
    Done,
}

/// A plugin to call.
#[derive(Clone)]
pub(super) struct Callee {
    pub(super) driver: String,
    pub(super) endpoint: PathBuf,
    pub(super) service: DraService,
    /// `None` if it is not connected at the moment.
    pub(super) connection: Option<Arc<dyn DriverPlugin>>,
}

/// A plugin that must be connected.
pub(super) struct ToKeep {
    pub(super) driver: String,
    pub(super) id: u64,
    pub(super) endpoint: PathBuf,
    pub(super) service: DraService,
    pub(super) gone: CancellationToken,
}

impl PluginTable {
    /// No plugins. The slices of a driver are deleted when no plugin of it was connected for `delay`.
    pub(super) fn new(delay: Duration) -> Self {
        Self {
            plugins: BTreeMap::new(),
            wipes: BTreeMap::new(),
            delay,
            next_id: 0,
        }
    }

    /// Adds a plugin, which is not connected yet.
    pub(super) fn add(
        &mut self,
        driver: &str,
        endpoint: &Path,
        service: DraService,
        now: Instant,
    ) -> Result<()> {
        let plugins = self.plugins.entry(driver.to_owned()).or_default();
        if plugins.iter().any(|plugin| plugin.endpoint == endpoint) {
            return Err(Error::Claims(format!(
                "endpoint {} already registered for DRA driver plugin {driver}",
                endpoint.display()
            )));
        }
        plugins.push(Registered {
            id: self.next_id,
            endpoint: endpoint.to_owned(),
            service,
            gone: CancellationToken::new(),
            connection: None,
            is_kept: false,
        });
        self.next_id += 1;
        self.sync(driver, now);
        Ok(())
    }

    /// Removes a plugin.
    pub(super) fn remove(&mut self, driver: &str, endpoint: &Path, now: Instant) {
        let Some(plugins) = self.plugins.get_mut(driver) else {
            return;
        };
        let Some(index) = plugins.iter().position(|plugin| plugin.endpoint == endpoint) else {
            return;
        };
        plugins.remove(index).gone.cancel();
        if plugins.is_empty() {
            self.plugins.remove(driver);
        }
        self.sync(driver, now);
    }

    /// Notes that a plugin is connected, or no longer.
    pub(super) fn set_connection(
        &mut self,
        driver: &str,
        id: u64,
        connection: Option<Arc<dyn DriverPlugin>>,
        now: Instant,
    ) {
        let plugins = self.plugins.get_mut(driver);
        let plugin = plugins.and_then(|plugins| plugins.iter_mut().find(|plugin| plugin.id == id));
        if let Some(plugin) = plugin {
            plugin.connection = connection;
            self.sync(driver, now);
        }
    }

    /// The plugin of a driver to call: the latest that is connected, else the latest (`GetPlugin`).
    pub(super) fn plugin(&self, driver: &str) -> Result<Callee> {
        if driver.is_empty() {
            return Err(Error::Claims("DRA driver name is empty".to_owned()));
        }
        let plugins = self.plugins.get(driver).map(Vec::as_slice).unwrap_or_default();
        let connected = plugins.iter().rfind(|plugin| plugin.connection.is_some());
        let Some(plugin) = connected.or(plugins.last()) else {
            return Err(Error::Claims(format!("DRA driver {driver} is not registered")));
        };
        Ok(Callee {
            driver: driver.to_owned(),
            endpoint: plugin.endpoint.clone(),
            service: plugin.service,
            connection: plugin.connection.clone(),
        })
    }

    /// The plugins that nobody keeps connected yet. The caller does so from now on.
    pub(super) fn take_new(&mut self) -> Vec<ToKeep> {
        let mut new = Vec::new();
        for (driver, plugins) in &mut self.plugins {
            for plugin in plugins.iter_mut().filter(|plugin| !plugin.is_kept) {
                plugin.is_kept = true;
                new.push(ToKeep {
                    driver: driver.clone(),
                    id: plugin.id,
                    endpoint: plugin.endpoint.clone(),
                    service: plugin.service,
                    gone: plugin.gone.clone(),
                });
            }
        }
        new
    }

    /// The drivers whose slices are to be deleted now. The caller begins to do so, until the token is cancelled.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(String, CancellationToken)> {
        let mut due = Vec::new();
        for (driver, wipe) in &mut self.wipes {
            if matches!(wipe, Wipe::Waiting(until) if *until <= now) {
                let is_back = CancellationToken::new();
                *wipe = Wipe::Running(is_back.clone());
                due.push((driver.clone(), is_back));
            }
        }
        due
    }

    /// When the next driver is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let waiting = self.wipes.values().filter_map(|wipe| match wipe {
            Wipe::Waiting(until) => Some(*until),
            _ => None,
        });
        waiting.min()
    }

    /// The slices of a driver are deleted. Once is enough, until the driver was back.
    pub(super) fn wiped(&mut self, driver: &str) {
        if let Some(wipe @ Wipe::Running(_)) = self.wipes.get_mut(driver) {
            *wipe = Wipe::Done;
        }
    }

    /// Begins or ends the time after which the slices of a driver are deleted (`DRAPluginManager.sync`).
    fn sync(&mut self, driver: &str, now: Instant) {
        let plugins = self.plugins.get(driver).map(Vec::as_slice).unwrap_or_default();
        if plugins.iter().any(|plugin| plugin.connection.is_some()) {
            if let Some(Wipe::Running(is_back)) = self.wipes.remove(driver) {
                is_back.cancel();
            }
            return;
        }
        // If it waits already, nothing has changed: the time goes on.
        let delay = self.delay;
        self.wipes
            .entry(driver.to_owned())
            .or_insert_with(|| Wipe::Waiting(now + delay));
    }
}
