//! What the cluster knows of the drivers.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::storage::v1::CSINode;
use kubelet_core::Jitter;
use kubelet_testing::csi_driver::CsiMethod;
use kubelet_volume::csi::v1::NodeGetInfoResponse;
use kubelet_volume::csi::{AllocatableUpdater, CsiNodeInfo, CsiNodeObjects, CsiNodeReporter, DriverInfo};
use kubelet_volume::{Error, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::node::{DRIVER, Node, csi_driver};

#[derive(Default)]
struct Cluster {
    node: Mutex<Value>,
    csi_node: Mutex<Option<CSINode>>,
    failures: Mutex<usize>,
    writes: Mutex<usize>,
}

impl Cluster {
    fn new(uid: &str) -> Arc<Self> {
        Arc::new(Self {
            node: Mutex::new(json!({"metadata": {"name": "node-1", "uid": uid}})),
            ..Self::default()
        })
    }

    fn write(&self) -> Result<()> {
        *self.writes.lock() += 1;
        let mut failures = self.failures.lock();
        if *failures > 0 {
            *failures -= 1;
            return Err(Error::failed("the object has been modified"));
        }
        Ok(())
    }

    fn csi_node(&self) -> Value {
        json!(self.csi_node.lock().as_ref().unwrap())
    }
}

#[async_trait]
impl CsiNodeObjects for Cluster {
    async fn node(&self) -> Result<NodeObject> {
        Ok(serde_json::from_value(self.node.lock().clone()).unwrap())
    }

    async fn patch_node(&self, patch: Value) -> Result<()> {
        self.write()?;
        let mut node = self.node.lock();
        assert_eq!(patch["metadata"]["uid"], node["metadata"]["uid"]);
        for field in ["annotations", "labels"] {
            for (key, value) in patch["metadata"][field].as_object().into_iter().flatten() {
                match value.is_null() {
                    true => _ = node["metadata"][field].as_object_mut().unwrap().remove(key),
                    false => node["metadata"][field][key] = value.clone(),
                }
            }
        }
        Ok(())
    }

    async fn csi_node(&self) -> Result<Option<CSINode>> {
        Ok(self.csi_node.lock().clone())
    }

    async fn create_csi_node(&self, csi_node: &CSINode) -> Result<CSINode> {
        self.write()?;
        *self.csi_node.lock() = Some(csi_node.clone());
        Ok(csi_node.clone())
    }

    async fn update_csi_node(&self, csi_node: &CSINode) -> Result<()> {
        self.write()?;
        *self.csi_node.lock() = Some(csi_node.clone());
        Ok(())
    }

    async fn delete_csi_node(&self) -> Result<()> {
        *self.csi_node.lock() = None;
        Ok(())
    }
}

fn reporter(cluster: &Arc<Cluster>) -> CsiNodeReporter {
    CsiNodeReporter::new("node-1", cluster.clone(), Jitter::from_seed(1))
}

fn info(id: &str, max_volumes: i64, topology: &[(&str, &str)]) -> DriverInfo {
    let mut info = DriverInfo::default();
    info.node_id = id.into();
    info.max_volumes = max_volumes;
    info.topology = topology
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    info
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_in_the_csi_node_and_its_topology_among_the_labels() {
    let cluster = Cluster::new("uid-1");
    let reporter = reporter(&cluster);
    reporter.initialize().await.unwrap();
    let migrated = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";
    assert_eq!(
        cluster.csi_node(),
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {
                "name": "node-1",
                "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": migrated},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-1"}],
            },
            "spec": {"drivers": []},
        })
    );
    reporter
        .install(DRIVER, &info("id-of-node", 17, &[("example.com/rack", "7")]))
        .await
        .unwrap();
    assert_eq!(
        cluster.csi_node()["spec"]["drivers"],
        json!([{"name": DRIVER, "nodeID": "id-of-node", "topologyKeys": ["example.com/rack"], "allocatable": {"count": 17}}])
    );
    let metadata = cluster.node.lock()["metadata"].clone();
    assert_eq!(metadata["labels"], json!({"example.com/rack": "7"}));
    assert_eq!(
        metadata["annotations"]["csi.volume.kubernetes.io/nodeid"],
        format!("{{\"{DRIVER}\":\"id-of-node\"}}")
    );
    // Nothing is written when nothing changed.
    let writes = *cluster.writes.lock();
    reporter
        .install(DRIVER, &info("id-of-node", 17, &[("example.com/rack", "7")]))
        .await
        .unwrap();
    assert_eq!(*cluster.writes.lock(), writes);

    reporter
        .install("b.example.com", &info("b", -1, &[]))
        .await
        .unwrap();
    assert_eq!(
        cluster.csi_node()["spec"]["drivers"][1],
        json!({"name": "b.example.com", "nodeID": "b"})
    );
    reporter.uninstall(DRIVER).await.unwrap();
    reporter.uninstall("b.example.com").await.unwrap();
    assert_eq!(cluster.csi_node()["spec"]["drivers"], json!([]));
    let metadata = cluster.node.lock()["metadata"].clone();
    assert_eq!(metadata["annotations"], json!({}));
    assert_eq!(
        metadata["labels"],
        json!({"example.com/rack": "7"}),
        "labels stay"
    );
}

#[tokio::test(start_paused = true)]
async fn a_label_with_another_value_refuses_the_driver() {
    let cluster = Cluster::new("uid-1");
    cluster.node.lock()["metadata"]["labels"] = json!({"example.com/rack": "8"});
    let error = reporter(&cluster)
        .install(DRIVER, &info("id", 0, &[("example.com/rack", "7")]))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "error updating Node object with CSI driver node info: error updating node: timed out waiting for the condition; caused by: detected topology value collision: driver reported \"example.com/rack\":\"7\" but existing label is \"example.com/rack\":\"8\""
    );
    let error = reporter(&cluster)
        .install(DRIVER, &info("", 0, &[]))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "error adding CSI driver node info: driverNodeID must not be empty"
    );
}

#[tokio::test(start_paused = true)]
async fn the_csi_node_of_an_earlier_node_is_replaced() {
    let before = Cluster::new("uid-1");
    reporter(&before).initialize().await.unwrap();
    let cluster = Cluster::new("uid-2");
    *cluster.csi_node.lock() = before.csi_node.lock().clone();
    reporter(&cluster).initialize().await.unwrap();
    assert_eq!(
        cluster.csi_node()["metadata"]["ownerReferences"][0]["uid"],
        "uid-2"
    );
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_retried_three_times() {
    let cluster = Cluster::new("uid-1");
    let reporter = reporter(&cluster);
    reporter.initialize().await.unwrap();
    *cluster.failures.lock() = 3;
    reporter.install(DRIVER, &info("id", 0, &[])).await.unwrap();
    *cluster.failures.lock() = 4;
    let error = reporter.uninstall(DRIVER).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("caused by: the object has been modified"),
        "{error}"
    );
}

#[derive(Default)]
struct Updates {
    seen: tokio::sync::watch::Sender<Vec<(String, i64)>>,
}

#[async_trait]
impl CsiNodeInfo for Updates {
    async fn install(&self, _: &str, _: &DriverInfo) -> Result<()> {
        Ok(())
    }

    async fn update(&self, driver: &str, info: &DriverInfo) -> Result<()> {
        let update = (driver.to_owned(), info.max_volumes);
        self.seen.send_modify(|seen| seen.push(update));
        Ok(())
    }

    async fn uninstall(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_number_of_volumes_is_updated_as_often_as_the_driver_says() {
    let node = Node::new();
    node.driver.set_info(NodeGetInfoResponse {
        node_id: "id".into(),
        max_volumes_per_node: 5,
        accessible_topology: None,
    });
    let updates = Arc::new(Updates::default());
    let mut seen = updates.seen.subscribe();
    let updater = AllocatableUpdater::new(node.drivers.clone(), Arc::new(node.objects.clone()), updates);
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(updater.run(shutdown.clone()));
    node.objects
        .set_driver(csi_driver(json!({"nodeAllocatableUpdatePeriodSeconds": 1})));
    seen.wait_for(|seen| seen.len() == 2).await.unwrap();
    assert_eq!(seen.borrow()[0], (DRIVER.to_owned(), 5));
    assert!(node.calls_of(CsiMethod::NodeGetInfo).len() >= 2);
    node.objects.set_driver(csi_driver(json!({})));
    shutdown.cancel();
    run.await.unwrap();
}
