//! What the rooms of an agent share while it is built.

use std::sync::Arc;

#[cfg(feature = "apiserver")]
use kube_client::Client;
use kubelet_core::{Clock, Disk, EventRecorder, HealthChecks, KubeletHandle, NodeEventRecorder, RootDir};

use crate::Settings;
use crate::runtime::RuntimeRoom;

/// What every room may use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    /// `settings.root_dir`, absolute.
    pub(crate) root_dir: RootDir,
    pub(crate) node_name: Arc<str>,
    /// Records events about pods.
    pub(crate) recorder: Arc<dyn EventRecorder>,
    /// Records events about the node.
    pub(crate) node_recorder: Arc<dyn NodeEventRecorder>,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    /// Whether the node's API is served, on a port or in the process.
    #[cfg(feature = "server")]
    pub(crate) serves_streams: bool,
    /// The API server, if the node joins a cluster.
    #[cfg(feature = "apiserver")]
    pub(crate) client: Option<Client>,
    /// Whether the API server is in this process, and this node its only one.
    #[cfg(feature = "api")]
    pub(crate) serves_kubectl: bool,
}

/// The built agent, for the rooms beside the pod lifecycle: stats, eviction, shutdown, the server.
#[allow(dead_code, reason = "each room uses what it needs, and rooms have features")]
pub(crate) struct Built {
    pub(crate) kubelet: KubeletHandle,
    pub(crate) runtime: RuntimeRoom,
    /// The volume manager, if it is the one of `kubelet-volume`.
    #[cfg(feature = "volumes")]
    pub(crate) volumes: Option<Arc<kubelet_volume::NodeVolumesHandle>>,
    /// Collects unused images, for a runtime of containers.
    pub(crate) images: Option<kubelet_kuberuntime::ImageGcManager>,
    /// The local node.
    #[cfg(feature = "apiserver")]
    pub(crate) node: crate::node::NodeRoom,
    /// The resources of containers, for a runtime whose containers get some.
    #[cfg(feature = "resources")]
    pub(crate) resources: Option<crate::resources::ResourceHandles>,
}

impl Built {
    /// These checks, and `device-plugin` (`GetHealthCheckers`).
    pub(crate) fn with_plugins(&self, checks: HealthChecks) -> HealthChecks {
        #[cfg(feature = "resources")]
        if let Some(resources) = &self.resources {
            let devices = resources.devices.clone();
            return checks.check("device-plugin", move || Ok(devices.check()?));
        }
        checks
    }
}
