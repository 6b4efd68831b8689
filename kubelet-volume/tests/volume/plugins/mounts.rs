//! Volumes that are mounted.

use std::fs;
use std::path::Path;

use kubelet_volume::{Error, VolumePlugin};
use serde_json::{Value, json};

use super::fixture::{Fixture, mode, of_pod, on_disk, persistent, pod};

#[tokio::test]
async fn an_export_is_mounted_with_its_options() {
    let fixture = Fixture::new();
    let export = |read_only: bool| json!({"nfs": {"server": "nas", "path": "/x", "readOnly": read_only}});
    let with_options =
        json!({"nfs": {"server": "fd00::1", "path": "/x"}, "mountOptions": ["vers=4.1", "hard"]});
    for (spec, read_only, expected) in [
        (of_pod(export(false)), false, "mount nfs  nas:/x"),
        (of_pod(export(true)), true, "mount nfs ro nas:/x"),
        (
            persistent(with_options.clone(), false),
            false,
            "mount nfs hard,vers=4.1 [fd00::1]:/x",
        ),
        (
            persistent(with_options, true),
            true,
            "mount nfs hard,ro,vers=4.1 [fd00::1]:/x",
        ),
    ] {
        let mount = fixture.mount(&pod(json!({"fsGroup": 7})), spec);
        let plugin = fixture.of(&mount.spec);
        plugin.set_up(&mount).await.unwrap();
        plugin.set_up(&mount).await.unwrap();
        assert_eq!(*fixture.mounter.calls.lock(), [expected]);
        assert_eq!(plugin.attributes(&mount).read_only, read_only);
        assert_eq!(mode(&mount.dir), 0o750);
        fixture.tear_down(&mount).await;
        assert_eq!(fixture.mounter.calls.lock().split_off(1), ["unmount"]);
        fixture.mounter.calls.lock().clear();
    }

    *fixture.mounter.refuses.lock() = Some(|| Error::failed("mount failed: exit status 32"));
    let (mount, done) = fixture.set_up(export(false)).await;
    assert_eq!(done.unwrap_err().to_string(), "mount failed: exit status 32");
    assert!(!mount.dir.exists());
}

#[tokio::test]
async fn a_local_volume_is_bound_for_each_pod() {
    let fixture = Fixture::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let local = |path: &str| json!({"local": {"path": path}});
    for (read_only, expected) in [(false, "bind"), (true, "bind,ro")] {
        let mount = fixture.mount(&pod(json!({})), persistent(local(&path), read_only));
        let plugin = fixture.of(&mount.spec);
        plugin.prepare(&mount).await.unwrap();
        plugin.set_up(&mount).await.unwrap();
        assert_eq!(
            *fixture.mounter.calls.lock(),
            [format!("mount  {expected} {path}")]
        );
        let attributes = plugin.attributes(&mount);
        assert_eq!(
            (attributes.read_only, attributes.managed),
            (read_only, !read_only)
        );
        fixture.tear_down(&mount).await;
        fixture.mounter.calls.lock().clear();
    }

    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, why) in [
        ("/no/such", "path \"/no/such\" does not exist"),
        (
            file.to_str().unwrap(),
            "only directory and block device are supported",
        ),
        ("", "local volume source is nil or local path is not set"),
    ] {
        let mount = fixture.mount(&pod(json!({})), persistent(local(path), false));
        let prepared = fixture.of(&mount.spec).prepare(&mount).await;
        assert_eq!(prepared.unwrap_err().to_string(), why);
    }
    let above = folder.path().join("..");
    let mount = fixture.mount(&pod(json!({})), persistent(local(above.to_str().unwrap()), false));
    let done = fixture.of(&mount.spec).set_up(&mount).await;
    let expected = format!("invalid path: {} must not contain '..'", above.display());
    assert_eq!(done.unwrap_err().to_string(), expected);
}

#[tokio::test]
async fn a_local_volume_that_another_pod_uses_keeps_its_group() {
    if !super::fixture::may_mount() {
        return;
    }
    let fixture = Fixture::new();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let spec = || persistent(json!({"local": {"path": folder.path()}}), false);
    let group = |group: u32| json!({"fsGroup": group});

    // The mounter mounts nothing really, so the group of the pod's folder changes.
    let first = fixture.mount(&pod(group(2001)), spec());
    fixture.of(&first.spec).set_up(&first).await.unwrap();
    assert_eq!(mode(&first.dir), 0o2770);
    let mut other = fixture.mount(&pod(group(2002)), spec());
    other.dir = fixture
        .root()
        .join("pods/other/volumes/kubernetes.io~local-volume/pv");
    fixture.of(&other.spec).set_up(&other).await.unwrap();
    assert_eq!(mode(&other.dir), 0o750);
    let expected = "AlreadyMountedVolume: The requested fsGroup is 2002, but the volume pv has GID 0. The volume may not be shareable.";
    assert_eq!(*fixture.world.events.lock(), [expected]);
    fixture.tear_down(&other).await;
    fixture.tear_down(&first).await;
}

#[tokio::test]
async fn a_local_disk_is_mapped_as_a_device() {
    let fixture = Fixture::new();
    let spec = persistent(
        json!({"local": {"path": "/dev/disk"}, "volumeMode": "Block"}),
        false,
    );
    let mount = fixture.mount(&pod(json!({})), spec);
    let plugin = fixture.of(&mount.spec);
    plugin.prepare(&mount).await.unwrap();
    let block = plugin.block().unwrap();
    let below = |path: &str| fixture.root().join(path);
    assert_eq!(
        block.global_map_path(&mount.spec).unwrap(),
        below("plugins/kubernetes.io~local-volume/volumeDevices/pv")
    );
    assert_eq!(
        block.pod_device_map_path(&mount),
        (
            below("pods/u/volumeDevices/kubernetes.io~local-volume"),
            "pv".to_owned()
        )
    );
    assert_eq!(block.set_up_device(&mount, "").await.unwrap(), None);
    assert_eq!(
        block.map_pod_device(&mount, "").await.unwrap(),
        Path::new("/dev/disk")
    );
    let reconstructed = block.reconstruct_block(&on_disk(&mount)).await.unwrap();
    assert!(reconstructed.is_block() && plugin.can_support(&reconstructed));
}

#[tokio::test]
async fn volumes_that_this_node_does_not_offer_are_refused() {
    let fixture = Fixture::new();
    let (mount, done) = fixture
        .set_up(json!({"gitRepo": {"repository": "https://x"}}))
        .await;
    assert_eq!(
        done.unwrap_err().to_string(),
        "git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate \
         `GitRepoVolumeDriver`"
    );
    assert!(!mount.dir.exists());
    let unknown: [Value; 5] = [
        json!({"iscsi": {"iqn": "i", "lun": 0, "targetPortal": "p"}}),
        json!({"fc": {"targetWWNs": ["x"], "lun": 0}}),
        json!({"flexVolume": {"driver": "x/y"}}),
        json!({"portworxVolume": {"volumeID": "x"}}),
        json!({"csi": {"driver": "x"}}),
    ];
    for volume in unknown {
        let spec = of_pod(volume.clone());
        let able = fixture.plugins.iter().any(|plugin| plugin.can_support(&spec));
        assert!(!able, "{volume}");
    }
}

#[tokio::test]
async fn images_are_mounted_by_the_runtime() {
    let fixture = Fixture::new();
    let (mount, done) = fixture.set_up(json!({"image": {"reference": "x"}})).await;
    done.unwrap();
    let plugin = fixture.of(&mount.spec);
    assert!(plugin.path(&mount).as_os_str().is_empty() && plugin.attributes(&mount).read_only);
    assert!(!mount.dir.exists());
    fixture.tear_down(&mount).await;
}

#[tokio::test]
async fn only_some_plugins_apply_mount_options() {
    let fixture = Fixture::new();
    let able = |plugin: &&std::sync::Arc<dyn VolumePlugin>| plugin.supports_mount_options();
    let names: Vec<&str> = fixture.plugins.iter().filter(able).map(|it| it.name()).collect();
    assert_eq!(names, ["kubernetes.io/local-volume", "kubernetes.io/nfs"]);
}
