//! Serves `/healthz`.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{Error, HealthChecks, Result};

/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many connections are served at once; more have to wait.
const CONNECTIONS: usize = 16;
/// The wait before the next try to bind an address that is in use (`Serve` in the kubelet's `run`).
const TAKEN: Duration = Duration::from_secs(5);
/// The wait after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves `/healthz` and `/healthz/NAME` over HTTP/1.1, as the kubelet does on `healthzBindAddress` and
/// `healthzPort` (`healthz.InstallHandler`). The answer is `ok`, or with `?verbose` the result of each check.
/// If a check fails, the status is 500; the reason goes to the log, not into the answer.
///
/// ```
/// use kubelet_node::{HealthChecks, HealthzServer};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = HealthzServer::bind(([127, 0, 0, 1], 0).into(), HealthChecks::new()).await?;
/// let (address, shutdown) = (server.local_addr(), CancellationToken::new());
/// let running = tokio::spawn(server.run(shutdown.clone()));
///
/// let mut asking = tokio::net::TcpStream::connect(address).await?;
/// asking.write_all(b"GET /healthz?verbose HTTP/1.1\r\nHost: node\r\n\r\n").await?;
/// let mut answer = String::new();
/// asking.read_to_string(&mut answer).await?;
/// assert!(answer.ends_with("[+]ping ok\nhealthz check passed\n"), "{answer}");
/// # shutdown.cancel();
/// # running.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HealthzServer {
    listener: TcpListener,
    address: SocketAddr,
    checks: HealthChecks,
}

impl HealthzServer {
    /// Binds the address. Requests are answered once [`run`](Self::run) runs.
    ///
    /// # Errors
    ///
    /// [`Error::Network`] if the address cannot be bound.
    pub async fn bind(address: SocketAddr, checks: HealthChecks) -> Result<Self> {
        let failed = |source: io::Error| Error::Network {
            what: format!("healthz on {address}"),
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        Ok(Self {
            address: listener.local_addr().map_err(failed)?,
            listener,
            checks,
        })
    }

    /// Serves on the address until `shutdown`. If the address is in use, for example by an agent that is about
    /// to end, binding is retried every 5 s.
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    pub async fn serve(address: SocketAddr, checks: HealthChecks, shutdown: CancellationToken) {
        loop {
            match Self::bind(address, checks.clone()).await {
                Ok(server) => return server.run(shutdown).await,
                Err(error) => tracing::error!(%error, "Failed to start healthz server"),
            }
            let pause = tokio::time::sleep(TAKEN);
            if shutdown.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. Dropping it, or `shutdown`, closes open connections.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(serve(stream, self.checks.clone()))),
                    Err(error) => {
                        tracing::warn!(%error, "healthz cannot accept a connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
    }
}

async fn serve(stream: TcpStream, checks: HealthChecks) {
    let answered = service_fn(move |request| {
        let (status, text) = answer(&checks, &request);
        let mut response = Response::new(text);
        *response.status_mut() = status;
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false);
    let serving = http.serve_connection(TokioIo::new(stream), answered);
    // A client that closed its connection needs no answer.
    drop(tokio::time::timeout(PATIENCE, serving).await);
}

fn answer<B>(checks: &HealthChecks, request: &Request<B>) -> (StatusCode, String) {
    let not_found = || (StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    let path = request.uri().path().trim_end_matches('/');
    let wanted = match path.strip_prefix("/healthz") {
        Some("") => None,
        Some(name) if name.starts_with('/') => Some(&name[1..]),
        _ => return not_found(),
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n".to_owned());
    }
    let found = checks.look(|name| wanted.is_none_or(|wanted| wanted == name));
    if found.is_empty() {
        return not_found();
    }
    let mut text = String::new();
    for (name, is_well) in &found {
        // Writing into a string does not fail.
        let _ = match is_well {
            true => writeln!(text, "[+]{name} ok"),
            false => writeln!(text, "[-]{name} failed: reason withheld"),
        };
    }
    if found.iter().any(|(_, is_well)| !is_well) {
        return (StatusCode::INTERNAL_SERVER_ERROR, text + "healthz check failed\n");
    }
    let mut query = request.uri().query().unwrap_or_default().split('&');
    match query.any(|word| word == "verbose" || word.starts_with("verbose=")) {
        true => (StatusCode::OK, text + "healthz check passed\n"),
        false => (StatusCode::OK, "ok".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_fails_and_not_why() {
        let well = HealthChecks::new().check("disk", || Ok(()));
        let ill = well.clone().check("pleg", || Err("a secret".into()));
        let all = "[+]ping ok\n[+]disk ok\n";
        for (checks, method, path, status, text) in [
            (&well, "GET", "/healthz", 200, "ok".to_owned()),
            (&well, "HEAD", "/healthz/", 200, "ok".to_owned()),
            (&well, "GET", "/healthz/disk", 200, "ok".to_owned()),
            (
                &well,
                "GET",
                "/healthz?verbose",
                200,
                format!("{all}healthz check passed\n"),
            ),
            (
                &well,
                "GET",
                "/healthz?a&verbose=1",
                200,
                format!("{all}healthz check passed\n"),
            ),
            (&well, "POST", "/healthz", 405, "Method Not Allowed\n".to_owned()),
            (
                &well,
                "GET",
                "/healthz/none",
                404,
                "404 page not found\n".to_owned(),
            ),
            (
                &well,
                "GET",
                "/healthzdisk",
                404,
                "404 page not found\n".to_owned(),
            ),
            (&well, "GET", "/", 404, "404 page not found\n".to_owned()),
            (
                &ill,
                "GET",
                "/healthz",
                500,
                format!("{all}[-]pleg failed: reason withheld\nhealthz check failed\n"),
            ),
            (&ill, "GET", "/healthz/disk", 200, "ok".to_owned()),
        ] {
            let request = Request::builder().method(method).uri(path).body(()).unwrap();
            assert_eq!(
                answer(checks, &request),
                (StatusCode::from_u16(status).unwrap(), text),
                "{method} {path}"
            );
        }
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let first = HealthzServer::bind(([127, 0, 0, 1], 0).into(), HealthChecks::new())
            .await
            .unwrap();
        let second = HealthzServer::bind(first.local_addr(), HealthChecks::new()).await;
        let error = second.unwrap_err().to_string();
        assert!(
            error.contains(&format!("healthz on {}", first.local_addr())),
            "{error}"
        );
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_tried_again() {
        let first = HealthzServer::bind(([127, 0, 0, 1], 0).into(), HealthChecks::new())
            .await
            .unwrap();
        let (address, shutdown) = (first.local_addr(), CancellationToken::new());
        tokio::time::pause();
        let mut serving = std::pin::pin!(HealthzServer::serve(
            address,
            HealthChecks::new(),
            shutdown.clone()
        ));
        // Longer than the wait before the next try.
        assert!(tokio::time::timeout(TAKEN * 2, &mut serving).await.is_err());
        drop(first);
        assert!(tokio::time::timeout(TAKEN, &mut serving).await.is_err());
        assert!(TcpListener::bind(address).await.is_err(), "the address is in use");
        shutdown.cancel();
        serving.await;
        TcpListener::bind(address).await.unwrap();
    }
}
