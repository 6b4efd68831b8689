//! The self-signed serving certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::{Clock, Disk};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyUsagePurpose, SanType,
};

use super::key::Key;
use super::store::{doing, exists, read_pair, write_synced};
use super::{Certificate, blocking};
use crate::node_ip::parse_sloppy;
use crate::{Error, Result};

/// The lifetime (`GenerateSelfSignedCertKey`).
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// The validity starts this long ago, for clients whose clocks are slow.
const BACKDATE: Duration = Duration::from_secs(3600);

/// The serving certificate of a node without `serverTLSBootstrap`, `tlsCertFile` and `tlsPrivateKeyFile`:
/// `kubelet.crt` and `kubelet.key` in the folder for certificates (`InitializeTLS`). If neither file exists,
/// both are made: a new CA signs a certificate for `host_name`, valid for a year.
///
/// As in the kubelet, it is not replaced when it expires.
///
/// # Errors
///
/// [`Error::Certificate`] if only one of the files exists, or if they are invalid; [`Error::File`].
///
/// # Cancel safety
///
/// If the future is dropped, files that are being written are still completed.
pub async fn self_signed_serving_certificate(
    cert_dir: impl Into<PathBuf>,
    host_name: &str,
    clock: Clock,
    disk: Disk,
) -> Result<Certificate> {
    let (dir, host, now) = (cert_dir.into(), host_name.to_owned(), clock.now());
    blocking(disk, move || {
        let (certificate, key) = (dir.join("kubelet.crt"), dir.join("kubelet.key"));
        match (exists(&certificate)?, exists(&key)?) {
            (true, true) => {}
            (false, false) => make(&dir, &certificate, &key, &host, now)?,
            (has_certificate, _) => {
                let (there, missing) = if has_certificate {
                    (certificate, key)
                } else {
                    (key, certificate)
                };
                let problem = format!("{} is missing beside it", missing.display());
                return Err(Error::Certificate { file: there, problem });
            }
        }
        read_pair(&certificate, &key)
    })
    .await
}

fn make(dir: &Path, certificate: &Path, key: &Path, host: &str, now: Timestamp) -> Result<()> {
    let (chain, key_pem) = self_signed(host, now).map_err(|problem| Error::Certificate {
        file: certificate.to_owned(),
        problem: format!("it cannot be made: {problem}"),
    })?;
    fs::create_dir_all(dir).map_err(doing("make", dir))?;
    // Write the key first: a certificate without its key would not be repaired.
    write_synced(key, &key_pem).map_err(doing("write", key))?;
    fs::write(certificate, chain).map_err(doing("write", certificate))
}

/// A certificate for a host name or address with its CA, and the key (`GenerateSelfSignedCertKey`).
fn self_signed(host: &str, now: Timestamp) -> std::result::Result<(String, String), String> {
    let from = u64::try_from(now.as_second())
        .unwrap_or_default()
        .saturating_sub(BACKDATE.as_secs());
    let from = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(from);
    let params = |name: String| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = from;
        params.not_after = from + LIFETIME;
        params
    };
    let (key, authority_key) = (Key::generate()?, Key::generate()?);

    let mut authority = params(format!("{host}-ca@{}", now.as_second()));
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    let authority_pem = authority
        .self_signed(&authority_key)
        .map_err(|error| error.to_string())?
        .pem();
    let issuer = Issuer::new(authority, authority_key);

    let mut leaf = params(format!("{host}@{}", now.as_second()));
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.subject_alt_names = vec![match parse_sloppy(host) {
        Some(ip) => SanType::IpAddress(ip),
        None => SanType::DnsName(
            host.try_into()
                .map_err(|_| format!("{host:?} is not a host name"))?,
        ),
    }];
    let leaf = leaf.signed_by(&key, &issuer).map_err(|error| error.to_string())?;
    Ok((leaf.pem() + &authority_pem, key.to_pem()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let pki = dir.path().join("pki");
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let clock = Clock::starting_at(now);
        for (host, names, ips) in [("node-1", "node-1", ""), ("10.0.0.7", "", "10.0.0.7")] {
            let pki = pki.join(host);
            let made = self_signed_serving_certificate(&pki, host, clock, Disk::default())
                .await
                .unwrap();
            assert_eq!(made.dns_names().concat(), names);
            assert_eq!(
                made.ip_addresses()
                    .iter()
                    .map(ToString::to_string)
                    .collect::<String>(),
                ips
            );
            assert_eq!(made.common_name(), format!("{host}@1767225600"));
            assert_eq!(now.duration_since(made.not_before()).as_secs(), 3600);
            assert_eq!(made.lifetime().as_hours(), 365 * 24);
            assert_eq!(made.certified_key().cert.len(), 2, "with its CA");
            let mode = fs::metadata(pki.join("kubelet.key"))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
            let again = self_signed_serving_certificate(&pki, host, clock, Disk::default())
                .await
                .unwrap();
            assert_eq!(again.chain_pem(), made.chain_pem());

            fs::remove_file(pki.join("kubelet.key")).unwrap();
            let error = self_signed_serving_certificate(&pki, host, clock, Disk::default())
                .await
                .unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains("kubelet.crt") && error.contains("kubelet.key is missing"),
                "{error}"
            );
        }
    }
}
