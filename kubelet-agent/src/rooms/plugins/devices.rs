//! The devices of device plugins.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use kubelet_core::ResourceUpdates;
use kubelet_resources::checkpoint::StateFolder;
use kubelet_resources::devices::{DEVICE_MANAGER_STATE, DeviceManager, DeviceManagerHandle};
use kubelet_resources::{KubeletPods, Machine};

use crate::context::{Context, with};
use crate::tasks::Tasks;

/// The folder of the sockets of device plugins, below the folder of the agent.
const DEVICE_PLUGINS: &str = "device-plugins";

/// Whether there is the state of an agent.
pub(super) fn had_state(root_dir: &Path) -> bool {
    root_dir.join(DEVICE_PLUGINS).join(DEVICE_MANAGER_STATE).exists()
}

/// The manager of devices.
pub(super) struct Devices {
    /// Until it is started.
    manager: Option<DeviceManager>,
    pub(super) handle: DeviceManagerHandle,
}

impl Devices {
    pub(super) async fn open(
        context: &Context,
        machine: &Machine,
        running: BTreeSet<(String, String)>,
        updates: Option<ResourceUpdates>,
    ) -> Self {
        let folder = context.root_dir.path().join(DEVICE_PLUGINS);
        let manager = DeviceManager::builder(&folder, Arc::new(StateFolder::new(&folder)))
            .disk(context.disk)
            .running(running)
            .extended_resource_claims(context.settings.feature_gates.enabled("DRAExtendedResource"));
        let manager = with(manager, updates, |manager, updates| manager.updates(updates));
        let manager = manager.start(machine).await;
        Self {
            handle: manager.handle(),
            manager: Some(manager),
        }
    }

    pub(super) fn start(&mut self, pods: Arc<KubeletPods>, tasks: &mut Tasks) {
        if let Some(manager) = self.manager.take() {
            tasks.add("devices", |shutdown| manager.run(pods, shutdown));
        }
    }
}
