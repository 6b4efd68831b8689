//! [`Signer`]: a certificate authority.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber, SigningKey as _,
};

use super::request::Request;

/// The default maximum duration of certificates (`--cluster-signing-duration`).
pub(super) const DURATION: SignedDuration = SignedDuration::from_hours(365 * 24);
/// The duration of the authority's own certificate.
const AUTHORITY_DURATION: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// How far certificates are backdated, for clients with slow clocks (`backdate`).
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Those that last less long end that much later (`short`).
const SHORT: SignedDuration = SignedDuration::from_hours(8);
/// The shortest duration that a request can get.
const MIN_ASKED: SignedDuration = SignedDuration::from_mins(10);
/// The first line of a certificate.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// The prefix of a PKCS#8 Ed25519 key (RFC 8410); 32 bytes of key follow.
const ED25519_PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// A certificate authority that serves the kubelet's signers.
pub(crate) struct Signer {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    duration: SignedDuration,
    pub(super) approves: bool,
    /// Whether nobody else can know the key.
    is_secret: bool,
}

kubelet_core::impl_debug!(Signer);

impl Signer {
    /// An authority with a key of this generator, for tests: the key follows from the state of the generator.
    ///
    /// # Errors
    ///
    /// [`rcgen::Error`] if the key can't be made.
    pub(crate) fn new(
        rng: &mut fastrand::Rng,
        now: Timestamp,
        duration: SignedDuration,
    ) -> Result<Self, rcgen::Error> {
        let mut key = ED25519_PKCS8.to_vec();
        key.extend((0..32).map(|_| rng.u8(..)));
        let serial = SerialNumber::from(rng.u64(..) >> 1);
        Self::self_signed(KeyPair::try_from(key)?, serial, now, duration, false)
    }

    /// An authority with a secret key.
    ///
    /// # Errors
    ///
    /// [`rcgen::Error`] if the system has no random numbers.
    pub(super) fn secret(now: Timestamp, duration: SignedDuration) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let serial = SerialNumber::from(fastrand::u64(..) >> 1);
        Self::self_signed(key, serial, now, duration, true)
    }

    /// The authority that [`to_pem`](Self::to_pem) wrote: its key and its certificate.
    ///
    /// # Errors
    ///
    /// [`rcgen::Error`] if the text is something else.
    pub(super) fn from_pem(text: &str, duration: SignedDuration) -> Result<Self, rcgen::Error> {
        let (key, certificate) = text.split_at(text.find(CERTIFICATE).unwrap_or_default());
        let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key)?)?;
        let certificate = certificate.to_owned();
        Ok(Signer {
            issuer,
            certificate,
            duration,
            approves: true,
            is_secret: true,
        })
    }

    /// The key and the certificate.
    pub(super) fn to_pem(&self) -> String {
        format!("{}{}", self.issuer.key().serialize_pem(), self.certificate)
    }

    /// Signs a text, in base64. Who has a signature cannot make one of another text. `None` if the key is not secret.
    pub(crate) fn secret_signature(&self, text: &str) -> Option<String> {
        let signature = self.issuer.key().sign(text.as_bytes());
        signature
            .ok()
            .filter(|_| self.is_secret)
            .map(|signature| URL_SAFE_NO_PAD.encode(signature))
    }

    fn self_signed(
        key: KeyPair,
        serial: SerialNumber,
        now: Timestamp,
        duration: SignedDuration,
        is_secret: bool,
    ) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        params.serial_number = Some(serial);
        set_validity(&mut params, now - BACKDATE, now + AUTHORITY_DURATION);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Signer {
            issuer: Issuer::new(params, key),
            certificate,
            duration,
            approves: true,
            is_secret,
        })
    }

    /// Whether to approve what the controller manager approves automatically. The default is yes.
    pub(crate) fn approving(mut self, approves: bool) -> Self {
        self.approves = approves;
        self
    }

    /// The authority's certificate, as PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Signs a request and returns the certificate: PEM in base64. Its serial number follows from `uid`.
    pub(super) fn issue(
        &self,
        request: &Request,
        usages: &[&str],
        expiration_seconds: Option<i64>,
        uid: &str,
        now: Timestamp,
    ) -> Result<String, String> {
        let mut params = request.params.clone();
        let certificate = &mut params.params;
        certificate.is_ca = IsCa::ExplicitNoCa;
        certificate.use_authority_key_identifier_extension = true;
        certificate.key_usages = usages.iter().filter_map(|usage| key_usage(usage)).collect();
        certificate.extended_key_usages = usages.iter().filter_map(|usage| extended_usage(usage)).collect();
        let serial: Vec<u8> = uid.bytes().filter(u8::is_ascii_hexdigit).take(16).collect();
        certificate.serial_number = Some(SerialNumber::from(serial));
        let asked = expiration_seconds.map(SignedDuration::from_secs);
        let lasts = asked.map_or(self.duration, |asked| {
            if asked > self.duration {
                self.duration
            } else {
                asked.max(MIN_ASKED)
            }
        });
        let until = if lasts < SHORT {
            now + lasts
        } else {
            now + lasts - BACKDATE
        };
        set_validity(certificate, now - BACKDATE, until);
        let signed = params
            .signed_by(&self.issuer)
            .map_err(|error| error.to_string())?;
        Ok(STANDARD.encode(signed.pem()))
    }

    /// A serving certificate for this host and its key, both as DER.
    #[cfg(feature = "tls")]
    pub(crate) fn serving(&self, now: Timestamp) -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
        let key = KeyPair::generate()?;
        let names = ["localhost", "kubernetes", "127.0.0.1", "::1"].map(str::to_owned);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        set_validity(&mut params, now - BACKDATE, now + DURATION);
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.der().to_vec(), key.serialize_der()))
    }

    /// A client certificate of a user in a group and its key, both as DER.
    #[cfg(feature = "tls")]
    pub(crate) fn client(
        &self,
        user: &str,
        group: &str,
        now: Timestamp,
    ) -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        set_validity(&mut params, now - BACKDATE, now + DURATION);
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.der().to_vec(), key.serialize_der()))
    }
}

fn set_validity(params: &mut CertificateParams, from: Timestamp, until: Timestamp) {
    let date = |at: Timestamp| {
        let at = at.to_zoned(k8s_openapi::jiff::tz::TimeZone::UTC);
        let (year, month, day) = (at.year(), at.month(), at.day());
        let midnight = rcgen::date_time_ymd(
            year.into(),
            u8::try_from(month).unwrap_or(1),
            u8::try_from(day).unwrap_or(1),
        );
        let seconds = i64::from(at.hour()) * 3600 + i64::from(at.minute()) * 60 + i64::from(at.second());
        midnight + std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    };
    params.not_before = date(from);
    params.not_after = date(until);
}

fn key_usage(usage: &str) -> Option<KeyUsagePurpose> {
    Some(match usage {
        "digital signature" => KeyUsagePurpose::DigitalSignature,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        _ => return None,
    })
}

fn extended_usage(usage: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match usage {
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        _ => return None,
    })
}
