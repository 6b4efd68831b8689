//! The host name of a pod.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kubelet_core::PodExt;

use super::{ConfigError, NodeSettings, Result};

/// The longest host name (`hostnameMaxLen`): the kernel's limit without the closing NUL.
const HOSTNAME_MAX_LEN: usize = 63;
/// The longest fully qualified name that can be set as host name (`fqdnMaxLen`).
const FQDN_MAX_LEN: usize = 64;

/// The pod's short host name, and its domain if it has one (`GeneratePodHostNameAndDomain`).
pub(super) fn hostname_and_domain(node: &NodeSettings, pod: &Pod) -> Result<(String, Option<String>)> {
    let key = pod.key();
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    if let Some(hostname) = &spec.hostname_override {
        if !is_dns1123_subdomain(hostname) {
            return Err(ConfigError::Spec(format!(
                "pod HostnameOverride {hostname:?} is not a valid DNS subdomain"
            )));
        }
        return Ok((truncated(&key.name, hostname)?, None));
    }

    let hostname = match non_empty(&spec.hostname) {
        Some(hostname) if !is_dns1123_label(hostname) => {
            return Err(ConfigError::Spec(format!(
                "pod Hostname {hostname:?} is not a valid DNS label"
            )));
        }
        Some(hostname) => hostname,
        None => &key.name,
    };
    let hostname = truncated(&key.name, hostname)?;
    let domain = match non_empty(&spec.subdomain) {
        Some(subdomain) if !is_dns1123_label(subdomain) => {
            return Err(ConfigError::Spec(format!(
                "pod Subdomain {subdomain:?} is not a valid DNS label"
            )));
        }
        Some(subdomain) => Some(format!(
            "{subdomain}.{}.svc.{}",
            key.namespace, node.cluster_domain
        )),
        None => None,
    };
    Ok((hostname, domain))
}

/// The host name for the kernel of the sandbox (`GetNodenameForKernel`): the fully qualified one if `setHostnameAsFQDN`
/// is set.
pub(super) fn kernel_hostname(node: &NodeSettings, pod: &Pod) -> Result<String> {
    let (hostname, domain) = hostname_and_domain(node, pod)?;
    let as_fqdn = pod.spec.as_ref().and_then(|spec| spec.set_hostname_as_fqdn);
    let Some(domain) = domain.filter(|_| as_fqdn == Some(true)) else {
        return Ok(hostname);
    };
    let fqdn = format!("{hostname}.{domain}");
    if fqdn.len() > FQDN_MAX_LEN {
        return Err(ConfigError::Spec(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long \
             ({FQDN_MAX_LEN} characters is the max, {} characters requested)",
            fqdn.len()
        )));
    }
    Ok(fqdn)
}

fn non_empty(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// `truncatePodHostnameIfNeeded`
fn truncated(pod: &str, hostname: &str) -> Result<String> {
    if hostname.len() <= HOSTNAME_MAX_LEN {
        return Ok(hostname.to_owned());
    }
    let end = (0..=HOSTNAME_MAX_LEN)
        .rev()
        .find(|end| hostname.is_char_boundary(*end))
        .unwrap_or(0);
    let short = hostname[..end].trim_end_matches(['-', '.']);
    if short.is_empty() {
        return Err(ConfigError::Spec(format!(
            "hostname for pod {pod:?} was invalid: {hostname:?}"
        )));
    }
    tracing::error!(
        pod,
        hostname = short,
        "the pod's host name is too long, truncating it"
    );
    Ok(short.to_owned())
}

fn is_dns1123_label(text: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 63
        && text.bytes().all(|byte| edge(byte) || byte == b'-')
        && text.bytes().next().is_some_and(edge)
        && text.bytes().next_back().is_some_and(edge)
}

fn is_dns1123_subdomain(text: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        part.bytes().all(|byte| edge(byte) || byte == b'-')
            && part.bytes().next().is_some_and(edge)
            && part.bytes().next_back().is_some_and(edge)
    };
    text.len() <= 253 && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, change: impl FnOnce(&mut PodSpec)) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.into());
        pod.metadata.namespace = Some("ns".into());
        let mut spec = PodSpec::default();
        change(&mut spec);
        pod.spec = Some(spec);
        pod
    }

    #[test]
    fn names_come_from_the_spec() {
        let node = NodeSettings {
            cluster_domain: "cluster.local".into(),
            ..Default::default()
        };
        let long = "a".repeat(62) + "-b";
        let cases = [
            ("the pod's", pod("web", |_| {}), Ok("web".to_owned())),
            ("cut", pod(&long, |_| {}), Ok("a".repeat(62))),
            (
                "hostname",
                pod("web", |spec| spec.hostname = Some("h".into())),
                Ok("h".to_owned()),
            ),
            (
                "short for the kernel",
                pod("web", |spec| spec.subdomain = Some("s".into())),
                Ok("web".to_owned()),
            ),
            (
                "fully qualified",
                pod("web", |spec| {
                    spec.subdomain = Some("s".into());
                    spec.set_hostname_as_fqdn = Some(true);
                }),
                Ok("web.s.ns.svc.cluster.local".to_owned()),
            ),
            (
                "override",
                pod("web", |spec| {
                    spec.hostname_override = Some("a.b.c".into());
                    spec.subdomain = Some("s".into());
                    spec.set_hostname_as_fqdn = Some(true);
                }),
                Ok("a.b.c".to_owned()),
            ),
            (
                "not a label",
                pod("web", |spec| spec.hostname = Some("A_b".into())),
                Err("pod Hostname \"A_b\" is not a valid DNS label".to_owned()),
            ),
            (
                "too long",
                pod(&"a".repeat(60), |spec| {
                    spec.subdomain = Some("s".into());
                    spec.set_hostname_as_fqdn = Some(true);
                }),
                Err(format!(
                    "failed to construct FQDN from pod hostname and cluster domain, FQDN {}.s.ns.svc.cluster.local \
                     is too long (64 characters is the max, 83 characters requested)",
                    "a".repeat(60)
                )),
            ),
        ];
        for (name, pod, hostname) in cases {
            let found = kernel_hostname(&node, &pod).map_err(|error| error.to_string());
            assert_eq!(found, hostname, "{name}");
        }
    }
}
