//! How clients of the API server connect.

use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube_client::client::{Body, ConfigExt};
use kube_client::{Client, Config, Error};
use rustls::pki_types::ServerName;
use tower::ServiceBuilder;
use tower::retry::RetryLayer;

use super::lanes::Lanes;
use super::retry_after::RetryAfter;

/// Makes a client from a configuration. [`connect`] is the usual function.
pub type Connect = Arc<dyn Fn(Config) -> kube_client::Result<Client> + Send + Sync>;

/// An idle connection is probed after this time (`ReadIdleTimeout`).
const IDLE: Duration = Duration::from_secs(30);
/// The interval and number of further probes before the connection counts as dead: 15 s in all (`PingTimeout`).
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// A client over TCP and TLS.
///
/// It uses HTTP/2 if the server does, as the kubelet does: up to a hundred requests share a connection.
/// Connections are probed with HTTP/2 pings and TCP keep-alive. If the other end is gone, pending requests fail
/// after 45 s. A request is retried only if the server asks for it with `Retry-After` in seconds, as in
/// client-go.
///
/// Through a proxy HTTP/1.1 is used, without probes.
pub fn connect() -> Connect {
    Arc::new(|mut config| match config.proxy_url {
        Some(_) => {
            // Otherwise a request may be retried for minutes, invisibly for its caller.
            config.default_retry = false;
            Client::try_from(config)
        }
        None => direct(&config),
    })
}

fn direct(config: &Config) -> kube_client::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(IDLE));
    tcp.set_keepalive_interval(Some(PROBE_EVERY));
    tcp.set_keepalive_retries(Some(PROBES));
    // The kernel does not probe while sent data is not acknowledged.
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(IDLE + PROBE_EVERY * PROBES));
    let mut tls = TimeoutConnector::new(https(config, tcp)?);
    tls.set_connect_timeout(config.connect_timeout);
    tls.set_read_timeout(config.read_timeout);
    tls.set_write_timeout(config.write_timeout);
    tls.set_reset_reader_on_write(config.reset_reader_on_write);
    let http = Lanes::new(move || -> HttpClient<_, Body> {
        HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            // Otherwise unused connections stay open.
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(IDLE)
            .http2_keep_alive_timeout(PROBE_EVERY * PROBES)
            .build(tls.clone())
    });
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(RetryAfter::default()))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// The connector of `kube-client` supports only HTTP/1.1; this adds HTTP/2.
fn https(config: &Config, tcp: HttpConnector) -> kube_client::Result<HttpsConnector<HttpConnector>> {
    let builder = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    let builder = match config.tls_server_name.clone() {
        None => builder,
        Some(name) => {
            let name = ServerName::try_from(name).map_err(|error| Error::Service(error.into()))?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
    };
    Ok(builder.enable_http1().enable_http2().wrap_connector(tcp))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Whether the kernel probes the connections to this port: their timer in `/proc/net/tcp` is 2.
    fn is_probed(port: u16) -> bool {
        let connections = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let to = format!(":{port:04X}");
        let mut timers = connections.lines().skip(1).filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields[2].ends_with(&to) && fields[3] == "01").then(|| fields[5].starts_with("02:"))
        });
        timers.next().expect("a connection exists")
    }

    #[tokio::test]
    async fn connections_are_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = connect()(Config::new(format!("http://{address}").parse().unwrap())).unwrap();
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        let asking = tokio::spawn(async move { client.request_text(request).await });
        let (stream, _) = listener.accept().await.unwrap();
        stream.readable().await.unwrap();
        // The sent data is acknowledged now or soon.
        while !is_probed(address.port()) {
            tokio::task::yield_now().await;
        }
        drop(stream);
        asking.await.unwrap().unwrap_err();
    }

    #[tokio::test]
    async fn a_refusal_is_returned_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = connect()(Config::new(format!("http://{address}").parse().unwrap())).unwrap();
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        let asking = tokio::spawn(async move { client.request_text(request).await });
        let (mut stream, _) = listener.accept().await.unwrap();
        let answer = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        let asked_again = async move {
            let mut asked = [0; 1024];
            assert_ne!(stream.read(&mut asked).await.unwrap(), 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.read(&mut asked).await.unwrap() > 0
        };
        let (refused, asked_again) = tokio::join!(asking, asked_again);
        refused.unwrap().unwrap_err();
        assert!(!asked_again);
    }
}
