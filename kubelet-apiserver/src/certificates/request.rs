//! [`Request`]: the content of a certificate signing request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateSigningRequestParams, DnType, DnValue, SanType};

/// A PKCS#10 request with a valid signature.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
    /// The number of DNS names, IP addresses, e-mail addresses and URIs.
    pub(crate) dns_names: usize,
    pub(crate) ips: usize,
    pub(crate) emails: usize,
    pub(crate) uris: usize,
    pub(super) params: CertificateSigningRequestParams,
}

/// Reads `spec.request`: base64 of PEM.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn parse(request: &str) -> Result<Request, String> {
    let not_pem = || "PEM block type must be CERTIFICATE REQUEST".to_owned();
    let bytes = STANDARD.decode(request).map_err(|_| not_pem())?;
    let pem = String::from_utf8(bytes).map_err(|_| not_pem())?;
    if !pem.contains("-----BEGIN CERTIFICATE REQUEST-----") {
        return Err(not_pem());
    }
    let params = CertificateSigningRequestParams::from_pem(&pem).map_err(|error| error.to_string())?;
    let names = &params.params.distinguished_name;
    let values = |wanted: &DnType| -> Vec<String> {
        names
            .iter()
            .filter(|(kind, _)| *kind == wanted)
            .map(|(_, value)| text(value))
            .collect()
    };
    let count = |wanted: fn(&SanType) -> bool| {
        params
            .params
            .subject_alt_names
            .iter()
            .filter(|name| wanted(name))
            .count()
    };
    Ok(Request {
        common_name: values(&DnType::CommonName).concat(),
        organizations: values(&DnType::OrganizationName),
        dns_names: count(|name| matches!(name, SanType::DnsName(_))),
        ips: count(|name| matches!(name, SanType::IpAddress(_))),
        emails: count(|name| matches!(name, SanType::Rfc822Name(_))),
        uris: count(|name| matches!(name, SanType::URI(_))),
        params,
    })
}

fn text(value: &DnValue) -> String {
    match value {
        DnValue::Utf8String(text) => text.clone(),
        DnValue::PrintableString(text) => text.as_str().to_owned(),
        DnValue::Ia5String(text) => text.as_str().to_owned(),
        DnValue::TeletexString(text) => text.as_str().to_owned(),
        other => format!("{other:?}"),
    }
}
