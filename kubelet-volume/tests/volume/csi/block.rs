//! Block devices.

use std::fs;

use kubelet_testing::csi_driver::{CsiFault, CsiMethod, CsiRequest, CsiTrouble};
use kubelet_volume::{
    BlockVolumePlugin, DeviceMountableVolumePlugin, Expansion, NodeExpandableVolumePlugin, VolumeSpec,
};
use serde_json::json;
use tonic::Code;

use super::node::{Node, on_disk, persistent};

fn block(name: &str) -> VolumeSpec {
    persistent(name, json!({}), json!({"volumeMode": "Block"}))
}

#[tokio::test]
async fn a_device_is_staged_published_and_taken_down() {
    let mut node = Node::new();
    let spec = block("pv-1");
    let devices = node.root().join("plugins/kubernetes.io/csi/volumeDevices");
    let global = node.plugin.global_map_path(&spec).unwrap();
    assert_eq!(global, devices.join("pv-1/dev"));
    let mount = node.mount("a", spec.clone());
    let (dir, name) = node.plugin.pod_device_map_path(&mount);
    assert_eq!(
        dir,
        node.root().join("pods/uid-of-a/volumeDevices/kubernetes.io~csi")
    );
    assert_eq!(name, "pv-1");

    let staging = node.plugin.set_up_device(&mount, "").await.unwrap().unwrap();
    assert_eq!(staging, devices.join("staging/pv-1"));
    let device = node.plugin.map_pod_device(&mount, "").await.unwrap();
    assert_eq!(device, devices.join("publish/pv-1/uid-of-a"));
    assert_eq!(fs::read_to_string(&device).unwrap(), "handle-of-pv-1");
    let data = fs::read_to_string(devices.join("pv-1/data/vol_data.json")).unwrap();
    assert!(
        data.contains("\"specVolID\":\"pv-1\"") && data.ends_with("}\n"),
        "{data}"
    );

    // An agent that knows nothing but the disk takes it down.
    node.restart_agent();
    let found = node.plugin.reconstruct_block(&on_disk(&mount)).await.unwrap();
    assert!(found.is_block());
    assert_eq!(
        node.plugin.mounted_devices().await.unwrap(),
        std::slice::from_ref(&found)
    );
    node.plugin.unmap_pod_device(&on_disk(&mount)).await.unwrap();
    node.plugin.tear_down_device(&found, &global, "").await.unwrap();
    assert!(!devices.join("pv-1").exists() && !device.exists() && !staging.exists());
    node.plugin.tear_down_device(&found, &global, "").await.unwrap();
    node.assert_clean();
}

#[tokio::test]
async fn a_device_grows_where_it_was_staged_and_published() {
    let node = Node::new();
    let spec = block("pv-1");
    let mount = node.mount("a", spec.clone());
    let staging = node.plugin.set_up_device(&mount, "").await.unwrap().unwrap();
    let device = node.plugin.map_pod_device(&mount, "").await.unwrap();
    let expansion = Expansion {
        spec: mount.spec.clone(),
        device_path: device.display().to_string(),
        device_mount_path: node.plugin.global_map_path(&spec).unwrap(),
        dir: node.plugin.pod_device_map_path(&mount).0,
        old_size: 1 << 30,
        new_size: 2 << 30,
        is_published: true,
    };
    assert!(node.plugin.node_expand(&expansion).await.unwrap());
    let calls = node.calls_of(CsiMethod::NodeExpandVolume);
    let CsiRequest::Expand(request) = &calls[0].request else {
        panic!("{calls:?}")
    };
    let paths = [&request.staging_target_path, &request.volume_path];
    assert_eq!(
        paths,
        [&staging.display().to_string(), &device.display().to_string()]
    );
}

#[tokio::test]
async fn a_device_that_fails_for_certain_leaves_nothing() {
    let node = Node::new();
    let mount = node.mount("a", block("pv-1"));
    let trouble = CsiTrouble::Fails(Code::InvalidArgument, "no".into());
    node.driver
        .fault(CsiFault::on(CsiMethod::NodeStageVolume).times(1).then(trouble));
    let error = node.plugin.set_up_device(&mount, "").await.unwrap_err();
    assert_eq!(error.to_string(), "rpc error: code = InvalidArgument desc = no");
    assert!(!error.is_uncertain());
    node.assert_clean();
    assert!(
        !node
            .root()
            .join("plugins/kubernetes.io/csi/volumeDevices/pv-1")
            .exists()
    );
}

#[tokio::test]
async fn a_lost_answer_leaves_the_data_to_take_the_device_down() {
    let node = Node::new();
    let spec = block("pv-1");
    let mount = node.mount("a", spec.clone());
    node.driver.fault(
        CsiFault::on(CsiMethod::NodeStageVolume)
            .times(1)
            .then(CsiTrouble::AnswerLost),
    );
    let error = node.plugin.set_up_device(&mount, "").await.unwrap_err();
    assert!(error.is_uncertain(), "{error:?}");
    let global = node.plugin.global_map_path(&spec).unwrap();
    node.plugin.unmap_pod_device(&on_disk(&mount)).await.unwrap();
    node.plugin.tear_down_device(&spec, &global, "").await.unwrap();
    node.assert_clean();
}

#[tokio::test]
async fn a_device_that_no_link_shows_is_unpublished_before_it_is_unstaged() {
    let mut node = Node::new();
    let spec = block("pv-1");
    let mount = node.mount("a", spec.clone());
    node.plugin.set_up_device(&mount, "").await.unwrap();
    node.plugin.map_pod_device(&mount, "").await.unwrap();
    // The agent is killed before it makes the links, or after it has removed them.
    node.restart_agent();
    let found = node.plugin.mounted_devices().await.unwrap();
    let global = node.plugin.global_map_path(&spec).unwrap();
    node.plugin
        .tear_down_device(&found[0], &global, "")
        .await
        .unwrap();
    node.assert_clean();
}
