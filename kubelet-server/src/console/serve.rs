//! The paths of the console.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderMap, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use kubelet_core::runtime::PodLogOptions;
use kubelet_core::runtime::streaming::StreamError;
use kubelet_core::{PodExt as _, PodKey};
use percent_encoding::percent_decode_str;
use tower::Service;

use super::html::{Html, segment};
use super::model::ShownPod;
use super::pages::{self, Part};
use super::{Console, END, Shared, live};
use crate::BoxError;
use crate::body::{self, Body};
use crate::routes::container_logs::has_container;

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const CSS: HeaderValue = HeaderValue::from_static("text/css; charset=utf-8");
const SCRIPT: HeaderValue = HeaderValue::from_static("text/javascript; charset=utf-8");
const SVG: HeaderValue = HeaderValue::from_static("image/svg+xml");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// Nothing from elsewhere, no script in a page, no frame around it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);
/// How many lines of a log a page begins with.
const FIRST_LINES: i64 = 500;
/// How many bytes of a log a page begins with.
const MAX_LOG: usize = 1024 * 1024;

/// What a path names.
enum Page {
    Node,
    Pod(PodKey),
    Log { pod: PodKey, container: String },
}

impl Service<Request<Body>> for Console {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = self.shared.clone();
        let (head, _) = request.into_parts();
        Box::pin(async move {
            let mut response = respond(shared, &head).await;
            let headers = response.headers_mut();
            headers.insert(CONTENT_SECURITY_POLICY, POLICY);
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            if head.method == Method::HEAD {
                *response.body_mut() = body::full("");
            }
            Ok(response)
        })
    }
}

async fn respond(shared: Arc<Shared>, head: &http::request::Parts) -> Response<Body> {
    if shared.loopback_names_only && !is_loopback(&head.headers) {
        return body::http_error(StatusCode::FORBIDDEN, "403 Forbidden: use localhost or 127.0.0.1");
    }
    if !matches!(head.method, Method::GET | Method::HEAD) {
        let refused = body::http_error(StatusCode::METHOD_NOT_ALLOWED, "405 Method Not Allowed");
        return body::with(refused, ALLOW, "GET, HEAD");
    }
    let path = head.uri.path();
    let answer = |kind, text: &'static str| body::answer(StatusCode::OK, kind, text);
    match path {
        "/" | "/console" => {
            let mut response = Response::new(body::full(""));
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            response
                .headers_mut()
                .insert(LOCATION, HeaderValue::from_static("/console/"));
            return response;
        }
        "/console/style.css" => return answer(CSS, include_str!("style.css")),
        "/console/script.js" => return answer(SCRIPT, include_str!("script.js")),
        "/console/icon.svg" => return answer(SVG, include_str!("icon.svg")),
        _ => {}
    }
    let previous = head
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .any(|parameter| parameter == "previous=true");
    let (path, is_live) = match path.strip_prefix("/console/live") {
        Some(path) => (path, true),
        None => (path.strip_prefix("/console").unwrap_or_default(), false),
    };
    match page(path) {
        None => missing("There is no such page."),
        Some(Page::Log { pod, container }) => log(&shared, &pod, &container, previous, is_live).await,
        Some(page) if is_live => changes(shared, page),
        Some(Page::Node) => {
            let (node, parts) = (shared.node.clone(), shared.node_parts());
            whole(pages::page(
                &node,
                "/console/live/",
                pages::node_heading(&node),
                pages::body(parts),
            ))
        }
        Some(Page::Pod(key)) => {
            let Some(parts) = shared.pod_parts(&key) else {
                return missing("The node has no such pod.");
            };
            let (namespace, name) = (&*key.namespace, &*key.name);
            let live = format!("/console/live/pods/{}/{}", segment(namespace), segment(name));
            let heading = pages::pod_heading(&shared.node, namespace, name);
            whole(pages::page(
                &format!("{name} – {}", shared.node),
                &live,
                heading,
                pages::body(parts),
            ))
        }
    }
}

/// Whether the request names the loopback.
fn is_loopback(headers: &HeaderMap) -> bool {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let name = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// `/`, `/pods/NAMESPACE/POD`, `/logs/NAMESPACE/POD/CONTAINER`.
fn page(path: &str) -> Option<Page> {
    let parts: Option<Vec<String>> = path
        .strip_prefix('/')?
        .split('/')
        .map(|part| {
            percent_decode_str(part)
                .decode_utf8()
                .ok()
                .map(|part| part.into_owned())
        })
        .collect();
    let parts = parts?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    Some(match *parts.as_slice() {
        [""] => Page::Node,
        ["pods", namespace, name] => Page::Pod(PodKey::new(namespace, name)),
        ["logs", namespace, name, container] => Page::Log {
            pod: PodKey::new(namespace, name),
            container: container.to_owned(),
        },
        _ => return None,
    })
}

impl Shared {
    fn node_parts(&self) -> Vec<Part> {
        let (pods, events) = (self.shown_pods(), self.events(None));
        pages::node(&pods, &self.history.lock(), &events, self.now())
    }

    /// `None` if the node has no such pod.
    fn pod_parts(&self, key: &PodKey) -> Option<Vec<Part>> {
        let pod = self.pods.pod(key)?;
        let status = self
            .pods
            .status(&pod)
            .as_deref()
            .or(pod.status.as_ref())
            .cloned()
            .unwrap_or_default();
        let (uid, shown) = (pod.uid(), ShownPod { pod, status });
        let explained = self
            .explain
            .as_ref()
            .map(|explain| explain.explain(&uid))
            .unwrap_or_default();
        let events = self.events(Some(&uid));
        Some(pages::pod(
            &shown,
            &explained,
            &self.history.lock(),
            &events,
            self.now(),
        ))
    }

    fn parts(&self, page: &Page) -> Option<Vec<Part>> {
        match page {
            Page::Node => Some(self.node_parts()),
            Page::Pod(key) => self.pod_parts(key),
            Page::Log { .. } => None,
        }
    }
}

/// The changes of a page: at first all of it, because the page may be older than the stream.
fn changes(shared: Arc<Shared>, page: Page) -> Response<Body> {
    let ticks = shared.ticks.subscribe();
    let state = Some((shared, page, ticks, BTreeMap::new(), true));
    events(stream::unfold(state, |state| async {
        let (shared, page, mut ticks, mut sent, is_first) = state?;
        if !is_first && (ticks.changed().await.is_err() || *ticks.borrow_and_update() == END) {
            return None;
        }
        let Some(parts) = shared.parts(&page) else {
            return Some((Ok(live::event("end", "The pod is gone.")), None));
        };
        // A comment shows whether the client is still there.
        let news = live::changed(parts, &mut sent).unwrap_or(Bytes::from_static(b":\n\n"));
        Some((Ok(news), Some((shared, page, ticks, sent, false))))
    }))
}

async fn log(
    shared: &Shared,
    key: &PodKey,
    container: &str,
    previous: bool,
    is_live: bool,
) -> Response<Body> {
    let (Some(pod), Some(logs)) = (shared.pods.pod(key), &shared.logs) else {
        return missing("The node has no such log.");
    };
    if !has_container(&pod, container) {
        return missing("The pod has no such container.");
    }
    let (namespace, name) = (&*key.namespace, &*key.name);
    let status = shared
        .pods
        .status(&pod)
        .as_deref()
        .or(pod.status.as_ref())
        .cloned()
        .unwrap_or_default();
    if !is_live {
        let heading = pages::log_heading(&shared.node, namespace, name, container);
        let live = format!(
            "/console/live/logs/{}/{}/{}",
            segment(namespace),
            segment(name),
            segment(container)
        );
        let live = if previous {
            format!("{live}?previous=true")
        } else {
            live
        };
        // For those without the script. With it, the stream brings the lines.
        let options = PodLogOptions {
            previous,
            tail_lines: Some(FIRST_LINES),
            ..PodLogOptions::default()
        };
        let text = match logs.container_logs(&pod, &status, container, options).await {
            Ok(pieces) => read(pieces).await,
            Err(error) => error.message,
        };
        return whole(pages::page(
            &format!("{container} – {name}"),
            &live,
            heading,
            pages::log(&text),
        ));
    }
    let options = PodLogOptions {
        follow: !previous,
        previous,
        tail_lines: Some(FIRST_LINES),
        ..PodLogOptions::default()
    };
    match logs.container_logs(&pod, &status, container, options).await {
        Ok(pieces) => events(live::log(pieces)),
        Err(error) => {
            let message = live::event("end", &error.message);
            events(stream::once(async { Ok(message) }))
        }
    }
}

/// The pieces of a log as text, without those beyond the limit.
async fn read(mut pieces: BoxStream<'static, Result<Vec<u8>, StreamError>>) -> String {
    let mut bytes = Vec::new();
    while let Some(Ok(piece)) = pieces.next().await {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_LOG {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
fn events(events: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> Response<Body> {
    // Browsers connect again after this time.
    let first = stream::once(async { Ok(Bytes::from_static(b"retry: 2000\n\n")) });
    let mut response = Response::new(body::streamed(first.chain(events)));
    response.headers_mut().insert(http::header::CONTENT_TYPE, EVENTS);
    response
}

fn whole(page: String) -> Response<Body> {
    body::answer(StatusCode::OK, HTML, page)
}

fn missing(text: &str) -> Response<Body> {
    let mut heading = Html::new();
    heading.raw("<h1>Not found</h1>");
    let page = pages::page("Not found", "", heading, pages::missing(text));
    body::answer(StatusCode::NOT_FOUND, HTML, page)
}
