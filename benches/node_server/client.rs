//! A client of the node's server. It reads and drops bytes, so that the server is the slower side.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const BUFFER: usize = 64 * 1024;

/// Connects to one server.
#[derive(Clone)]
pub(crate) struct Client {
    tls: TlsConnector,
    name: ServerName<'static>,
    address: SocketAddr,
}

impl Client {
    /// `name` is the name in the server's certificate.
    pub(crate) fn new(address: SocketAddr, name: &str, certificate: CertificateDer<'static>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            tls: TlsConnector::from(Arc::new(config)),
            name: ServerName::try_from(name.to_owned()).unwrap(),
            address,
        }
    }

    async fn dial(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        self.tls.connect(self.name.clone(), stream).await
    }

    /// A connection for requests one after the other.
    pub(crate) async fn connect(&self) -> Connection {
        over(self.dial().await.unwrap()).await
    }

    /// The same, if the server listens.
    #[allow(dead_code, reason = "some servers always do")]
    pub(crate) async fn try_connect(&self) -> Option<Connection> {
        Some(over(self.dial().await.ok()?).await)
    }

    /// Requests this path on a connection of its own.
    pub(crate) async fn open(&self, path: &str) -> std::io::Result<Lines> {
        let mut stream = self.dial().await?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        // Otherwise a part of it may stay in the TLS session, and nobody answers.
        stream.flush().await?;
        Ok(Lines {
            stream,
            buffer: vec![0; 16 * 1024],
        })
    }

    /// Runs a command in a container through a WebSocket of its own.
    pub(crate) async fn exec(&self, path: &str) {
        exec(self.dial().await.unwrap(), path).await;
    }
}

async fn over(stream: TlsStream<TcpStream>) -> Connection {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Connection { sender }
}

/// Sends requests and reads the answers.
pub(crate) struct Connection {
    sender: http1::SendRequest<Empty<Bytes>>,
}

impl Connection {
    /// The status and the body of the answer.
    pub(crate) async fn send(&mut self, method: Method, path: &str) -> (StatusCode, Bytes) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::HOST, "node");
        let request = request.body(Empty::new()).unwrap();
        self.sender.ready().await.unwrap();
        let answer = self.sender.send_request(request).await.unwrap();
        let (status, body) = (answer.status(), answer.into_body());
        (status, body.collect().await.unwrap().to_bytes())
    }

    /// The server has closed the connection, because it was idle for too long.
    #[allow(dead_code, reason = "some clients are never idle")]
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(crate) async fn get(&mut self, path: &str) -> Bytes {
        let (status, body) = self.send(Method::GET, path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body:?}");
        body
    }
}

/// The lines of an answer, each with a mark.
pub(crate) struct Lines {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

impl Lines {
    /// Each line of a log has this byte once. No head and no error has it.
    pub(crate) const MARK: u8 = b'~';

    /// Reads until this many lines have come, or the answer has ended. Returns the numbers of lines and of bytes.
    pub(crate) async fn read(&mut self, lines: usize) -> (usize, usize) {
        let (mut found, mut bytes) = (0, 0);
        while found < lines {
            // Go's server closes without TLS's own end.
            let count = self.stream.read(&mut self.buffer).await.unwrap_or(0);
            if count == 0 {
                break;
            }
            bytes += count;
            found += memchr::memchr_iter(Self::MARK, &self.buffer[..count]).count();
        }
        (found, bytes)
    }

    /// Reads more at once.
    pub(crate) fn fast(mut self) -> Self {
        self.buffer = vec![0; BUFFER];
        self
    }
}

/// Runs a command through a WebSocket on this connection, and waits for its exit status.
pub(crate) async fn exec(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) {
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    while memchr::memmem::find(&answer, b"Success").is_none() {
        let count = stream.read_buf(&mut answer).await.unwrap();
        assert!(count > 0, "exec: {}", String::from_utf8_lossy(&answer));
    }
}
