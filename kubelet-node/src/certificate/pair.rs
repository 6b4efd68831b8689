//! [`Certificate`]: a certificate with its private key.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::key::Key;
use crate::{Error, Result};

/// A certificate with its intermediates and its private key (Go's `tls.Certificate`).
///
/// The key always matches the certificate. `Debug` does not show it.
pub struct Certificate {
    certified: Arc<CertifiedKey>,
    chain_pem: String,
    key_pem: String,
    leaf: Leaf,
    /// The earliest end of validity in the chain.
    chain_not_after: Timestamp,
    file: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Leaf {
    common_name: String,
    organizations: Vec<String>,
    dns_names: Vec<String>,
    ip_addresses: Vec<IpAddr>,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Certificate {
    /// Reads a certificate and its intermediates from one PEM text and its private key from another. Both may
    /// be the same text.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`] names `file`, if given, and the problem: the certificate or the key is missing or
    /// unreadable, or they do not match.
    pub fn from_pem(chain: &[u8], key: &[u8], file: Option<&Path>) -> Result<Self> {
        let bad = |problem: String| Error::Certificate {
            file: file.map_or_else(|| PathBuf::from("<memory>"), Path::to_owned),
            problem,
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| bad(format!("it is not PEM: {error}")))?;
        let key = Key::from_pem(key).map_err(bad)?;
        let leaf = chain
            .first()
            .ok_or_else(|| bad("it holds no certificate".into()))?;
        let leaf = read_leaf(leaf).map_err(bad)?;
        let mut chain_not_after = leaf.not_after;
        for der in &chain[1..] {
            chain_not_after = chain_not_after.min(read_leaf(der).map_err(bad)?.not_after);
        }
        let chain_pem = chain
            .iter()
            .map(|der| super::pem_block("CERTIFICATE", der))
            .collect();
        let certified = CertifiedKey::new(chain, key.signing_key());
        certified.keys_match().map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                bad("its private key does not match its certificate".into())
            }
            error => bad(format!("its certificate cannot be read: {error}")),
        })?;
        Ok(Certificate {
            certified: Arc::new(certified),
            chain_pem,
            key_pem: key.to_pem(),
            leaf,
            chain_not_after,
            file: file.map(Path::to_owned),
        })
    }

    /// The common name of the subject: `system:node:<name>`.
    pub fn common_name(&self) -> &str {
        &self.leaf.common_name
    }

    /// The organizations of the subject: `system:nodes`.
    pub fn organizations(&self) -> &[String] {
        &self.leaf.organizations
    }

    /// The DNS names of the server.
    pub fn dns_names(&self) -> &[String] {
        &self.leaf.dns_names
    }

    /// The IP addresses of the server.
    pub fn ip_addresses(&self) -> &[IpAddr] {
        &self.leaf.ip_addresses
    }

    /// The start of the validity.
    pub fn not_before(&self) -> Timestamp {
        self.leaf.not_before
    }

    /// The end of the validity.
    pub fn not_after(&self) -> Timestamp {
        self.leaf.not_after
    }

    /// Whether the certificate itself has expired; its chain does not matter.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now > self.leaf.not_after
    }

    /// Whether any certificate of the chain has expired.
    pub(crate) fn is_any_expired(&self, now: Timestamp) -> bool {
        now > self.chain_not_after
    }

    /// The lifetime.
    pub fn lifetime(&self) -> SignedDuration {
        self.leaf.not_after.duration_since(self.leaf.not_before)
    }

    /// The file that it was read from or is stored in.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The certificate and its intermediates, as PEM.
    pub fn chain_pem(&self) -> &str {
        &self.chain_pem
    }

    /// The private key, as PEM. Keep it secret.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// The certificate and key for rustls.
    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }
}

kubelet_core::impl_debug!(Certificate: leaf, file);

fn read_leaf(der: &[u8]) -> std::result::Result<Leaf, String> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| format!("its certificate cannot be read: {error}"))?;
    let subject = certificate.subject();
    let text =
        |name: &x509_parser::x509::AttributeTypeAndValue<'_>| name.as_str().unwrap_or_default().to_owned();
    // A certificate without an end (RFC 5280, 4.1.2.5: the last second of the year 9999) gets the latest
    // possible time.
    let time = |time: x509_parser::time::ASN1Time| {
        let seconds = time.timestamp();
        let beyond = if seconds < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        };
        Timestamp::from_second(seconds).unwrap_or(beyond)
    };
    let mut leaf = Leaf {
        common_name: subject.iter_common_name().last().map(text).unwrap_or_default(),
        organizations: subject.iter_organization().map(text).collect(),
        not_before: time(certificate.validity().not_before),
        not_after: time(certificate.validity().not_after),
        ..Leaf::default()
    };
    let names = certificate
        .subject_alternative_name()
        .map_err(|error| format!("its certificate's names cannot be read: {error}"))?;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::DNSName(name) => leaf.dns_names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => leaf.ip_addresses.extend(ip_address(bytes)),
            _ => {}
        }
    }
    Ok(leaf)
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}
