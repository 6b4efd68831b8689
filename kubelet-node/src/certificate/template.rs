//! [`CertificateTemplate`]: the content of a certificate to request.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::NodeAddress;
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, SanType};

use super::Certificate;
use super::key::Key;
use crate::node_ip::parse_sloppy;

/// The content of a certificate to request (Go's `x509.CertificateRequest`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateTemplate {
    /// `system:node:<name>`.
    pub common_name: String,
    /// `system:nodes`.
    pub organizations: Vec<String>,
    /// The DNS names of the server.
    pub dns_names: Vec<String>,
    /// The IP addresses of the server.
    pub ip_addresses: Vec<IpAddr>,
}

impl CertificateTemplate {
    /// The template of a node's client certificate.
    pub fn node_client(node_name: &str) -> Self {
        CertificateTemplate {
            common_name: format!("system:node:{node_name}"),
            organizations: vec!["system:nodes".into()],
            ..Self::default()
        }
    }

    /// The template of a node's serving certificate for these addresses. `None` if it cannot be requested yet:
    /// it needs an IP address or, with `dns_only` (the feature gate `AllowDNSOnlyNodeCSR`), a name.
    ///
    /// Addresses of type `Hostname` may be names or IPs. Other addresses that do not fit their type are ignored
    /// (`addressesToHostnamesAndIPs`).
    pub fn node_serving(node_name: &str, addresses: &[NodeAddress], dns_only: bool) -> Option<Self> {
        let (mut names, mut ips) = (BTreeSet::new(), BTreeSet::new());
        for address in addresses.iter().filter(|address| !address.address.is_empty()) {
            let ip = parse_sloppy(&address.address);
            match (address.type_.as_str(), ip) {
                ("Hostname" | "ExternalIP" | "InternalIP", Some(ip)) => {
                    // Sorted by their text, as in the kubelet.
                    ips.insert((ip.to_string(), ip));
                }
                ("Hostname", None) | ("ExternalDNS" | "InternalDNS", _) => {
                    names.insert(address.address.clone());
                }
                _ => {}
            }
        }
        let names_are_enough = dns_only && !names.is_empty();
        if ips.is_empty() && !names_are_enough {
            return None;
        }
        Some(CertificateTemplate {
            dns_names: names.into_iter().collect(),
            ip_addresses: ips.into_iter().map(|(_, ip)| ip).collect(),
            ..Self::node_client(node_name)
        })
    }

    /// What a certificate lacks of this template. Additional content is accepted (`certSatisfiesTemplate`).
    pub fn missing_in(&self, certificate: &Certificate) -> Option<String> {
        if self.common_name != certificate.common_name() {
            let is = certificate.common_name();
            return Some(format!("its common name is {is:?}, not {:?}", self.common_name));
        }
        lacking("organizations", &self.organizations, certificate.organizations())
            .or_else(|| lacking("DNS names", &self.dns_names, certificate.dns_names()))
            .or_else(|| lacking("IP addresses", &self.ip_addresses, certificate.ip_addresses()))
    }

    /// The certificate signing request for a key, as PEM (`MakeCSRFromTemplate`).
    ///
    /// # Errors
    ///
    /// The text names the part that cannot be requested.
    pub(crate) fn request(&self, key: &Key) -> Result<String, String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for organization in &self.organizations {
            params
                .distinguished_name
                .push(DnType::OrganizationName, name(organization));
        }
        params
            .distinguished_name
            .push(DnType::CommonName, name(&self.common_name));
        for dns_name in &self.dns_names {
            let name = dns_name
                .as_str()
                .try_into()
                .map_err(|_| format!("{dns_name:?} is not a DNS name"))?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        params
            .subject_alt_names
            .extend(self.ip_addresses.iter().copied().map(SanType::IpAddress));
        let request = params.serialize_request(key).map_err(|error| error.to_string())?;
        Ok(super::pem_block("CERTIFICATE REQUEST", request.der()))
    }
}

/// A printable string if possible, as Go encodes names.
fn name(text: &str) -> DnValue {
    text.try_into()
        .map_or_else(|_| DnValue::Utf8String(text.to_owned()), DnValue::PrintableString)
}

fn lacking<T: PartialEq + std::fmt::Debug>(what: &str, wanted: &[T], has: &[T]) -> Option<String> {
    let lacking: Vec<&T> = wanted.iter().filter(|wanted| !has.contains(wanted)).collect();
    (!lacking.is_empty()).then(|| format!("it lacks the {what} {lacking:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(type_: &str, address: &str) -> NodeAddress {
        NodeAddress {
            type_: type_.into(),
            address: address.into(),
        }
    }

    #[test]
    fn addresses_become_names() {
        type Case<'a> = (
            &'a [(&'a str, &'a str)],
            bool,
            Option<(&'a [&'a str], &'a [&'a str])>,
        );
        let cases: [Case<'_>; 9] = [
            (&[], false, None),
            (&[("Hostname", "n")], false, None),
            (&[("Hostname", "n")], true, Some((&["n"], &[]))),
            (&[("Hostname", "10.0.0.1")], false, Some((&[], &["10.0.0.1"]))),
            (
                &[("InternalIP", "10.0.0.2"), ("Hostname", "n")],
                false,
                Some((&["n"], &["10.0.0.2"])),
            ),
            // Leading zeros are accepted, and an IPv4-mapped IPv6 address counts as IPv4.
            (
                &[("InternalIP", "010.0.0.1"), ("Hostname", "::ffff:10.0.0.2")],
                false,
                Some((&[], &["10.0.0.1", "10.0.0.2"])),
            ),
            (&[("InternalIP", "somewhere"), ("ExternalIP", "")], true, None),
            (
                &[
                    ("ExternalIP", "2001:db8::1"),
                    ("InternalIP", "9.0.0.1"),
                    ("InternalIP", "10.0.0.1"),
                    ("InternalIP", "10.0.0.1"),
                ],
                false,
                Some((&[], &["10.0.0.1", "2001:db8::1", "9.0.0.1"])),
            ),
            (
                &[
                    ("ExternalDNS", "z"),
                    ("InternalDNS", "10.0.0.3"),
                    ("InternalIP", "10.0.0.1"),
                ],
                false,
                Some((&["10.0.0.3", "z"], &["10.0.0.1"])),
            ),
        ];
        for (addresses, dns_only, wanted) in cases {
            let list: Vec<_> = addresses.iter().map(|(kind, text)| address(kind, text)).collect();
            let template = CertificateTemplate::node_serving("n", &list, dns_only);
            let wanted = wanted.map(|(names, ips)| CertificateTemplate {
                common_name: "system:node:n".into(),
                organizations: vec!["system:nodes".into()],
                dns_names: names.iter().map(|name| (*name).to_owned()).collect(),
                ip_addresses: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            });
            assert_eq!(template, wanted, "{addresses:?}");
        }
    }
}
