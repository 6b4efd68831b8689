//! [`Certificate`]: a certificate with its private key, and what it says.

use std::fmt;
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

/// A certificate with those that lead to its authority and with its private key (Go's `tls.Certificate`).
///
/// The key is known to belong to the certificate. Its text is not shown by `Debug`.
pub struct Certificate {
    certified: Arc<CertifiedKey>,
    chain_pem: String,
    key_pem: String,
    leaf: Leaf,
    /// When the first of the chain ends.
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
    /// Reads a certificate, and those that lead to its authority, from one PEM text and its private key from another, which
    /// may be the same.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`] names `file`, if there is one, and tells what is wrong: no certificate, no key, either not
    /// readable, or the key not the certificate's.
    pub fn from_pem(chain: &[u8], key: &[u8], file: Option<&Path>) -> Result<Self> {
        let bad = |problem: String| Error::Certificate {
            file: file.map_or_else(|| PathBuf::from("<memory>"), Path::to_owned),
            problem,
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| bad(format!("it is no PEM: {error}")))?;
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
            rustls::Error::InconsistentKeys(_) => bad("its private key is not its certificate's".into()),
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

    /// The common name of its subject: `system:node:<name>`.
    pub fn common_name(&self) -> &str {
        &self.leaf.common_name
    }

    /// The organizations of its subject: `system:nodes`.
    pub fn organizations(&self) -> &[String] {
        &self.leaf.organizations
    }

    /// The DNS names that it is valid for, as a server.
    pub fn dns_names(&self) -> &[String] {
        &self.leaf.dns_names
    }

    /// The IP addresses that it is valid for, as a server.
    pub fn ip_addresses(&self) -> &[IpAddr] {
        &self.leaf.ip_addresses
    }

    /// The time from which on it is valid.
    pub fn not_before(&self) -> Timestamp {
        self.leaf.not_before
    }

    /// The time after which it is not valid any more.
    pub fn not_after(&self) -> Timestamp {
        self.leaf.not_after
    }

    /// Whether it is over, itself and not those that lead to its authority.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now > self.leaf.not_after
    }

    /// The same, for any of its chain.
    pub(crate) fn is_any_expired(&self, now: Timestamp) -> bool {
        now > self.chain_not_after
    }

    /// From beginning to end.
    pub fn lifetime(&self) -> SignedDuration {
        self.leaf.not_after.duration_since(self.leaf.not_before)
    }

    /// Where it was read, or is kept.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The certificate and those that lead to its authority, as PEM.
    pub fn chain_pem(&self) -> &str {
        &self.chain_pem
    }

    /// The private key, as PEM. To be kept from others.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// As rustls takes it.
    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("leaf", &self.leaf)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

fn read_leaf(der: &[u8]) -> std::result::Result<Leaf, String> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| format!("its certificate cannot be read: {error}"))?;
    let subject = certificate.subject();
    let text =
        |name: &x509_parser::x509::AttributeTypeAndValue<'_>| name.as_str().unwrap_or_default().to_owned();
    // One that never ends (RFC 5280, 4.1.2.5: the last second of the year 9999) ends after all that can be told.
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
