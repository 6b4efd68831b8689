//! A node's server, as far as the API server needs one.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubelet_apiserver::ApiServer;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

pub(super) type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// A server with a self-signed certificate. It wants a client certificate of the API server's authority.
pub(super) struct FakeNode {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

/// The subject of the client's certificate, in the extensions of a request.
#[derive(Clone)]
pub(super) struct Peer(pub(super) String);

impl FakeNode {
    pub(super) async fn start<F>(
        server: &ApiServer,
        handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let acceptor = TlsAcceptor::from(Arc::new(config(server)));
        let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, handler) = (acceptor.clone(), handler.clone());
                connections.spawn(async move {
                    let stream = acceptor.accept(stream).await.unwrap();
                    let subject = subject(&stream.get_ref().1.peer_certificates().unwrap()[0]);
                    let service = service_fn(move |mut request: Request<Incoming>| {
                        request.extensions_mut().insert(Peer(subject.clone()));
                        let answer = handler(request);
                        async move { Ok::<_, std::convert::Infallible>(answer.await) }
                    });
                    let server = hyper::server::conn::http1::Builder::new();
                    let connection = server.serve_connection(TokioIo::new(stream), service);
                    let _ = connection.with_upgrades().await;
                });
            }
        });
        FakeNode { address, task }
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn whole(code: u16, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(text.to_owned())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

fn config(server: &ApiServer) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authority = server.certificate_authority().unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
        .unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["one".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap()
}

fn subject(certificate: &[u8]) -> String {
    let (_, certificate) = X509Certificate::from_der(certificate).unwrap();
    certificate.subject().to_string()
}
