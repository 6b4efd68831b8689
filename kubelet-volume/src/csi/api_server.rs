//! What CSI volumes read of an API server, and write there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube_client::Client;
use kube_client::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kubelet_core::Jitter;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::node_info::CsiNodeObjects;
use super::objects::CsiObjects;
use crate::api_server_volume_objects::{DEADLINE, within};
use crate::{Error, Result};

/// How long a watch lasts: between this and twice this (`defaultMinWatchTimeout` of client-go).
const WATCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// A watch without events that is shorter than this is one that failed.
const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);
/// The longest that an API server watches for kube's client.
const LONGEST_WATCH: Duration = Duration::from_secs(294);
/// The API server sends a bookmark each minute. After this long without any event the connection counts as dead.
const SILENCE: Duration = Duration::from_secs(3 * 60);
/// The back-off after failures, before jitter (`defaultBackoffInit`, `defaultBackoffMax` of client-go).
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));

/// The objects that CSI volumes need, of an API server. Clones share the cache of `CSIDriver` objects, which
/// [`run`](Self::run) keeps up to date. All other objects are read when they are needed, as the kubelet does.
#[derive(Clone)]
pub struct ApiServerCsiObjects {
    client: Client,
    node_name: Arc<str>,
    jitter: Jitter,
    drivers: Arc<watch::Sender<Option<Drivers>>>,
    changes: Arc<watch::Sender<u64>>,
}

type Drivers = BTreeMap<String, Arc<CSIDriver>>;

impl ApiServerCsiObjects {
    /// The objects of the API server of `client`, for the node `node_name`.
    pub fn new(client: Client, node_name: impl AsRef<str>) -> Self {
        Self {
            client,
            node_name: Arc::from(node_name.as_ref()),
            jitter: Jitter::default(),
            drivers: Arc::default(),
            changes: Arc::default(),
        }
    }

    /// What spreads the requests of many nodes.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Watches the `CSIDriver` objects until `shutdown`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch. The objects seen last are still returned.
    pub async fn run(self, shutdown: CancellationToken) {
        let watching = async {
            let mut wait = BACK_OFF.0;
            loop {
                match self.list_and_watch().await {
                    Ok(()) => wait = BACK_OFF.0,
                    Err(error) => tracing::warn!(%error, "Cannot watch CSIDriver objects"),
                }
                sleep(self.jitter.apply(wait, 1.0)).await;
                wait = (wait * 2).min(BACK_OFF.1);
            }
        };
        shutdown.run_until_cancelled(watching).await;
    }

    async fn list_and_watch(&self) -> Result<()> {
        let api = Api::<CSIDriver>::all(self.client.clone());
        let list = within(api.list(&ListParams::default().match_any())).await?;
        let name = |driver: &CSIDriver| driver.metadata.name.clone().unwrap_or_default();
        let mut version = list.metadata.resource_version.unwrap_or_default();
        let listed = list
            .items
            .into_iter()
            .map(|driver| (name(&driver), Arc::new(driver)));
        let listed: Drivers = listed.collect();
        self.change(|drivers| *drivers = listed);
        loop {
            let lasting = self.jitter.apply(WATCH_TIMEOUT, 1.0).min(LONGEST_WATCH);
            let seconds = u32::try_from(lasting.as_secs()).unwrap_or(u32::MAX);
            let params = WatchParams::default().timeout(seconds);
            let (begun, mut is_empty) = (Instant::now(), true);
            let events = within(api.watch(&params, &version)).await?;
            pin_mut!(events);
            while let Ok(Some(event)) = timeout(SILENCE, events.next()).await {
                is_empty = false;
                let event = event.map_err(|error| Error::failed(error.to_string()))?;
                match event {
                    WatchEvent::Added(driver) | WatchEvent::Modified(driver) => {
                        version = driver.metadata.resource_version.clone().unwrap_or(version);
                        self.change(|drivers| _ = drivers.insert(name(&driver), Arc::new(driver)));
                    }
                    WatchEvent::Deleted(driver) => {
                        version = driver.metadata.resource_version.clone().unwrap_or(version);
                        self.change(|drivers| _ = drivers.remove(&name(&driver)));
                    }
                    WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                    // The version is too old: all objects are listed again.
                    WatchEvent::Error(_) => return Ok(()),
                }
            }
            if is_empty && begun.elapsed() < VERY_SHORT_WATCH {
                return Err(Error::failed("the watch ended at once"));
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Drivers)) {
        let is_changed = self.drivers.send_if_modified(|known| {
            let before = known.clone();
            change(known.get_or_insert_default());
            *known != before
        });
        if is_changed {
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn csi_nodes(&self) -> Api<CSINode> {
        Api::all(self.client.clone())
    }
}

#[async_trait]
impl CsiObjects for ApiServerCsiObjects {
    async fn driver(&self, name: &str) -> Result<Option<Arc<CSIDriver>>> {
        let mut drivers = self.drivers.subscribe();
        let known = timeout(DEADLINE, drivers.wait_for(Option::is_some)).await;
        match known {
            Ok(Ok(known)) => Ok(known.as_ref().and_then(|known| known.get(name).cloned())),
            _ => Err(Error::failed("CSIDriver lister is not yet synced")),
        }
    }

    fn driver_changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }

    async fn attachment(&self, name: &str) -> Result<Option<VolumeAttachment>> {
        within(Api::all(self.client.clone()).get_opt(name)).await
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>> {
        let secrets = Api::namespaced(self.client.clone(), namespace);
        Ok(within(secrets.get_opt(name)).await?.map(Arc::new))
    }
}

#[async_trait]
impl CsiNodeObjects for ApiServerCsiObjects {
    async fn node(&self) -> Result<Node> {
        within(self.nodes().get(&self.node_name)).await
    }

    async fn patch_node(&self, patch: Value) -> Result<()> {
        let (nodes, params) = (self.nodes(), PatchParams::default());
        within(nodes.patch_status(&self.node_name, &params, &Patch::Merge(patch)))
            .await
            .map(drop)
    }

    async fn csi_node(&self) -> Result<Option<CSINode>> {
        within(self.csi_nodes().get_opt(&self.node_name)).await
    }

    async fn create_csi_node(&self, csi_node: &CSINode) -> Result<CSINode> {
        within(self.csi_nodes().create(&PostParams::default(), csi_node)).await
    }

    async fn update_csi_node(&self, csi_node: &CSINode) -> Result<()> {
        let (csi_nodes, params) = (self.csi_nodes(), PostParams::default());
        within(csi_nodes.replace(&self.node_name, &params, csi_node))
            .await
            .map(drop)
    }

    async fn delete_csi_node(&self) -> Result<()> {
        let (csi_nodes, params) = (self.csi_nodes(), DeleteParams::default());
        within(csi_nodes.delete(&self.node_name, &params)).await.map(drop)
    }
}

impl fmt::Debug for ApiServerCsiObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServerCsiObjects")
            .field("node", &self.node_name)
            .finish_non_exhaustive()
    }
}
