//! The connections to plugins: a plugin is connected, reports its devices, and goes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use kubelet_core::PodUid;
use kubelet_plugins::Transport;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use super::endpoint::{Endpoint, within};
use super::{DeviceManagerHandle, Shared};
use crate::devices::Device;
use crate::devices::v1beta1::device_plugin_client::DevicePluginClient;
use crate::devices::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use crate::devices::v1beta1::{self, Empty, ListAndWatchResponse};
use crate::grpc::{Place, describe};

/// What a plugin reports of a device that can be used (`pluginapi.Healthy`).
const HEALTHY: &str = "Healthy";

impl DeviceManagerHandle {
    /// Registers a plugin of this process, without a socket.
    ///
    /// # Errors
    ///
    /// With the kubelet's text, if the plugin does not answer.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the plugin is then not registered.
    pub async fn connect_in_process(&self, resource: &str, plugin: impl DevicePlugin) -> Result<(), String> {
        let place = Place::InProcess(Transport::new(DevicePluginServer::new(plugin)));
        self.connect(resource, &place).await
    }

    /// Connects to a plugin, and follows its devices from then on (`connectClient`). It replaces the one before it.
    pub(super) async fn connect(&self, resource: &str, place: &Place) -> Result<(), String> {
        let transport = place.connect().await.map_err(|error| {
            tracing::error!(resource, error, "unable to connect to device plugin");
            format!("failed to dial device plugin: {error}")
        })?;
        let mut client = DevicePluginClient::new(transport);
        // Another plugin of the same name may wait for this one.
        let options = within(
            self.shared.call_timeout,
            client.get_device_plugin_options(Empty {}),
        )
        .await;
        let options = options.map_err(|error| format!("failed to get device plugin options: {error}"))?;
        let replaced = self.shared.stop.child_token();
        let connection = {
            let mut inner = self.shared.inner.lock();
            inner.connections += 1;
            let connection = inner.connections;
            let endpoint = Endpoint::new(
                connection,
                place.socket(),
                client.clone(),
                options,
                replaced.clone(),
            );
            if let Some(before) = inner.endpoints.insert(resource.to_owned(), endpoint) {
                before.replaced.cancel();
            }
            connection
        };
        tracing::info!(resource, "device plugin connected");
        let following = follow(
            Arc::downgrade(&self.shared),
            resource.to_owned(),
            connection,
            client,
            replaced,
        );
        self.shared.connections.spawn(following);
        Ok(())
    }

    /// The plugin's socket is gone (`DeRegisterPlugin`). Nothing happens if a plugin at another socket has replaced it.
    pub(super) fn disconnect(&self, resource: &str, socket: &Path) {
        let connection = {
            let inner = self.shared.inner.lock();
            let endpoint = inner.endpoints.get(resource);
            let endpoint = endpoint.filter(|endpoint| endpoint.socket.as_deref() == Some(socket));
            endpoint.map(|endpoint| {
                endpoint.replaced.cancel();
                endpoint.connection
            })
        };
        if let Some(connection) = connection {
            self.shared.disconnected(resource, connection);
        }
    }
}

/// Takes what the plugin reports until it goes, or another one replaces it (`runClient`). It does not keep the manager alive.
async fn follow(
    manager: Weak<Shared>,
    resource: String,
    connection: u64,
    client: DevicePluginClient<Transport>,
    replaced: CancellationToken,
) {
    let watched = replaced.run_until_cancelled_owned(watch(&manager, &resource, connection, client));
    let Some(ended) = watched.await else { return };
    tracing::error!(
        resource,
        error = ended,
        "ListAndWatch ended unexpectedly for device plugin"
    );
    if let Some(manager) = manager.upgrade() {
        manager.disconnected(&resource, connection);
    }
}

/// Returns why it ended.
async fn watch(
    manager: &Weak<Shared>,
    resource: &str,
    connection: u64,
    mut client: DevicePluginClient<Transport>,
) -> String {
    let mut stream: Streaming<ListAndWatchResponse> = match client.list_and_watch(Empty {}).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => return describe(&status),
    };
    loop {
        let report = match stream.message().await {
            Ok(Some(report)) => report,
            Ok(None) => return "EOF".to_owned(),
            Err(status) => return describe(&status),
        };
        match manager.upgrade() {
            Some(manager) => manager.reported(resource, connection, report).await,
            None => return "the manager is gone".to_owned(),
        }
    }
}

impl Shared {
    /// `PluginListAndWatchReceiver`
    async fn reported(&self, resource: &str, connection: u64, report: ListAndWatchResponse) {
        let devices: BTreeMap<String, Device> = report.devices.into_iter().map(device).collect();
        let healthy = devices.values().filter(|device| device.healthy).count();
        tracing::info!(
            resource,
            total = devices.len(),
            healthy,
            "processed device updates for resource"
        );
        let changed = {
            let mut inner = self.inner.lock();
            if !inner.is_current(resource, connection) {
                return;
            }
            inner.state.report(resource, devices)
        };
        if let Some(updates) = &self.updates {
            for uid in changed {
                updates.push(PodUid::new(uid));
            }
        }
        self.write_state().await;
    }

    /// Its devices are unhealthy until it comes back (`PluginDisconnected`).
    fn disconnected(&self, resource: &str, connection: u64) {
        let mut inner = self.inner.lock();
        if !inner.is_current(resource, connection) {
            return;
        }
        inner.state.plugin_gone(resource);
        if let Some(endpoint) = inner.endpoints.get_mut(resource) {
            endpoint.stop();
        }
        tracing::info!(resource, "device plugin disconnected");
    }
}

impl super::Inner {
    fn is_current(&self, resource: &str, connection: u64) -> bool {
        let endpoint = self.endpoints.get(resource);
        endpoint.is_some_and(|endpoint| endpoint.connection == connection)
    }
}

fn device(reported: v1beta1::Device) -> (String, Device) {
    let nodes = |topology: v1beta1::TopologyInfo| topology.nodes.iter().map(|node| node.id).collect();
    let device = Device {
        healthy: reported.health == HEALTHY,
        nodes: reported.topology.map(nodes),
    };
    (reported.id, device)
}
