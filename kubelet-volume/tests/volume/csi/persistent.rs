//! Persistent volumes: what the driver is asked, and what is on the disk.

use std::fs;
use std::os::unix::fs::MetadataExt;

use k8s_openapi::api::core::v1::Secret;
use kubelet_testing::csi_driver::{CsiMethod, CsiRequest, VOLUME_FILE};
use kubelet_volume::csi::v1::node_service_capability::rpc::Type as Capability;
use kubelet_volume::csi::v1::volume_capability::access_mode::Mode;
use kubelet_volume::csi::v1::volume_capability::{AccessType, MountVolume};
use kubelet_volume::csi::v1::{NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability};
use kubelet_volume::{
    DeviceMountableVolumePlugin, Error, Expansion, NodeExpandableVolumePlugin, VolumePlugin,
};
use serde_json::json;

use super::node::{Node, persistent, plain};

fn staged(node: &Node) -> NodeStageVolumeRequest {
    match &node.calls_of(CsiMethod::NodeStageVolume).last().unwrap().request {
        CsiRequest::Stage(request) => request.clone(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn published(node: &Node) -> NodePublishVolumeRequest {
    match &node
        .calls_of(CsiMethod::NodePublishVolume)
        .last()
        .unwrap()
        .request
    {
        CsiRequest::Publish(request) => request.clone(),
        other => panic!("{other:?}"),
    }
}

fn mount_of(capability: Option<VolumeCapability>) -> (Mode, MountVolume) {
    let capability = capability.unwrap();
    let mode = capability.access_mode.unwrap().mode();
    match capability.access_type.unwrap() {
        AccessType::Mount(mount) => (mode, mount),
        AccessType::Block(_) => panic!("a block device"),
    }
}

#[tokio::test]
async fn a_volume_is_staged_once_and_published_for_each_pod() {
    let node = Node::new();
    let spec = plain("pv-1");
    let staging = node.stage(&spec).await.unwrap();
    assert!(staging.starts_with(node.root().join("plugins/kubernetes.io/csi/disk.example.com")));
    assert!(staging.ends_with("globalmount"));
    assert_eq!(
        fs::read_to_string(staging.parent().unwrap().join("vol_data.json")).unwrap(),
        "{\"driverName\":\"disk.example.com\",\"volumeHandle\":\"handle-of-pv-1\"}\n"
    );
    let mounts = ["a", "b"].map(|pod| node.mount(pod, spec.clone()));
    for mount in &mounts {
        let set_up = node.plugin.set_up(mount).await.unwrap();
        assert_eq!(set_up.again_at, None);
        let path = node.plugin.path(mount);
        assert_eq!(path, mount.dir.join("mount"));
        assert_eq!(
            fs::read_to_string(path.join(VOLUME_FILE)).unwrap(),
            "handle-of-pv-1"
        );
        let data: serde_json::Value =
            serde_json::from_slice(&fs::read(mount.dir.join("vol_data.json")).unwrap()).unwrap();
        let attachment = data["attachmentID"].as_str().unwrap().to_owned();
        assert!(
            attachment.starts_with("csi-") && attachment.len() == 68,
            "{attachment}"
        );
        assert_eq!(
            data,
            json!({
                "specVolID": "pv-1",
                "volumeHandle": "handle-of-pv-1",
                "driverName": "disk.example.com",
                "nodeName": "node-1",
                "attachmentID": attachment,
                "volumeLifecycleMode": "Persistent",
            })
        );
        assert_eq!(fs::metadata(&mount.dir).unwrap().mode() & 0o777, 0o750);
    }
    let request = published(&node);
    assert_eq!(request.staging_target_path, staging.display().to_string());
    assert_eq!(request.volume_context, Default::default());
    assert_eq!(mount_of(request.volume_capability).0, Mode::SingleNodeWriter);
    for mount in &mounts {
        node.tear_down(mount).await.unwrap();
        assert!(!mount.dir.exists());
        node.tear_down(mount).await.unwrap();
    }
    node.unstage(&spec).await.unwrap();
    assert!(!staging.parent().unwrap().exists());
    node.unstage(&spec).await.unwrap();
    node.assert_clean();
}

#[tokio::test]
async fn the_driver_gets_what_the_volume_says() {
    let node = Node::new();
    let capabilities = [
        Capability::StageUnstageVolume,
        Capability::SingleNodeMultiWriter,
        Capability::VolumeMountGroup,
    ];
    node.driver.set_capabilities(capabilities);
    let secret = json!({
        "metadata": {"namespace": "vault", "name": "key"},
        "data": {"user": "am9l"},
    });
    node.objects
        .set_secret(serde_json::from_value::<Secret>(secret).unwrap());
    let reference = json!({"namespace": "vault", "name": "key"});
    let spec = persistent(
        "pv-1",
        json!({
            "fsType": "ext4",
            "volumeAttributes": {"tier": "gold"},
            "nodeStageSecretRef": reference,
            "nodePublishSecretRef": reference,
        }),
        json!({"accessModes": ["ReadWriteOncePod"], "mountOptions": ["noatime"]}),
    );
    node.stage(&spec).await.unwrap();
    let request = staged(&node);
    assert_eq!(request.secrets["user"], "joe");
    assert_eq!(request.volume_context["tier"], "gold");
    let (mode, mount) = mount_of(request.volume_capability);
    assert_eq!(mode, Mode::SingleNodeSingleWriter);
    assert_eq!(
        (mount.fs_type.as_str(), mount.mount_flags),
        ("ext4", vec!["noatime".to_string()])
    );

    let mut mount = node.mount("a", spec);
    mount.fs_group = Some(1234);
    node.plugin.set_up(&mount).await.unwrap();
    let request = published(&node);
    assert_eq!(request.secrets["user"], "joe");
    assert!(!request.readonly);
    assert_eq!(mount_of(request.volume_capability).1.volume_mount_group, "1234");
    // The driver has applied the group, so the agent does not.
    let owner = fs::metadata(node.plugin.path(&mount).join(VOLUME_FILE))
        .unwrap()
        .gid();
    assert_ne!(owner, 1234);
}

#[tokio::test]
async fn the_agent_applies_the_group_as_the_driver_says() {
    for (policy, fs_type, modes, expected) in [
        ("ReadWriteOnceWithFSType", "ext4", "ReadWriteOnce", true),
        ("ReadWriteOnceWithFSType", "", "ReadWriteOnce", false),
        ("ReadWriteOnceWithFSType", "ext4", "ReadWriteMany", false),
        ("File", "", "ReadWriteMany", true),
        ("None", "ext4", "ReadWriteOnce", false),
    ] {
        let node = Node::with(json!({"attachRequired": false, "fsGroupPolicy": policy}));
        let spec = persistent(
            "pv-1",
            json!({"fsType": fs_type}),
            json!({"accessModes": [modes]}),
        );
        node.stage(&spec).await.unwrap();
        let mut mount = node.mount("a", spec);
        // The group of this process: no permission is needed to give it files.
        mount.fs_group = Some(fs::metadata(node.dir.path()).unwrap().gid());
        node.plugin.set_up(&mount).await.unwrap();
        let mode = fs::metadata(node.plugin.path(&mount).join(VOLUME_FILE))
            .unwrap()
            .mode();
        assert_eq!(
            mode & 0o020 != 0,
            expected,
            "{policy} {fs_type:?} {modes}: {mode:o}"
        );
    }
}

#[tokio::test]
async fn a_read_only_volume_is_published_read_only() {
    let node = Node::new();
    let mut spec = plain("pv-1");
    spec.read_only = true;
    node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec);
    assert!(node.plugin.attributes(&mount).read_only && !node.plugin.attributes(&mount).managed);
    node.plugin.set_up(&mount).await.unwrap();
    assert!(published(&node).readonly);
}

#[tokio::test]
async fn selinux_labels_are_mount_options_for_drivers_that_mount_with_them() {
    for (supports, expected) in [(true, vec!["context=\"system_u:object_r:c0\""]), (false, vec![])] {
        let node = Node::with(json!({"attachRequired": false, "seLinuxMount": supports}));
        let spec = plain("pv-1");
        assert_eq!(node.plugin.supports_selinux_mount(&spec).await.unwrap(), supports);
        node.stage(&spec).await.unwrap();
        let mut mount = node.mount("a", spec);
        mount.selinux_label = Some("system_u:object_r:c0".into());
        node.plugin.set_up(&mount).await.unwrap();
        assert_eq!(
            mount_of(published(&node).volume_capability).1.mount_flags,
            expected
        );
        let data = fs::read_to_string(mount.dir.join("vol_data.json")).unwrap();
        assert_eq!(data.contains("seLinuxMountContext"), supports, "{data}");
    }
}

#[tokio::test]
async fn a_driver_without_staging_is_only_asked_to_publish() {
    let node = Node::new();
    node.driver.set_capabilities([]);
    let spec = plain("pv-1");
    let path = node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec.clone());
    node.plugin.set_up(&mount).await.unwrap();
    assert_eq!(published(&node).staging_target_path, "");
    node.tear_down(&mount).await.unwrap();
    node.unstage(&spec).await.unwrap();
    assert!(!path.exists());
    assert!(node.calls_of(CsiMethod::NodeStageVolume).is_empty());
    assert!(node.calls_of(CsiMethod::NodeUnstageVolume).is_empty());
    node.assert_clean();
}

#[tokio::test]
async fn a_missing_secret_is_reported_in_the_words_of_the_kubelet() {
    let node = Node::new();
    let reference = json!({"namespace": "vault", "name": "key"});
    let spec = persistent("pv-1", json!({"nodeStageSecretRef": reference}), json!({}));
    let error = node.stage(&spec).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "fetching NodeStageSecretRef vault/key failed: kubernetes.io/csi: failed to find the secret key in the namespace vault with error: secrets \"key\" not found"
    );
    assert!(!error.is_uncertain());
    assert!(node.calls_of(CsiMethod::NodeStageVolume).is_empty());
}

#[tokio::test]
async fn a_driver_that_is_not_registered_is_reported_in_the_words_of_the_kubelet() {
    let node = Node::new();
    let spec = persistent("pv-1", json!({"driver": "other.example.com"}), json!({}));
    let error = node.stage(&spec).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name other.example.com not found in the list of registered CSI drivers"
    );
    let error = node.plugin.set_up(&node.mount("a", spec)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name other.example.com not found in the list of registered CSI drivers"
    );
}

#[tokio::test]
async fn a_volume_grows_on_the_node() {
    use kubelet_testing::csi_driver::{CsiFault, CsiTrouble};
    use tonic::Code;

    let node = Node::new();
    let spec = persistent("pv-1", json!({"fsType": "xfs"}), json!({}));
    let staging = node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec.clone());
    node.plugin.set_up(&mount).await.unwrap();
    let expansion = Expansion {
        spec: mount.spec.clone(),
        device_path: String::new(),
        device_mount_path: staging.clone(),
        dir: node.plugin.path(&mount),
        old_size: 1 << 30,
        new_size: 2 << 30,
        is_published: true,
    };
    assert!(node.plugin.node_expand(&expansion).await.unwrap());
    let calls = node.calls_of(CsiMethod::NodeExpandVolume);
    let CsiRequest::Expand(request) = &calls[0].request else {
        panic!("{calls:?}")
    };
    assert_eq!(request.capacity_range.unwrap().required_bytes, 2 << 30);
    assert_eq!(request.staging_target_path, staging.display().to_string());
    assert_eq!(
        request.volume_path,
        node.plugin.path(&mount).display().to_string()
    );

    for code in [
        Code::FailedPrecondition,
        Code::OutOfRange,
        Code::Internal,
        Code::Aborted,
    ] {
        let trouble = CsiTrouble::Fails(code, "no".into());
        node.driver.clear_faults();
        node.driver
            .fault(CsiFault::on(CsiMethod::NodeExpandVolume).then(trouble));
        let error = node.plugin.node_expand(&expansion).await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("Expander.NodeExpand failed to expand the volume"),
            "{error}"
        );
        let is_expected = match code {
            Code::FailedPrecondition => matches!(error, Error::FailedPrecondition { .. }),
            Code::OutOfRange => matches!(error, Error::Infeasible { .. }),
            Code::Internal => matches!(error, Error::Failed { .. }),
            _ => error.is_uncertain(),
        };
        assert!(is_expected, "{code:?} {error:?}");
    }
    node.driver.set_capabilities([Capability::StageUnstageVolume]);
    let error = node.plugin.node_expand(&expansion).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
}

#[tokio::test]
async fn names_of_volumes_lead_nowhere_else() {
    let node = Node::new();
    for driver in ["..", "../../etc", "a/b"] {
        let spec = persistent("pv-1", json!({"driver": driver}), json!({}));
        assert!(node.plugin.device_mount_path(&spec).is_err(), "{driver}");
    }
    let spec = persistent("pv-1", json!({"volumeHandle": "../../etc/passwd"}), json!({}));
    let path = node.plugin.device_mount_path(&spec).unwrap();
    assert!(path.starts_with(node.root().join("plugins/kubernetes.io/csi/disk.example.com")));
    assert_eq!(
        node.plugin.volume_name(&spec).unwrap(),
        "disk.example.com^../../etc/passwd"
    );
}
