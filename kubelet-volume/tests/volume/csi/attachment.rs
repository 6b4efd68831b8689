//! Volumes that the attach-detach controller attaches.

use k8s_openapi::api::storage::v1::VolumeAttachment;
use kubelet_testing::csi_driver::CsiMethod;
use kubelet_volume::{AttachableVolumePlugin, VolumePlugin};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::node::{DRIVER, Node, csi_driver, plain, pod_named};
use super::persistent::published;

fn attachment_name() -> String {
    let hash = Sha256::digest(format!("handle-of-pv-1{DRIVER}node-1"));
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hash}")
}

fn attachment(metadata: Value, status: Value) -> VolumeAttachment {
    let mut metadata = metadata;
    metadata["name"] = json!(attachment_name());
    let object = json!({
        "metadata": metadata,
        "spec": {"attacher": DRIVER, "nodeName": "node-1", "source": {"persistentVolumeName": "pv-1"}},
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

#[tokio::test]
async fn the_attachment_is_awaited_and_its_metadata_passed_on() {
    let node = Node::with(json!({}));
    let spec = plain("pv-1");
    let pod = pod_named("a");
    assert!(node.plugin.can_attach(&spec).await.unwrap());
    let name = attachment_name();
    let wait = || node.plugin.wait_for_attach(&spec, "", &pod);
    assert_eq!(
        wait().await.unwrap_err().to_string(),
        format!(
            "volume handle-of-pv-1 has GET error for volume attachment {name}: volumeattachments.storage.k8s.io \"{name}\" not found"
        )
    );
    for (metadata, status, expected) in [
        (
            json!({}),
            json!({"attached": false}),
            format!("volume handle-of-pv-1 is not attached for volume attachment {name}"),
        ),
        (
            json!({}),
            json!({"attached": false, "attachError": {"message": "no more slots"}}),
            "no more slots".to_owned(),
        ),
        (
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            json!({"attached": true}),
            "volume attachment is being deleted".to_owned(),
        ),
    ] {
        node.objects.set_attachment(attachment(metadata, status));
        assert_eq!(wait().await.unwrap_err().to_string(), expected);
    }
    node.objects.set_attachment(attachment(
        json!({}),
        json!({"attached": true, "attachmentMetadata": {"device": "/dev/sdz"}}),
    ));
    assert_eq!(wait().await.unwrap(), name);
    node.stage(&spec).await.unwrap();
    node.plugin.set_up(&node.mount("a", spec.clone())).await.unwrap();
    assert_eq!(published(&node).publish_context["device"], "/dev/sdz");
}

#[tokio::test]
async fn without_an_attachment_nothing_is_staged() {
    let node = Node::with(json!({}));
    let error = node.stage(&plain("pv-1")).await.unwrap_err();
    let name = attachment_name();
    assert_eq!(
        error.to_string(),
        format!("volumeattachments.storage.k8s.io \"{name}\" not found")
    );
    assert!(!node.root().join("plugins").exists());
}

#[tokio::test]
async fn a_driver_that_needs_no_attachment_is_not_attached() {
    let node = Node::with(json!({}));
    let spec = plain("pv-1");
    node.objects
        .set_driver(csi_driver(json!({"attachRequired": false})));
    assert!(!node.plugin.can_attach(&spec).await.unwrap());
    let error = node.plugin.attach(&spec, "node-1").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "attaching volumes from the kubelet is not supported"
    );
}

#[tokio::test]
async fn a_node_without_a_free_slot_is_found_out_for_drivers_that_update_their_number() {
    let node = Node::with(json!({"nodeAllocatableUpdatePeriodSeconds": 60}));
    let spec = plain("pv-1");
    assert!(!node.plugin.is_exhausted(&spec).await);
    for (code, expected) in [(json!(8), true), (json!(13), false), (Value::Null, false)] {
        let error = json!({"message": "no more slots", "errorCode": code});
        node.objects.set_attachment(attachment(
            json!({}),
            json!({"attached": false, "attachError": error}),
        ));
        assert_eq!(node.plugin.is_exhausted(&spec).await, expected, "{code}");
    }
    assert_eq!(node.calls_of(CsiMethod::NodeGetInfo).len(), 1);
    let error = json!({"message": "no more slots", "errorCode": 8});
    node.objects.set_attachment(attachment(
        json!({}),
        json!({"attached": false, "attachError": error}),
    ));
    node.objects.set_driver(csi_driver(json!({})));
    assert!(!node.plugin.is_exhausted(&spec).await);
}
