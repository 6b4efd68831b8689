//! The node's API as a tower service: authentication, authorization, metrics and the endpoints.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kubelet_core::runtime::streaming::StreamingRuntime;
use kubelet_core::runtime::{ContainerLogs, RuntimeReader};
use kubelet_core::{Clock, HealthChecks, StatsProvider};
use percent_encoding::percent_decode_str;
use tower::Service;
use tower::util::BoxCloneSyncService;

use crate::BoxError;
use crate::authentication::{Authentication, ClientCertificates, UserInfo};
use crate::authorization::{Authorization, Refusal};
use crate::body::{self, Body};
use crate::pods::NodePods;
use crate::request_metrics::RequestMetrics;
use crate::routes;
use crate::routes::debug_flags::LogVerbosity;
use crate::routes::encoded_pods::EncodedPods;
use crate::routes::metrics::MetricsSource;
use crate::routes::pprof::Profiler;
use crate::routes::streams;
use crate::routes::table::{self, Endpoint, Found, Routes};
use crate::routes::zpages::AgentVersion;

/// A service of the embedder.
pub(crate) type Other = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The node's API (`pkg/kubelet/server.Server`): a tower service of HTTP requests. Cheap to clone.
///
/// [`Server`](crate::Server) serves it on the node's port. To mount it in a server of your own, put three values into the
/// extensions of each request: the [`ClientCertificates`] of its connection, [`Sessions`](crate::Sessions), and the
/// [`SocketAddr`](std::net::SocketAddr) of the client. Without `Sessions`, requests for streams are answered with status 500.
///
/// # Cancel safety
///
/// The future of a call may be dropped at any time. What it began ends, too: a log is no longer read, a command that
/// runs in a container is killed by its runtime.
#[derive(Clone)]
pub struct NodeApi {
    parts: Arc<Parts>,
}

struct Parts {
    access: Option<(Authentication, Authorization)>,
    pods: Arc<dyn NodePods>,
    encoded_pods: Arc<EncodedPods>,
    routes: Routes,
    logs: Option<Arc<dyn ContainerLogs>>,
    runtime: Option<Arc<dyn StreamingRuntime>>,
    running: Option<Arc<dyn RuntimeReader>>,
    metrics: Option<Arc<dyn MetricsSource>>,
    stats: Option<Arc<dyn StatsProvider>>,
    configz: Option<Bytes>,
    flags: Option<BTreeMap<String, String>>,
    agent: Option<AgentVersion>,
    system_logs: Option<crate::system_logs::SystemLogs>,
    verbosity: Option<Arc<dyn LogVerbosity>>,
    profiler: Option<Arc<dyn Profiler>>,
    checkpoint_dir: PathBuf,
    handlers: Handlers,
    others: Vec<Other>,
    streams: streams::Settings,
    clock: Clock,
}

/// Which groups of endpoints are on. The defaults are the kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handlers {
    /// All endpoints but `/healthz`, `/pods`, `/stats/` and `/metrics` (`enableDebuggingHandlers`).
    pub debugging: bool,
    /// `/logs/` (`enableSystemLogHandler`).
    pub system_logs: bool,
    /// `/debug/pprof/` (`enableProfilingHandler`).
    pub profiling: bool,
    /// `/debug/flags/v` (`enableDebugFlagsHandler`).
    pub debug_flags: bool,
    /// `/checkpoint/` (the gate `ContainerCheckpoint`).
    pub checkpoint: bool,
    /// `/flagz` (the gate `ComponentFlagz`).
    pub flagz: bool,
    /// `/statusz` (the gate `ComponentStatusz`).
    pub statusz: bool,
    /// Whether a log request may name a stream (the gate `PodLogsQuerySplitStreams`).
    pub split_log_streams: bool,
    /// Whether the node translates WebSockets itself (the gate `ExtendWebSocketsToKubelet`).
    pub websockets: bool,
}

impl Default for Handlers {
    fn default() -> Self {
        Self {
            debugging: true,
            system_logs: true,
            profiling: true,
            debug_flags: true,
            checkpoint: true,
            flagz: true,
            statusz: true,
            split_log_streams: false,
            websockets: true,
        }
    }
}

/// Builds a [`NodeApi`]. An endpoint answers with status 404 until its method here was called.
#[must_use]
pub struct NodeApiBuilder {
    parts: Parts,
}

impl NodeApi {
    /// The API of a node with these pods, for clients that pass authentication and authorization.
    pub fn builder(
        pods: Arc<dyn NodePods>,
        authentication: Authentication,
        authorization: Authorization,
    ) -> NodeApiBuilder {
        NodeApiBuilder::new(pods, Some((authentication, authorization)))
    }

    /// The API that everybody may read (`readOnlyPort`): health, pods, usage and metrics, and nothing else.
    pub fn read_only(pods: Arc<dyn NodePods>) -> NodeApiBuilder {
        let mut builder = NodeApiBuilder::new(pods, None);
        builder.parts.handlers.debugging = false;
        builder
    }

    /// Every path that the API may serve, without those below them: for tests that walk them.
    pub fn paths(&self) -> Vec<String> {
        self.parts.routes.all().collect()
    }

    pub(crate) fn authentication(&self) -> Option<&Authentication> {
        self.parts
            .access
            .as_ref()
            .map(|(authentication, _)| authentication)
    }

    async fn serve(self, mut request: Request<Body>) -> Response<Body> {
        let parts = &*self.parts;
        let Ok(decoded) = percent_decode_str(request.uri().path()).decode_utf8() else {
            return body::http_error(StatusCode::BAD_REQUEST, "400 Bad Request");
        };
        let path = decoded.into_owned();
        let clean = table::clean(&path);
        if clean != path && request.method() != Method::CONNECT {
            return redirect(&request, &clean);
        }
        let endpoint = match parts.routes.find(&path) {
            None => return body::not_found(),
            Some(Found::Redirect) => return redirect(&request, &format!("{path}/")),
            Some(found) => found,
        };
        // A path of the embedder needs a permission on `nodes/proxy`, whatever it looks like.
        let asked = match endpoint {
            Found::Endpoint(Endpoint::Other(_)) => "/",
            _ => &path,
        };
        if let Some(access) = &parts.access
            && let Err(refusal) = admit(access, &mut request, asked, parts.clock.now()).await
        {
            return refusal;
        }
        match endpoint {
            Found::Endpoint(endpoint) => parts.dispatch(endpoint, &path, request).await,
            _ => body::http_error(StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled."),
        }
    }
}

/// Authenticates and authorizes a request. Its user is then in its extensions.
async fn admit(
    (authentication, authorization): &(Authentication, Authorization),
    request: &mut Request<Body>,
    path: &str,
    now: k8s_openapi::jiff::Timestamp,
) -> Result<(), Response<Body>> {
    let certificates = request.extensions().get::<ClientCertificates>().cloned();
    let user = authentication
        .authenticate(certificates.as_ref(), request.headers_mut(), now)
        .await;
    let user: UserInfo = user.map_err(|error| {
        tracing::debug!(path, %error, "Unable to authenticate the request");
        body::text(StatusCode::UNAUTHORIZED, "Unauthorized")
    })?;
    match authorization.check(&user, request.method(), path).await {
        Ok(()) => {}
        Err(Refusal::Forbidden(text)) => return Err(body::text(StatusCode::FORBIDDEN, text)),
        Err(Refusal::Failed(text)) => return Err(body::text(StatusCode::INTERNAL_SERVER_ERROR, text)),
    }
    // Credentials are for this server, and not for the runtime or a service of the embedder.
    for name in [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION] {
        request.headers_mut().remove(name);
    }
    request.extensions_mut().insert(user);
    Ok(())
}

/// Go's answer that sends the client to another path.
fn redirect(request: &Request<Body>, path: &str) -> Response<Body> {
    let escaped = percent_encoding::utf8_percent_encode(path, PATH).to_string();
    let target = match request.uri().query() {
        Some(query) => format!("{escaped}?{query}"),
        None => escaped,
    };
    let link = target
        .replace('&', "&amp;")
        .replace('"', "&#34;")
        .replace('\'', "&#39;");
    let mut response = match *request.method() {
        Method::GET | Method::HEAD => {
            let html = http::HeaderValue::from_static("text/html; charset=utf-8");
            let text = format!("<a href=\"{link}\">Temporary Redirect</a>.\n\n");
            body::answer(StatusCode::TEMPORARY_REDIRECT, html, text)
        }
        _ => {
            let mut response = Response::new(body::full(""));
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            response
        }
    };
    if let Ok(location) = target.try_into() {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// What Go escapes in a path.
const PATH: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

impl Parts {
    async fn dispatch(&self, endpoint: Endpoint, path: &str, request: Request<Body>) -> Response<Body> {
        let answer = self.answer(endpoint, path, request).await;
        answer.unwrap_or_else(body::not_found)
    }

    /// The answer of an endpoint; `None` if the part that it needs is missing.
    async fn answer(&self, endpoint: Endpoint, path: &str, request: Request<Body>) -> Option<Response<Body>> {
        let method = request.method().clone();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (pods, stats) = (&*self.pods, self.stats.as_deref());
        Some(match endpoint {
            Endpoint::Healthz => {
                routes::healthz::serve(&self.routes.checks, self.metrics.as_deref(), path, &query)
            }
            Endpoint::Metrics => self.serve_metrics(path, request.headers()).await,
            Endpoint::Pods => routes::pods::serve(&self.pods, &self.encoded_pods, path, &method),
            Endpoint::RunningPods => {
                routes::pods::serve_running(self.running.as_deref()?, path, &method).await
            }
            Endpoint::Stats => routes::stats::serve(stats, &method, path, &query).await,
            Endpoint::ContainerLogs => {
                let (logs, split) = (self.logs.as_deref()?, self.handlers.split_log_streams);
                routes::container_logs::serve(pods, logs, split, &method, path, &query).await
            }
            Endpoint::Run => routes::run::serve(pods, self.runtime.as_deref()?, &method, path, &query).await,
            Endpoint::Checkpoint => {
                let (runtime, dir) = (self.runtime.as_deref()?, &self.checkpoint_dir);
                let now = self.clock.now();
                routes::checkpoint::serve(pods, runtime, dir, now, &method, path, &query).await
            }
            Endpoint::Exec | Endpoint::Attach | Endpoint::PortForward => {
                return self.serve_streams(endpoint, path, &query, request).await;
            }
            Endpoint::Configz => {
                let answer = body::answer(StatusCode::OK, body::JSON, self.configz.clone()?);
                body::with(answer, header::X_CONTENT_TYPE_OPTIONS, "nosniff")
            }
            Endpoint::SystemLogs if !self.handlers.system_logs => disabled("logs endpoint is disabled."),
            Endpoint::SystemLogs if method != Method::GET => body::method_not_allowed("GET"),
            Endpoint::SystemLogs => return self.serve_system_logs(path, request).await,
            Endpoint::DebugFlags if !self.handlers.debug_flags => disabled("flags endpoint is disabled."),
            Endpoint::DebugFlags => {
                let verbosity = self.verbosity.as_deref()?;
                routes::debug_flags::serve(verbosity, &method, request.into_body()).await
            }
            Endpoint::Pprof if !self.handlers.profiling => disabled("profiling endpoint is disabled."),
            Endpoint::Pprof => routes::pprof::serve(self.profiler.as_deref(), &method, path, &query).await,
            Endpoint::Flagz => routes::zpages::flagz(self.flags.as_ref()?, request.headers()),
            Endpoint::Statusz => {
                let (agent, paths) = (self.agent.as_ref()?, self.routes.listed());
                routes::zpages::statusz(agent, &paths, self.clock.now(), request.headers())
            }
            Endpoint::Other(place) => match self.others.get(place)?.clone().call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
        })
    }

    async fn serve_metrics(&self, path: &str, headers: &http::HeaderMap) -> Response<Body> {
        if path == "/metrics/probes"
            && let Some(metrics) = &self.metrics
        {
            metrics.retain_pods(&self.pods.pods());
        }
        let of_volumes = match &self.stats {
            Some(stats) if path == "/metrics" && self.metrics.is_some() => stats.volume_metrics().await,
            _ => Vec::new(),
        };
        match routes::metrics::serve(self.metrics.as_deref(), path, headers, &of_volumes) {
            Some(answer) => answer,
            None => routes::stats::serve_metrics(self.stats.as_deref(), path).await,
        }
    }

    async fn serve_system_logs(&self, path: &str, request: Request<Body>) -> Option<Response<Body>> {
        let logs = self.system_logs.as_ref()?;
        let below = path.strip_prefix("/logs/").unwrap_or_default();
        Some(logs.serve(below, &request.into_parts().0).await)
    }

    async fn serve_streams(
        &self,
        endpoint: Endpoint,
        path: &str,
        query: &str,
        request: Request<Body>,
    ) -> Option<Response<Body>> {
        let (settings, pods, runtime) = (&self.streams, &*self.pods, self.runtime.as_deref()?);
        Some(match endpoint {
            Endpoint::PortForward => {
                streams::port_forward(settings, pods, runtime, path, query, request).await
            }
            Endpoint::Attach => streams::attach(settings, pods, runtime, path, query, request).await,
            _ => streams::exec(settings, pods, runtime, path, query, request).await,
        })
    }
}

fn disabled(message: &str) -> Response<Body> {
    body::http_error(StatusCode::METHOD_NOT_ALLOWED, message)
}

impl<B> Service<Request<B>> for NodeApi
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        let mut request = request.map(|sent| sent.map_err(Into::into).boxed_unsync());
        let measured = RequestMetrics::begin(&mut request, api.parts.access.is_none());
        async move {
            let response = api.serve(request).await;
            Ok(measured.end_with(response))
        }
        .boxed()
    }
}

impl fmt::Debug for NodeApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeApi")
            .field("access", &self.parts.access)
            .field("handlers", &self.parts.handlers)
            .finish_non_exhaustive()
    }
}

impl NodeApiBuilder {
    fn new(pods: Arc<dyn NodePods>, access: Option<(Authentication, Authorization)>) -> Self {
        let handlers = Handlers::default();
        let routes = Routes {
            debugging: true,
            checkpoint: true,
            flagz: true,
            statusz: true,
            checks: HealthChecks::new(),
            others: Vec::new(),
        };
        Self {
            parts: Parts {
                access,
                pods,
                encoded_pods: Arc::default(),
                routes,
                logs: None,
                runtime: None,
                running: None,
                metrics: None,
                stats: None,
                configz: None,
                flags: None,
                agent: None,
                system_logs: None,
                verbosity: None,
                profiler: None,
                checkpoint_dir: "/var/lib/kubelet/checkpoints".into(),
                handlers,
                others: Vec::new(),
                streams: streams::Settings::default(),
                clock: Clock::system(),
            },
        }
    }

    /// Which groups of endpoints are on. On a read-only API, `debugging` stays off.
    pub fn handlers(mut self, handlers: Handlers) -> Self {
        let debugging = handlers.debugging && self.parts.access.is_some();
        self.parts.handlers = Handlers {
            debugging,
            ..handlers
        };
        self
    }

    /// The checks of `/healthz`.
    pub fn health(mut self, checks: HealthChecks) -> Self {
        self.parts.routes.checks = checks;
        self
    }

    /// Serves `/containerLogs/`.
    pub fn logs(mut self, logs: Arc<dyn ContainerLogs>) -> Self {
        self.parts.logs = Some(logs);
        self
    }

    /// Serves `/exec/`, `/attach/`, `/portForward/`, `/run/` and `/checkpoint/`.
    pub fn runtime(mut self, runtime: Arc<dyn StreamingRuntime>) -> Self {
        self.parts.runtime = Some(runtime);
        self
    }

    /// Serves `/runningpods/`.
    pub fn running_pods(mut self, runtime: Arc<dyn RuntimeReader>) -> Self {
        self.parts.running = Some(runtime);
        self
    }

    /// Serves `/metrics`, `/metrics/probes` and `/metrics/slis`.
    pub fn metrics(mut self, metrics: Arc<dyn MetricsSource>) -> Self {
        self.parts.metrics = Some(metrics);
        self
    }

    /// Serves `/stats/summary`, `/metrics/cadvisor` and `/metrics/resource`.
    pub fn stats(mut self, stats: Arc<dyn StatsProvider>) -> Self {
        self.parts.stats = Some(stats);
        self
    }

    /// Serves `/configz`: the configuration in force, as JSON.
    pub fn configz(mut self, configz: impl Into<Bytes>) -> Self {
        self.parts.configz = Some(configz.into());
        self
    }

    /// Serves `/flagz`: the command line's flags and their values.
    pub fn flags(mut self, flags: BTreeMap<String, String>) -> Self {
        self.parts.flags = Some(flags);
        self
    }

    /// Serves `/statusz`.
    pub fn agent(mut self, agent: AgentVersion) -> Self {
        self.parts.agent = Some(agent);
        self
    }

    /// Serves `/logs/`: files of the node, and its journal.
    pub fn system_logs(mut self, logs: crate::system_logs::SystemLogs) -> Self {
        self.parts.system_logs = Some(logs);
        self
    }

    /// Serves `/debug/flags/v`.
    pub fn verbosity(mut self, verbosity: Arc<dyn LogVerbosity>) -> Self {
        self.parts.verbosity = Some(verbosity);
        self
    }

    /// Serves `/debug/pprof/`.
    pub fn profiler(mut self, profiler: Arc<dyn Profiler>) -> Self {
        self.parts.profiler = Some(profiler);
        self
    }

    /// The folder of checkpoints; `/var/lib/kubelet/checkpoints` unless set.
    pub fn checkpoint_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.parts.checkpoint_dir = dir.into();
        self
    }

    /// Closes a stream on which no byte came or went for so long (`streamingConnectionIdleTimeout`): 4 hours unless set, zero
    /// for never.
    pub fn streaming_idle_timeout(mut self, timeout: std::time::Duration) -> Self {
        self.parts.streams.idle_timeout = timeout;
        self
    }

    /// Serves a path, and all below it, by a service of your own. It comes before the paths of this crate, and finds the
    /// [`UserInfo`] in the extensions of a request.
    ///
    /// Clients need a permission on `nodes/proxy`; below a path of this crate, that path's permission. On a read-only API
    /// everybody may use it.
    pub fn route<S>(mut self, path: impl Into<String>, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.parts
            .routes
            .others
            .push(path.into().trim_end_matches('/').to_owned());
        self.parts.others.push(BoxCloneSyncService::new(service));
        self
    }

    /// The clock by which certificates are verified.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.parts.clock = clock;
        self
    }

    /// Builds the API.
    pub fn build(mut self) -> NodeApi {
        let handlers = self.parts.handlers;
        let routes = &mut self.parts.routes;
        routes.debugging = handlers.debugging;
        routes.checkpoint = handlers.checkpoint;
        routes.flagz = handlers.flagz && self.parts.flags.is_some();
        routes.statusz = handlers.statusz && self.parts.agent.is_some();
        self.parts.streams.websockets = handlers.websockets;
        NodeApi {
            parts: Arc::new(self.parts),
        }
    }
}
