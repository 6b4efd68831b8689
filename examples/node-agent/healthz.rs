//! `/healthz` (`healthz.InstallHandler`): whether the agent is well, for whoever may ask this host.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kubelet_core::KubeletHandle;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Error;

/// How long a request may take to come in.
const PATIENCE: Duration = Duration::from_secs(10);
/// More connections than these wait.
const CONNECTIONS: usize = 16;

/// What is checked.
#[derive(Clone, Debug)]
pub(crate) struct Health(pub(crate) KubeletHandle);

impl Health {
    /// By name: whether it is well.
    fn checks(&self) -> [(&'static str, Result<(), kubelet_core::Error>); 3] {
        let Self(kubelet) = self;
        [
            ("ping", Ok(())),
            ("syncloop", kubelet.sync_loop_healthy()),
            ("pleg", kubelet.runtime_state().pleg_healthy()),
        ]
    }

    /// The names of the checks that fail.
    pub(crate) fn failed(&self) -> Vec<&'static str> {
        self.checks().into_iter().filter(|(_, check)| check.is_err()).map(|(name, _)| name).collect()
    }

    fn answer(&self, request: &Request<Incoming>) -> (StatusCode, String) {
        let path = request.uri().path().trim_end_matches('/');
        let Some(wanted) = path.strip_prefix("/healthz") else {
            return (StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n".to_owned());
        }
        let wanted = wanted.strip_prefix('/');
        let mut checks = self.checks().into_iter().collect::<Vec<_>>();
        checks.retain(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
        if checks.is_empty() {
            return (StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
        }
        let mut text = String::new();
        for (name, check) in &checks {
            // Writing into a string cannot fail. Why it failed is not for everybody: it is in the log.
            let _ = match check {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(error) => {
                    tracing::warn!(check = name, %error, "healthz check failed");
                    writeln!(text, "[-]{name} failed: reason withheld")
                }
            };
        }
        if checks.iter().any(|(_, check)| check.is_err()) {
            return (StatusCode::INTERNAL_SERVER_ERROR, text + "healthz check failed\n");
        }
        match request.uri().query().unwrap_or_default().split('&').any(|word| word.starts_with("verbose")) {
            true => (StatusCode::OK, text + "healthz check passed\n"),
            false => (StatusCode::OK, "ok".to_owned()),
        }
    }
}

/// Answers until `shutdown`.
pub(crate) async fn serve(
    address: SocketAddr,
    health: Health,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| format!("healthz on {address}: {error}"))?;
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "healthz takes no connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let health = health.clone();
        let answer = move |request: Request<Incoming>| {
            let (status, text) = health.answer(&request);
            let mut response = Response::new(text);
            *response.status_mut() = status;
            std::future::ready(Ok::<_, Infallible>(response))
        };
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
        let serving = http.serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer));
        connections.spawn(async move { drop(tokio::time::timeout(PATIENCE, serving).await) });
    }
}
