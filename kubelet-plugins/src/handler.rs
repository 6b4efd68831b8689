//! Who uses plugins of a type.

use std::path::PathBuf;

use async_trait::async_trait;

use crate::Result;

/// The type of CSI drivers.
pub const CSI_PLUGIN: &str = "CSIPlugin";
/// The type of device plugins.
pub const DEVICE_PLUGIN: &str = "DevicePlugin";
/// The type of drivers for dynamic resource allocation.
pub const DRA_PLUGIN: &str = "DRAPlugin";

/// A plugin that registers, as its answer to `GetInfo` describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Plugin {
    /// Its type, e.g. [`CSI_PLUGIN`].
    pub plugin_type: String,
    /// Its name, unique within the type.
    pub name: String,
    /// The socket of its API. Often another one than the socket on which it registers.
    pub endpoint: PathBuf,
    /// The versions of its API.
    pub versions: Vec<String>,
    /// The socket on which it registers.
    pub socket: PathBuf,
}

impl Plugin {
    /// A plugin that serves its API at `endpoint`, where it also registers.
    pub fn new(
        plugin_type: impl Into<String>,
        name: impl Into<String>,
        endpoint: impl Into<PathBuf>,
    ) -> Self {
        let endpoint = endpoint.into();
        Self {
            plugin_type: plugin_type.into(),
            name: name.into(),
            socket: endpoint.clone(),
            endpoint,
            versions: Vec::new(),
        }
    }

    /// The same plugin with these versions.
    #[must_use]
    pub fn versions<V: Into<String>>(mut self, versions: impl IntoIterator<Item = V>) -> Self {
        self.versions = versions.into_iter().map(Into::into).collect();
        self
    }
}

/// Uses the plugins of one type (the kubelet's `cache.PluginHandler`).
///
/// For one name the calls come one after the other: `validate`, `register`, `deregister`. When a socket is created anew,
/// the plugin is deregistered and registered again. During an update of a plugin, two sockets may register the same
/// name: each is registered and deregistered with its own endpoint, and a handler that keeps one plugin a name ignores
/// `deregister` for an endpoint that it has replaced.
///
/// # Cancel safety
///
/// The watcher drops a call only when it shuts down.
#[async_trait]
pub trait PluginHandler: Send + Sync {
    /// Checks the plugin, for example its versions.
    ///
    /// # Errors
    ///
    /// [`Error::refused`](crate::Error::refused): the plugin gets the message, and is tried again after a back-off.
    async fn validate(&self, plugin: &Plugin) -> Result<()>;

    /// Starts to use the plugin. A call that hangs holds up this plugin only.
    ///
    /// # Errors
    ///
    /// The plugin gets the message, and is tried again after a back-off. The plugin is then not in use.
    async fn register(&self, plugin: &Plugin) -> Result<()>;

    /// Stops using the plugin: its socket is gone.
    async fn deregister(&self, plugin: &Plugin);
}
