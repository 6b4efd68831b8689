//! TLS of the server: its certificate, versions and cipher suites, and the request for client certificates.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
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

/// How often the files of a certificate or bundle are read again. The kubelet reads them each minute (`FileRefreshDuration` of
/// `dynamiccertificates`), and when the kernel reports a change.
const REFRESH: Duration = Duration::from_secs(10);

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

/// The cipher suites that Go has, the weak ones too, with two older names (`TLSCipherPossibleValues`).
const CIPHER_SUITES: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// The key exchanges that Go has: P-256, P-384, P-521, X25519, and the three hybrids with ML-KEM (`tls.CurveID`).
const CURVES: [i32; 7] = [23, 24, 25, 29, 4587, 4588, 4589];

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

    /// Checks `tlsCipherSuites`.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] with all names that are no suite of Go.
    pub fn check_cipher_suites(names: &[String]) -> Result<(), Error> {
        let unknown = names
            .iter()
            .filter(|name| !CIPHER_SUITES.contains(&name.as_str()));
        let unknown: Vec<&String> = unknown.collect();
        match unknown.is_empty() {
            true => Ok(()),
            false => Err(Error::Setting {
                setting: "tlsCipherSuites",
                message: format!("unknown cipher suites: {unknown:?}"),
            }),
        }
    }

    /// Checks `tlsCurvePreferences`.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for numbers that Go does not know or that are there twice; and if `rustls` has none of them.
    pub fn check_curve_preferences(numbers: &[i32]) -> Result<(), Error> {
        let setting = "tlsCurvePreferences";
        let mut seen = BTreeSet::new();
        let refused = numbers.iter();
        let refused = refused.filter(|number| !CURVES.contains(number) || !seen.insert(**number));
        let refused: Vec<&i32> = refused.collect();
        if !refused.is_empty() {
            let message = format!("unknown key exchanges, or the same one twice: {refused:?}");
            return Err(Error::Setting { setting, message });
        }
        let ours = ring::default_provider().kx_groups;
        let is_ours = |number: &i32| {
            ours.iter()
                .any(|group| i32::from(u16::from(group.name())) == *number)
        };
        match numbers.is_empty() || numbers.iter().any(is_ours) {
            true => Ok(()),
            false => Err(Error::Setting {
                setting,
                message: format!("none of {numbers:?} is supported"),
            }),
        }
    }

    /// The accepted cipher suites of TLS 1.2, by their IANA names; none for all (`tlsCipherSuites`). As in Go, TLS 1.3
    /// keeps its suites. A suite that `rustls` leaves out, since it is weak, is logged and skipped.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] with all names that are no suite of Go, which the kubelet refuses.
    pub fn cipher_suites(mut self, names: &[String]) -> Result<Self, Error> {
        if names.is_empty() {
            return Ok(self);
        }
        Self::check_cipher_suites(names)?;
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

    /// The accepted key exchanges, by their numbers in TLS; none for all (`tlsCurvePreferences`). One that `rustls` does not have
    /// is logged and skipped.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a number that Go does not know or that is there twice, which the kubelet refuses; and if none of them
    /// is left.
    pub fn curve_preferences(mut self, numbers: &[i32]) -> Result<Self, Error> {
        if numbers.is_empty() {
            return Ok(self);
        }
        Self::check_curve_preferences(numbers)?;
        let has = &self.provider.kx_groups;
        let number = |group: &&'static dyn SupportedKxGroup| i32::from(u16::from(group.name()));
        for wanted in numbers {
            if !has.iter().any(|group| number(group) == *wanted) {
                tracing::warn!(
                    wanted,
                    "tlsCurvePreferences: the key exchange is not supported and is skipped"
                );
            }
        }
        let mut left = has.clone();
        left.retain(|group| numbers.contains(&number(group)));
        self.provider.kx_groups = left;
        Ok(self)
    }

    /// The configuration of `rustls`. With `asks_clients` it asks clients for a certificate.
    pub(crate) fn server_config(&self, asks_clients: bool) -> Result<Arc<ServerConfig>, Error> {
        let provider = Arc::new(self.provider.clone());
        let invalid = |error: rustls::Error| Error::Setting {
            setting: "tlsCipherSuites",
            message: error.to_string(),
        };
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(&self.versions).map_err(invalid)?;
        let builder = match asks_clients {
            false => builder.with_no_client_auth(),
            true => builder.with_client_cert_verifier(Arc::new(AnyCertificate { provider })),
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
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // The authorities may change while the server runs: clients then find their certificate themselves.
        &[]
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
    serving: Option<ServingFiles>,
    client_ca: Option<CaFile>,
}

#[derive(Debug)]
struct ServingFiles {
    certificate: ServingCertificate,
    chain: PathBuf,
    key: PathBuf,
    loaded: (Vec<u8>, Vec<u8>),
}

#[derive(Debug)]
struct CaFile {
    ca: ClientCa,
    bundle: PathBuf,
    loaded: Vec<u8>,
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
    pub async fn serving(
        mut self,
        chain: PathBuf,
        key: PathBuf,
    ) -> Result<(Self, ServingCertificate), Error> {
        let certificate = ServingCertificate::new();
        let loaded = (read(&chain).await?, read(&key).await?);
        certificate.set_pem(&chain.display().to_string(), &loaded.0, &loaded.1)?;
        self.serving = Some(ServingFiles {
            certificate: certificate.clone(),
            chain,
            key,
            loaded,
        });
        Ok((self, certificate))
    }

    /// Reads the authorities of clients from a file (`authentication.x509.clientCAFile`).
    ///
    /// # Errors
    ///
    /// [`Error::File`] or [`Error::Certificate`] if it cannot be read now.
    pub async fn client_ca(mut self, bundle: PathBuf) -> Result<(Self, ClientCa), Error> {
        let loaded = read(&bundle).await?;
        let ca = ClientCa::from_pem(&bundle.display().to_string(), &loaded)?;
        self.client_ca = Some(CaFile {
            ca: ca.clone(),
            bundle,
            loaded,
        });
        Ok((self, ca))
    }

    /// Reads the files every 10 s until `shutdown`. Files that are not valid are logged, and what was loaded before is
    /// kept.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub async fn run(mut self, shutdown: CancellationToken) {
        while shutdown
            .run_until_cancelled(tokio::time::sleep(REFRESH))
            .await
            .is_some()
        {
            if let Some(files) = &mut self.serving {
                report(files.load().await, &files.chain);
            }
            if let Some(file) = &mut self.client_ca {
                report(file.load().await, &file.bundle);
            }
        }
    }
}

impl ServingFiles {
    /// Loads the files if they changed, and returns whether they did.
    async fn load(&mut self) -> Result<bool, Error> {
        let found = (read(&self.chain).await?, read(&self.key).await?);
        if found == self.loaded {
            return Ok(false);
        }
        self.certificate
            .set_pem(&self.chain.display().to_string(), &found.0, &found.1)?;
        self.loaded = found;
        Ok(true)
    }
}

impl CaFile {
    /// Loads the file if it changed, and returns whether it did.
    async fn load(&mut self) -> Result<bool, Error> {
        let found = read(&self.bundle).await?;
        if found == self.loaded {
            return Ok(false);
        }
        self.ca.set_pem(&self.bundle.display().to_string(), &found)?;
        self.loaded = found;
        Ok(true)
    }
}

fn report(loaded: Result<bool, Error>, file: &Path) {
    let file = file.display();
    match loaded {
        Ok(true) => tracing::info!(%file, "certificate file changed and was loaded"),
        Ok(false) => {}
        Err(error) => {
            tracing::error!(%file, %error, "cannot load a certificate file; the earlier content is kept")
        }
    }
}

async fn read(file: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::File {
        file: file.to_owned(),
        source,
    };
    tokio::fs::read(file).await.map_err(failed)
}
