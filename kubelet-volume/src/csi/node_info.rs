//! What the cluster knows of the drivers of this node: the `CSINode`, and labels and an annotation of the `Node`
//! (`pkg/volume/csi/nodeinfomanager`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubelet_core::Jitter;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::migration;
use super::v1::NodeGetInfoResponse;
use crate::{Error, Result};

/// The annotation of the `Node` with the ids that drivers have for it, as JSON (`annotationKeyNodeID`).
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";

/// The annotation of the `CSINode` with the in-tree plugins whose volumes CSI drivers mount
/// (`MigratedPluginsAnnotationKey`).
const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// The tries of one update, and the waits between them: the kubelet's `updateBackoff`.
const TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(10);
const WAIT_FACTOR: u32 = 5;
const WAIT_JITTER: f64 = 0.1;

/// What a driver says of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverInfo {
    /// What the driver calls the node.
    pub node_id: String,
    /// How many of its volumes the node can have; 0 if the driver does not limit them.
    pub max_volumes: i64,
    /// Where the node is: labels of the node.
    pub topology: BTreeMap<String, String>,
}

impl From<NodeGetInfoResponse> for DriverInfo {
    fn from(info: NodeGetInfoResponse) -> Self {
        Self {
            node_id: info.node_id,
            max_volumes: info.max_volumes_per_node,
            topology: info.accessible_topology.map(|it| it.segments).unwrap_or_default(),
        }
    }
}

/// Reports the drivers of this node to the cluster.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait CsiNodeInfo: Send + Sync {
    /// The driver was registered.
    async fn install(&self, driver: &str, info: &DriverInfo) -> Result<()>;

    /// The driver reports other numbers than before.
    async fn update(&self, driver: &str, info: &DriverInfo) -> Result<()>;

    /// The driver is gone.
    async fn uninstall(&self, driver: &str) -> Result<()>;
}

/// Reports nothing: for an agent without an API server.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCsiNodeInfo;

#[async_trait]
impl CsiNodeInfo for NoCsiNodeInfo {
    async fn install(&self, _: &str, _: &DriverInfo) -> Result<()> {
        Ok(())
    }

    async fn update(&self, _: &str, _: &DriverInfo) -> Result<()> {
        Ok(())
    }

    async fn uninstall(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

/// Reads and writes the `Node` and the `CSINode` of this node.
///
/// # Cancel safety
///
/// When a call is dropped, its write may still happen.
#[async_trait]
pub trait CsiNodeObjects: Send + Sync {
    /// The node, from the API server itself.
    async fn node(&self) -> Result<Node>;

    /// Applies a merge patch to the node, by its `status` subresource.
    async fn patch_node(&self, patch: serde_json::Value) -> Result<()>;

    /// The `CSINode`, from the API server itself.
    async fn csi_node(&self) -> Result<Option<CSINode>>;

    /// Creates the `CSINode`.
    async fn create_csi_node(&self, csi_node: &CSINode) -> Result<CSINode>;

    /// Replaces the `CSINode`, if it has still this resource version.
    async fn update_csi_node(&self, csi_node: &CSINode) -> Result<()>;

    /// Deletes the `CSINode`.
    async fn delete_csi_node(&self) -> Result<()>;
}

/// Keeps the `CSINode` and the `Node` up to date (the kubelet's `nodeInfoManager`).
pub struct CsiNodeReporter {
    node_name: String,
    objects: Arc<dyn CsiNodeObjects>,
    jitter: Jitter,
    /// One update at a time: each reads, changes and writes.
    turn: Mutex<()>,
}

impl CsiNodeReporter {
    /// Reports the drivers of the node of this name.
    pub fn new(node_name: impl Into<String>, objects: Arc<dyn CsiNodeObjects>, jitter: Jitter) -> Self {
        Self {
            node_name: node_name.into(),
            objects,
            jitter,
            turn: Mutex::new(()),
        }
    }

    /// Creates the `CSINode`, or sets the annotation that says which in-tree plugins are migrated
    /// (`InitializeCSINodeWithAnnotation`). The node is ready only after it succeeded.
    ///
    /// # Errors
    ///
    /// After 4 tries; call it again.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn initialize(&self) -> Result<()> {
        let mut errors = Vec::new();
        self.tries(&mut errors, || self.try_initialize()).await.map_err(|()| {
            let last = errors.last().cloned().unwrap_or_default();
            Error::failed(format!(
                "error updating CSINode annotation: timed out waiting for the condition; caused by: {last}"
            ))
        })
    }

    async fn tries<F>(&self, errors: &mut Vec<String>, attempt: impl Fn() -> F + Send) -> Result<(), ()>
    where
        F: Future<Output = Result<()>> + Send,
    {
        let mut wait = FIRST_WAIT;
        for tried in 1..=TRIES {
            match attempt().await {
                Ok(()) => return Ok(()),
                Err(error) => errors.push(error.to_string()),
            }
            if tried < TRIES {
                sleep(self.jitter.apply(wait, WAIT_JITTER)).await;
                wait *= WAIT_FACTOR;
            }
        }
        Err(())
    }

    async fn try_initialize(&self) -> Result<()> {
        let _turn = self.turn.lock().await;
        let uid = self.node_uid().await?;
        let Some(mut csi_node) = self.objects.csi_node().await? else {
            self.objects.create_csi_node(&self.new_csi_node(&uid)).await?;
            return Ok(());
        };
        self.ensure_owned(&csi_node, &uid).await?;
        match set_migrated(&mut csi_node) {
            true => self.objects.update_csi_node(&csi_node).await,
            false => Ok(()),
        }
    }

    async fn node_uid(&self) -> Result<String> {
        let node = self.objects.node().await?;
        Ok(node.metadata.uid.unwrap_or_default())
    }

    fn new_csi_node(&self, uid: &str) -> CSINode {
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: self.node_name.clone(),
            uid: uid.to_owned(),
            ..Default::default()
        };
        let mut csi_node = CSINode {
            metadata: ObjectMeta {
                name: Some(self.node_name.clone()),
                owner_references: Some(vec![owner]),
                ..Default::default()
            },
            spec: CSINodeSpec { drivers: Vec::new() },
        };
        set_migrated(&mut csi_node);
        csi_node
    }

    /// A `CSINode` of an earlier node with this name is deleted. The next try creates one (`ensureNodeOwnsCSINode`).
    async fn ensure_owned(&self, csi_node: &CSINode, uid: &str) -> Result<()> {
        let owners = csi_node.metadata.owner_references.iter().flatten();
        let mut nodes = owners.filter(|owner| owner.kind == "Node");
        if nodes
            .clone()
            .any(|owner| owner.name == self.node_name && owner.uid == uid)
        {
            return Ok(());
        }
        self.objects.delete_csi_node().await?;
        let name = &self.node_name;
        let before = nodes.next().map(|owner| owner.uid.as_str()).unwrap_or_default();
        Err(Error::failed(format!(
            "CSINode {name:?} was owned by different node (oldNodeID={before:?}, newNodeID={uid:?}), deleted it"
        )))
    }

    async fn update_node(&self, change: &NodeChange<'_>) -> Result<()> {
        let mut errors = Vec::new();
        self.tries(&mut errors, || self.try_update_node(change))
            .await
            .map_err(|()| {
                Error::failed(format!(
                    "error updating node: timed out waiting for the condition; caused by: {}",
                    aggregate(&errors)
                ))
            })
    }

    async fn try_update_node(&self, change: &NodeChange<'_>) -> Result<()> {
        let _turn = self.turn.lock().await;
        let node = self.objects.node().await?;
        match change.patch(&node)? {
            Some(patch) => self.objects.patch_node(patch).await,
            None => Ok(()),
        }
    }

    async fn update_csi_node(&self, driver: &str, info: Option<&DriverInfo>) -> Result<()> {
        let mut errors = Vec::new();
        let attempt = || self.try_update_csi_node(driver, info);
        self.tries(&mut errors, attempt).await.map_err(|()| {
            Error::failed(format!(
                "error updating CSINode: timed out waiting for the condition; caused by: {}",
                aggregate(&errors)
            ))
        })
    }

    async fn try_update_csi_node(&self, driver: &str, info: Option<&DriverInfo>) -> Result<()> {
        let _turn = self.turn.lock().await;
        let found = self.objects.csi_node().await?;
        let Some(info) = info else {
            let Some(mut csi_node) = found else { return Ok(()) };
            let count = csi_node.spec.drivers.len();
            csi_node.spec.drivers.retain(|known| known.name != driver);
            return match csi_node.spec.drivers.len() == count {
                true => Ok(()),
                false => self.objects.update_csi_node(&csi_node).await,
            };
        };
        let uid = self.node_uid().await?;
        let mut csi_node = match found {
            Some(csi_node) => csi_node,
            None => self.objects.create_csi_node(&self.new_csi_node(&uid)).await?,
        };
        self.ensure_owned(&csi_node, &uid).await?;
        let changed = set_migrated(&mut csi_node) | set_driver(&mut csi_node.spec, driver, info);
        match changed {
            true => self.objects.update_csi_node(&csi_node).await,
            false => Ok(()),
        }
    }
}

#[async_trait]
impl CsiNodeInfo for CsiNodeReporter {
    async fn install(&self, driver: &str, info: &DriverInfo) -> Result<()> {
        if info.node_id.is_empty() {
            return Err(Error::failed(
                "error adding CSI driver node info: driverNodeID must not be empty",
            ));
        }
        let change = NodeChange {
            driver,
            node_id: Some(&info.node_id),
            topology: Some(&info.topology),
        };
        self.update_node(&change).await.map_err(|error| {
            Error::failed(format!(
                "error updating Node object with CSI driver node info: {error}"
            ))
        })?;
        self.update(driver, info).await
    }

    async fn update(&self, driver: &str, info: &DriverInfo) -> Result<()> {
        let updated = self.update_csi_node(driver, Some(info)).await;
        updated.map_err(|error| {
            Error::failed(format!(
                "error updating CSINode object with CSI driver node info: {error}"
            ))
        })
    }

    async fn uninstall(&self, driver: &str) -> Result<()> {
        let removed = self.update_csi_node(driver, None).await;
        removed.map_err(|error| {
            Error::failed(format!(
                "error uninstalling CSI driver from CSINode object {error}"
            ))
        })?;
        let change = NodeChange {
            driver,
            node_id: None,
            topology: None,
        };
        self.update_node(&change).await.map_err(|error| {
            Error::failed(format!(
                "error removing CSI driver node info from Node object {error}"
            ))
        })
    }
}

/// What a driver changes in the `Node`.
struct NodeChange<'a> {
    driver: &'a str,
    /// `None`: it is removed.
    node_id: Option<&'a str>,
    topology: Option<&'a BTreeMap<String, String>>,
}

impl NodeChange<'_> {
    /// The merge patch, or `None` if the node is as it should be.
    fn patch(&self, node: &Node) -> Result<Option<serde_json::Value>> {
        let annotations = node.metadata.annotations.as_ref();
        let before = annotations
            .and_then(|all| all.get(NODE_IDS))
            .map(String::as_str)
            .unwrap_or_default();
        let mut ids = match before.is_empty() {
            true => BTreeMap::new(),
            false => serde_json::from_str::<Option<BTreeMap<String, String>>>(before)
                .map_err(|error| {
                    Error::failed(format!(
                        "failed to parse node's {NODE_IDS:?} annotation value ({before:?}) err={error}"
                    ))
                })?
                .unwrap_or_default(),
        };
        let changed = match self.node_id {
            Some(id) => ids.insert(self.driver.to_owned(), id.to_owned()).as_deref() != Some(id),
            None => ids.remove(self.driver).is_some(),
        };
        let labels = self.labels(node)?;
        if !changed && labels.is_empty() {
            return Ok(None);
        }
        let mut metadata = json!({"uid": node.metadata.uid});
        if changed {
            let text = (!ids.is_empty()).then(|| json!(ids).to_string());
            metadata["annotations"] = json!({NODE_IDS: text});
        }
        if !labels.is_empty() {
            metadata["labels"] = json!(labels);
        }
        Ok(Some(json!({"metadata": metadata})))
    }

    /// The labels that the node lacks. A label with another value is not changed: pods were scheduled by it.
    fn labels(&self, node: &Node) -> Result<BTreeMap<&str, &str>> {
        let mut missing = BTreeMap::new();
        for (key, value) in self.topology.into_iter().flatten() {
            match node.metadata.labels.as_ref().and_then(|labels| labels.get(key)) {
                Some(existing) if existing == value => {}
                Some(existing) => {
                    return Err(Error::failed(format!(
                        "detected topology value collision: driver reported {key:?}:{value:?} but existing label is {key:?}:{existing:?}"
                    )));
                }
                None => {
                    missing.insert(key.as_str(), value.as_str());
                }
            }
        }
        Ok(missing)
    }
}

/// Returns whether the annotation changed (`setMigrationAnnotation`).
fn set_migrated(csi_node: &mut CSINode) -> bool {
    let annotations = csi_node.metadata.annotations.get_or_insert_default();
    let before = annotations
        .get(MIGRATED_PLUGINS)
        .map(String::as_str)
        .unwrap_or_default();
    let before: BTreeSet<&str> = before.split(',').filter(|name| !name.is_empty()).collect();
    let after: BTreeSet<&str> = migration::IN_TREE_PLUGINS.iter().copied().collect();
    if before == after {
        return false;
    }
    let text = after.into_iter().collect::<Vec<_>>().join(",");
    annotations.insert(MIGRATED_PLUGINS.to_owned(), text);
    true
}

/// Returns whether the entry of the driver changed (`installDriverToCSINode`).
fn set_driver(spec: &mut CSINodeSpec, driver: &str, info: &DriverInfo) -> bool {
    let keys: Vec<String> = info.topology.keys().cloned().collect();
    // A negative limit is none.
    let count = (info.max_volumes > 0).then(|| i32::try_from(info.max_volumes).unwrap_or(i32::MAX));
    let entry = CSINodeDriver {
        name: driver.to_owned(),
        node_id: info.node_id.clone(),
        topology_keys: (!keys.is_empty()).then_some(keys),
        allocatable: count.map(|count| VolumeNodeResources { count: Some(count) }),
    };
    let known = spec.drivers.iter().find(|known| known.name == driver);
    if known.is_some_and(|known| is_same(known, &entry)) {
        return false;
    }
    spec.drivers.retain(|known| known.name != driver);
    spec.drivers.push(entry);
    true
}

fn is_same(a: &CSINodeDriver, b: &CSINodeDriver) -> bool {
    let keys = |driver: &CSINodeDriver| -> BTreeSet<String> {
        driver.topology_keys.iter().flatten().cloned().collect()
    };
    let count = |driver: &CSINodeDriver| driver.allocatable.as_ref().and_then(|it| it.count);
    a.node_id == b.node_id && keys(a) == keys(b) && count(a) == count(b)
}

/// As the kubelet prints several errors (`NewAggregate`): each text once.
fn aggregate(errors: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error.as_str()) {
            distinct.push(error);
        }
    }
    match distinct[..] {
        [one] => one.to_owned(),
        _ => format!("[{}]", distinct.join(", ")),
    }
}
