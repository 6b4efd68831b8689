//! The drivers that are registered on this node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use kubelet_plugins::{Plugin, PluginHandler};
use parking_lot::RwLock;
use tokio::sync::watch;

use super::PLUGIN_NAME;
use super::client::Session;
use super::node_info::{CsiNodeInfo, DriverInfo};
use super::transport::Place;
use super::versions::{Version, highest_supported};

/// The CSI drivers of this node, by name (the kubelet's `DriversStore`). Clones share them.
///
/// A [`CsiRegistration`] adds the drivers that register. [`add`](Self::add) adds one that does not.
#[derive(Clone, Debug, Default)]
pub struct CsiDrivers {
    drivers: Arc<RwLock<BTreeMap<String, Registered>>>,
    changes: Arc<watch::Sender<u64>>,
}

#[derive(Clone, Debug)]
struct Registered {
    place: Place,
    version: Option<Version>,
}

impl CsiDrivers {
    /// No drivers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a driver that serves at this socket, or replaces the one with this name.
    pub fn add(&self, name: impl Into<String>, endpoint: impl Into<PathBuf>) {
        let registered = Registered {
            place: Place::Socket(endpoint.into()),
            version: None,
        };
        self.set(name.into(), registered);
    }

    /// Adds a driver that is part of this program, or replaces the one with this name. No socket is needed.
    pub fn add_in_process(&self, name: impl Into<String>, node: impl super::v1::node_server::Node) {
        let registered = Registered {
            place: Place::in_process(node),
            version: None,
        };
        self.set(name.into(), registered);
    }

    /// The names of the drivers.
    pub fn names(&self) -> Vec<String> {
        self.drivers.read().keys().cloned().collect()
    }

    /// Changes when a driver is added or removed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn set(&self, name: String, registered: Registered) {
        self.drivers.write().insert(name, registered);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Removes the driver, if it still has this endpoint.
    fn remove(&self, name: &str, endpoint: &Path) -> bool {
        let mut drivers = self.drivers.write();
        let is_it = drivers
            .get(name)
            .is_some_and(|driver| driver.place.is_socket(endpoint));
        if is_it {
            drivers.remove(name);
            drop(drivers);
            self.changes.send_modify(|count| *count += 1);
        }
        is_it
    }

    fn get(&self, name: &str) -> Option<Registered> {
        self.drivers.read().get(name).cloned()
    }

    /// An operation with the driver. The error has the kubelet's text.
    pub(crate) fn session(&self, name: &str, migrated: bool) -> Result<Session, String> {
        if name.is_empty() {
            return Err("driver name is empty".to_owned());
        }
        match self.get(name) {
            Some(driver) => Ok(Session::new(name, driver.place, migrated)),
            None => Err(format!(
                "driver name {name} not found in the list of registered CSI drivers"
            )),
        }
    }
}

/// Registers CSI drivers: the handler of plugins with the type
/// [`CSI_PLUGIN`](kubelet_plugins::CSI_PLUGIN) (the kubelet's `csi.RegistrationHandler`).
///
/// A driver must support CSI 1.x. A driver with the name of a registered one must have a higher version. It then replaces
/// the other one, as during an update; the old one deregisters without effect.
pub struct CsiRegistration {
    drivers: CsiDrivers,
    node_info: Arc<dyn CsiNodeInfo>,
}

impl CsiRegistration {
    /// Adds drivers to `drivers`, and reports them with `node_info`.
    pub fn new(drivers: CsiDrivers, node_info: Arc<dyn CsiNodeInfo>) -> Self {
        Self { drivers, node_info }
    }

    fn version(&self, caller: &str, plugin: &Plugin) -> Result<Version, String> {
        let name = &plugin.name;
        if plugin.versions.is_empty() {
            return Err(format!(
                "{PLUGIN_NAME}: {caller} for CSI driver {name:?} failed. Plugin returned an empty list for supported versions"
            ));
        }
        let version = highest_supported(&plugin.versions).map_err(|error| {
            let listed: Vec<String> = plugin.versions.iter().map(|version| format!("{version:?}")).collect();
            let listed = listed.join(" ");
            format!(
                "{PLUGIN_NAME}: {caller} for CSI driver {name:?} failed. None of the versions specified [{listed}] are supported. err={error}"
            )
        })?;
        let existing = self.drivers.get(name).and_then(|driver| driver.version);
        match existing {
            Some(existing) if !existing.is_older_than(&version) => Err(format!(
                "{PLUGIN_NAME}: {caller} for CSI driver {name:?} failed. Another driver with the same name is already registered with a higher supported version: {:?}",
                existing.to_string()
            )),
            _ => Ok(version),
        }
    }

    async fn report(&self, plugin: &Plugin) -> Result<(), String> {
        let mut session = self.drivers.session(&plugin.name, false)?;
        let info = session.info().await.map_err(|error| error.to_string())?;
        let installed = self
            .node_info
            .install(&plugin.name, &DriverInfo::from(info))
            .await;
        installed.map_err(|error| error.to_string())
    }

    async fn unregister(&self, plugin: &Plugin) {
        if !self.drivers.remove(&plugin.name, &plugin.endpoint) {
            return;
        }
        if let Err(error) = self.node_info.uninstall(&plugin.name).await {
            tracing::error!(driver = %plugin.name, %error, "cannot report that a CSI driver is gone");
        }
    }
}

#[async_trait]
impl PluginHandler for CsiRegistration {
    async fn validate(&self, plugin: &Plugin) -> kubelet_plugins::Result<()> {
        let checked = self.version("ValidatePlugin", plugin);
        checked.map(|_| ()).map_err(|error| {
            kubelet_plugins::Error::refused(format!(
                "validation failed for CSI Driver {} at endpoint {}: {error}",
                plugin.name,
                plugin.endpoint.display()
            ))
        })
    }

    async fn register(&self, plugin: &Plugin) -> kubelet_plugins::Result<()> {
        let version = self.version("RegisterPlugin", plugin);
        let version = version.map_err(kubelet_plugins::Error::refused)?;
        let before = self.drivers.get(&plugin.name);
        let registered = Registered {
            place: Place::Socket(plugin.endpoint.clone()),
            version: Some(version),
        };
        self.drivers.set(plugin.name.clone(), registered);
        match self.report(plugin).await {
            Ok(()) => Ok(()),
            Err(error) => {
                match before {
                    // The older driver still serves.
                    Some(before) => self.drivers.set(plugin.name.clone(), before),
                    None => self.unregister(plugin).await,
                }
                Err(kubelet_plugins::Error::refused(error))
            }
        }
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.unregister(plugin).await;
    }
}
