//! TLS of the server: its certificate, versions and cipher suites, and the request for client certificates.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme, SupportedProtocolVersion,
};
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::authentication::ClientCa;

/// How often the files of a certificate or bundle are read again (`FileRefreshDuration` of `dynamiccertificates`).
const REFRESH: Duration = Duration::from_secs(60);

/// The certificate that the server presents. Clones share it, so that it can be replaced while the server runs. Without
/// a certificate, handshakes fail: a serving certificate may still wait for its approval.
#[derive(Clone, Default)]
pub struct ServingCertificate {
    current: Arc<RwLock<Option<Arc<CertifiedKey>>>>,
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate")
            .field("present", &self.current.read().is_some())
            .finish()
    }
}

impl ServingCertificate {
    /// No certificate yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Presents this certificate from now on.
    pub fn set(&self, certificate: Arc<CertifiedKey>) {
        *self.current.write() = Some(certificate);
    }

    /// Presents the certificate of a PEM chain and key from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`] if they are not valid or do not belong together. The earlier certificate is then kept.
    pub fn set_pem(&self, name: &str, chain: &[u8], key: &[u8]) -> Result<(), Error> {
        let invalid = |message: String| Error::Certificate {
            name: name.to_owned(),
            message,
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|error| invalid(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid(error.to_string()))?;
        let pair = CertifiedKey::from_der(chain, key, &ring::default_provider());
        self.set(Arc::new(pair.map_err(|error| invalid(error.to_string()))?));
        Ok(())
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read().clone();
        if current.is_none() {
            tracing::warn!("no serving certificate available for the kubelet");
        }
        current
    }
}

/// How the server speaks TLS.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    certificate: Arc<dyn ResolvesServerCert>,
    versions: Vec<&'static SupportedProtocolVersion>,
    provider: CryptoProvider,
}

impl TlsSettings {
    /// TLS 1.2 and 1.3 with all cipher suites of `rustls`. `certificate` is a [`ServingCertificate`], or another resolver.
    pub fn new(certificate: Arc<dyn ResolvesServerCert>) -> Self {
        Self {
            certificate,
            versions: rustls::ALL_VERSIONS.to_vec(),
            provider: ring::default_provider(),
        }
    }

    /// The oldest accepted version: `VersionTLS12` or `VersionTLS13`; empty for the default (`tlsMinVersion`).
    /// `VersionTLS10` and `VersionTLS11` mean 1.2, since `rustls` has none older.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for any other text.
    pub fn min_version(mut self, version: &str) -> Result<Self, Error> {
        match version {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => {}
            "VersionTLS13" => self.versions = vec![&rustls::version::TLS13],
            _ => {
                let message = format!("unknown tls version {version:?}");
                return Err(Error::Setting {
                    setting: "tlsMinVersion",
                    message,
                });
            }
        }
        Ok(self)
    }

    /// The accepted cipher suites of TLS 1.2, by their IANA names; none for all (`tlsCipherSuites`). As in Go, TLS 1.3
    /// keeps its suites. A suite that `rustls` leaves out, since it is weak, is logged and skipped.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if none of the suites is left, while TLS 1.3 is not enough.
    pub fn cipher_suites(mut self, names: &[String]) -> Result<Self, Error> {
        if names.is_empty() {
            return Ok(self);
        }
        let iana = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite());
        let wanted = |suite: &rustls::SupportedCipherSuite| {
            suite.tls13().is_some() || names.iter().any(|name| names_suite(name, &iana(suite)))
        };
        for name in names {
            if !self
                .provider
                .cipher_suites
                .iter()
                .any(|suite| names_suite(name, &iana(suite)))
            {
                tracing::warn!(
                    suite = name,
                    "tlsCipherSuites: the suite is not supported and is skipped"
                );
            }
        }
        self.provider.cipher_suites.retain(wanted);
        if self
            .provider
            .cipher_suites
            .iter()
            .all(|suite| suite.tls13().is_some())
        {
            self.versions
                .retain(|version| version.version == rustls::ProtocolVersion::TLSv1_3);
        }
        Ok(self)
    }

    /// The configuration of `rustls`. It asks clients for a certificate if there is an authority to verify it by.
    pub(crate) fn server_config(&self, client_ca: Option<&ClientCa>) -> Result<Arc<ServerConfig>, Error> {
        let provider = Arc::new(self.provider.clone());
        let invalid = |error: rustls::Error| Error::Setting {
            setting: "tlsCipherSuites",
            message: error.to_string(),
        };
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(&self.versions).map_err(invalid)?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let (hints, provider) = (ca.names(), provider);
                builder.with_client_cert_verifier(Arc::new(AnyCertificate { hints, provider }))
            }
        };
        let mut config = builder.with_cert_resolver(self.certificate.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Whether a name of Go or IANA means the suite that `rustls` prints as `TLS13_…` or `TLS_…`.
fn names_suite(name: &str, suite: &str) -> bool {
    let name = match name {
        // Go's older names.
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        name => name,
    };
    name == suite
        || suite
            .strip_prefix("TLS13_")
            .is_some_and(|rest| name == format!("TLS_{rest}"))
}

/// Accepts any client certificate in the handshake, and verifies that the client holds its key. The certificate itself
/// is verified at each request ([`ClientCa`]): a client with a certificate that is not valid gets an answer with status
/// 401, as from the kubelet.
#[derive(Debug)]
struct AnyCertificate {
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
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
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Reads the files of certificates again when they change (`DynamicFileCAContent`, and the kubelet's reload of
/// `tlsCertFile`).
#[derive(Debug, Default)]
pub struct CertificateFiles {
    serving: Option<(ServingCertificate, PathBuf, PathBuf)>,
    client_ca: Option<(ClientCa, PathBuf)>,
}

impl CertificateFiles {
    /// No files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the serving certificate from two files (`tlsCertFile`, `tlsPrivateKeyFile`).
    ///
    /// # Errors
    ///
    /// [`Error::File`] or [`Error::Certificate`] if they cannot be read now.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn serving(
        mut self,
        chain: PathBuf,
        key: PathBuf,
    ) -> Result<(Self, ServingCertificate), Error> {
        let certificate = ServingCertificate::new();
        let pem = (read(&chain).await?, read(&key).await?);
        certificate.set_pem(&chain.display().to_string(), &pem.0, &pem.1)?;
        self.serving = Some((certificate.clone(), chain, key));
        Ok((self, certificate))
    }

    /// Reads the authorities of clients from a file (`authentication.x509.clientCAFile`).
    ///
    /// # Errors
    ///
    /// [`Error::File`] or [`Error::Certificate`] if it cannot be read now.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn client_ca(mut self, bundle: PathBuf) -> Result<(Self, ClientCa), Error> {
        let ca = ClientCa::from_pem(&bundle.display().to_string(), &read(&bundle).await?)?;
        self.client_ca = Some((ca.clone(), bundle));
        Ok((self, ca))
    }

    /// Reads the files every minute until `shutdown`. Files that are not valid are logged, and what was read before is
    /// kept.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut known = self.contents().await.ok();
        loop {
            if shutdown
                .run_until_cancelled(tokio::time::sleep(REFRESH))
                .await
                .is_none()
            {
                return;
            }
            let found = match self.contents().await {
                Ok(found) if known.as_ref() == Some(&found) => continue,
                Ok(found) => found,
                Err(error) => {
                    tracing::error!(%error, "certificate files cannot be read; the earlier content is kept");
                    continue;
                }
            };
            match self.apply(&found) {
                Ok(()) => tracing::info!("certificate files changed and were loaded"),
                Err(error) => {
                    tracing::error!(%error, "certificate files are not valid; the earlier content is kept")
                }
            }
            known = Some(found);
        }
    }

    async fn contents(&self) -> Result<Vec<Vec<u8>>, Error> {
        let mut contents = Vec::new();
        let serving = self.serving.iter().flat_map(|(_, chain, key)| [chain, key]);
        for file in serving.chain(self.client_ca.iter().map(|(_, bundle)| bundle)) {
            contents.push(read(file).await?);
        }
        Ok(contents)
    }

    fn apply(&self, contents: &[Vec<u8>]) -> Result<(), Error> {
        let mut contents = contents.iter();
        if let (Some((certificate, chain, _)), Some(pem), Some(key)) = (
            &self.serving,
            self.serving.as_ref().and_then(|_| contents.next()),
            self.serving.as_ref().and_then(|_| contents.next()),
        ) {
            certificate.set_pem(&chain.display().to_string(), pem, key)?;
        }
        if let (Some((ca, bundle)), Some(pem)) = (&self.client_ca, contents.next()) {
            ca.set_pem(&bundle.display().to_string(), pem)?;
        }
        Ok(())
    }
}

async fn read(file: &std::path::Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::File {
        file: file.to_owned(),
        source,
    };
    tokio::fs::read(file).await.map_err(failed)
}
