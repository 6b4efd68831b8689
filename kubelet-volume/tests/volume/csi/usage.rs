//! Usage and health, as drivers report them.

use kubelet_testing::csi_driver::{CsiMethod, CsiRequest};
use kubelet_volume::VolumePlugin;
use kubelet_volume::csi::v1::node_service_capability::rpc::Type as Capability;
use kubelet_volume::csi::v1::{NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage};

use super::node::{Node, on_disk, plain};

#[tokio::test]
async fn usage_is_what_the_driver_reports() {
    let node = Node::new();
    let mount = node.mount("a", plain("pv-1"));
    let usage = node
        .plugin
        .usage(&on_disk(&mount), &mount.spec)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (usage.used_bytes, usage.capacity_bytes, usage.available_bytes),
        (Some(40), Some(100), Some(60))
    );
    assert_eq!(
        (usage.inodes_used, usage.inodes, usage.inodes_free),
        (Some(40), Some(100), Some(60))
    );
    assert_eq!(usage.abnormal, None);
    let calls = node.calls_of(CsiMethod::NodeGetVolumeStats);
    let CsiRequest::Stats(request) = &calls[0].request else {
        panic!("{calls:?}")
    };
    assert_eq!(
        request.volume_path,
        node.plugin.path(&mount).display().to_string()
    );
    assert_eq!(request.volume_id, "handle-of-pv-1");
}

#[tokio::test]
async fn health_is_reported_by_drivers_that_can() {
    let node = Node::new();
    let condition = VolumeCondition {
        abnormal: true,
        message: "the disk is on fire".into(),
    };
    node.driver.set_stats(NodeGetVolumeStatsResponse {
        usage: Vec::new(),
        volume_condition: Some(condition),
    });
    let mount = node.mount("a", plain("pv-1"));
    let error = node
        .plugin
        .usage(&on_disk(&mount), &mount.spec)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to get usage from response. usage is nil"
    );
    node.driver
        .set_capabilities([Capability::GetVolumeStats, Capability::VolumeCondition]);
    let usage = node
        .plugin
        .usage(&on_disk(&mount), &mount.spec)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(usage.abnormal, Some(true));
    node.driver.set_capabilities([]);
    assert!(
        node.plugin
            .usage(&on_disk(&mount), &mount.spec)
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn senseless_numbers_are_left_out() {
    let node = Node::new();
    let usage = |unit: i32| VolumeUsage {
        available: -1,
        total: i64::MAX,
        used: i64::MIN,
        unit,
    };
    node.driver.set_stats(NodeGetVolumeStatsResponse {
        usage: vec![usage(1), usage(2), usage(77)],
        volume_condition: None,
    });
    let mount = node.mount("a", plain("pv-1"));
    let usage = node
        .plugin
        .usage(&on_disk(&mount), &mount.spec)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (usage.used_bytes, usage.available_bytes, usage.inodes_used),
        (None, None, None)
    );
    assert_eq!(usage.capacity_bytes, Some(i64::MAX.unsigned_abs()));
}
