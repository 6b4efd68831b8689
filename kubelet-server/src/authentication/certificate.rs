//! Client certificates.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::UserInfo;
use crate::Error;

/// The extra field with the fingerprint of the certificate (`authentication.k8s.io/credential-id`).
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The attribute of a subject with the UID of its user (`x509.oidUserUID`).
const UID_OID: &str = "1.3.6.1.4.1.57683.2";

/// The certificates that a client presented. The TLS handshake has proven that it holds the key of the first; nothing
/// else was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates(Arc<[CertificateDer<'static>]>);

impl ClientCertificates {
    /// The certificates of a connection, the client's own first; `None` if there are none.
    pub fn new(certificates: &[CertificateDer<'_>]) -> Option<Self> {
        let owned = certificates
            .iter()
            .map(|certificate| certificate.clone().into_owned());
        (!certificates.is_empty()).then(|| Self(owned.collect()))
    }
}

/// The authorities whose client certificates are accepted. Clones share them, so that a bundle can be replaced while
/// the server runs. A connection is verified at each request: a certificate that expires, or an authority that is
/// removed, ends its access at once.
#[derive(Clone)]
pub struct ClientCa {
    verifier: Arc<RwLock<Arc<dyn ClientCertVerifier>>>,
}

impl fmt::Debug for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCa")
            .field("authorities", &self.names().len())
            .finish()
    }
}

impl ClientCa {
    /// The authorities of a PEM bundle.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`] if the bundle has no certificate, or one that is not valid. `name` is its name in the error.
    pub fn from_pem(name: &str, bundle: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            verifier: Arc::new(RwLock::new(verifier(name, bundle)?)),
        })
    }

    /// Replaces the authorities.
    ///
    /// # Errors
    ///
    /// As for [`from_pem`](Self::from_pem); the earlier authorities are then kept.
    pub fn set_pem(&self, name: &str, bundle: &[u8]) -> Result<(), Error> {
        let verifier = verifier(name, bundle)?;
        *self.verifier.write() = verifier;
        Ok(())
    }

    fn names(&self) -> Vec<DistinguishedName> {
        self.verifier.read().root_hint_subjects().to_vec()
    }

    /// The user of a client: common name and organizations of its certificate (`x509.CommonNameUserConversion`). `None`
    /// without a common name.
    ///
    /// # Errors
    ///
    /// If the certificate is not valid now for a client, or of another authority.
    pub(super) fn verify(
        &self,
        certificates: &ClientCertificates,
        now: Timestamp,
    ) -> Result<Option<UserInfo>, String> {
        let [own, intermediates @ ..] = &*certificates.0 else {
            return Ok(None);
        };
        let verifier = self.verifier.read().clone();
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let refused = |error: &dyn fmt::Display| format!("verifying certificate failed: {error}");
        verifier
            .verify_client_cert(own, intermediates, now)
            .map_err(|error| refused(&error))?;
        let (_, parsed) = X509Certificate::from_der(own).map_err(|error| refused(&error))?;
        Ok(user_of(&parsed, own))
    }
}

fn user_of(certificate: &X509Certificate<'_>, der: &[u8]) -> Option<UserInfo> {
    let subject = certificate.subject();
    let text =
        |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
    // As in Go, the last common name counts.
    let name = subject
        .iter_common_name()
        .filter_map(text)
        .last()
        .filter(|name| !name.is_empty())?;
    let uid = subject
        .iter_attributes()
        .find(|attribute| attribute.attr_type().to_id_string() == UID_OID);
    let fingerprint: String = Sha256::digest(der)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Some(UserInfo {
        name,
        uid: uid.and_then(text).unwrap_or_default(),
        groups: subject.iter_organization().filter_map(text).collect(),
        extra: [(
            CREDENTIAL_ID.to_owned(),
            vec![format!("X509SHA256={fingerprint}")],
        )]
        .into(),
    })
}

fn verifier(name: &str, bundle: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let invalid = |message: String| Error::Certificate {
        name: name.to_owned(),
        message,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| invalid(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(invalid(
            "data does not contain any valid RSA or ECDSA certificates".into(),
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| invalid(error.to_string()))
}
