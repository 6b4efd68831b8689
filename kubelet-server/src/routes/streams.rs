//! `/exec/`, `/attach/`, `/portForward/`: streams of containers, proxied to the runtime's streaming server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Uri};
use kubelet_core::runtime::streaming::{StreamOptions, StreamingRuntime};
use kubelet_core::{PodExt as _, PodKey};
use metrics::counter;
use tracing::{Instrument as _, Span, info_span};

use super::{ContainerPath, parameter, parameters};
use crate::body::{self, Body};
use crate::pods::NodePods;
use crate::request_metrics::RequestMetrics;
use crate::sessions::Sessions;
use crate::streaming::{self, StreamTimeouts};

/// How streams are served.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// A stream without a byte for so long is closed.
    pub(crate) idle_timeout: Duration,
    /// Whether WebSockets are translated here (the gate `ExtendWebSocketsToKubelet`).
    pub(crate) websockets: bool,
}

impl Default for Settings {
    fn default() -> Self {
        // `streamingConnectionIdleTimeout`
        Self {
            idle_timeout: Duration::from_secs(4 * 60 * 60),
            websockets: true,
        }
    }
}

/// An answer instead of streams.
type Refusal = Box<Response<Body>>;

/// The streams that a query asks for (`remotecommand.NewOptions`).
pub(crate) fn stream_options(query: &str) -> Result<StreamOptions, Refusal> {
    let is_set = |name| parameter(query, name).as_deref() == Some("1");
    let tty = is_set("tty");
    let streams = StreamOptions {
        stdin: is_set("input"),
        stdout: is_set("output"),
        stderr: is_set("error") && !tty,
        tty,
    };
    match streams.stdin || streams.stdout || streams.stderr {
        true => Ok(streams),
        false => {
            let message = "you must specify at least 1 of stdin, stdout, stderr";
            Err(body::text(StatusCode::BAD_REQUEST, message).into())
        }
    }
}

/// The ports that a WebSocket request names (`portforward.NewV4Options`). With SPDY, the client names them later.
fn ports(query: &str, is_websocket: bool) -> Result<Vec<u16>, Refusal> {
    let refused = |message: String| Refusal::new(body::text(StatusCode::BAD_REQUEST, message));
    if !is_websocket {
        return Ok(Vec::new());
    }
    let named: Vec<String> = parameters(query, "port").collect();
    if named.is_empty() {
        return Err(refused("query parameter \"port\" is required".into()));
    }
    let all = named.iter().flat_map(|ports| ports.split(','));
    let parse = |port: &str| match port.parse::<u16>() {
        Ok(0) => Err(refused(format!("port {port:?} must be > 0"))),
        Ok(port) => Ok(port),
        Err(error) => Err(refused(format!("unable to parse {port:?} as a port: {error}"))),
    };
    all.map(parse).collect()
}

/// The answer to `/exec/`.
pub(crate) async fn exec(
    settings: &Settings,
    pods: &dyn NodePods,
    runtime: &dyn StreamingRuntime,
    path: &str,
    query: &str,
    request: Request<Body>,
) -> Response<Body> {
    let (path, streams) = match container(path, query, &request) {
        Ok(parsed) => parsed,
        Err(refusal) => return *refusal,
    };
    let Some(pod) = pods.pod(&path.pod) else {
        return body::text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let command: Vec<String> = parameters(query, "command").collect();
    match runtime
        .exec_url(&path.pod, &path.container, &command, streams)
        .await
    {
        Ok(url) => {
            let span = info_span!("exec", pod = %path.pod, uid = %pod.uid(), container = path.container);
            forward(settings, "exec", &url, Some(streams), request, span).await
        }
        Err(error) => streaming::stream_error_response(&error),
    }
}

/// The answer to `/attach/`.
pub(crate) async fn attach(
    settings: &Settings,
    pods: &dyn NodePods,
    runtime: &dyn StreamingRuntime,
    path: &str,
    query: &str,
    request: Request<Body>,
) -> Response<Body> {
    let (path, streams) = match container(path, query, &request) {
        Ok(parsed) => parsed,
        Err(refusal) => return *refusal,
    };
    let Some(pod) = pods.pod(&path.pod) else {
        return body::text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    match runtime.attach_url(&pod, &path.container, streams).await {
        Ok(url) => {
            let span = info_span!("attach", pod = %path.pod, uid = %pod.uid(), container = path.container);
            forward(settings, "attach", &url, Some(streams), request, span).await
        }
        Err(error) => streaming::stream_error_response(&error),
    }
}

/// The container and the streams of a request to `/exec/` or `/attach/`.
fn container(
    path: &str,
    query: &str,
    request: &Request<Body>,
) -> Result<(ContainerPath, StreamOptions), Refusal> {
    let path = ContainerPath::parse(path, true).ok_or_else(|| Refusal::new(body::page_not_found()))?;
    check_method(request)?;
    Ok((path, stream_options(query)?))
}

fn check_method(request: &Request<Body>) -> Result<(), Refusal> {
    match *request.method() {
        Method::GET | Method::POST => Ok(()),
        _ => Err(body::method_not_allowed("GET, POST").into()),
    }
}

/// The answer to `/portForward/NAMESPACE/POD[/UID]`.
pub(crate) async fn port_forward(
    settings: &Settings,
    pods: &dyn NodePods,
    runtime: &dyn StreamingRuntime,
    path: &str,
    query: &str,
    request: Request<Body>,
) -> Response<Body> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').skip(1).collect();
    let (key, uid) = match *parts {
        [namespace, name] => (PodKey::new(namespace, name), None),
        [namespace, name, uid] => (PodKey::new(namespace, name), Some(uid)),
        _ => return body::page_not_found(),
    };
    if let Err(refusal) = check_method(&request) {
        return *refusal;
    }
    let named = streaming::is_websocket(request.headers()) && !is_tunnel(settings, &request);
    let ports = match ports(query, named) {
        Ok(ports) => ports,
        Err(refusal) => return *refusal,
    };
    let Some(pod) = pods.pod(&key) else {
        return body::text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    if uid.is_some_and(|uid| pod.uid().as_str() != uid) {
        return body::text(StatusCode::NOT_FOUND, "pod not found");
    }
    match runtime.port_forward_url(&key, &ports).await {
        Ok(url) => {
            let span = info_span!("portforward", pod = %key, uid = %pod.uid());
            forward(settings, "portforward", &url, None, request, span).await
        }
        Err(error) => streaming::stream_error_response(&error),
    }
}

/// Whether the request is for a tunnel of SPDY through WebSocket, and the gate allows it.
fn is_tunnel(settings: &Settings, request: &Request<Body>) -> bool {
    settings.websockets && streaming::wants_tunnel(request.headers())
}

/// Hands the streams on to the URL of the runtime. `streams` is `None` for ports; `span` is that of what is logged about them.
async fn forward(
    settings: &Settings,
    subresource: &'static str,
    url: &str,
    streams: Option<StreamOptions>,
    request: Request<Body>,
    span: Span,
) -> Response<Body> {
    let target = match url.parse::<Uri>() {
        Ok(target) if target.authority().is_some() => target,
        _ => {
            let message = format!("the runtime returned the URL {url:?}, which is not valid");
            return body::http_error(StatusCode::INTERNAL_SERVER_ERROR, &message);
        }
    };
    let counted =
        || counter!("kubelet_websocket_streaming_requests_total", "subresource" => subresource).increment(1);
    if !streaming::is_upgrade(request.headers()) {
        return body::http_error(StatusCode::INTERNAL_SERVER_ERROR, "Upgrade request required");
    }
    let Some(sessions) = request.extensions().get::<Sessions>().cloned() else {
        tracing::error!("a request without `Sessions` in its extensions cannot have streams");
        return body::http_error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "unable to upgrade the connection",
        );
    };
    let measured = request.extensions().get::<Arc<RequestMetrics>>().cloned();
    let idle = settings.idle_timeout;
    let answer = match streams {
        Some(streams) if settings.websockets && streaming::wants_close_signal(request.headers()) => {
            counted();
            let timeouts = StreamTimeouts {
                idle,
                ..StreamTimeouts::default()
            };
            streaming::serve_translated(request, target, streams, timeouts)
        }
        None if is_tunnel(settings, &request) => {
            counted();
            streaming::serve_tunnel(request, &target, idle).await
        }
        _ => {
            let client = request.extensions().get::<SocketAddr>().map(SocketAddr::ip);
            streaming::proxy_upgrade(request, &target, client, idle).await
        }
    };
    if let Some(session) = answer.session {
        let session = async move {
            session.await;
            drop(measured);
        };
        sessions.run(Box::pin(session.instrument(span)));
    }
    answer.response
}
