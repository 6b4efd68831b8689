//! Faults, and what a client sees of them.

use std::io;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube_client::Error;
use kube_client::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kubelet_apiserver::ApiServer;
use kubelet_apiserver::{Memory, User, Verb};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::{PATIENCE, create, pod, pods, refusal, server};

/// The kind of I/O error at the bottom of a client's.
#[track_caller]
fn broken<T: std::fmt::Debug>(result: Result<T, Error>) -> io::ErrorKind {
    let error = result.expect_err("nothing went wrong");
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.kind();
        }
        source = error.source();
    }
    panic!("not an I/O error: {error:?}")
}

#[tokio::test(start_paused = true)]
async fn a_request_is_refused() {
    let server = server();
    let pods = pods(&server);
    server
        .faults()
        .on(Verb::Create)
        .first(2)
        .fails(503, "apiserver is shutting down");
    for _ in 0..2 {
        let refused = pods.create(&PostParams::default(), &pod("web")).await;
        assert_eq!(refusal(refused), (503, "ServiceUnavailable".into()));
    }
    create(&pods, "web").await;

    server
        .faults()
        .on(Verb::List)
        .first(1)
        .too_many_requests(Duration::from_secs(7));
    let Err(Error::Api(status)) = pods.list(&ListParams::default()).await else {
        panic!("not refused")
    };
    assert_eq!(
        (status.code, status.details.unwrap().retry_after_seconds),
        (429, 7)
    );
    pods.list(&ListParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_breaks_before_or_after_the_work() {
    let server = server();
    let pods = pods(&server);
    server.faults().on(Verb::Create).name("lost").connection_lost();
    server.faults().on(Verb::Create).name("done").reply_lost();
    for (name, done) in [("lost", false), ("done", true)] {
        let result = pods.create(&PostParams::default(), &pod(name)).await;
        assert_eq!(broken(result), io::ErrorKind::ConnectionReset);
        assert_eq!(pods.get_opt(name).await.unwrap().is_some(), done);
    }
    assert_eq!(
        server.faults().injected(),
        [
            "create pods default/lost: connection lost",
            "create pods default/done: reply lost"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_slow_or_never_comes() {
    let server = server();
    let pods = pods(&server);
    create(&pods, "web").await;
    let begun = Instant::now();
    server.faults().on(Verb::Get).nth(1).slow(Duration::from_secs(20));
    server
        .faults()
        .on(Verb::Get)
        .nth(2)
        .reply_delayed(Duration::from_secs(30));
    server.faults().on(Verb::Get).nth(3).hangs();
    pods.get("web").await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 20);
    pods.get("web").await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 50);
    assert!(timeout(PATIENCE, pods.get("web")).await.is_err());

    server.faults().on(Verb::Patch).reply_hangs();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let params = PatchParams::default();
    assert!(
        timeout(PATIENCE, pods.patch("web", &params, &patch))
            .await
            .is_err()
    );
    assert!(
        pods.get("web")
            .await
            .unwrap()
            .metadata
            .labels
            .unwrap()
            .contains_key("a")
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_breaks_what_hangs() {
    let server = server();
    let pods = pods(&server);
    server.faults().on(Verb::Get).first(1).hangs();
    let hanging = tokio::spawn({
        let pods = pods.clone();
        async move { pods.get("web").await }
    });
    wait_until_injected(&server, 1).await;
    server.restart(Memory::Kept);
    assert_eq!(broken(hanging.await.unwrap()), io::ErrorKind::ConnectionReset);

    server.down_for(Duration::from_secs(60));
    assert_eq!(broken(pods.get("web").await), io::ErrorKind::ConnectionRefused);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(refusal(pods.get("web").await).0, 404);
    server.stop();
    tokio::time::sleep(PATIENCE).await;
    assert_eq!(broken(pods.get("web").await), io::ErrorKind::ConnectionRefused);
    server.restart(Memory::Lost);
    assert_eq!(refusal(pods.get("web").await).0, 404);
}

async fn wait_until_injected(server: &ApiServer, count: usize) {
    while server.faults().injected().len() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_closes_breaks_or_falls_silent() {
    let server = server();
    let pods = pods(&server);
    let faults = server.faults();
    faults
        .on(Verb::Watch)
        .nth(1)
        .closed_after(Duration::from_secs(10));
    faults
        .on(Verb::Watch)
        .nth(2)
        .broken_after(Duration::from_secs(20));
    faults
        .on(Verb::Watch)
        .nth(3)
        .silent_after(Duration::from_secs(30));
    let params = WatchParams::default().timeout(200).disable_bookmarks();

    let begun = Instant::now();
    let mut closed = pods.watch(&params, "0").await.unwrap().boxed();
    assert!(closed.try_next().await.unwrap().is_none());
    assert_eq!(begun.elapsed().as_secs(), 10);

    let mut breaks = pods.watch(&params, "0").await.unwrap().boxed();
    assert!(breaks.try_next().await.is_err());
    assert_eq!(begun.elapsed().as_secs(), 30);

    let mut silent = pods.watch(&params, "0").await.unwrap().boxed();
    create(&pods, "before").await;
    assert!(matches!(
        silent.try_next().await.unwrap(),
        Some(WatchEvent::Added(_))
    ));
    tokio::time::sleep(Duration::from_secs(31)).await;
    create(&pods, "after").await;
    assert!(timeout(PATIENCE, silent.try_next()).await.is_err());
    server.restart(Memory::Kept);
    assert!(silent.try_next().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn open_watches_fall_silent() {
    let server = server();
    let pods = pods(&server);
    let mut watch = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    server.silence_watches();
    create(&pods, "web").await;
    assert!(timeout(PATIENCE, watch.try_next()).await.is_err());
    assert_eq!(server.open_watches(), 1);
    // Others see it.
    let mut other = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(other.try_next().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn requests_are_recorded_with_their_answers() {
    let start = kubelet_core::Clock::system();
    let server = ApiServer::builder().clock(start).record_reads().build();
    let pods = super::pods(&server);
    create(&pods, "web").await;
    pods.get_opt("absent").await.unwrap();
    let one: kube_client::Api<k8s_openapi::api::core::v1::Pod> =
        kube_client::Api::namespaced(server.client_as(User::node("one")), "default");
    let patch = Patch::Merge(json!({"status": {"phase": "Running"}}));
    let _ = one.patch_status("web", &PatchParams::default(), &patch).await;
    let calls = server.calls();
    calls.assert_exactly([
        "create pods default/web",
        "get pods default/absent",
        "patch pods/status default/web",
    ]);
    let all = calls.all();
    assert_eq!(
        format!("{:#}", all[1]),
        "get pods default/absent by system:admin: 404"
    );
    assert_eq!(all[2].user, "system:node:one");
    calls.assert_none("delete");
}
