//! The network of the host.

use std::io;
use std::net::IpAddr;

use async_trait::async_trait;

use crate::{Error, Result};

/// Lists the host's interfaces and default routes and resolves names. The kubelet uses `net.Interfaces`,
/// `/proc/net/route` and `net.LookupIP` for this. [`SystemNetwork`] reads the system; a simulated node brings
/// an implementation of its own.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait HostNetwork: Send + Sync {
    /// The interfaces, in the system's order.
    fn interfaces(&self) -> Result<Vec<Interface>>;

    /// The default routes, IPv4 first. `None` if the system has no such list; then any interface may be used.
    fn default_routes(&self) -> Result<Option<Vec<DefaultRoute>>>;

    /// The addresses of a name; empty if the name is unknown.
    async fn lookup(&self, name: &str) -> Vec<IpAddr>;
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The name, for example `eth0`.
    pub name: String,
    /// Whether it is up.
    pub up: bool,
    /// Whether it is a loopback interface.
    pub loopback: bool,
    /// Whether it is a point-to-point link.
    pub point_to_point: bool,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// A default route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    /// The interface of the route.
    pub interface: String,
    /// Whether it is a route of IPv6; otherwise of IPv4.
    pub ipv6: bool,
}

/// A host with the single interface `eth0`, without default routes or names. Use it for a simulated node, or
/// where the addresses come from another source.
#[derive(Clone, Debug)]
pub struct FixedNetwork {
    addresses: Vec<IpAddr>,
}

impl FixedNetwork {
    /// A host with these addresses.
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            addresses: addresses.into_iter().collect(),
        }
    }
}

#[async_trait]
impl HostNetwork for FixedNetwork {
    fn interfaces(&self) -> Result<Vec<Interface>> {
        Ok(vec![Interface {
            name: "eth0".to_owned(),
            up: true,
            addresses: self.addresses.clone(),
            ..Interface::default()
        }])
    }

    fn default_routes(&self) -> Result<Option<Vec<DefaultRoute>>> {
        Ok(None)
    }

    async fn lookup(&self, _: &str) -> Vec<IpAddr> {
        Vec::new()
    }
}

/// The network of the host that the program runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemNetwork;

const IPV4_ROUTES: &str = "/proc/net/route";
const IPV6_ROUTES: &str = "/proc/net/ipv6_route";

#[async_trait]
impl HostNetwork for SystemNetwork {
    fn interfaces(&self) -> Result<Vec<Interface>> {
        use nix::net::if_::InterfaceFlags;

        let all = nix::ifaddrs::getifaddrs().map_err(|errno| Error::Network {
            what: "interfaces".to_owned(),
            source: errno.into(),
        })?;
        let mut interfaces: Vec<Interface> = Vec::new();
        for found in all {
            let known = interfaces
                .iter()
                .position(|known| known.name == found.interface_name);
            let index = known.unwrap_or_else(|| {
                interfaces.push(Interface {
                    name: found.interface_name,
                    up: found.flags.contains(InterfaceFlags::IFF_UP),
                    loopback: found.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                    point_to_point: found.flags.contains(InterfaceFlags::IFF_POINTOPOINT),
                    addresses: Vec::new(),
                });
                interfaces.len() - 1
            });
            let address = found.address.and_then(|address| {
                let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
                v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
            });
            interfaces[index].addresses.extend(address);
        }
        Ok(interfaces)
    }

    fn default_routes(&self) -> Result<Option<Vec<DefaultRoute>>> {
        let ipv4 = match std::fs::read_to_string(IPV4_ROUTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(Error::Network {
                    what: IPV4_ROUTES.to_owned(),
                    source,
                });
            }
        };
        let mut routes = ipv4_default_routes(&ipv4);
        // A host without IPv6 does not have this file.
        if let Ok(ipv6) = std::fs::read_to_string(IPV6_ROUTES) {
            routes.extend(ipv6_default_routes(&ipv6));
        }
        Ok(Some(routes))
    }

    async fn lookup(&self, name: &str) -> Vec<IpAddr> {
        let found = tokio::net::lookup_host((name, 0)).await;
        let mut addresses: Vec<IpAddr> = found.into_iter().flatten().map(|address| address.ip()).collect();
        addresses.dedup();
        addresses
    }
}

/// The first three fields are interface, destination and gateway.
fn ipv4_default_routes(text: &str) -> Vec<DefaultRoute> {
    let fields = text.lines().skip(1).map(|line| line.split_whitespace());
    let routes = fields.filter_map(|mut fields| {
        let (interface, destination) = (fields.next()?, fields.next()?);
        (destination == "00000000").then(|| DefaultRoute {
            interface: interface.to_owned(),
            ipv6: false,
        })
    });
    routes.collect()
}

/// The first field is the destination, the fifth the gateway, the tenth the interface. A default route without
/// a gateway belongs to the loopback interface.
fn ipv6_default_routes(text: &str) -> Vec<DefaultRoute> {
    let routes = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (destination, gateway, interface) = (fields.first()?, fields.get(4)?, fields.get(9)?);
        let is_zero = |address: &str| address.bytes().all(|digit| digit == b'0');
        (is_zero(destination) && !is_zero(gateway)).then(|| DefaultRoute {
            interface: (*interface).to_owned(),
            ipv6: true,
        })
    });
    routes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(interface: &str, ipv6: bool) -> DefaultRoute {
        DefaultRoute {
            interface: interface.to_owned(),
            ipv6,
        }
    }

    #[test]
    fn default_routes_are_found_in_the_kernels_lists() {
        let ipv4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
                    eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n\
                    eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n";
        assert_eq!(ipv4_default_routes(ipv4), [route("eth0", false)]);
        let zero = "0".repeat(32);
        let gateway = format!("fe80{}1", "0".repeat(27));
        let ipv6 = format!(
            "{zero} 00 {zero} 00 {gateway} 00000400 1 0 00000003 eth0\n\
             {zero} 00 {zero} 00 {zero} ffffffff 1 0 00200200 lo\n\
             fe80{} 40 {zero} 00 {gateway} 00000100 1 0 00000001 eth1\n",
            "0".repeat(28)
        );
        assert_eq!(ipv6_default_routes(&ipv6), [route("eth0", true)]);
        assert_eq!(ipv4_default_routes("Iface"), []);
        assert_eq!(ipv6_default_routes("garbage\n"), []);
    }

    #[tokio::test]
    async fn this_host_has_a_loopback_and_knows_its_name() {
        let interfaces = SystemNetwork.interfaces().unwrap();
        let loopback = interfaces.iter().find(|interface| interface.loopback).unwrap();
        assert!(loopback.addresses.iter().all(IpAddr::is_loopback), "{loopback:?}");
        assert!(
            SystemNetwork
                .lookup("127.0.0.1")
                .await
                .contains(&"127.0.0.1".parse().unwrap())
        );
        SystemNetwork.default_routes().unwrap();
    }
}
