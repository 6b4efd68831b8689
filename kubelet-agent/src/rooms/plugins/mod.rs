//! The room of plugins: CSI drivers, device plugins and DRA drivers, and the API that lists what they gave to containers.

mod capacity;
mod claims;
mod csi;
mod devices;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use kubelet_core::{
    DynamicResources, HealthChecks, KubeletHandle, NodeGetter, ResourceHealth, ResourceUpdates,
};
use kubelet_node::LocalNodeBuilder;
use kubelet_plugins::{PluginHandler, PluginWatcher};
use kubelet_resources::pod_resources::{PodResources, SOCKET};
use kubelet_resources::{KubeletPods, Machine, PluginAllocator, ResourceManagerHandle};
use parking_lot::Mutex;

use self::claims::Claims;
use self::devices::Devices;
use super::cluster::ClusterRoom;
use crate::context::{Context, with};
use crate::error::Result;
use crate::tasks::Tasks;

/// The folder of the socket of the pod-resources API (`DefaultKubeletPodResourcesDirName`).
const POD_RESOURCES: &str = "pod-resources";

/// The type of the plugins that it uses, and the handler.
type Handler = (&'static str, Arc<dyn PluginHandler>);

/// What the plugins use of other parts.
pub(crate) struct Uses<'a> {
    pub(crate) cluster: &'a ClusterRoom,
    /// Whether the runtime is one of containers.
    pub(crate) has_containers: bool,
    /// The machine and the containers that run, if containers get devices.
    pub(crate) devices: Option<(&'a Machine, BTreeSet<(String, String)>)>,
    /// Gets the pods whose devices changed their health, if their statuses show it.
    pub(crate) updates: Option<ResourceUpdates>,
}

/// Who uses the plugins of the node.
pub(crate) struct PluginRoom {
    /// Those that appear in `plugins_registry`. CSI adds itself later.
    handlers: Mutex<Vec<Handler>>,
    devices: Option<Devices>,
    claims: Option<Claims>,
}

/// Whether an agent before this one has had devices here. If not, the machine may be a new one of the same name
/// (`ShouldResetExtendedResourceCapacity`).
pub(crate) fn had_devices(root_dir: &Path) -> bool {
    devices::had_state(root_dir)
}

impl PluginRoom {
    /// Takes over the devices and the claims of the agent before.
    pub(crate) async fn open(context: &Context, uses: Uses<'_>) -> Result<Self> {
        let mut room = Self {
            handlers: Mutex::default(),
            devices: None,
            claims: None,
        };
        if let Some((machine, running)) = uses.devices {
            let devices = Devices::open(context, machine, running, uses.updates.clone()).await;
            room.handle(kubelet_plugins::DEVICE_PLUGIN, Arc::new(devices.handle.clone()));
            room.devices = Some(devices);
        }
        if let Some(client) = uses.cluster.client().filter(|_| uses.has_containers) {
            room.claims = Claims::open(context, client, uses.updates).await?;
            if let Some(claims) = &room.claims {
                room.handle(kubelet_plugins::DRA_PLUGIN, claims.plugins());
            }
        }
        Ok(room)
    }

    fn handle(&self, plugin_type: &'static str, handler: Arc<dyn PluginHandler>) {
        self.handlers.lock().push((plugin_type, handler));
    }

    /// Allocates devices to containers.
    pub(crate) fn allocator(&self) -> Option<Arc<dyn PluginAllocator>> {
        Some(Arc::new(self.devices.as_ref()?.handle.clone()))
    }

    /// Prepares the claims of pods.
    pub(crate) fn claims(&self) -> Option<Arc<dyn DynamicResources>> {
        Some(Arc::new(self.claims.as_ref()?.handle()))
    }

    /// For the statuses of pods.
    pub(crate) fn health(&self) -> Vec<Arc<dyn ResourceHealth>> {
        let of_devices = self
            .devices
            .iter()
            .map(|devices| Arc::new(devices.handle.clone()) as _);
        let of_claims = self.claims.iter().map(|claims| Arc::new(claims.handle()) as _);
        of_devices.chain(of_claims).collect()
    }

    /// The devices in the status of the node.
    pub(crate) fn report(&self, node: LocalNodeBuilder) -> LocalNodeBuilder {
        with(node, self.devices.as_ref(), |node, devices| {
            node.setter(Arc::new(capacity::InStatus::new(devices.handle.clone())))
        })
    }

    /// The node for admission: pods that have devices fit, even if the plugins of these are gone.
    pub(crate) fn node(&self, node: Arc<dyn NodeGetter>) -> Arc<dyn NodeGetter> {
        match &self.devices {
            Some(devices) => Arc::new(capacity::NodeWithDevices::new(node, devices.handle.clone())),
            None => node,
        }
    }

    /// These checks, and `device-plugin` (`GetHealthCheckers`).
    pub(crate) fn checks(&self, checks: HealthChecks) -> HealthChecks {
        with(checks, self.devices.as_ref(), |checks, devices| {
            let devices = devices.handle.clone();
            checks.check("device-plugin", move || Ok(devices.check()?))
        })
    }

    /// Adds the engines, and the API that lists what containers have. All who use plugins must have been added.
    pub(crate) fn start(
        &mut self,
        context: &Context,
        kubelet: &KubeletHandle,
        resources: Option<&ResourceManagerHandle>,
        tasks: &mut Tasks,
    ) -> Result<()> {
        if let Some(resources) = resources {
            self.serve_pod_resources(context, kubelet, resources, tasks);
        }
        let pods = Arc::new(KubeletPods::new(kubelet.clone()));
        if let Some(devices) = &mut self.devices {
            devices.start(pods.clone(), tasks);
        }
        if let Some(claims) = &mut self.claims {
            claims.start(pods, tasks);
        }
        let handlers = std::mem::take(&mut *self.handlers.lock());
        if handlers.is_empty() {
            return Ok(());
        }
        let mut watcher = PluginWatcher::builder(context.root_dir.path().join("plugins_registry"));
        for (plugin_type, handler) in handlers {
            watcher = watcher.handler(plugin_type, handler);
        }
        let watcher = watcher.build()?;
        tasks.add("plugin watcher", |shutdown| watcher.run(shutdown));
        Ok(())
    }

    fn serve_pod_resources(
        &self,
        context: &Context,
        kubelet: &KubeletHandle,
        resources: &ResourceManagerHandle,
        tasks: &mut Tasks,
    ) {
        let pods = Arc::new(KubeletPods::new(kubelet.clone()));
        let gates = &context.settings.feature_gates;
        let mut api = PodResources::builder(pods, resources.clone())
            .active_only(gates.enabled("KubeletPodResourcesListUseActivePods"));
        if let Some(devices) = &self.devices {
            api = api.devices(devices.handle.clone());
        }
        if let Some(claims) = &self.claims {
            api = api.dynamic_resources(Arc::new(claims.handle()));
        }
        let (api, socket) = (
            api.build(),
            context.root_dir.path().join(POD_RESOURCES).join(SOCKET),
        );
        tasks.add("pod-resources API", |shutdown| async move {
            if let Err(error) = api.serve(&socket, shutdown).await {
                tracing::error!(socket = %socket.display(), %error, "cannot serve the pod-resources API");
            }
        });
    }
}
