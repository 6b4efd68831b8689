//! The API server's pods, from a server that answers by script, in virtual time.
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube_client::Client;
use kube_client::client::Body;
use kubelet_config::{ApiServerSource, PodConfig, PodSource, PodUpdate, SourceStatus, SourceUpdate};
use kubelet_core::{Jitter, PodExt};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// Far longer than any pause of the source.
const GUARD: Duration = Duration::from_secs(7 * 24 * 60 * 60);

type Chunks = mpsc::Sender<io::Result<Frame<Bytes>>>;
type Answer = Response<StreamBody<ReceiverStream<io::Result<Frame<Bytes>>>>>;

/// An API server whose part the test plays.
pub(crate) struct Server(mpsc::UnboundedReceiver<Asked>);

pub(crate) struct Asked {
    path: String,
    query: BTreeMap<String, String>,
    at: Instant,
    answer: oneshot::Sender<Answer>,
}

pub(crate) fn server() -> (Client, Server) {
    let (asked, requests) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answer, answered) = oneshot::channel();
        let query = request.uri().query().unwrap_or_default();
        let asked = asked.send(Asked {
            path: request.uri().path().to_owned(),
            query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            at: Instant::now(),
            answer,
        });
        async move {
            asked.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            answered
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))
        }
    });
    (Client::new(service, "default"), Server(requests))
}

impl Server {
    pub(crate) async fn asked(&mut self) -> Asked {
        timeout(GUARD, self.0.recv()).await.expect("a request").unwrap()
    }
}

impl Asked {
    fn get(&self, key: &str) -> Option<&str> {
        self.query.get(key).map(String::as_str)
    }

    fn is_watch_list(&self) -> bool {
        self.get("sendInitialEvents") == Some("true")
    }

    fn answer(self, status: u16) -> Chunks {
        let (chunks, body) = mpsc::channel(1);
        let answer = Response::builder()
            .status(status)
            .body(StreamBody::new(ReceiverStream::new(body)));
        assert!(
            self.answer.send(answer.unwrap()).is_ok(),
            "nobody waits for the answer"
        );
        chunks
    }

    async fn json(self, status: u16, body: Value) {
        let chunks = self.answer(status);
        let _ = chunks.send(Ok(Frame::data(body.to_string().into()))).await;
    }

    async fn list(self, version: &str, token: &str, pods: &[Value]) {
        let metadata = json!({"resourceVersion": version, "continue": token});
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": pods});
        self.json(200, list).await;
    }

    async fn refuse(self, code: u16, reason: &str) {
        self.json(code, status(code, reason)).await;
    }

    fn watch(self) -> Watch {
        assert_eq!(self.get("watch"), Some("true"), "{:?}", self.query);
        Watch(self.answer(200))
    }

    /// Answers a streaming list, and goes on with the watch.
    pub(crate) async fn watch_list(self, version: &str, pods: &[Value]) -> Watch {
        assert!(self.is_watch_list(), "{:?}", self.query);
        let watch = self.watch();
        for pod in pods {
            watch.event("ADDED", pod.clone()).await;
        }
        let end = json!({"k8s.io/initial-events-end": "true"});
        watch.bookmark(version, end).await;
        watch
    }
}

/// A watch as the server sees it. Dropping it closes it.
pub(crate) struct Watch(Chunks);

impl Watch {
    async fn event(&self, kind: &str, object: Value) {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        self.0.send(Ok(Frame::data(line.into()))).await.expect("watched");
    }

    async fn bookmark(&self, version: &str, annotations: Value) {
        let metadata = json!({"resourceVersion": version, "annotations": annotations});
        let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata});
        self.event("BOOKMARK", object).await;
    }
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": format!("{reason}!")})
}

fn pod(name: &str, version: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": format!("i:{version}")}]},
    })
}

fn updates(source: ApiServerSource) -> mpsc::UnboundedReceiver<SourceUpdate> {
    let (told, updates) = mpsc::unbounded_channel();
    let mut stream = Box::new(source).updates();
    tokio::spawn(async move {
        while let Some(update) = stream.next().await {
            if told.send(update).is_err() {
                return;
            }
        }
    });
    updates
}

fn source(client: Client) -> ApiServerSource {
    ApiServerSource::new(client, "node-1").jitter(Jitter::from_seed(1))
}

async fn next(updates: &mut mpsc::UnboundedReceiver<SourceUpdate>) -> SourceUpdate {
    timeout(GUARD, updates.recv())
        .await
        .expect("a word")
        .expect("no end")
}

/// `Snapshot(a@1,b@2)`
async fn said(updates: &mut mpsc::UnboundedReceiver<SourceUpdate>) -> String {
    let brief = |pod: &k8s_openapi::api::core::v1::Pod| {
        let version = pod.metadata.resource_version.as_deref().unwrap_or_default();
        format!("{}@{version}", pod.key().name)
    };
    match next(updates).await {
        SourceUpdate::Snapshot(pods) => {
            let pods: Vec<_> = pods.iter().map(|pod| brief(pod)).collect();
            format!("Snapshot({})", pods.join(","))
        }
        SourceUpdate::Applied(pod) => format!("Applied({})", brief(&pod)),
        SourceUpdate::Deleted(uid) => format!("Deleted({uid})"),
        SourceUpdate::Available => "Available".into(),
        SourceUpdate::Unavailable { message } => format!("Unavailable({message})"),
        SourceUpdate::Problem { item, message } => format!("Problem({item}: {message})"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn it_lists_and_watches_as_the_kubelet_does() {
    let (client, mut server) = server();
    let mut updates = updates(source(client));
    let first = server.asked().await;
    assert_eq!(first.path, "/api/v1/pods");
    let mut query = first.query.clone();
    let lasting: u64 = query.remove("timeoutSeconds").unwrap().parse().unwrap();
    assert!((300..=600).contains(&lasting), "{lasting}");
    let expected = [
        ("allowWatchBookmarks", "true"),
        ("fieldSelector", "spec.nodeName=node-1"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("sendInitialEvents", "true"),
        ("watch", "true"),
    ];
    assert_eq!(
        query,
        expected.map(|(key, value)| (key.into(), value.into())).into()
    );

    let watch = first.watch_list("10", &[pod("b", "2"), pod("a", "1")]).await;
    assert_eq!(said(&mut updates).await, "Snapshot(a@1,b@2)");
    watch.event("MODIFIED", pod("a", "11")).await;
    assert_eq!(said(&mut updates).await, "Applied(a@11)");
    watch.event("MODIFIED", pod("a", "11")).await;
    watch.event("ADDED", pod("c", "12")).await;
    assert_eq!(
        said(&mut updates).await,
        "Applied(c@12)",
        "the same again is no news"
    );
    watch.event("DELETED", pod("c", "13")).await;
    assert_eq!(said(&mut updates).await, "Deleted(uid-c)");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_where_it_ended() {
    let (client, mut server) = server();
    let mut updates = updates(source(client));
    let watch = server.asked().await.watch_list("10", &[pod("a", "1")]).await;
    assert_eq!(said(&mut updates).await, "Snapshot(a@1)");
    tokio::time::advance(Duration::from_secs(60)).await;
    watch.bookmark("20", json!({})).await;
    drop(watch);

    // It was closed.
    let again = server.asked().await;
    assert_eq!(again.get("resourceVersion"), Some("20"));
    assert!(!again.is_watch_list());
    let watch = again.watch();
    watch.event("MODIFIED", pod("a", "30")).await;
    assert_eq!(said(&mut updates).await, "Applied(a@30)");
    tokio::time::advance(Duration::from_secs(60)).await;

    // It broke.
    let broken = io::Error::from(io::ErrorKind::ConnectionReset);
    watch.0.send(Err(broken)).await.unwrap();
    let again = server.asked().await;
    assert_eq!(again.get("resourceVersion"), Some("30"));
    let watch = again.watch();
    watch.event("ADDED", pod("b", "40")).await;
    assert_eq!(said(&mut updates).await, "Applied(b@40)", "and nothing before it");

    // Nobody is there any more, and nobody says so.
    let before = Instant::now();
    let again = server.asked().await;
    assert_eq!(again.get("resourceVersion"), Some("40"));
    assert_eq!(before.elapsed().as_secs(), 180);
    assert!(watch.0.is_closed());
}

#[tokio::test(start_paused = true)]
async fn after_410_all_is_listed_and_sent_only_if_it_changed() {
    let (client, mut server) = server();
    let mut updates = updates(source(client));
    let watch = server
        .asked()
        .await
        .watch_list("10", &[pod("a", "1"), pod("b", "2")])
        .await;
    assert_eq!(said(&mut updates).await, "Snapshot(a@1,b@2)");
    watch.event("ERROR", status(410, "Expired")).await;

    let again = server.asked().await;
    assert_eq!(again.get("resourceVersion"), Some("10"));
    let watch = again.watch_list("50", &[pod("a", "1"), pod("b", "2")]).await;
    watch.event("MODIFIED", pod("b", "51")).await;
    assert_eq!(said(&mut updates).await, "Applied(b@51)", "the list was no news");

    // The answer to a watch, too, may be 410.
    tokio::time::advance(Duration::from_secs(60)).await;
    drop(watch);
    server.asked().await.refuse(410, "Gone").await;
    // And even to the list.
    let again = server.asked().await;
    assert_eq!(again.get("resourceVersion"), Some("51"));
    again.refuse(410, "Expired").await;
    let again = server.asked().await;
    assert_eq!(again.get("resourceVersion"), None);
    let _watch = again.watch_list("90", &[pod("b", "80")]).await;
    assert_eq!(said(&mut updates).await, "Snapshot(b@80)");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_went_back_in_time_is_believed() {
    let (client, mut server) = server();
    let mut updates = updates(source(client));
    let watch = server.asked().await.watch_list("1000", &[pod("a", "999")]).await;
    assert_eq!(said(&mut updates).await, "Snapshot(a@999)");
    watch.event("ERROR", status(500, "InternalError")).await;
    let mut too_large = status(504, "Timeout");
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    too_large["details"] = json!({"causes": [cause], "retryAfterSeconds": 1});
    let again = server.asked().await;
    assert_eq!(again.get("resourceVersion"), Some("1000"));
    again.json(504, too_large).await;
    let again = server.asked().await;
    assert_eq!(again.get("resourceVersion"), None);
    let _watch = again.watch_list("7", &[pod("a", "5")]).await;
    assert_eq!(said(&mut updates).await, "Snapshot(a@5)");
}

#[tokio::test(start_paused = true)]
async fn where_there_is_no_streaming_list_it_lists_in_pages() {
    let (client, mut server) = server();
    let mut updates = updates(source(client));
    let first = server.asked().await;
    assert!(first.is_watch_list());
    first.refuse(422, "Invalid").await;

    let page = server.asked().await;
    assert_eq!((page.get("watch"), page.get("limit")), (None, Some("500")));
    assert_eq!(page.get("resourceVersion"), Some("0"));
    assert_eq!(page.get("fieldSelector"), Some("spec.nodeName=node-1"));
    page.list("10", "more", &[pod("a", "1")]).await;
    let page = server.asked().await;
    assert_eq!(
        (page.get("continue"), page.get("limit")),
        (Some("more"), Some("500"))
    );
    assert_eq!(page.get("resourceVersion"), None);
    page.list("10", "", &[pod("b", "2")]).await;
    assert_eq!(said(&mut updates).await, "Snapshot(a@1,b@2)");

    let watch = server.asked().await;
    assert_eq!(watch.get("resourceVersion"), Some("10"));
    let watch = watch.watch();
    watch.event("ERROR", status(410, "Expired")).await;
    server.asked().await.refuse(422, "Invalid").await;
    server.asked().await.list("20", "more", &[pod("a", "1")]).await;
    // The pages are no longer to be had: all at once.
    server.asked().await.refuse(410, "Expired").await;
    let whole = server.asked().await;
    assert_eq!((whole.get("continue"), whole.get("limit")), (None, None));
    whole.list("30", "", &[pod("a", "1"), pod("c", "3")]).await;
    assert_eq!(said(&mut updates).await, "Snapshot(a@1,c@3)");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_is_refused_with_an_event_is_replaced_by_a_list() {
    let (client, mut server) = server();
    let mut updates = updates(source(client));
    // So does an API server whose etcd cannot report progress: it has answered with the status 200 before.
    let first = server.asked().await;
    assert!(first.is_watch_list());
    let first = first.watch();
    first.event("ERROR", status(500, "InternalError")).await;
    server.asked().await.list("10", "", &[pod("a", "1")]).await;
    assert_eq!(said(&mut updates).await, "Snapshot(a@1)");
    let watch = server.asked().await;
    assert_eq!(watch.get("resourceVersion"), Some("10"));
    let watch = watch.watch();
    watch.event("ADDED", pod("b", "11")).await;
    let _applied = said(&mut updates).await;
}

/// When a server that refuses was asked, and what was said of it.
async fn refused(seed: u64) -> (Vec<Duration>, Vec<String>) {
    let (client, mut server) = server();
    let source = ApiServerSource::new(client, "node-1").jitter(Jitter::from_seed(seed));
    let mut updates = updates(source);
    let start = Instant::now();
    let mut asked = Vec::new();
    for _ in 0..12 {
        let request = server.asked().await;
        asked.push(request.at - start);
        // Dropping a request is refusing the connection.
    }
    let mut told = vec![said(&mut updates).await];
    let watch = server.asked().await.watch_list("1", &[]).await;
    told.push(said(&mut updates).await);
    // An established watch breaks; the next tries find nobody.
    tokio::time::advance(Duration::from_secs(60)).await;
    drop(watch);
    for _ in 0..3 {
        server.asked().await;
    }
    told.push(said(&mut updates).await);
    let again = server.asked().await;
    assert!(!again.is_watch_list(), "deltas, not lists");
    let _watch = again.watch();
    told.push(said(&mut updates).await);
    (asked, told)
}

#[tokio::test(start_paused = true)]
async fn while_nobody_answers_it_tries_ever_more_rarely_and_says_so_once() {
    let (asked, told) = refused(7).await;
    let pauses: Vec<_> = asked
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs_f64())
        .collect();
    let mut base = 0.8;
    for pause in &pauses {
        assert!((base..=base * 2.0 + 0.01).contains(pause), "{pauses:?}");
        base = f64::min(base * 2.0, 30.0);
    }
    assert!(told[0].contains("refused"), "{told:?}");
    assert_eq!((&*told[1], &*told[3]), ("Snapshot()", "Available"), "{told:?}");
    assert!(told[2].starts_with("Unavailable"), "{told:?}");

    assert_eq!(
        refused(7).await,
        (asked.clone(), told),
        "a seed plays the same again"
    );
    assert_ne!(refused(8).await.0, asked);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_reported_with_its_reason() {
    let (client, mut server) = server();
    let mut updates = updates(source(client));
    server.asked().await.refuse(403, "Forbidden").await;
    server.asked().await.refuse(403, "Forbidden").await;
    let told = said(&mut updates).await;
    assert!(
        told.starts_with("Unavailable") && told.contains("Forbidden! (Forbidden, 403)"),
        "{told}"
    );
    server.asked().await.refuse(429, "TooManyRequests").await;
    assert!(said(&mut updates).await.contains("429"));
    let again = server.asked().await;
    assert!(
        again.is_watch_list(),
        "too many requests are no reason for a list"
    );
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_do_not_make_it_spin() {
    let (client, mut server) = server();
    let _updates = updates(source(client));
    server.asked().await.watch_list("10", &[]).await;
    let start = Instant::now();
    for _ in 0..10 {
        let asked = server.asked().await;
        if asked.is_watch_list() {
            asked.watch_list("10", &[]).await;
        } else {
            asked.watch();
        }
    }
    assert!(start.elapsed() > Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_the_node_to_be_known() {
    let (client, mut server) = server();
    let (synced, waiting) = oneshot::channel::<()>();
    let _updates = updates(source(client).node_synced(async {
        let _ = waiting.await;
    }));
    let early = timeout(Duration::from_secs(3600), server.0.recv()).await;
    assert!(early.is_err());
    synced.send(()).unwrap();
    server.asked().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_is_reported_and_the_others_go_on() {
    let (client, mut server) = server();
    let mut updates = updates(source(client));
    let watch = server
        .asked()
        .await
        .watch_list("10", &[json!({"spec": 1}), pod("a", "1")])
        .await;
    assert!(said(&mut updates).await.starts_with("Problem"));
    assert_eq!(said(&mut updates).await, "Snapshot(a@1)");
    let mut bad = pod("b", "2");
    bad["spec"]["containers"] = json!([1]);
    watch.event("ADDED", bad).await;
    let problem = said(&mut updates).await;
    assert!(
        problem.starts_with("Problem(pod ns/b: cannot be decoded: spec.containers[0]"),
        "{problem}"
    );
    watch.event("MODIFIED", pod("a", "2")).await;
    assert_eq!(said(&mut updates).await, "Applied(a@2)");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_taken_is_not_read() {
    let (client, mut server) = server();
    let mut stream = Box::new(source(client)).updates();
    let first = stream.next();
    let served = async { server.asked().await.watch_list("1", &[]).await };
    let (first, watch) = tokio::join!(first, served);
    assert!(matches!(first, Some(SourceUpdate::Snapshot(_))));
    // Nobody asks for more: the server gets rid of a handful of events and no more.
    let mut sent = 0;
    while timeout(
        Duration::from_secs(1),
        watch.event("ADDED", pod(&format!("p{sent}"), "5")),
    )
    .await
    .is_ok()
    {
        sent += 1;
        assert!(sent < 20);
    }
    for expected in 0..sent {
        let Some(SourceUpdate::Applied(pod)) = stream.next().await else {
            panic!()
        };
        assert_eq!(&*pod.key().name, format!("p{expected}"));
    }
}

#[tokio::test(start_paused = true)]
async fn merged_a_reconnect_says_nothing_and_a_silent_server_is_not_an_empty_one() {
    let (client, mut server) = server();
    let config = PodConfig::builder().source(source(client)).build().unwrap();
    let handle = config.handle();
    let (tx, mut updates) = mpsc::channel(50);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(config.run(tx, shutdown.clone()));
    let mut brief = async || {
        let update: PodUpdate = timeout(GUARD, updates.recv()).await.unwrap().unwrap();
        let uids: Vec<_> = update.pods.iter().map(|pod| pod.uid_str().to_owned()).collect();
        format!("{:?}({})", update.op, uids.join(","))
    };
    let watch = server
        .asked()
        .await
        .watch_list("10", &[pod("a", "1"), pod("b", "2")])
        .await;
    assert_eq!(brief().await, "Add(uid-a,uid-b)");
    watch.event("ERROR", status(410, "Expired")).await;
    let watch = server
        .asked()
        .await
        .watch_list("20", &[pod("a", "1"), pod("b", "2")])
        .await;
    let mut deleting = pod("a", "21");
    deleting["spec"] = pod("a", "1")["spec"].clone();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    watch.event("MODIFIED", deleting).await;
    assert_eq!(brief().await, "Delete(uid-a)");

    tokio::time::advance(Duration::from_secs(60)).await;
    drop(watch);
    server.asked().await;
    let again = server.asked().await;
    assert!(matches!(handle.source_status("api"), SourceStatus::Stale { .. }));
    assert_eq!(handle.merged_state().len(), 2);
    let watch = again.watch();
    watch.event("DELETED", pod("a", "30")).await;
    assert_eq!(brief().await, "Remove(uid-a)");
    assert_eq!(handle.source_status("api"), SourceStatus::Ready);
    shutdown.cancel();
    running.await.unwrap().unwrap();
    assert!(watch.0.is_closed(), "nothing goes on after the end");
}
