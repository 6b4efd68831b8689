//! The addresses of a node.

use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1::Node;

use crate::{DefaultRoute, Error, HostNetwork, Interface, Result};

/// Parses `--node-ip`: no address, one, or one of each family (`ParseNodeIPArgument`). `cloud_provider` is the
/// value of `--cloud-provider`: two addresses are allowed without a provider and with `external`.
///
/// The second part of the result holds the values that are not addresses. The kubelet logs a warning about them
/// and continues.
///
/// ```
/// let (addresses, ignored) = kubelet_node::parse_node_ip("10.0.0.7, fd00::7, eth0", "")?;
/// assert_eq!(addresses.len(), 2);
/// assert_eq!(ignored, ["eth0"]);
/// assert!(kubelet_node::parse_node_ip("10.0.0.7,10.0.0.8", "").is_err());
/// # Ok::<(), kubelet_node::Error>(())
/// ```
///
/// # Errors
///
/// There are two addresses of one family or more than two addresses, or one of two is `0.0.0.0` or `::`.
pub fn parse_node_ip(argument: &str, cloud_provider: &str) -> Result<(Vec<IpAddr>, Vec<String>)> {
    let (mut addresses, mut ignored) = (Vec::new(), Vec::new());
    if !argument.is_empty() {
        for part in argument.split(',').map(str::trim) {
            match parse_sloppy(part) {
                Some(address) => addresses.push(address),
                None => ignored.push(part.to_owned()),
            }
        }
    }
    let refuse = |why: &str| Error::Invalid {
        what: format!("--node-ip {argument:?}"),
        why: why.to_owned(),
    };
    match addresses.as_slice() {
        [] | [_] => Ok((addresses, ignored)),
        [first, second] if first.is_ipv6() != second.is_ipv6() => {
            if !matches!(cloud_provider, "" | "external") {
                return Err(refuse("dual-stack not supported in this configuration"));
            }
            if first.is_unspecified() || second.is_unspecified() {
                return Err(refuse("dual-stack node IP cannot include '0.0.0.0' or '::'"));
            }
            Ok((addresses, ignored))
        }
        _ => Err(refuse(
            "must contain either a single IP or a dual-stack pair of IPs",
        )),
    }
}

/// The node's addresses that pods on the host network get: the first one, internal before external, and the
/// first one of the other family (`GetNodeHostIPs`). Empty if the node has no addresses yet.
pub fn node_host_ips(node: &Node) -> Vec<IpAddr> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let of = |kind: &'static str| {
        let addresses = addresses.into_iter().flatten();
        addresses
            .filter_map(move |address| (address.type_ == kind).then(|| parse_sloppy(&address.address))?)
    };
    let mut ips = of("InternalIP").chain(of("ExternalIP"));
    let Some(first) = ips.next() else {
        return Vec::new();
    };
    let second = ips.find(|ip| ip.is_ipv6() != first.is_ipv6());
    std::iter::once(first).chain(second).collect()
}

/// Parses an address. Leading zeros are allowed (`ParseIPSloppy`).
pub(crate) fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let parts: Vec<&str> = text.split('.').collect();
    let [a, b, c, d] = parts.as_slice() else {
        return None;
    };
    let part = |part: &str| {
        let digits = !part.is_empty() && part.len() <= 16 && part.bytes().all(|digit| digit.is_ascii_digit());
        digits.then(|| part.parse::<u64>().ok().and_then(|part| u8::try_from(part).ok()))?
    };
    Some(Ipv4Addr::new(part(a)?, part(b)?, part(c)?, part(d)?).into())
}

/// Checks that the address belongs to the host and is reachable from other hosts; returns the problem otherwise
/// (`validateNodeIP`).
pub(crate) fn check(address: IpAddr, interfaces: &[Interface]) -> std::result::Result<(), String> {
    let refused = if address.is_loopback() {
        "nodeIP can't be loopback address"
    } else if address.is_multicast() {
        "nodeIP can't be a multicast address"
    } else if is_link_local(address) {
        "nodeIP can't be a link-local unicast address"
    } else if address.is_unspecified() {
        "nodeIP can't be an all zeros address"
    } else if !interfaces
        .iter()
        .any(|interface| interface.addresses.contains(&address))
    {
        return Err(format!(
            "node IP: \"{address}\" not found in the host's network interfaces"
        ));
    } else {
        return Ok(());
    };
    Err(refused.to_owned())
}

/// The address of the interface with the default route, of the preferred family if possible
/// (`ResolveBindAddress` of nil, `0.0.0.0` or `::`).
pub(crate) fn of_default_route(
    network: &dyn HostNetwork,
    prefer_ipv6: bool,
) -> Result<std::result::Result<IpAddr, String>> {
    let interfaces = network.interfaces()?;
    let families = [prefer_ipv6, !prefer_ipv6];
    Ok(match network.default_routes()? {
        None => of_any_interface(&interfaces, families),
        Some(routes) if routes.is_empty() => Err("no default routes found".to_owned()),
        Some(routes) => of_routes(&interfaces, &routes, families),
    })
}

fn of_routes(
    interfaces: &[Interface],
    routes: &[DefaultRoute],
    families: [bool; 2],
) -> std::result::Result<IpAddr, String> {
    for ipv6 in families {
        for route in routes.iter().filter(|route| route.ipv6 == ipv6) {
            let Some(interface) = interfaces
                .iter()
                .find(|interface| interface.name == route.interface)
            else {
                return Err(format!(
                    "interface {} of the default route does not exist",
                    route.interface
                ));
            };
            // The links may have link-local addresses only. Then the node's address is on the loopback
            // interface.
            let loopbacks = interfaces.iter().filter(|interface| interface.loopback);
            let mut candidates = std::iter::once(interface).chain(loopbacks);
            if let Some(address) = candidates.find_map(|interface| global(interface, ipv6)) {
                return Ok(address);
            }
        }
    }
    Err("unable to select an IP from default routes.".to_owned())
}

fn of_any_interface(interfaces: &[Interface], families: [bool; 2]) -> std::result::Result<IpAddr, String> {
    let outward = || {
        interfaces
            .iter()
            .filter(|interface| !interface.loopback && !interface.point_to_point)
    };
    families
        .into_iter()
        .find_map(|ipv6| outward().find_map(|interface| global(interface, ipv6)))
        .ok_or_else(|| "no acceptable interface with global unicast address found on host".to_owned())
}

fn global(interface: &Interface, ipv6: bool) -> Option<IpAddr> {
    let mut addresses = interface.addresses.iter().filter(|_| interface.up);
    addresses
        .find(|address| address.is_ipv6() == ipv6 && is_global_unicast(**address))
        .copied()
}

/// Go's `IsGlobalUnicast`; private addresses count as global.
fn is_global_unicast(address: IpAddr) -> bool {
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_link_local(address))
        && address != IpAddr::V4(Ipv4Addr::BROADCAST)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
