//! Restarts of the driver and of the agent.

use std::fs;

use kubelet_volume::{DeviceMountableVolumePlugin, VolumePlugin};

use super::node::{Node, on_disk, plain};

#[tokio::test]
async fn a_driver_that_was_restarted_is_reached_at_once() {
    let mut node = Node::new();
    let spec = plain("pv-1");
    node.stage(&spec).await.unwrap();
    for pod in ["a", "b", "c"] {
        node.stop_driver().await;
        node.start_driver();
        node.plugin.set_up(&node.mount(pod, spec.clone())).await.unwrap();
    }
    assert_eq!(node.driver.published().len(), 3);
    assert!(node.driver.violations().is_empty());
}

#[tokio::test]
async fn an_agent_that_was_restarted_finds_and_unmounts_what_was_mounted() {
    let mut node = Node::new();
    let spec = plain("pv-1");
    node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec.clone());
    node.plugin.set_up(&mount).await.unwrap();
    node.restart_agent();

    let found = node.plugin.reconstruct(&on_disk(&mount)).await.unwrap();
    assert_eq!(found.name(), "pv-1");
    assert!(!found.is_block());
    assert_eq!(
        node.plugin.volume_name(&found).unwrap(),
        node.plugin.volume_name(&spec).unwrap()
    );
    let path = node.plugin.device_mount_path(&spec).unwrap();
    assert_eq!(node.plugin.device_mount_path(&found).unwrap(), path);
    let staged = node.plugin.mounted_devices().await.unwrap();
    assert_eq!(staged.len(), 1);
    assert_eq!(node.plugin.device_mount_path(&staged[0]).unwrap(), path);

    // It mounts again what is mounted, without harm.
    node.stage(&spec).await.unwrap();
    node.plugin.set_up(&mount).await.unwrap();
    node.tear_down(&mount).await.unwrap();
    node.unstage(&spec).await.unwrap();
    assert!(node.plugin.mounted_devices().await.unwrap().is_empty());
    node.assert_clean();
}

#[tokio::test]
async fn what_an_agent_left_before_it_wrote_the_data_is_removed() {
    let node = Node::new();
    let mount = node.mount("a", plain("pv-1"));
    fs::create_dir_all(&mount.dir).unwrap();
    assert!(node.plugin.reconstruct(&on_disk(&mount)).await.is_err());
    node.tear_down(&mount).await.unwrap();
    assert!(!mount.dir.exists());

    // An agent was killed while it wrote the data.
    fs::create_dir_all(&mount.dir).unwrap();
    fs::write(mount.dir.join("vol_data.json.new"), "{\"driverNa").unwrap();
    node.tear_down(&mount).await.unwrap();
    assert!(!mount.dir.exists());

    // The host lost power.
    fs::create_dir_all(&mount.dir).unwrap();
    fs::write(mount.dir.join("vol_data.json"), "").unwrap();
    node.tear_down(&mount).await.unwrap();
    assert!(!mount.dir.exists());
}

#[tokio::test]
async fn data_that_cannot_be_read_keep_the_volume() {
    let node = Node::new();
    let mount = node.mount("a", plain("pv-1"));
    fs::create_dir_all(&mount.dir).unwrap();
    fs::write(mount.dir.join("vol_data.json"), "not JSON").unwrap();
    let error = node.tear_down(&mount).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("kubernetes.io/csi: unmounter failed to load volume data file"),
        "{error}"
    );
    assert!(mount.dir.exists());
}
