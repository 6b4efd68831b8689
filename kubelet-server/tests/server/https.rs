//! The server on its port: TLS, client certificates, limits.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_server::authentication::ClientCa;
use kubelet_server::authorization::AlwaysAllow;
use kubelet_server::{
    Authentication, Authorization, CertificateFiles, NodeApi, NodePods, Server, ServingCertificate,
    TlsSettings,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::users::{self, Users};

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A client certificate, and its key.
    fn client(
        &self,
        name: &str,
        group: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        (
            params.signed_by(&key, &self.0).unwrap().pem(),
            key.serialize_pem(),
        )
    }
}

pub(crate) fn serving() -> (ServingCertificate, Vec<u8>, Vec<u8>) {
    let pair = rcgen::generate_simple_self_signed(["node1".to_owned()]).unwrap();
    let (chain, key) = (
        pair.cert.pem().into_bytes(),
        pair.signing_key.serialize_pem().into_bytes(),
    );
    let certificate = ServingCertificate::new();
    certificate.set_pem("test", &chain, &key).unwrap();
    (certificate, chain, key)
}

/// A server on a port of this host, until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(server: Server) -> Self {
        let (address, shutdown) = (server.local_addr(), CancellationToken::new());
        let task = tokio::spawn(server.run(shutdown.clone()));
        Self {
            address,
            shutdown,
            task,
        }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

pub(crate) fn local() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

pub(crate) fn pods() -> Arc<dyn NodePods> {
    Arc::new(Vec::<Arc<Pod>>::new())
}

/// Any server certificate will do.
#[derive(Debug)]
struct Trusting;

impl rustls::client::danger::ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

async fn connect(
    address: SocketAddr,
    identity: Option<&(String, String)>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_with(address, identity, versions, &[]).await
}

pub(crate) async fn connect_with(
    address: SocketAddr,
    identity: Option<&(String, String)>,
    versions: &[&'static rustls::SupportedProtocolVersion],
    protocols: &[Vec<u8>],
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap();
    let config = config
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting));
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
                .collect::<Result<_, _>>()
                .unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = protocols.to_vec();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("node1").unwrap(), stream)
        .await
}

/// Sends `GET PATH` and returns the status and the body.
async fn get(address: SocketAddr, identity: Option<&(String, String)>, path: &str) -> (u16, String) {
    let mut stream = connect(address, identity, rustls::ALL_VERSIONS).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: node1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    // Otherwise a part of it may stay in the TLS session.
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn certificates_of_clients() {
    let (ca, other) = (Authority::new("cluster"), Authority::new("another"));
    let client_ca = ClientCa::from_pem("ca.crt", ca.pem().as_bytes()).unwrap();
    let authentication = Authentication::none().client_ca(client_ca.clone());
    let authorization = Authorization::new("node1", Arc::new(Users));
    let whoami = tower::service_fn(|request: http::Request<kubelet_server::Body>| async move {
        use http_body_util::BodyExt as _;
        let user = request
            .extensions()
            .get::<kubelet_server::UserInfo>()
            .cloned()
            .unwrap_or_default();
        let text = format!("{} {} {:?}", user.name, user.groups.join(","), user.extra.keys());
        let body = http_body_util::Full::from(text)
            .map_err(|never| match never {})
            .boxed_unsync();
        Ok::<_, std::convert::Infallible>(http::Response::new(body))
    });
    let api = NodeApi::builder(pods(), authentication, authorization)
        .route("/whoami", whoami)
        .build();
    let tls = TlsSettings::new(Arc::new(serving().0));
    let server = Running::start(Server::bind(local(), api, &tls).unwrap());

    let good = ca.client("kubernetes-admin", "system:masters", |_| {});
    let (status, text) = get(server.address, Some(&good), "/whoami").await;
    let expected = "kubernetes-admin system:masters,system:authenticated [\"authentication.kubernetes.io/credential-id\"]";
    assert_eq!((status, &*text), (200, expected));
    assert_eq!(
        get(server.address, None, "/whoami").await,
        (401, "Unauthorized".into())
    );
    for (what, identity) in [
        (
            "of another authority",
            other.client("kubernetes-admin", "system:masters", |_| {}),
        ),
        (
            "expired",
            ca.client("kubernetes-admin", "system:masters", |params| {
                params.not_before = rcgen::date_time_ymd(2020, 1, 1);
                params.not_after = rcgen::date_time_ymd(2021, 1, 1);
            }),
        ),
        (
            "not valid yet",
            ca.client("kubernetes-admin", "system:masters", |params| {
                params.not_before = rcgen::date_time_ymd(2400, 1, 1);
                params.not_after = rcgen::date_time_ymd(2401, 1, 1);
            }),
        ),
        (
            "for servers",
            ca.client("kubernetes-admin", "system:masters", |params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }),
        ),
        ("without a name", ca.client("", "system:masters", |_| {})),
    ] {
        let found = get(server.address, Some(&identity), "/whoami").await;
        assert_eq!(found, (401, "Unauthorized".into()), "a certificate {what}");
    }
    let joe = ca.client("joe", "people", |_| {});
    let (status, text) = get(server.address, Some(&joe), "/whoami").await;
    assert_eq!(
        (status, &*text),
        (
            403,
            "Forbidden (user=joe, verb=get, resource=nodes, subresource(s)=[proxy])\n"
        )
    );

    // The bundle is replaced: the old authority is out at once, also on open connections.
    let mut open = connect(server.address, Some(&good), rustls::ALL_VERSIONS)
        .await
        .unwrap();
    client_ca.set_pem("ca.crt", b"nonsense").unwrap_err();
    client_ca.set_pem("ca.crt", other.pem().as_bytes()).unwrap();
    open.write_all(b"GET /whoami HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    open.flush().await.unwrap();
    let mut answer = String::new();
    open.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn tls_versions_suites_and_certificates() {
    let (certificate, chain, key) = serving();
    let authorization = Authorization::new("n", Arc::new(AlwaysAllow));
    let api = NodeApi::builder(pods(), Authentication::anonymous(), authorization).build();
    let tls = TlsSettings::new(Arc::new(certificate))
        .min_version("VersionTLS13")
        .unwrap();
    let server = Running::start(Server::bind(local(), api.clone(), &tls).unwrap());
    assert!(
        connect(server.address, None, &[&rustls::version::TLS12])
            .await
            .is_err()
    );
    let stream = connect(server.address, None, rustls::ALL_VERSIONS).await.unwrap();
    assert_eq!(
        stream.get_ref().1.protocol_version(),
        Some(rustls::ProtocolVersion::TLSv1_3)
    );
    drop(stream);
    server.stop().await;

    let suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305".to_owned();
    let suites = [suite, "TLS_RSA_WITH_RC4_128_SHA".into()];
    let tls = TlsSettings::new(Arc::new(serving().0))
        .cipher_suites(&suites)
        .unwrap();
    let server = Running::start(Server::bind(local(), api.clone(), &tls).unwrap());
    let stream = connect(server.address, None, &[&rustls::version::TLS12])
        .await
        .unwrap();
    let found = stream.get_ref().1.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(
        found,
        rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
    );
    drop(stream);
    server.stop().await;
    assert!(
        TlsSettings::new(Arc::new(serving().0))
            .min_version("VersionTLS14")
            .is_err()
    );

    let of_suites = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        TlsSettings::new(Arc::new(serving().0)).cipher_suites(&names)
    };
    let known = "TLS_AES_128_GCM_SHA256";
    let error = of_suites(&[known, "TLS_BOGUS", "tls_aes_128_gcm_sha256"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tlsCipherSuites: unknown cipher suites: [\"TLS_BOGUS\", \"tls_aes_128_gcm_sha256\"]"
    );
    of_suites(&[known]).unwrap();

    // P-384; P-521 (25) is no key exchange of ours, and 1 is none of Go's.
    let of_curves = |curves: &[i32]| TlsSettings::new(Arc::new(serving().0)).curve_preferences(curves);
    let tls = of_curves(&[25, 24]).unwrap();
    let server = Running::start(Server::bind(local(), api.clone(), &tls).unwrap());
    let stream = connect(server.address, None, rustls::ALL_VERSIONS).await.unwrap();
    let found = stream.get_ref().1.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(found, rustls::NamedGroup::secp384r1);
    drop(stream);
    server.stop().await;
    for refused in [&[1][..], &[25], &[24, 1], &[24, 24], &[-1]] {
        assert!(of_curves(refused).is_err(), "{refused:?}");
    }
    of_curves(&[]).unwrap();

    // No certificate yet: handshakes fail, until there is one.
    let late = ServingCertificate::new();
    let server =
        Running::start(Server::bind(local(), api, &TlsSettings::new(Arc::new(late.clone()))).unwrap());
    assert!(connect(server.address, None, rustls::ALL_VERSIONS).await.is_err());
    late.set_pem("late", &chain, &key).unwrap();
    assert_eq!(get(server.address, None, "/healthz").await, (200, "ok".into()));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn certificate_files_are_read_again() {
    let (folder, ca) = (tempfile::tempdir().unwrap(), Authority::new("a"));
    let file = |name: &str| folder.path().join(name);
    let (_, chain, key) = serving();
    for (name, content) in [
        ("tls.crt", &chain),
        ("tls.key", &key),
        ("ca.crt", &ca.pem().into_bytes()),
    ] {
        std::fs::write(file(name), content).unwrap();
    }
    let files = CertificateFiles::new();
    assert!(
        CertificateFiles::new()
            .client_ca(file("missing"))
            .await
            .unwrap_err()
            .to_string()
            .contains("missing")
    );
    let (files, _certificate) = files.serving(file("tls.crt"), file("tls.key")).await.unwrap();
    let (files, found) = files.client_ca(file("ca.crt")).await.unwrap();
    assert_eq!(format!("{found:?}"), "ClientCa { authorities: 1 }");
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(files.run(shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(61)).await;
    std::fs::write(
        file("ca.crt"),
        format!("{}{}", ca.pem(), Authority::new("b").pem()),
    )
    .unwrap();
    let changed = tokio::time::Instant::now();
    while format!("{found:?}") != "ClientCa { authorities: 2 }" {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // In virtual time.
    assert!(
        changed.elapsed() <= Duration::from_secs(10),
        "{:?}",
        changed.elapsed()
    );
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn http2_and_the_read_only_port() {
    let api = NodeApi::read_only(pods()).build();
    let tls = TlsSettings::new(Arc::new(serving().0));
    let server = Running::start(Server::bind(local(), api.clone(), &tls).unwrap());
    let stream = connect_with(server.address, None, rustls::ALL_VERSIONS, &[b"h2".to_vec()])
        .await
        .unwrap();
    let (io, executor) = (
        hyper_util::rt::TokioIo::new(stream),
        hyper_util::rt::TokioExecutor::new(),
    );
    let (mut send, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let connection = tokio::spawn(connection);
    for (path, status) in [
        ("/healthz", 200),
        ("/pods", 200),
        ("/exec/ns/pod/c", 405),
        ("/configz", 404),
    ] {
        let uri = format!("https://{}{path}", server.address);
        let request = http::Request::get(uri)
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap();
        assert_eq!(
            send.send_request(request).await.unwrap().status(),
            status,
            "{path}"
        );
    }
    connection.abort();
    server.stop().await;

    let server = Running::start(Server::bind_insecure(local(), api).unwrap());
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    server.stop().await;
}

/// Also one that sends a part of a head, and one that begins as HTTP/2 does.
#[tokio::test(start_paused = true)]
async fn a_silent_client_is_cut_off() {
    let server = Running::start(Server::bind_insecure(local(), NodeApi::read_only(pods()).build()).unwrap());
    for sent in ["", "GET /healthz HTTP/1.1\r\nHost", "PRI * HTTP/2"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer).await);
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{sent:?}: {answer:?}"
        );
    }
    server.stop().await;
}

/// As a scraper that comes each minute.
#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_between_requests() {
    let server = Running::start(Server::bind_insecure(local(), NodeApi::read_only(pods()).build()).unwrap());
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    for _ in 0..5 {
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        while !answer.ends_with("\r\n\r\nok") {
            let mut buffer = [0; 512];
            let read = stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "it was closed: {answer:?}");
            answer.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    server.stop().await;
}

/// A log without end and without lines.
struct Quiet(Arc<tokio::sync::Notify>);

#[async_trait::async_trait]
impl kubelet_core::runtime::ContainerLogs for Quiet {
    async fn container_logs(
        &self,
        _: &Pod,
        _: &k8s_openapi::api::core::v1::PodStatus,
        _: &str,
        _: kubelet_core::runtime::PodLogOptions,
    ) -> Result<
        futures::stream::BoxStream<'static, Result<Vec<u8>, kubelet_core::runtime::streaming::StreamError>>,
        kubelet_core::runtime::streaming::StreamError,
    > {
        use futures::StreamExt as _;
        struct Dropped(Arc<tokio::sync::Notify>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let dropped = Dropped(self.0.clone());
        let first = futures::stream::iter([Ok(b"first\n".to_vec())]);
        let rest = futures::stream::poll_fn(move |_| {
            let _ = &dropped;
            std::task::Poll::Pending
        });
        Ok(first.chain(rest).boxed())
    }
}

#[tokio::test]
async fn a_log_is_followed_no_longer_when_its_client_is_gone() {
    let pod = serde_json::json!({
        "metadata": {"name": "pod", "namespace": "ns"}, "spec": {"containers": [{"name": "c"}]}
    });
    let pods: Vec<Arc<Pod>> = vec![Arc::new(serde_json::from_value(pod).unwrap())];
    let gone = Arc::new(tokio::sync::Notify::new());
    let authorization = Authorization::new("n", Arc::new(AlwaysAllow));
    let api = NodeApi::builder(Arc::new(pods), Authentication::anonymous(), authorization)
        .logs(Arc::new(Quiet(gone.clone())))
        .build();
    let server = Running::start(Server::bind_insecure(local(), api).unwrap());
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(b"GET /containerLogs/ns/pod/c?follow=true HTTP/1.1\r\nHost: n\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"first\n\r\n") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{answer:?}");
    }
    drop(stream);
    gone.notified().await;
    server.stop().await;
}

#[tokio::test]
async fn a_hostile_client_is_cut_off() {
    let authorization = Authorization::new("n", Arc::new(AlwaysAllow));
    let api = NodeApi::builder(pods(), users::authentication(), authorization).build();
    let server = Server::bind_insecure(local(), api).unwrap().max_connections(3);
    let server = Running::start(server);
    let ask = async |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server may close while it is written to.
        drop(stream.write_all(bytes).await);
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer).await);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let huge = format!(
        "GET /pods HTTP/1.1\r\nHost: n\r\nX: {}\r\n\r\n",
        "x".repeat(3 << 20)
    );
    let answer = ask(huge.as_bytes()).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let answer = ask(b"\x00\x01garbage\r\n\r\n").await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer}"
    );
    let path = b"GET /containerLogs/%2e%2e/%2e%2e/etc HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n";
    assert!(
        ask(path).await.starts_with("HTTP/1.1 307"),
        "such a path is cleaned, and nothing is read"
    );
    let answer = ask(b"GET /%ff HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");

    // Silent connections take all places. The next client waits, and is served when one of them leaves.
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut waiting = tokio::spawn({
        let address = server.address;
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")
                .await
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        }
    });
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut waiting)
            .await
            .is_err()
    );
    silent.pop();
    assert!(waiting.await.unwrap().starts_with("HTTP/1.1 401"));
    server.stop().await;
}

#[tokio::test]
async fn no_request_of_an_unknown_or_unauthorized_user_reaches_a_handler() {
    struct Never;

    impl NodePods for Never {
        fn pods(&self) -> Vec<Arc<Pod>> {
            panic!("a handler was reached");
        }
    }

    use tower::ServiceExt as _;
    let authorization = Authorization::new("n", Arc::new(Users));
    let mine = tower::service_fn(|_: http::Request<kubelet_server::Body>| async {
        panic!("a handler was reached");
        #[allow(unreachable_code, reason = "the type of the answer")]
        Ok::<http::Response<kubelet_server::Body>, std::convert::Infallible>(unreachable!())
    });
    let api = NodeApi::builder(Arc::new(Never), users::authentication(), authorization)
        .route("/mine", mine)
        .build();
    let mut asked = 0;
    for path in api.paths() {
        for path in [
            path.clone(),
            format!("{path}/"),
            format!("{path}/ns/pod/c"),
            format!("{path}/ns/pod/uid/c?x=1"),
        ] {
            for method in [
                "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "NONSENSE",
            ] {
                for user in ["anonymous", "bad-token", "basic", "nothing"] {
                    let path = path.replace("//", "/");
                    let mut request = http::Request::builder().method(method).uri(&path);
                    if let Some(credentials) = users::credentials(user) {
                        request = request.header("authorization", credentials);
                    }
                    let request = request
                        .body(http_body_util::Empty::<bytes::Bytes>::new())
                        .unwrap();
                    let status = api.clone().oneshot(request).await.unwrap().status().as_u16();
                    let expected: &[u16] = if user == "nothing" {
                        &[403, 404, 307]
                    } else {
                        &[401, 404, 307]
                    };
                    assert!(expected.contains(&status), "{user} {method} {path}: {status}");
                    asked += 1;
                }
            }
        }
    }
    assert!(asked > 3_000, "{asked}");
}
