//! Watches.

use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube_runtime::{WatchStreamExt, watcher};
use kubelet_apiserver::{Memory, Verb};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::{PATIENCE, create, name, pod, pod_of, pods, server, version};

/// `ADDED web`, `BOOKMARK`, `ERROR 410`…
fn told(event: &WatchEvent<Pod>) -> String {
    match event {
        WatchEvent::Added(pod) => format!("ADDED {}", name(pod)),
        WatchEvent::Modified(pod) => format!("MODIFIED {}", name(pod)),
        WatchEvent::Deleted(pod) => format!("DELETED {}", name(pod)),
        WatchEvent::Bookmark(_) => "BOOKMARK".into(),
        WatchEvent::Error(status) => format!("ERROR {}", status.code),
    }
}

/// All events until the watch ends.
async fn until_end(watch: impl Stream<Item = kube_client::Result<WatchEvent<Pod>>>) -> Vec<String> {
    watch.map_ok(|event| told(&event)).try_collect().await.unwrap()
}

async fn relabel(pods: &Api<Pod>, name: &str, app: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
    pods.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn begins_from_the_past_the_present_or_all_that_is_there() {
    let server = server();
    let pods = pods(&server);
    let first = version(&create(&pods, "a").await);
    create(&pods, "b").await;
    relabel(&pods, "a", "z").await;
    let short = WatchParams::default().timeout(1).disable_bookmarks();
    for (from, events) in [
        (first.as_str(), &["ADDED b", "MODIFIED a"][..]),
        ("", &["ADDED a", "ADDED b"]),
        ("0", &["ADDED a", "ADDED b"]),
        (&server.resource_version().to_string(), &[]),
    ] {
        let watch = pods.watch(&short, from).await.unwrap();
        assert_eq!(until_end(watch).await, events, "{from:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_enters_and_leaves_a_selection() {
    let server = server();
    let pods = pods(&server);
    let params = WatchParams::default()
        .labels("app=x")
        .timeout(10)
        .disable_bookmarks();
    let watch = pods.watch(&params, "0").await.unwrap();
    create(&pods, "a").await;
    relabel(&pods, "a", "x").await;
    relabel(&pods, "a", "y").await;
    relabel(&pods, "a", "x").await;
    pods.delete("a", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    let events = until_end(watch).await;
    assert_eq!(events[..3], ["ADDED a", "DELETED a", "ADDED a"]);
    assert_eq!(events.last().unwrap(), "DELETED a");
}

#[tokio::test(start_paused = true)]
async fn a_node_sees_its_pods() {
    let server = server();
    let pods = pods(&server);
    let params = WatchParams::default()
        .fields("spec.nodeName=one")
        .timeout(10)
        .disable_bookmarks();
    let watch = pods.watch(&params, "0").await.unwrap();
    for (name, node) in [("a", "one"), ("b", "two"), ("c", "one")] {
        let pod = pod_of(json!({"metadata": {"name": name}, "spec": {"nodeName": node}}));
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    assert_eq!(until_end(watch).await, ["ADDED a", "ADDED c"]);
}

#[tokio::test(start_paused = true)]
async fn what_left_a_selection_is_shown_as_it_was_at_its_revision() {
    let server = server();
    let pods = pods(&server);
    create(&pods, "x").await;
    let params = WatchParams::default().labels("app=x");
    let watch = pods.watch(&params, &server.resource_version().to_string()).await;
    let mut watch = watch.unwrap().boxed();
    relabel(&pods, "x", "y").await;
    let Some(WatchEvent::Deleted(last)) = watch.try_next().await.unwrap() else {
        panic!("no event")
    };
    assert_eq!(last.metadata.labels.as_ref().unwrap()["app"], "x");
    assert_eq!(version(&last), server.resource_version().to_string());
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_and_before_the_end() {
    let server = server();
    let pods = pods(&server);
    let begun = Instant::now();
    let watch = pods
        .watch(&WatchParams::default().timeout(150), "0")
        .await
        .unwrap();
    let mut at = Vec::new();
    let mut watch = watch.boxed();
    while let Some(event) = watch.try_next().await.unwrap() {
        assert_eq!(told(&event), "BOOKMARK");
        at.push(begun.elapsed().as_secs());
    }
    assert_eq!(at, [60, 120, 148]);
    assert_eq!(begun.elapsed().as_secs(), 150);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_is_newer_than_all_that_was_told() {
    let server = server();
    let pods = pods(&server);
    let mut watch = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    tokio::time::sleep(Duration::from_secs(60)).await;
    create(&pods, "a").await;
    let mut newest = 0;
    for _ in 0..2 {
        match watch.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(pod) => newest = version(&pod).parse().unwrap(),
            WatchEvent::Bookmark(mark) => {
                let mark: u64 = mark.metadata.resource_version.parse().unwrap();
                assert!(mark >= newest);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_with_a_list_where_it_is_asked_to() {
    let server = server();
    let pods = pods(&server);
    create(&pods, "a").await;
    let params = WatchParams::default().initial_events().timeout(1);
    let mut watch = pods.watch(&params, "").await.unwrap().boxed();
    assert_eq!(told(&watch.try_next().await.unwrap().unwrap()), "ADDED a");
    let Some(WatchEvent::Bookmark(end)) = watch.try_next().await.unwrap() else {
        panic!("no end of the list")
    };
    assert_eq!(end.metadata.annotations["k8s.io/initial-events-end"], "true");
    assert_eq!(
        end.metadata.resource_version,
        server.resource_version().to_string()
    );
}

#[tokio::test(start_paused = true)]
async fn the_forgotten_past_is_gone() {
    let server = server();
    let pods = pods(&server);
    let first = version(&create(&pods, "a").await);
    create(&pods, "b").await;
    server.compact();
    let watch = pods.watch(&WatchParams::default(), &first).await.unwrap();
    assert_eq!(until_end(watch).await, ["ERROR 410"]);
}

#[tokio::test(start_paused = true)]
async fn one_who_reads_too_slowly_is_cut_off() {
    let server = server();
    let pods = pods(&server);
    server.create(&pod("a")).unwrap();
    let watch = pods.watch(&WatchParams::default(), "0").await.unwrap();
    for n in 0..3000 {
        let mut pod = server.get::<Pod>("default", "a").unwrap().unwrap();
        pod.metadata.labels = Some([("n".to_owned(), n.to_string())].into());
        server.replace(&pod).unwrap();
    }
    let events = until_end(watch).await;
    assert!(events.len() < 2000, "{} events waited", events.len());
    assert_eq!(server.open_watches(), 0);
}

/// The informer of kube-runtime: list, watch, resume.
#[tokio::test(start_paused = true)]
async fn an_informer_lives_through_disconnects_restarts_and_lost_memory() {
    for streaming in [false, true] {
        let server = server();
        let pods = pods(&server);
        create(&pods, "a").await;
        let mut config = watcher::Config::default();
        if streaming {
            config = config.streaming_lists();
        }
        let mut informer = watcher::watcher(pods.clone(), config).default_backoff().boxed();
        let mut seen: Vec<String> = Vec::new();
        let troubles: [&dyn Fn(); 5] = [
            &|| server.close_watches(),
            &|| server.restart(Memory::Kept),
            &|| server.restart(Memory::Lost),
            &|| server.down_for(Duration::from_secs(30)),
            &|| server.faults().on(Verb::Watch).first(1).gone(),
        ];
        for (n, trouble) in troubles.into_iter().enumerate() {
            trouble();
            let wanted = format!("p{n}");
            server.create(&pod(&wanted)).unwrap();
            let reached = timeout(PATIENCE, async {
                while !seen.contains(&wanted) {
                    let event = informer.next().await.unwrap();
                    if let Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = event {
                        seen.push(name(&pod).to_owned());
                    }
                }
            });
            assert!(reached.await.is_ok(), "{wanted} not seen: {seen:?}");
        }
    }
}
