//! The IPs in a pod's status: at most one per family, the node's primary family first.

use std::net::{IpAddr, Ipv4Addr};

/// Sorts and formats the runtime's IPs like the API (`sortPodIPs`); invalid ones are dropped.
pub(crate) fn sort_pod_ips(ips: &[String], ipv6_first: bool) -> Vec<IpAddr> {
    let parsed: Vec<IpAddr> = ips.iter().filter_map(|ip| parse(ip)).collect();
    [ipv6_first, !ipv6_first]
        .into_iter()
        .filter_map(|ipv6| parsed.iter().copied().find(|ip| ip.is_ipv6() == ipv6))
        .collect()
}

/// The IPs of a pod on the host's network (`generateAPIPodStatus`): once set they stay, except that a second family is
/// added when the node gets one.
pub(crate) fn host_network_ips(pod_ips: Vec<IpAddr>, host_ips: &[IpAddr]) -> Vec<IpAddr> {
    let mut ips = pod_ips;
    let Some(primary) = host_ips.first() else {
        return ips;
    };
    if ips.is_empty() {
        ips.push(*primary);
    }
    if let ([ip], [_, secondary]) = (ips.as_slice(), host_ips)
        && ip.is_ipv4() != secondary.is_ipv4()
    {
        ips.push(*secondary);
    }
    ips
}

/// Leading zeros are accepted, as in old Go (`ParseIPSloppy`); an IPv4-mapped IPv6 address is an IPv4 address.
fn parse(text: &str) -> Option<IpAddr> {
    let ip = text.parse().ok().or_else(|| {
        let octets: Vec<u8> = text
            .split('.')
            .map(|octet| octet.parse().ok())
            .collect::<Option<_>>()?;
        Some(IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?)))
    })?;
    Some(IpAddr::to_canonical(&ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(ips: &[&str], ipv6_first: bool) -> Vec<String> {
        let ips: Vec<String> = ips.iter().map(|ip| ip.to_string()).collect();
        sort_pod_ips(&ips, ipv6_first)
            .iter()
            .map(IpAddr::to_string)
            .collect()
    }

    #[test]
    fn one_of_each_family_the_nodes_first() {
        assert_eq!(
            sorted(&["fd00::1", "10.0.0.1", "10.0.0.2"], false),
            ["10.0.0.1", "fd00::1"]
        );
        assert_eq!(sorted(&["10.0.0.1", "FD00:0::1"], true), ["fd00::1", "10.0.0.1"]);
        assert_eq!(sorted(&["010.0.0.01", "nonsense"], false), ["10.0.0.1"]);
        assert_eq!(sorted(&["::ffff:10.0.0.1"], true), ["10.0.0.1"]);
        assert_eq!(sorted(&[], false), [""; 0]);
    }

    #[test]
    fn a_host_network_pod_takes_the_hosts_ips_and_keeps_them() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let host = [ip("10.0.0.1"), ip("fd00::1")];
        assert_eq!(host_network_ips(vec![], &host), host);
        assert_eq!(host_network_ips(vec![], &host[..1]), host[..1]);
        assert_eq!(
            host_network_ips(vec![ip("10.0.0.9")], &host),
            [ip("10.0.0.9"), ip("fd00::1")]
        );
        assert_eq!(host_network_ips(vec![ip("fd00::9")], &host), [ip("fd00::9")]);
        assert!(host_network_ips(vec![], &[]).is_empty());
    }
}
