//! The objects of CSI in an API server in memory.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use kubelet_core::Jitter;
use kubelet_testing::ApiServer;
use kubelet_volume::csi::{ApiServerCsiObjects, CsiNodeInfo, CsiNodeReporter, CsiObjects, DriverInfo};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::node::{DRIVER, csi_driver};

#[tokio::test]
async fn drivers_are_watched() {
    let server = ApiServer::new();
    let drivers = Api::<CSIDriver>::all(server.client());
    drivers
        .create(&PostParams::default(), &csi_driver(json!({})))
        .await
        .unwrap();
    let objects = ApiServerCsiObjects::new(server.client(), "node-1");
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(objects.clone().run(shutdown.clone()));
    let driver = objects.driver(DRIVER).await.unwrap().unwrap();
    assert_eq!(driver.spec.requires_republish, Some(false));
    assert!(objects.driver("other.example.com").await.unwrap().is_none());

    let mut changes = objects.driver_changes().unwrap();
    changes.mark_unchanged();
    let patch = Patch::Merge(json!({"spec": {"requiresRepublish": true}}));
    drivers
        .patch(DRIVER, &PatchParams::default(), &patch)
        .await
        .unwrap();
    changes.changed().await.unwrap();
    let driver = objects.driver(DRIVER).await.unwrap().unwrap();
    assert_eq!(driver.spec.requires_republish, Some(true));
    drivers.delete(DRIVER, &DeleteParams::default()).await.unwrap();
    changes.changed().await.unwrap();
    assert!(objects.driver(DRIVER).await.unwrap().is_none());
    shutdown.cancel();
    run.await.unwrap();
}

#[tokio::test]
async fn attachments_and_secrets_are_read() {
    let server = ApiServer::new();
    let objects = ApiServerCsiObjects::new(server.client(), "node-1");
    assert!(objects.attachment("csi-1").await.unwrap().is_none());
    assert!(objects.secret("default", "key").await.unwrap().is_none());
    let attachment: VolumeAttachment = serde_json::from_value(json!({
        "metadata": {"name": "csi-1"},
        "spec": {"attacher": DRIVER, "nodeName": "node-1", "source": {"persistentVolumeName": "pv-1"}},
    }))
    .unwrap();
    Api::all(server.client())
        .create(&PostParams::default(), &attachment)
        .await
        .unwrap();
    let read = objects.attachment("csi-1").await.unwrap().unwrap();
    assert_eq!(read.spec.node_name, "node-1");
}

#[tokio::test]
async fn a_driver_is_reported_in_node_and_csi_node() {
    let server = ApiServer::new();
    let nodes = Api::<NodeObject>::all(server.client());
    let node: NodeObject = serde_json::from_value(json!({"metadata": {"name": "node-1"}})).unwrap();
    let node = nodes.create(&PostParams::default(), &node).await.unwrap();
    let objects = Arc::new(ApiServerCsiObjects::new(server.client(), "node-1"));
    let reporter = CsiNodeReporter::new("node-1", objects, Jitter::from_seed(1));
    reporter.initialize().await.unwrap();
    reporter.initialize().await.unwrap();
    let mut info = DriverInfo::default();
    info.node_id = "id-of-node".into();
    info.max_volumes = 3;
    info.topology = [("example.com/rack".to_owned(), "7".to_owned())].into();
    reporter.install(DRIVER, &info).await.unwrap();

    let csi_nodes = Api::<CSINode>::all(server.client());
    let csi_node = csi_nodes.get("node-1").await.unwrap();
    let owners = csi_node.metadata.owner_references.unwrap();
    assert_eq!(Some(&owners[0].uid), node.metadata.uid.as_ref());
    assert_eq!(csi_node.spec.drivers[0].node_id, "id-of-node");
    let node = nodes.get("node-1").await.unwrap();
    assert_eq!(node.metadata.labels.unwrap()["example.com/rack"], "7");
    assert_eq!(
        node.metadata.annotations.unwrap()["csi.volume.kubernetes.io/nodeid"],
        format!("{{\"{DRIVER}\":\"id-of-node\"}}")
    );
    info.max_volumes = 2;
    reporter.update(DRIVER, &info).await.unwrap();
    reporter.uninstall(DRIVER).await.unwrap();
    let csi_node = csi_nodes.get("node-1").await.unwrap();
    assert!(csi_node.spec.drivers.is_empty());
    let annotations = nodes
        .get("node-1")
        .await
        .unwrap()
        .metadata
        .annotations
        .unwrap_or_default();
    assert!(!annotations.contains_key("csi.volume.kubernetes.io/nodeid"));
}
