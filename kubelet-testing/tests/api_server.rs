//! A kube client against the API server in memory.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube_client::Api;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kubelet_core::Clock;
use kubelet_testing::{ApiServer, PodBuilder};

use futures::{StreamExt, TryStreamExt};
use serde_json::json;

fn server() -> ApiServer {
    let start = Timestamp::constant(1_767_225_600, 0);
    ApiServer::builder()
        .clock(Clock::starting_at(start))
        .seed(7)
        .build()
}

fn pod(name: &str) -> Pod {
    let mut pod = (*PodBuilder::new(name)
        .container("main", "busybox:1.36", |c| c)
        .build())
    .clone();
    pod.metadata.uid = None;
    pod.status = None;
    pod
}

#[tokio::test(start_paused = true)]
async fn creates_gets_lists_patches_watches_and_deletes() {
    let server = server();
    let pods: Api<Pod> = Api::namespaced(server.client(), "default");
    let made = pods.create(&PostParams::default(), &pod("web")).await.unwrap();
    let version = made.metadata.resource_version.clone().unwrap();
    assert!(made.metadata.uid.is_some());
    assert_eq!(pods.get("web").await.unwrap(), made);
    let listed = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(listed.metadata.resource_version.as_ref(), Some(&version));

    let mut watch = pods
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "web"}}}));
    let patched = pods.patch("web", &PatchParams::default(), &patch).await.unwrap();
    assert_ne!(patched.metadata.resource_version, Some(version.clone()));
    let Some(WatchEvent::Modified(seen)) = watch.try_next().await.unwrap() else {
        panic!("no event")
    };
    assert_eq!(seen, patched);

    pods.delete("web", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    while !matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Deleted(_))) {}
    assert!(pods.get_opt("web").await.unwrap().is_none());
}
