//! Serving over TLS, with client certificates.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificates::Signer;
use super::http::ApiService;
use super::listener;
use super::request::User;
use super::server::ApiServer;

impl ApiServer {
    /// Serves HTTPS until `shutdown`, as [`serve`](Self::serve) serves HTTP. The serving certificate is valid for
    /// `localhost`, `127.0.0.1`, `::1` and `kubernetes`.
    ///
    /// The server authenticates clients by the certificates that it
    /// [signs](super::ApiServerBuilder::sign_certificates): the common name is the user, the organizations are the
    /// groups. For clients without a certificate, the `Authorization` header names the user. The server checks the
    /// certificate with every request, by its own clock: an expired certificate, or one of another authority,
    /// authenticates no user.
    ///
    /// # Errors
    ///
    /// The listener fails for good, or the server signs no certificates.
    pub async fn serve_tls(&self, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
        let authority = self.authority()?;
        let acceptor = TlsAcceptor::from(Arc::new(self.tls_config(authority.clone())?));
        let server = self.clone();
        let open = move |stream| {
            let (accepting, server, authority) = (acceptor.accept(stream), server.clone(), authority.clone());
            async move {
                let stream = accepting.await?;
                let service = match stream.get_ref().1.peer_certificates() {
                    Some([certificate, chain @ ..]) => server.service_of(&*authority, certificate, chain)?,
                    _ => server.service(),
                };
                Ok((stream, service))
            }
        };
        listener::run(listener, shutdown, open).await
    }

    /// A kubeconfig for a server at `address` that [serves TLS](Self::serve_tls), with a user's token. For a
    /// [`User::bootstrapper`] it is a bootstrap kubeconfig. Empty if the server signs no certificates.
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

    /// The service for the owner of a certificate.
    fn service_of(
        &self,
        authority: &dyn ClientCertVerifier,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
    ) -> io::Result<ApiService> {
        let now = u64::try_from(self.shared.now().as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let (user, until) = user(certificate)?;
        let until = match authority.verify_client_cert(certificate, chain, now) {
            Ok(_) => until,
            Err(_) => Timestamp::MIN,
        };
        Ok(self.service_as(user).until(until))
    }

    fn signer(&self) -> io::Result<&Signer> {
        let signer = self.shared.signer.as_ref();
        signer.ok_or_else(|| io::Error::other("this API server signs no certificates"))
    }

    fn authority(&self) -> io::Result<Arc<dyn ClientCertVerifier>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority_der()?).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(io::Error::other)
    }

    fn authority_der(&self) -> io::Result<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.signer()?.certificate().as_bytes()).map_err(io::Error::other)
    }

    fn tls_config(&self, authority: Arc<dyn ClientCertVerifier>) -> io::Result<ServerConfig> {
        let (certificate, key) = self
            .signer()?
            .serving(self.shared.now())
            .map_err(io::Error::other)?;
        let chain = vec![certificate.into(), self.authority_der()?];
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_client_cert_verifier(Arc::new(AnyCertificate(authority)))
            .with_single_cert(chain, PrivatePkcs8KeyDer::from(key).into())
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Accepts every client certificate (`tls.RequestClientCert`). A client with an invalid one gets its refusal over
/// HTTP.
#[derive(Debug)]
struct AnyCertificate(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The user that a certificate names, and when it expires.
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
