//! Containers and objects that try to reach other files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kubelet_volume::{HostMounter, Mounter as _};
use serde_json::json;

use super::fixture::{Fixture, may_mount, mode, on_disk, persistent, pod, read};

#[tokio::test]
async fn no_key_leaves_its_volume() {
    let fixture = Fixture::new();
    let outside = fixture
        .root()
        .join("pods/u/volumes/kubernetes.io~configmap/outside");
    let long = "k".repeat(256);
    for key in [
        "..",
        "../outside",
        "/etc/outside",
        "a/../../outside",
        "..data",
        "..data/x",
        "",
        &long,
    ] {
        fixture.world.set_config_map(json!({"data": {key: "x"}}));
        let (mount, done) = fixture.set_up(json!({"configMap": {"name": "c"}})).await;
        let error = done.unwrap_err().to_string();
        assert!(error.starts_with("invalid path: "), "{key}: {error}");
        assert!(!mount.dir.exists() && !outside.exists());
    }
    // The paths of items too.
    fixture.world.set_config_map(json!({"data": {"a": "x"}}));
    let items = json!([{"key": "a", "path": "../outside"}]);
    let (_, done) = fixture
        .set_up(json!({"configMap": {"name": "c", "items": items}}))
        .await;
    assert!(done.is_err() && !outside.exists());
    let items = json!([{"path": "a/../../outside", "fieldRef": {"fieldPath": "metadata.name"}}]);
    let (_, done) = fixture.set_up(json!({"downwardAPI": {"items": items}})).await;
    assert!(done.is_err() && !outside.exists());
}

#[tokio::test]
async fn large_secrets_are_written_and_updated() {
    if !may_mount() {
        return;
    }
    let fixture = Fixture::on_host();
    let files = |text: &str| {
        let mut files: BTreeMap<String, Vec<u8>> = (0..10_000)
            .map(|number| (format!("file-{number}"), text.into()))
            .collect();
        files.insert("large".to_owned(), vec![b'x'; 1 << 20]);
        files
    };
    fixture.world.set_secret(files("1"));
    let (mount, done) = fixture.set_up(json!({"secret": {"secretName": "s"}})).await;
    done.unwrap();
    fixture.world.set_secret(files("2"));
    let plugin = fixture.of(&mount.spec);
    plugin.set_up(&mount).await.unwrap();
    assert_eq!(
        (read(&mount, "file-9999"), read(&mount, "large").len()),
        ("2".to_owned(), 1 << 20)
    );
    // The link and the file of each key, the root, `..data` and its folder.
    let usage = plugin
        .usage(&on_disk(&mount), &mount.spec)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(usage.inodes_used, Some(2 * 10_001 + 3));
    fixture.world.set_secret([]);
    plugin.set_up(&mount).await.unwrap();
    assert_eq!(fs::read_dir(&mount.dir).unwrap().count(), 2);
    fixture.tear_down(&mount).await;
}

/// A container of another pod replaces a folder by a link, back and forth, while the group of all files is changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_swapped_for_a_link_leads_nowhere() {
    if !may_mount() {
        return;
    }
    let fixture = Fixture::on_host();
    let (volume, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for number in 0..50 {
        fs::write(outside.path().join(format!("precious-{number}")), "").unwrap();
    }
    let swapped = volume.path().join("swapped");
    let aside = volume.path().join("aside");
    fs::create_dir(&swapped).unwrap();
    fs::write(swapped.join("file"), "").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapping = std::thread::spawn({
        let (stop, outside) = (Arc::clone(&stop), outside.path().to_owned());
        move || {
            while !stop.load(Ordering::Relaxed) {
                fs::rename(&swapped, &aside).unwrap();
                symlink(&outside, &swapped).unwrap();
                fs::remove_file(&swapped).unwrap();
                fs::rename(&aside, &swapped).unwrap();
                std::thread::yield_now();
            }
        }
    });
    for _ in 0..10 {
        let spec = persistent(json!({"local": {"path": volume.path()}}), false);
        let mount = fixture.mount(&pod(json!({"fsGroup": 4711})), spec);
        fixture.of(&mount.spec).set_up(&mount).await.unwrap();
        fixture.tear_down(&mount).await;
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    assert_eq!(fs::metadata(volume.path()).unwrap().gid(), 4711);
    for file in fs::read_dir(outside.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!((file.metadata().unwrap().gid(), mode(&file.path())), (0, 0o644));
    }
    assert_eq!(fs::metadata(outside.path()).unwrap().gid(), 0);
}

#[tokio::test]
async fn what_a_container_mounted_or_linked_in_its_volume_is_not_removed() {
    if !may_mount() {
        return;
    }
    let fixture = Fixture::on_host();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "").unwrap();
    let (mount, done) = fixture.set_up(json!({"emptyDir": {}})).await;
    done.unwrap();
    // A container with bidirectional propagation.
    fs::create_dir(mount.dir.join("bound")).unwrap();
    let source = outside.path().display().to_string();
    let bind = ["bind".to_owned()];
    let mounter = HostMounter::new();
    mounter
        .mount(&source, &mount.dir.join("bound"), "", &bind)
        .await
        .unwrap();
    symlink(outside.path(), mount.dir.join("link")).unwrap();
    assert!(mount.dir.join("bound/precious").exists());
    assert_eq!(
        mounter.references(outside.path()).await.unwrap(),
        [mount.dir.join("bound")]
    );
    fixture.tear_down(&mount).await;
    assert!(outside.path().join("precious").exists());
    assert!(mounter.references(outside.path()).await.unwrap().is_empty());
}

#[tokio::test]
async fn files_that_lie_under_a_mount_stay() {
    let fixture = Fixture::new();
    let folder = tempfile::tempdir().unwrap();
    let mount = fixture.mount(
        &pod(json!({})),
        persistent(json!({"local": {"path": folder.path()}}), false),
    );
    let plugin = fixture.of(&mount.spec);
    plugin.set_up(&mount).await.unwrap();
    fs::write(mount.dir.join("precious"), "").unwrap();
    let error = plugin.tear_down(&on_disk(&mount)).await.unwrap_err().to_string();
    let expected = format!("remove {}: directory not empty", mount.dir.display());
    assert_eq!(error, expected);
    assert!(Path::new(&mount.dir).join("precious").exists());
}
