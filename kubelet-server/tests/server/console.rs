//! The console: its pages, their changes, and that text stays text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::streaming::StreamError;
use kubelet_core::runtime::{ContainerLogs, PodLogOptions};
use kubelet_core::{Clock, Event, EventRecorder as _, EventType, NodeEventRecorder as _, PodUid};
use kubelet_server::authorization::AlwaysAllow;
use kubelet_server::console::{Console, ConsoleBuilder, Durations, Explain, RecentEvents};
use kubelet_server::{Authentication, Authorization, Body, NodeApi, NodePods, Server};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use super::chromium::{Page, find_chromium};

/// Markup that would show if it were not escaped.
const EVIL: &str = "<img src=x onerror=\"document.title='owned'\">&</script>'";
/// The same as it must be in a page.
const ESCAPED: &str =
    "&lt;img src=x onerror=&quot;document.title=&#39;owned&#39;&quot;&gt;&amp;&lt;/script&gt;&#39;";

#[derive(Clone, Default)]
struct Pods(Arc<Mutex<Vec<Arc<Pod>>>>);

impl NodePods for Pods {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.0.lock().clone()
    }
}

impl Pods {
    fn set(&self, pods: &[Value]) {
        *self.0.lock() = pods
            .iter()
            .map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap()))
            .collect();
    }
}

struct Sources;

impl Explain for Sources {
    fn explain(&self, _: &PodUid) -> Vec<String> {
        vec![format!("waits for {EVIL}")]
    }
}

impl Durations for Sources {
    fn totals(&self, _: &str) -> Option<(u64, f64)> {
        Some((1, 0.5))
    }
}

type Pieces = BoxStream<'static, Result<Vec<u8>, StreamError>>;

#[async_trait::async_trait]
impl ContainerLogs for Sources {
    async fn container_logs(
        &self,
        _: &Pod,
        _: &PodStatus,
        container: &str,
        options: PodLogOptions,
    ) -> Result<Pieces, StreamError> {
        let pieces = [
            format!("{EVIL}\nin "),
            format!("two {container} {}\r\n", options.previous),
        ];
        Ok(stream::iter(pieces.map(|piece| Ok(piece.into_bytes()))).boxed())
    }
}

fn pod(name: &str, state: Value) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "main", "image": format!("image-{EVIL}"), "imageID": "", "ready": false, "restartCount": 3, "state": state,
            "lastState": {"terminated": {"exitCode": 7, "reason": EVIL, "startedAt": "2026-01-01T00:00:05Z",
                "finishedAt": "2026-01-01T00:00:15Z"}},
        }]},
    })
}

fn crashing(name: &str) -> Value {
    pod(
        name,
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": format!("back-off {EVIL}")}}),
    )
}

fn running(name: &str) -> Value {
    let mut pod = pod(name, json!({"running": {"startedAt": "2026-01-01T00:00:20Z"}}));
    pod["status"]["containerStatuses"][0]["ready"] = json!(true);
    pod
}

fn clock() -> Clock {
    Clock::starting_at(Timestamp::constant(1_767_225_660, 0))
}

fn builder(pods: &Pods) -> ConsoleBuilder {
    let sources = Arc::new(Sources);
    let events = RecentEvents::new(clock());
    for pod in pods.pods() {
        let mut event = Event::about(&pod, EventType::Warning, "BackOff", format!("Back-off {EVIL}"));
        event.field_path = Some("spec.containers{main}".into());
        events.record(event.clone());
        events.record(event);
    }
    events.record_node(EventType::Normal, "Starting", format!("Starting {EVIL}"));
    let console = Console::builder(format!("node-{EVIL}"), Arc::new(pods.clone()));
    console
        .explain(sources.clone())
        .durations(sources.clone())
        .logs(sources)
        .events(events)
        .clock(clock())
}

async fn get(console: &Console, path: &str) -> Response<Body> {
    call(console, Method::GET, path, "localhost").await
}

async fn call(console: &Console, method: Method, path: &str, host: &str) -> Response<Body> {
    let body = Full::default().map_err(|never| match never {}).boxed_unsync();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", host)
        .body(body)
        .unwrap();
    console.clone().call(request).await.unwrap()
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

/// The elements and attributes of a page as they are, without the text. Panics if a quote or a tag is open.
fn tags(page: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag is open");
        tags.push(&rest[start..=end]);
        rest = &rest[end + 1..];
    }
    tags
}

#[tokio::test]
async fn text_stays_text_and_nothing_comes_from_elsewhere() {
    let (pods, evil) = (Pods::default(), percent(EVIL));
    pods.set(&[crashing("web"), running(EVIL)]);
    let console = builder(&pods).build();
    for (path, shows) in [
        (
            "/console/".to_owned(),
            vec![ESCAPED, "CrashLoopBackOff", "Starting", "PLEG relist"],
        ),
        (
            "/console/pods/default/web".into(),
            vec![
                ESCAPED,
                "waits for ",
                "back-off ",
                "exit code 7",
                "BackOff",
                "<svg",
            ],
        ),
        (format!("/console/pods/default/{evil}"), vec![ESCAPED, "running"]),
        (
            "/console/logs/default/web/main".into(),
            vec![ESCAPED, "in two main false"],
        ),
        (
            "/console/logs/default/web/main?previous=true".into(),
            vec!["in two main true"],
        ),
    ] {
        let response = get(&console, &path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let policy = response.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"),
            "{policy}"
        );
        assert!(
            !policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        let page = text(response).await;
        for shown in shows {
            assert!(page.contains(shown), "{path} does not show {shown:?}: {page}");
        }
        for tag in tags(&page) {
            assert!(
                !tag.contains("onerror=\"") && !tag.starts_with("<img"),
                "{path}: {tag}"
            );
            assert!(!tag.contains("style=") && !tag.contains("://"), "{path}: {tag}");
            assert!(
                !tag.starts_with("<script") || tag.contains("src=\"/console/script.js\""),
                "{path}: {tag}"
            );
        }
    }
    for (path, kind) in [
        ("/console/style.css", "text/css; charset=utf-8"),
        ("/console/script.js", "text/javascript; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
    ] {
        let response = get(&console, path).await;
        assert_eq!(response.headers()["content-type"], kind);
        let text = text(response)
            .await
            .replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(
            !text.contains("://") && !text.contains("@import") && !text.contains("url("),
            "{path}"
        );
    }
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn serves_only_what_there_is() {
    let pods = Pods::default();
    pods.set(&[running("web")]);
    let console = builder(&pods).loopback_names_only().build();
    for path in [
        "/console/pods/default/other",
        "/console/pods/default/web/more",
        "/console/logs/default/web/other",
        "/console/pods/default/%FF",
        "/console/live/logs/default/other/main",
        "/elsewhere",
    ] {
        assert_eq!(
            get(&console, path).await.status(),
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
    for path in ["/", "/console"] {
        let response = get(&console, path).await;
        assert_eq!(
            (response.status(), &response.headers()["location"]),
            (StatusCode::TEMPORARY_REDIRECT, &"/console/".parse().unwrap())
        );
    }
    assert_eq!(
        call(&console, Method::POST, "/console/", "localhost")
            .await
            .status(),
        StatusCode::METHOD_NOT_ALLOWED
    );
    let head = call(&console, Method::HEAD, "/console/", "localhost").await;
    assert_eq!((head.status(), text(head).await), (StatusCode::OK, String::new()));
    // A name that its owner resolves to 127.0.0.1.
    for (host, status) in [
        ("127.0.0.1:8080", StatusCode::OK),
        ("[::1]:8080", StatusCode::OK),
        ("LOCALHOST", StatusCode::OK),
        ("evil.example:8080", StatusCode::FORBIDDEN),
        ("localhost.evil.example", StatusCode::FORBIDDEN),
        ("10.0.0.1", StatusCode::FORBIDDEN),
        ("", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(
            call(&console, Method::GET, "/console/", host).await.status(),
            status,
            "{host}"
        );
    }
    assert_eq!(
        get(&builder(&pods).build(), "/console/").await.status(),
        StatusCode::OK
    );
}

/// The next events of a stream: names and data.
async fn next_events(body: &mut Body) -> Vec<(String, String)> {
    loop {
        let frame = body
            .frame()
            .await
            .expect("the stream has ended")
            .unwrap()
            .into_data()
            .unwrap();
        let text = String::from_utf8(frame.into()).unwrap();
        let events: Vec<_> = text
            .split("\n\n")
            .filter_map(|event| {
                let mut lines = event.lines();
                let name = lines.next()?.strip_prefix("event: ")?;
                let data: Vec<_> = lines.map(|line| line.strip_prefix("data: ").unwrap()).collect();
                Some((name.to_owned(), data.join("\n")))
            })
            .collect();
        if !events.is_empty() {
            return events;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_gets_what_has_changed() {
    let (pods, shutdown) = (Pods::default(), CancellationToken::new());
    pods.set(&[running("web")]);
    let console = builder(&pods).build();
    let (observing, stop) = (console.clone(), shutdown.clone());
    let observing = tokio::spawn(async move { observing.run(stop).await });

    let mut node = get(&console, "/console/live/").await.into_body();
    let first: BTreeMap<_, _> = next_events(&mut node).await.into_iter().collect();
    assert_eq!(
        first.keys().collect::<Vec<_>>(),
        ["events", "plots", "pods", "summary"]
    );
    assert!(first["pods"].contains("web") && !first["pods"].contains("CrashLoopBackOff"));
    let mut one = get(&console, "/console/live/pods/default/web").await.into_body();
    next_events(&mut one).await;
    pods.set(&[running("web"), crashing("bad")]);
    loop {
        let changed: BTreeMap<_, _> = next_events(&mut node).await.into_iter().collect();
        if let Some(table) = changed
            .get("pods")
            .filter(|table| table.contains("CrashLoopBackOff"))
        {
            // What fails comes first.
            assert!(table.find("bad") < table.find("web"));
            break;
        }
    }

    // The page of a pod that is gone says so, and this stream ends.
    pods.set(&[]);
    let last = loop {
        let events = next_events(&mut one).await;
        if events[0].0 == "end" {
            break events;
        }
    };
    assert_eq!(last, [("end".to_owned(), "The pod is gone.".to_owned())]);
    assert!(one.frame().await.is_none());
    shutdown.cancel();
    observing.await.unwrap();
    while node.frame().await.is_some() {}
}

#[tokio::test]
async fn follows_a_log() {
    let pods = Pods::default();
    pods.set(&[running("web")]);
    let console = builder(&pods).build();
    let response = get(&console, "/console/live/logs/default/web/main").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let stream = text(response).await;
    // Text as it is: the script shows it as text.
    let expected = format!(
        "retry: 2000\n\nevent: line\ndata: {EVIL}\n\nevent: line\ndata: in two main false\ndata: \n\nevent: end\ndata: The \
         container has ended.\n\n"
    );
    assert!(stream.replace(": alive\n\n", "") == expected, "{stream}");
    assert!(include_str!("../../src/console/script.js").contains("log.append(text + '\\n')"));
}

#[tokio::test(start_paused = true)]
async fn remembers_the_runs_of_a_container() {
    let (pods, shutdown) = (Pods::default(), CancellationToken::new());
    let console = builder(&pods).build();
    let (observing, stop) = (console.clone(), shutdown.clone());
    let observing = tokio::spawn(async move { observing.run(stop).await });
    for second in [5, 25, 45] {
        let mut pod = crashing("web");
        let ended = json!({"exitCode": 1, "startedAt": format!("2026-01-01T00:00:{second:02}Z"),
            "finishedAt": format!("2026-01-01T00:00:{:02}Z", second + 2)});
        pod["status"]["containerStatuses"][0]["lastState"] = json!({"terminated": ended});
        pods.set(&[pod]);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let page = text(get(&console, "/console/pods/default/web").await).await;
    assert_eq!(page.matches("class=\"failed\"").count(), 3, "{page}");
    // Not by their color alone.
    assert_eq!(page.matches("class=\"end\"").count(), 3, "{page}");
    for time in ["00:00:05", "00:00:25", "00:00:45"] {
        assert!(
            page.contains(&format!("started {time}, exit code 1, 2s")),
            "{page}"
        );
    }
    shutdown.cancel();
    observing.await.unwrap();
}

#[test]
fn colors_have_enough_contrast() {
    let css = include_str!("../../src/console/style.css");
    let (light, dark) = css.split_once("@media (prefers-color-scheme: dark)").unwrap();
    let of = |text: &str| -> BTreeMap<String, [f64; 3]> {
        let block = &text[..text.find('}').unwrap()];
        block
            .split([';', '{'])
            .filter_map(|line| {
                let (name, value) = line.trim().strip_prefix("--")?.split_once(": #")?;
                let part = |at: usize| f64::from(u8::from_str_radix(&value[at..at + 2], 16).unwrap()) / 255.0;
                Some((name.to_owned(), [part(0), part(2), part(4)]))
            })
            .collect()
    };
    let (light, changes) = (of(light), of(dark));
    let mut dark = light.clone();
    dark.extend(changes);
    let luminance = |color: [f64; 3]| {
        let [r, g, b] = color.map(|part| {
            if part <= 0.04045 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    for (mode, colors) in [("light", light), ("dark", dark)] {
        let contrast = |one: &str, other: &str| {
            let (one, other) = (luminance(colors[one]) + 0.05, luminance(colors[other]) + 0.05);
            one.max(other) / one.min(other)
        };
        // WCAG 2.2, AA: 4.5 for text, 3 for drawings.
        for (front, backs) in [
            ("text", &["page", "panel"][..]),
            ("muted", &["page", "panel"]),
            ("link", &["page", "panel"]),
            ("badge", &["failing", "waiting", "running", "done"]),
        ] {
            for back in backs {
                assert!(
                    contrast(front, back) >= 4.5,
                    "{mode}: {front} on {back}: {}",
                    contrast(front, back)
                );
            }
        }
        // The outline of a bar that waits is `muted`.
        for (back, fronts) in [
            (
                "panel",
                &["bar-runs", "bar-done", "bar-failed", "plot", "muted"][..],
            ),
            ("bar-waits", &["bar-runs", "bar-done", "bar-failed", "text"]),
            ("page", &["dot-failing", "dot-waiting", "dot-running", "dot-done"]),
        ] {
            for front in fronts {
                assert!(
                    contrast(front, back) >= 3.0,
                    "{mode}: {front} on {back}: {}",
                    contrast(front, back)
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_changes_and_runs_no_script_of_a_pod() {
    let Some(chromium) = find_chromium() else { return };
    let (pods, shutdown) = (Pods::default(), CancellationToken::new());
    pods.set(&[running(EVIL)]);
    let console = builder(&pods).build();
    let access = (
        Authentication::anonymous(),
        Authorization::new("one", Arc::new(AlwaysAllow)),
    );
    let api =
        NodeApi::builder(Arc::new(pods.clone()), access.0, access.1).route(Console::PATH, console.clone());
    let server = Server::bind_insecure("127.0.0.1:0".parse().unwrap(), api.build()).unwrap();
    let (address, stop) = (server.local_addr(), shutdown.clone());
    let serving = tokio::spawn(async move { tokio::join!(server.run(stop.clone()), console.run(stop)) });
    let profile = tempfile::tempdir().unwrap();

    let mut page = Page::open(&chromium, profile.path(), &format!("http://{address}/console/")).await;
    page.until("document.getElementById('link')?.textContent === 'live'")
        .await;
    let rows = "document.querySelectorAll('#pods tbody tr:not([hidden])').length";
    assert_eq!(page.evaluate(rows).await, json!(1));
    // By keyboard: the first stop leads to the content, a later one is the filter.
    page.press("Tab", 9, "").await;
    page.until("document.activeElement.className === 'skip'").await;
    while page.evaluate("document.activeElement.type").await != json!("search") {
        page.press("Tab", 9, "").await;
        let is_inside = page.evaluate("document.activeElement !== document.body").await;
        assert_eq!(is_inside, json!(true), "the filter is no stop");
    }
    assert_eq!(
        page.evaluate("document.activeElement.accessKey").await,
        json!("f")
    );
    page.call("Input.insertText", json!({"text": "LATE"})).await;
    page.until(&format!("{rows} === 0")).await;
    // A pod comes. The filter goes on to apply, and keeps the focus.
    pods.set(&[running(EVIL), crashing("late")]);
    page.until(&format!("{rows} === 1 && document.getElementById('pod-late')"))
        .await;
    assert_eq!(
        page.evaluate("document.activeElement.type").await,
        json!("search")
    );
    // The link to the pod is the next stop. A change of the table does not take the focus from it.
    page.press("Tab", 9, "").await;
    page.until("document.activeElement.id === 'pod-late'").await;
    pods.set(&[running("late")]);
    page.until("document.querySelector('#pods .badge').textContent === 'Running'")
        .await;
    assert_eq!(
        page.evaluate("document.activeElement.id").await,
        json!("pod-late")
    );
    for (text, is_wider) in [
        ("document.images.length", json!(0)),
        ("document.documentElement.scrollWidth > innerWidth", json!(false)),
    ] {
        assert_eq!(page.evaluate(text).await, is_wider, "{text}");
    }
    page.press("Enter", 13, "\r").await;
    page.until(
        "document.querySelector('h1')?.textContent === 'late' && document.querySelector('svg.timeline')",
    )
    .await;

    page.evaluate(&format!(
        "location.href = 'http://{address}/console/logs/default/late/main'"
    ))
    .await;
    page.until("document.getElementById('link')?.textContent === 'The container has ended.'")
        .await;
    let log = page.evaluate("document.getElementById('log').textContent").await;
    assert_eq!(log, json!(format!("{EVIL}\nin two main false\n\n")));
    assert_eq!(page.evaluate("document.images.length").await, json!(0));
    assert_ne!(page.evaluate("document.title").await, json!("owned"));
    // The policy holds: a script in the page does not run.
    let script = "const s = document.createElement('script'); s.textContent = 'document.title = \"owned\"'; document.body.append(s); document.title";
    assert_ne!(page.evaluate(script).await, json!("owned"));

    // An agent that is gone shows on every part of a page.
    page.evaluate(&format!("location.href = 'http://{address}/console/'"))
        .await;
    page.until("document.getElementById('link')?.textContent === 'live'")
        .await;
    shutdown.cancel();
    page.until("document.getElementById('link').className === 'lost'")
        .await;
    drop(page);
    serving.await.unwrap();
}
