//! `ImageFsInfo`: a Go kubelet and `critest` refuse a runtime without it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubelet_cri::{CriAdapter, ImageService, v1};

use super::adapter::{run_sandbox, sandbox_config};
use super::puppet::{Puppet, Shelf};

/// The file system of images, and that of containers.
async fn usage(cri: &CriAdapter) -> [v1::FilesystemUsage; 2] {
    let info = cri.image_fs_info(v1::ImageFsInfoRequest {}).await.unwrap();
    let [images, containers] = [info.image_filesystems, info.container_filesystems];
    let ([images], [containers]) = (images.as_slice(), containers.as_slice()) else {
        panic!("{images:?} {containers:?}");
    };
    for usage in [images, containers] {
        assert!(usage.timestamp > 0);
        // A Go kubelet reads these fields without checking that they are set.
        assert!(usage.used_bytes.is_some() && usage.fs_id.is_some());
    }
    [images.clone(), containers.clone()]
}

fn mountpoint(usage: &v1::FilesystemUsage) -> &Path {
    Path::new(&usage.fs_id.as_ref().unwrap().mountpoint)
}

fn used(usage: &v1::FilesystemUsage) -> (u64, Option<u64>) {
    let inodes = usage.inodes_used.as_ref().map(|inodes| inodes.value);
    (usage.used_bytes.as_ref().unwrap().value, inodes)
}

#[tokio::test]
async fn the_folder_of_records_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let records = dir.path().join("records");
    let cri = CriAdapter::builder(Arc::new(Puppet::default()))
        .records_dir(&records)
        .build();
    run_sandbox(&cri, sandbox_config()).await.unwrap();
    let [images, containers] = usage(&cri).await;
    assert_eq!(images, containers, "there is one file system");
    assert_eq!(mountpoint(&images), records);
    let (bytes, inodes) = used(&images);
    assert!(bytes > 0);
    assert_eq!(inodes, Some(2), "the folder and the record of the sandbox");
}

#[tokio::test]
async fn a_runtime_without_a_folder_uses_nothing() {
    let cri = CriAdapter::new(Arc::new(Puppet::default()));
    let [images, containers] = usage(&cri).await;
    assert_eq!(images, containers);
    assert_eq!(
        mountpoint(&images),
        Path::new("/"),
        "a kubelet needs one that exists"
    );
    assert_eq!(used(&images), (0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn the_folder_of_the_runtime_is_measured_every_ten_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let puppet = Puppet {
        data_dir: Some(dir.path().to_owned()),
        ..Default::default()
    };
    let cri = CriAdapter::builder(Arc::new(puppet))
        .records_dir(dir.path().join("records"))
        .build();
    let [_, before] = usage(&cri).await;
    assert_eq!(mountpoint(&before), dir.path());
    std::fs::write(dir.path().join("layer"), [1; 100_000]).unwrap();
    assert_eq!(usage(&cri).await[1], before);
    tokio::time::advance(Duration::from_secs(10)).await;
    let [images, containers] = usage(&cri).await;
    assert_eq!(images, containers);
    assert!(used(&containers).0 >= used(&before).0 + 100_000);
    assert_eq!(
        used(&containers).1,
        Some(3),
        "the folder, the records' and the layer"
    );
}

#[tokio::test]
async fn images_in_a_folder_of_their_own_count_by_their_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let puppet = Puppet {
        data_dir: Some(dir.path().to_owned()),
        shelf: Some(Shelf {
            dir: "/var/lib/shelf".into(),
            sizes: vec![3000, 500],
            logins: Arc::default(),
        }),
        ..Default::default()
    };
    let cri = CriAdapter::new(Arc::new(puppet));
    let [images, containers] = usage(&cri).await;
    assert_eq!(
        (mountpoint(&images), used(&images)),
        (Path::new("/var/lib/shelf"), (3500, None))
    );
    assert_eq!(mountpoint(&containers), dir.path());
}

#[tokio::test]
async fn a_folder_that_cannot_be_read_is_an_error() {
    let puppet = Puppet {
        data_dir: Some("/there/is/no/such/folder".into()),
        ..Default::default()
    };
    let cri = CriAdapter::new(Arc::new(puppet));
    let error = cri
        .image_fs_info(v1::ImageFsInfoRequest {})
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("/there/is/no/such/folder"), "{error}");
}
