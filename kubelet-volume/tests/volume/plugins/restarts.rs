//! The next agent finds what the last one left.

use std::fs;

use kubelet_volume::HostMounter;
use kubelet_volume::Mounter as _;
use serde_json::json;

use super::fixture::{Fixture, mode, of_pod, on_disk, pod};

#[tokio::test]
async fn volumes_are_known_by_their_folders() {
    let fixture = Fixture::new();
    for (name, volume) in [
        ("kubernetes.io/configmap", json!({"configMap": {"name": "c"}})),
        ("kubernetes.io/secret", json!({"secret": {"secretName": "s"}})),
        ("kubernetes.io/downward-api", json!({"downwardAPI": {}})),
        ("kubernetes.io/projected", json!({"projected": {"sources": []}})),
        ("kubernetes.io/empty-dir", json!({"emptyDir": {}})),
        ("kubernetes.io/host-path", json!({"hostPath": {"path": "/x"}})),
        ("kubernetes.io/nfs", json!({"nfs": {"server": "s", "path": "/"}})),
        ("kubernetes.io/image", json!({"image": {}})),
        ("kubernetes.io/git-repo", json!({"gitRepo": {"repository": "r"}})),
    ] {
        let mount = fixture.mount(&pod(json!({})), of_pod(volume));
        let plugin = fixture.of(&mount.spec);
        assert_eq!(plugin.name(), name);
        let reconstructed = plugin.reconstruct(&on_disk(&mount)).await.unwrap();
        assert_eq!(reconstructed.name(), "v");
        assert_eq!(fixture.of(&reconstructed).name(), name);
    }
    let pv = super::fixture::persistent(json!({"local": {"path": "/x"}}), false);
    let mount = fixture.mount(&pod(json!({})), pv);
    let plugin = fixture.of(&mount.spec);
    fs::create_dir_all(&mount.dir).unwrap();
    let reconstructed = plugin.reconstruct(&on_disk(&mount)).await.unwrap();
    assert_eq!((reconstructed.name(), reconstructed.is_block()), ("pv", false));
    assert!(plugin.can_support(&reconstructed));
}

#[tokio::test]
async fn an_empty_dir_keeps_its_content() {
    let mut fixture = Fixture::new();
    let (mount, done) = fixture.set_up(json!({"emptyDir": {}})).await;
    done.unwrap();
    fs::write(mount.dir.join("kept"), "mine").unwrap();
    // A container may change it as it likes.
    fs::set_permissions(&mount.dir, std::os::unix::fs::PermissionsExt::from_mode(0o1700)).unwrap();
    fixture.restart();
    fixture.of(&mount.spec).set_up(&mount).await.unwrap();
    assert_eq!(
        (
            fs::read_to_string(mount.dir.join("kept")).unwrap(),
            mode(&mount.dir)
        ),
        ("mine".to_owned(), 0o1700)
    );

    // A folder that is gone is made again.
    fs::remove_dir_all(&mount.dir).unwrap();
    fixture.of(&mount.spec).set_up(&mount).await.unwrap();
    assert_eq!(mode(&mount.dir), 0o777);
    fixture.tear_down(&mount).await;
}

#[tokio::test]
async fn an_empty_dir_in_memory_keeps_its_content_until_the_host_restarts() {
    if !super::fixture::may_mount() {
        return;
    }
    let fixture = Fixture::on_host();
    let mounter = HostMounter::new();
    let (mount, done) = fixture
        .set_up(json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}))
        .await;
    done.unwrap();
    assert!(mounter.is_mount_point(&mount.dir).await.unwrap());
    fs::write(mount.dir.join("kept"), vec![1; 64 << 10]).unwrap();
    assert!(fs::write(mount.dir.join("more"), vec![0; 2 << 20]).is_err());
    fs::remove_file(mount.dir.join("more")).unwrap();
    let plugin = fixture.of(&mount.spec);
    plugin.set_up(&mount).await.unwrap();
    assert_eq!(mounter.mounts(&mount.dir).await.unwrap().len(), 1);
    let usage = plugin
        .usage(&on_disk(&mount), &mount.spec)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(usage.capacity_bytes, Some(1 << 20));
    assert_eq!((usage.used_bytes, usage.inodes_used), (Some(64 << 10), Some(2)));

    // A restart of the host takes the mount away, but not the mark.
    mounter.unmount(&mount.dir).await.unwrap();
    plugin.set_up(&mount).await.unwrap();
    assert!(mounter.is_mount_point(&mount.dir).await.unwrap() && !mount.dir.join("kept").exists());
    fixture.tear_down(&mount).await;
    assert!(!mounter.is_mount_point(&mount.dir).await.unwrap());
}

#[tokio::test]
async fn an_empty_dir_of_huge_pages_has_the_page_size_of_its_medium() {
    let is_offered = fs::exists("/sys/kernel/mm/hugepages/hugepages-2048kB").unwrap();
    if !super::fixture::may_mount() || !is_offered {
        return;
    }
    let fixture = Fixture::on_host();
    let mounter = HostMounter::new();
    let resources = json!({"requests": {"hugepages-2Mi": "2Mi"}});
    let pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"securityContext": {"fsGroup": 2000}, "containers": [{"name": "main", "resources": resources}]}});
    let pod = std::sync::Arc::new(serde_json::from_value(pod).unwrap());
    for medium in ["HugePages", "HugePages-2Mi"] {
        let mount = fixture.mount(&pod, of_pod(json!({"emptyDir": {"medium": medium}})));
        let plugin = fixture.of(&mount.spec);
        plugin.set_up(&mount).await.unwrap();
        plugin.set_up(&mount).await.unwrap();
        let mounts = mounter.mounts(&mount.dir).await.unwrap();
        assert_eq!((mounts.len(), mounts[0].fs_type.as_str()), (1, "hugetlbfs"));
        assert!(
            mounts[0].options.contains(&"pagesize=2M".to_owned()),
            "{mounts:?}"
        );
        assert_eq!(mode(&mount.dir), 0o2777);

        // It cannot become one of another size.
        let other = fixture.mount(&pod, of_pod(json!({"emptyDir": {"medium": "HugePages-1Gi"}})));
        let error = plugin.set_up(&other).await.unwrap_err().to_string();
        assert!(
            error.ends_with("pagesize '2Mi' and requested medium size '1Gi' differ"),
            "{error}"
        );
        fixture.tear_down(&mount).await;
    }
}
