//! The server over TLS, that knows its clients by their certificates.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::listener;
use super::request::User;
use super::server::ApiServer;

impl ApiServer {
    /// Serves HTTPS until `shutdown`, as [`serve`](Self::serve) does HTTP. The certificate is for `localhost`, `127.0.0.1`,
    /// `::1` and `kubernetes`.
    ///
    /// Users come from the client certificates that this server [signs](super::ApiServerBuilder::sign_certificates): the common
    /// name and the organizations. Whoever shows none is known by the `Authorization` header. Certificates are valid by the
    /// server's clock, and each request is judged anew: on a connection whose certificate is over, it is refused.
    ///
    /// # Errors
    ///
    /// When the listener fails for good, or if the server signs no certificates.
    pub async fn serve_tls(&self, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
        let acceptor = TlsAcceptor::from(Arc::new(self.tls_config()?));
        let server = self.clone();
        let open = move |stream| {
            let (accepting, server) = (acceptor.accept(stream), server.clone());
            async move {
                let stream = accepting.await?;
                let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let service = match certificate {
                    None => server.service(),
                    Some(certificate) => {
                        let (user, until) = user(certificate)?;
                        server.service_as(user).until(until)
                    }
                };
                Ok((stream, service))
            }
        };
        listener::run(listener, shutdown, open).await
    }

    /// The text of a kubeconfig for a server at `address` that [serves TLS](Self::serve_tls), with the token of a user:
    /// [`User::bootstrapper`] makes it a bootstrap kubeconfig. Empty if the server signs no certificates.
    pub fn kubeconfig_tls(&self, address: SocketAddr, user: User) -> String {
        let Some(authority) = self.certificate_authority() else {
            return String::new();
        };
        let (authority, token) = (STANDARD.encode(authority), self.token_for(user));
        [
            "apiVersion: v1",
            "kind: Config",
            "current-context: memory",
            "clusters:",
            "- name: memory",
            "  cluster:",
            &format!("    server: https://{address}"),
            &format!("    certificate-authority-data: {authority}"),
            "users:",
            "- name: memory",
            &format!("  user: {{token: \"{token}\"}}"),
            "contexts:",
            "- name: memory",
            "  context: {cluster: memory, user: memory}",
            "",
        ]
        .join("\n")
    }

    fn tls_config(&self) -> io::Result<ServerConfig> {
        let signer = self.shared.signer();
        let signer = signer.ok_or_else(|| io::Error::other("this API server signs no certificates"))?;
        let (certificate, key) = signer.serving(self.shared.now()).map_err(io::Error::other)?;
        let authority =
            CertificateDer::from_pem_slice(signer.certificate().as_bytes()).map_err(io::Error::other)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(io::Error::other)?;
        let time = Arc::new(ServerTime(self.shared.clock()));
        let mut config = ServerConfig::builder_with_details(provider, time)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![certificate.into(), authority],
                PrivatePkcs8KeyDer::from(key).into(),
            )
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The server's clock, for the certificates that clients show.
struct ServerTime(Clock);

impl TimeProvider for ServerTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

impl fmt::Debug for ServerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTime")
    }
}

/// Whom a certificate makes its bearer, and until when.
fn user(certificate: &[u8]) -> io::Result<(User, Timestamp)> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(io::Error::other)?;
    let text =
        |name: &x509_parser::x509::AttributeTypeAndValue<'_>| name.as_str().unwrap_or_default().to_owned();
    let subject = certificate.subject();
    let mut groups: Vec<String> = subject.iter_organization().map(text).collect();
    groups.push("system:authenticated".into());
    let name = subject.iter_common_name().map(text).collect();
    let until = certificate.validity().not_after.timestamp();
    let until = Timestamp::from_second(until).map_err(io::Error::other)?;
    Ok((User { name, groups }, until))
}
