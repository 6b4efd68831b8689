//! Servers on loopback, which end with their test.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A server on its own port; it ends when it is dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn run<F>(connection: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(connection(stream));
            }
        });
        Self { port, _tasks: tasks }
    }

    /// Reads a request and writes the bytes that `answer` returns. `None`: it writes nothing and waits.
    pub(crate) async fn http(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        let answer = Arc::new(answer);
        Self::run(move |stream| {
            let answer = answer.clone();
            async move { answer_one(stream, &*answer).await }
        })
        .await
    }

    /// The same with TLS and a self-signed certificate.
    pub(crate) async fn https(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        let made = rcgen::generate_simple_self_signed(["somewhere.else".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let certificate: CertificateDer<'static> = made.cert.der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let (acceptor, answer) = (TlsAcceptor::from(Arc::new(config)), Arc::new(answer));
        Self::run(move |stream| {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    answer_one(stream, &*answer).await;
                }
            }
        })
        .await
    }

    /// A gRPC server: `answer` gets path and message, and returns a message, or a code and a text.
    pub(crate) async fn grpc(
        answer: impl Fn(&str, &[u8]) -> Option<Result<Vec<u8>, (i32, &'static str)>> + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        Self::run(move |stream| {
            let answer = answer.clone();
            async move {
                let service = service_fn(move |request| grpc_call(request, answer.clone()));
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            }
        })
        .await
    }
}

type GrpcAnswer = dyn Fn(&str, &[u8]) -> Option<Result<Vec<u8>, (i32, &'static str)>> + Send + Sync;

async fn grpc_call(
    request: Request<Incoming>,
    answer: Arc<GrpcAnswer>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let agent = request.headers().get("user-agent").cloned();
    assert!(agent.unwrap().to_str().unwrap().starts_with("kube-probe/1.36"));
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let Some(answered) = answer(&path, &body[5..]) else {
        std::future::pending::<()>().await;
        unreachable!("it hangs");
    };
    let (message, code, text) = match answered {
        Ok(message) => (Some(message), 0, ""),
        Err((code, text)) => (None, code, text),
    };
    let mut framed = Vec::new();
    if let Some(message) = message {
        framed.push(0);
        framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend(message);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code));
    trailers.insert("grpc-message", HeaderValue::from_static(text));
    let body = Full::new(Bytes::from(framed)).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

async fn answer_one<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: &(dyn Fn(&str) -> Option<String> + Send + Sync),
) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte).await {
            Ok(1) => request.push(byte[0]),
            // A TLS client gets an HTTP error, as from Go's server.
            _ => return,
        }
        if request[0] == 22 && request.len() == 5 {
            let refusal = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
            let _ = stream.write_all(refusal.as_bytes()).await;
            let _ = stream.shutdown().await;
            // Unread data of the client would reset the connection before the client has read the answer.
            let mut rest = Vec::new();
            let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
            return;
        }
    }
    match answer(&String::from_utf8(request).unwrap()) {
        Some(answer) => {
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        None => std::future::pending().await,
    }
}

/// A port that refuses connections. Nobody else gets it while its socket is there.
pub(crate) fn closed_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}
