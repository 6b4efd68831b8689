//! Lists: selectors, pages, older revisions.

use k8s_openapi::api::core::v1::Node;
use kube_client::api::{DeleteParams, ListParams, PostParams, VersionMatch};
use kube_client::{Api, Error};
use kubelet_apiserver::User;
use serde_json::{Value, json};

use super::{create, name, pod_of, pods, refusal, server, version};

#[tokio::test(start_paused = true)]
async fn lists_in_the_order_of_the_names_what_a_selector_picks() {
    let server = server();
    let pods = pods(&server);
    for (name, app, node) in [("c", "x", "one"), ("a", "y", "one"), ("b", "x", "two")] {
        let pod =
            pod_of(json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": {"nodeName": node}}));
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    for (labels, fields, names) in [
        ("", "", &["a", "b", "c"][..]),
        ("app=x", "", &["b", "c"]),
        ("app notin (x)", "", &["a"]),
        ("", "spec.nodeName=one", &["a", "c"]),
        ("app=x", "spec.nodeName=one", &["c"]),
        ("", "metadata.name=b", &["b"]),
        ("", "spec.nodeName!=one", &["b"]),
    ] {
        let params = ListParams::default().labels(labels).fields(fields);
        let listed = pods.list(&params).await.unwrap();
        let listed: Vec<&str> = listed.items.iter().map(name).collect();
        assert_eq!(listed, names, "{labels} {fields}");
    }
    for params in [
        ListParams::default().fields("spec.bogus=1"),
        ListParams::default().labels("a in"),
    ] {
        assert_eq!(refusal(pods.list(&params).await), (400, "BadRequest".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_state() {
    let server = server();
    let pods = pods(&server);
    for name in ["a", "b", "c", "d", "e"] {
        create(&pods, name).await;
    }
    let first = pods.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    // Later changes are not in this list.
    create(&pods, "bb").await;
    let now = DeleteParams::default().grace_period(0);
    pods.delete("d", &now).await.unwrap();

    let mut names: Vec<String> = first.items.iter().map(|p| name(p).to_owned()).collect();
    let mut token = first.metadata.continue_.clone();
    while let Some(next) = token.filter(|token| !token.is_empty()) {
        let page = pods
            .list(&ListParams::default().limit(2).continue_token(&next))
            .await
            .unwrap();
        assert_eq!(page.metadata.resource_version, first.metadata.resource_version);
        names.extend(page.items.iter().map(|p| name(p).to_owned()));
        token = page.metadata.continue_;
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    let present = pods.list(&ListParams::default()).await.unwrap();
    let present: Vec<&str> = present.items.iter().map(name).collect();
    assert_eq!(present, ["a", "b", "bb", "c", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_page_goes_on_with_the_present() {
    let server = server();
    let pods = pods(&server);
    for name in ["a", "b", "c"] {
        create(&pods, name).await;
    }
    let first = pods.list(&ListParams::default().limit(1)).await.unwrap();
    create(&pods, "bb").await;
    server.compact();
    let token = first.metadata.continue_.unwrap();
    let gone = pods.list(&ListParams::default().continue_token(&token)).await;
    assert_eq!(refusal(gone), (410, "Expired".into()));

    // The error has a new token, but kube does not show it.
    let uri = format!("/api/v1/namespaces/default/pods?continue={token}");
    let request = http::Request::get(uri).body(Vec::new()).unwrap();
    let Err(Error::Api(status)) = server.client().request::<Value>(request).await else {
        panic!("not refused")
    };
    let again = status.metadata.and_then(|metadata| metadata.continue_).unwrap();
    let rest = pods
        .list(&ListParams::default().continue_token(&again))
        .await
        .unwrap();
    let rest: Vec<&str> = rest.items.iter().map(name).collect();
    assert_eq!(rest, ["b", "bb", "c"]);
}

#[tokio::test(start_paused = true)]
async fn shows_a_state_of_the_past() {
    let server = server();
    let pods = pods(&server);
    let first = version(&create(&pods, "a").await);
    create(&pods, "b").await;
    let at = |version: &str, matching| ListParams::default().at(version).matching(matching);
    let then = pods.list(&at(&first, VersionMatch::Exact)).await.unwrap();
    assert_eq!(then.items.len(), 1);
    assert_eq!(then.metadata.resource_version, Some(first.clone()));
    let since = pods.list(&at(&first, VersionMatch::NotOlderThan)).await.unwrap();
    assert_eq!(since.items.len(), 2);

    let future = pods.list(&at("999999", VersionMatch::NotOlderThan)).await;
    assert_eq!(refusal(future), (504, "Timeout".into()));
    server.compact();
    let gone = pods.list(&at(&first, VersionMatch::Exact)).await;
    assert_eq!(refusal(gone), (410, "Expired".into()));
    // The oldest revision that is kept.
    let present = server.resource_version().to_string();
    assert_eq!(
        pods.list(&at(&present, VersionMatch::Exact))
            .await
            .unwrap()
            .items
            .len(),
        2
    );
}

/// A name in the field selector works like a name in the path.
#[tokio::test(start_paused = true)]
async fn a_node_may_list_itself_by_name() {
    let nodes: Api<Node> = Api::all(server().client_as(User::node("one")));
    nodes
        .list(&ListParams::default().fields("metadata.name=one"))
        .await
        .unwrap();
    for fields in ["", "metadata.name=two", "metadata.name!=one"] {
        let refused = refusal(nodes.list(&ListParams::default().fields(fields)).await);
        assert_eq!(refused, (403, "Forbidden".into()), "{fields}");
    }
}
