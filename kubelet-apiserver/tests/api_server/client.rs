//! What a client does with single objects.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event as NewEvent;
use kube_client::Api;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent};
use kube_client::api::{PartialObjectMetaExt, WatchParams};
use kubelet_apiserver::{ApiServer, User};

use futures::{StreamExt, TryStreamExt};
use serde_json::json;

use super::{create, name, pod, pod_of, pods, refusal, server, version};

#[tokio::test(start_paused = true)]
async fn creates_gets_lists_patches_watches_and_deletes() {
    let server = server();
    let pods = pods(&server);
    let made = create(&pods, "web").await;
    assert!(made.metadata.uid.is_some());
    assert_eq!(pods.get("web").await.unwrap(), made);
    let listed = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(listed.metadata.resource_version, made.metadata.resource_version);

    let watch = pods.watch(&WatchParams::default(), &version(&made)).await;
    let mut watch = watch.unwrap().boxed();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}));
    let patched = pods.patch("web", &PatchParams::default(), &patch).await.unwrap();
    assert_ne!(version(&patched), version(&made));
    let Some(WatchEvent::Modified(seen)) = watch.try_next().await.unwrap() else {
        panic!("no event")
    };
    assert_eq!(seen, patched);

    let now = DeleteParams::default().grace_period(0);
    pods.delete("web", &now).await.unwrap();
    while !matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Deleted(_))) {}
    assert!(pods.get_opt("web").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn refuses_what_is_taken_gone_or_stale() {
    let server = server();
    let pods = pods(&server);
    let made = create(&pods, "web").await;
    let again = pods.create(&PostParams::default(), &pod("web")).await;
    assert_eq!(refusal(again), (409, "AlreadyExists".into()));
    assert_eq!(refusal(pods.get("absent").await), (404, "NotFound".into()));

    let mut stale = made.clone();
    let mut fresh = made.clone();
    fresh.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    pods.replace("web", &PostParams::default(), &fresh).await.unwrap();
    stale.metadata.labels = Some([("a".to_owned(), "c".to_owned())].into());
    let late = pods.replace("web", &PostParams::default(), &stale).await;
    assert_eq!(refusal(late), (409, "Conflict".into()));

    let other = Preconditions {
        uid: Some("00000000-0000-0000-0000-000000000000".into()),
        resource_version: None,
    };
    let params = DeleteParams {
        preconditions: Some(other),
        ..DeleteParams::default()
    };
    assert_eq!(
        refusal(pods.delete("web", &params).await),
        (409, "Conflict".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_is_none() {
    let server = server();
    let pods = pods(&server);
    let made = create(&pods, "web").await;
    let same = pods.replace("web", &PostParams::default(), &made).await.unwrap();
    assert_eq!(same, made);
    let patch = Patch::Strategic(json!({"metadata": {"labels": {"app": "web"}}}));
    let same = pods.patch("web", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(same, made);
    assert_eq!(server.resource_version().to_string(), version(&made));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing() {
    let server = server();
    let pods = pods(&server);
    let before = server.resource_version();
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let would = pods.create(&dry, &pod("web")).await.unwrap();
    assert_eq!(name(&would), "web");
    assert_eq!(server.resource_version(), before);
    assert!(pods.get_opt("web").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn names_and_uids_follow_from_the_seed() {
    let made = async |seed| {
        let server = ApiServer::builder().seed(seed).build();
        let pods: Api<Pod> = Api::namespaced(server.client(), "default");
        let pod = pod_of(json!({"metadata": {"generateName": "web-"}}));
        let one = pods.create(&PostParams::default(), &pod).await.unwrap();
        let two = pods.create(&PostParams::default(), &pod).await.unwrap();
        assert_ne!(one.metadata.name, two.metadata.name);
        (one.metadata.name, one.metadata.uid, two.metadata.name)
    };
    let (name, ..) = made(1).await;
    assert!(name.unwrap().starts_with("web-"));
    assert_eq!(made(1).await, made(1).await);
    assert_ne!(made(1).await, made(2).await);
}

#[tokio::test(start_paused = true)]
async fn a_patch_meets_all_that_was_written_meanwhile() {
    let server = server();
    let pods = pods(&server);
    create(&pods, "web").await;
    let patches = (0..20).map(|n| {
        let pods = pods.clone();
        async move {
            let patch = Patch::Merge(json!({"metadata": {"labels": {format!("l{n}"): "x"}}}));
            pods.patch("web", &PatchParams::default(), &patch).await.unwrap();
        }
    });
    futures::future::join_all(patches).await;
    let labels = pods.get("web").await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels.len(), 21);
}

#[tokio::test(start_paused = true)]
async fn serves_metadata_alone() {
    let server = server();
    let pods = pods(&server);
    create(&pods, "web").await;
    let one = pods.get_metadata("web").await.unwrap();
    assert_eq!(one.metadata.name.as_deref(), Some("web"));
    let all = pods.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(all.items.len(), 1);
    let patch = one.metadata.clone().into_request_partial::<Pod>();
    let patch = Patch::Merge(patch);
    pods.patch_metadata("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_made_by_put() {
    let server = server();
    let leases: Api<Lease> = Api::namespaced(server.client(), "kube-node-lease");
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "one"}, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 40},
    }))
    .unwrap();
    let made = leases
        .replace("one", &PostParams::default(), &lease)
        .await
        .unwrap();
    assert_eq!(leases.get("one").await.unwrap(), made);
}

#[tokio::test(start_paused = true)]
async fn a_node_is_held_to_its_own() {
    let server = server();
    let nodes: Api<Node> = Api::all(server.client_as(User::node("one")));
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "one"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let other: Node = serde_json::from_value(json!({"metadata": {"name": "two"}})).unwrap();
    let refused = nodes.create(&PostParams::default(), &other).await;
    assert_eq!(refusal(refused), (403, "Forbidden".into()));
    let pods: Api<Pod> = Api::all(server.client_as(User::node("one")));
    assert_eq!(
        refusal(pods.list(&ListParams::default()).await),
        (403, "Forbidden".into())
    );
    pods.list(&ListParams::default().fields("spec.nodeName=one"))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_its_selector() {
    let server = server();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let map = json!({"metadata": {"name": name, "labels": {"l": label}}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let selected = ListParams::default().labels("l=x");
    maps.delete_collection(&DeleteParams::default(), &selected)
        .await
        .unwrap();
    let rest = maps.list(&ListParams::default().labels("l")).await.unwrap();
    let rest: Vec<_> = rest.items.iter().map(|m| m.metadata.name.as_deref()).collect();
    assert_eq!(rest, [Some("b")]);
}

#[tokio::test(start_paused = true)]
async fn tests_look_and_write_without_http() {
    let server = server();
    let made = server.create(&pod("web")).unwrap();
    assert_eq!(server.get::<Pod>("default", "web").unwrap(), Some(made.clone()));
    assert_eq!(server.list::<Pod>().unwrap(), std::slice::from_ref(&made));
    let mut labelled = made.clone();
    labelled.metadata.labels = None;
    let labelled = server.replace(&labelled).unwrap();
    assert_ne!(version(&labelled), version(&made));
    let mut running = labelled.clone();
    running.status.get_or_insert_default().phase = Some("Running".into());
    let running = server.replace_status(&running).unwrap();
    assert_eq!(running.status.unwrap().phase.as_deref(), Some("Running"));
    server.delete::<Pod>("default", "web").unwrap();
    let error = server.delete::<Pod>("default", "absent").unwrap_err();
    assert_eq!(error.to_string(), "404 NotFound: pods \"absent\" not found");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_filled_and_goes_with_all_that_is_in_it() {
    let server = server();
    let namespaces: Api<Namespace> = Api::all(server.client());
    let shop: Namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
    namespaces.create(&PostParams::default(), &shop).await.unwrap();
    assert!(server.get::<ServiceAccount>("shop", "default").unwrap().is_some());
    let bound =
        pod_of(json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"nodeName": "one"}}));
    server.create(&bound).unwrap();

    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    assert!(
        server
            .get::<ConfigMap>("shop", "kube-root-ca.crt")
            .unwrap()
            .is_none()
    );
    let phase = namespaces.get("shop").await.unwrap().status.unwrap().phase;
    assert_eq!(phase.as_deref(), Some("Terminating"));
    // The pod gets its grace period; its kubelet deletes it for good.
    let pods: Api<Pod> = Api::namespaced(server.client(), "shop");
    assert!(
        pods.get("web")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    pods.delete("web", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert!(namespaces.get_opt("shop").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn events_are_the_same_in_both_groups() {
    let server = server();
    let core: Api<CoreEvent> = Api::namespaced(server.client(), "default");
    let new: Api<NewEvent> = Api::namespaced(server.client(), "default");
    let mut watch = new.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let event: CoreEvent = serde_json::from_value(json!({
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"},
        "reason": "Started", "message": "Started it", "type": "Normal",
    }))
    .unwrap();
    let made = core.create(&PostParams::default(), &event).await.unwrap();
    let seen = new.get("e").await.unwrap();
    assert_eq!(seen.note.as_deref(), Some("Started it"));
    assert_eq!(seen.metadata.resource_version, made.metadata.resource_version);
    let Some(WatchEvent::Added(told)) = watch.try_next().await.unwrap() else {
        panic!("no event")
    };
    assert_eq!(told, seen);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    new.patch("e", &PatchParams::default(), &patch).await.unwrap();
    let patched = core.get("e").await.unwrap();
    assert_eq!(patched.message.as_deref(), Some("Started it"));
    assert!(patched.metadata.labels.unwrap().contains_key("a"));
    new.delete("e", &DeleteParams::default()).await.unwrap();
    assert!(core.get_opt("e").await.unwrap().is_none());
}
