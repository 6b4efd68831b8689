//! Images: present, pulled, rejected, removed.

use std::time::Duration;

use kubelet_core::Clock;
use kubelet_cri::{Code, ImageService, v1};
use kubelet_testing::MemoryCri;
use kubelet_testing::memory_cri::{Latency, RemoteImage};

use super::rig::*;

fn spec(image: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec {
        image: image.to_owned(),
        ..Default::default()
    })
}

async fn image(runtime: &MemoryCri, name: &str) -> Result<Option<v1::Image>> {
    let request = v1::ImageStatusRequest {
        image: spec(name),
        verbose: false,
    };
    Ok(runtime.image_status(request).await?.image)
}

#[tokio::test(start_paused = true)]
async fn an_image_is_pulled_found_and_removed() {
    let runtime = builder().build();
    assert_eq!(image(&runtime, "busybox:1.36").await.unwrap(), None);
    let id = pull(&runtime, "busybox:1.36", None).await.unwrap();
    let found = image(&runtime, "busybox:1.36").await.unwrap().unwrap();
    assert_eq!(
        (&found.id, found.repo_tags.as_slice()),
        (&id, [IMAGE.to_owned()].as_slice())
    );
    assert!(found.size > 0);
    for name in [IMAGE, &id, &id[7..20], &found.repo_digests[0]] {
        assert_eq!(
            image(&runtime, name).await.unwrap().as_ref(),
            Some(&found),
            "{name}"
        );
    }
    assert_eq!(pull(&runtime, &found.repo_digests[0], None).await.unwrap(), id);
    assert_eq!(
        pull(&MemoryCri::new(kubelet_core::Clock::system()), IMAGE, None)
            .await
            .unwrap(),
        id,
        "in each run"
    );

    let list = runtime
        .list_images(v1::ListImagesRequest::default())
        .await
        .unwrap()
        .images;
    let (pinned, plain): (Vec<_>, Vec<_>) = list.into_iter().partition(|image| image.pinned);
    assert_eq!(pinned[0].repo_tags, ["registry.k8s.io/pause:3.10"]);
    assert_eq!(plain, std::slice::from_ref(&found));
    let usage = runtime.image_fs_info(v1::ImageFsInfoRequest {}).await.unwrap();
    assert_eq!(
        usage.image_filesystems[0].used_bytes.unwrap().value,
        found.size + pinned[0].size
    );

    for _ in 0..2 {
        runtime
            .remove_image(v1::RemoveImageRequest { image: spec(&id) })
            .await
            .unwrap();
    }
    assert_eq!(image(&runtime, IMAGE).await.unwrap(), None);
    let ambiguous = "can not resolve \"\" locally: ambiguous digest string";
    assert_refused(image(&runtime, "").await, Code::Unknown, ambiguous);
    assert_refused(
        runtime.remove_image(v1::RemoveImageRequest::default()).await,
        Code::Unknown,
        ambiguous,
    );
}

#[tokio::test(start_paused = true)]
async fn pulls_are_refused() {
    let runtime = builder().build();
    runtime.publish(RemoteImage::new("gone:1").missing());
    runtime.publish(
        RemoteImage::new("registry.example/shop/web:1")
            .credentials("joe", "secret")
            .uid(1000),
    );
    assert_refused(
        pull(&runtime, "gone:1", None).await,
        Code::NotFound,
        "failed to pull and unpack image \"docker.io/library/gone:1\": failed to resolve reference \"docker.io/library/gone:1\": docker.io/library/gone:1: not found",
    );
    assert_refused(
        pull(&runtime, "UPPER:::", None).await,
        Code::Unknown,
        "failed to parse image reference \"UPPER:::\": invalid reference format",
    );
    assert_refused(
        pull(&runtime, "registry.example/shop/web:1", None).await,
        Code::Unknown,
        "authorization failed",
    );
    let auth = |password: &str| v1::AuthConfig {
        username: "joe".to_owned(),
        password: password.to_owned(),
        ..Default::default()
    };
    let wrong = pull(&runtime, "registry.example/shop/web:1", Some(auth("wrong"))).await;
    assert_refused(wrong, Code::Unknown, "authorization failed");
    let id = pull(&runtime, "registry.example/shop/web:1", Some(auth("secret")))
        .await
        .unwrap();
    assert_eq!(
        image(&runtime, &id).await.unwrap().unwrap().uid.unwrap().value,
        1000
    );
    assert!(!format!("{:?}", runtime.calls()).contains("secret"));

    let closed = builder().latency(Latency::none()).closed_registry().build();
    closed.publish(
        RemoteImage::new("app:1")
            .size(5)
            .username("joe")
            .pull_takes(Duration::from_secs(9)),
    );
    assert_refused(
        pull(&closed, "busybox:1.36", None).await,
        Code::NotFound,
        "not found",
    );
    let begun = tokio::time::Instant::now();
    let id = pull(&closed, "docker.io/library/app:1", None).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(9));
    let found = image(&closed, &id).await.unwrap().unwrap();
    assert_eq!((found.size, found.username.as_str()), (5, "joe"));
}

#[tokio::test(start_paused = true)]
async fn a_container_outlives_its_image() {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let id = started(&runtime, &sandbox, "main", 0).await;
    let image_id = status(&runtime, &id).await.unwrap().image_id;
    runtime
        .remove_image(v1::RemoveImageRequest {
            image: spec(&image_id),
        })
        .await
        .unwrap();
    let status = status(&runtime, &id).await.unwrap();
    assert_eq!(
        (status.image_id.as_str(), status.image_ref.as_str()),
        (image_id.as_str(), image_id.as_str())
    );
    assert_refused(
        create(&runtime, &sandbox, "side", 0).await,
        Code::NotFound,
        "failed to resolve image",
    );
}

/// A Go kubelet looks up its file system, so the folder must exist.
#[tokio::test(start_paused = true)]
async fn the_folder_of_images_can_be_chosen() {
    let mountpoints = async |runtime: MemoryCri| {
        let info = runtime.image_fs_info(v1::ImageFsInfoRequest {}).await.unwrap();
        let all = info
            .image_filesystems
            .into_iter()
            .chain(info.container_filesystems);
        all.map(|usage| usage.fs_id.unwrap().mountpoint)
            .collect::<Vec<_>>()
    };
    let containerds = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs";
    let runtime = MemoryCri::new(Clock::system());
    assert_eq!(mountpoints(runtime).await, [containerds; 2]);
    let runtime = MemoryCri::builder(Clock::system())
        .images_dir("/srv/images")
        .build();
    assert_eq!(mountpoints(runtime).await, ["/srv/images"; 2]);
}
