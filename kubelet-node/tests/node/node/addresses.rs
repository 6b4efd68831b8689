//! By which addresses a node is known.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use kubelet_node::{FixedNetwork, LocalNode, MachineInfo, NodeConfig, node_host_ips, parse_node_ip};
use serde_json::{Value, json};

use super::rig::{Network, interface, route};

fn ips(list: &str) -> Vec<IpAddr> {
    list.split(',')
        .filter(|ip| !ip.is_empty())
        .map(|ip| ip.parse().unwrap())
        .collect()
}

/// A host with both families on `eth0`, another address on `eth1`, and a tunnel.
fn network() -> Network {
    Network {
        interfaces: vec![
            interface("lo", &["127.0.0.1", "::1"]),
            interface("tun0", &["10.8.0.2"]),
            interface("eth0", &["fe80::7", "169.254.1.1", "10.0.0.7", "fd00::7"]),
            interface("eth1", &["192.168.0.7"]),
        ],
        routes: Some(vec![route("eth0", false), route("eth0", true)]),
        names: BTreeMap::from([
            ("known".to_owned(), ips("192.168.0.7,fd00::7")),
            ("known6".to_owned(), ips("fd00::7")),
            ("elsewhere".to_owned(), ips("8.8.8.8")),
            ("local".to_owned(), ips("127.0.0.1,::1")),
        ]),
    }
}

/// The addresses of a node, as `InternalIP=…`, and what stands in its annotation.
async fn addresses(config: NodeConfig, network: Network, mut node: Node) -> (Vec<String>, Option<String>) {
    let local = LocalNode::builder(config, MachineInfo::new(1, 1 << 30))
        .network(network)
        .build();
    local.set_status(&mut node).await;
    let list = node.status.unwrap().addresses.unwrap_or_default();
    let annotations = node.metadata.annotations.unwrap_or_default();
    (
        list.into_iter()
            .map(|address| format!("{}={}", address.type_, address.address))
            .collect(),
        annotations.get("alpha.kubernetes.io/provided-node-ip").cloned(),
    )
}

fn named(name: &str) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test]
async fn given_looked_up_or_of_the_default_route() {
    for (name, hostname, node_ips, expected) in [
        // Given.
        ("n", "n", "10.0.0.7", "10.0.0.7"),
        ("n", "n", "192.168.0.7", "192.168.0.7"),
        ("n", "n", "fd00::7", "fd00::7"),
        ("n", "n", "10.0.0.7,fd00::7", "10.0.0.7 fd00::7"),
        ("n", "n", "fd00::7,10.0.0.7", "fd00::7 10.0.0.7"),
        // Not the host's, or not to be reached by.
        ("n", "n", "10.0.0.8", ""),
        ("n", "n", "127.0.0.1", ""),
        ("n", "n", "fe80::7", ""),
        ("n", "n", "224.0.0.1", ""),
        ("n", "n", "10.0.0.7,fd00::8", ""),
        // The host name is one.
        ("n", "10.1.1.1", "", "10.1.1.1"),
        ("n", "010.1.1.01", "", "10.1.1.1"),
        // What the name stands for, if it is the host's.
        ("known", "h", "", "192.168.0.7"),
        ("known", "h", "0.0.0.0", "192.168.0.7"),
        ("known", "h", "::", "fd00::7"),
        ("known6", "h", "", "fd00::7"),
        ("elsewhere", "h", "", "10.0.0.7"),
        ("local", "h", "", "10.0.0.7"),
        // The default route's.
        ("unknown", "h", "", "10.0.0.7"),
        ("unknown", "h", "::", "fd00::7"),
        ("unknown", "h", "0.0.0.0", "10.0.0.7"),
    ] {
        let mut config = NodeConfig::new(name);
        config.hostname = hostname.to_owned();
        config.node_ips = ips(node_ips);
        let (found, annotation) = addresses(config, network(), named(name)).await;
        let mut wanted: Vec<String> = expected
            .split_whitespace()
            .map(|ip| format!("InternalIP={ip}"))
            .collect();
        if !wanted.is_empty() {
            wanted.push(format!("Hostname={hostname}"));
        }
        assert_eq!(found, wanted, "{name} {hostname} {node_ips}");
        assert_eq!(annotation, None);
    }
}

#[tokio::test]
async fn routes_say_which_interface_leads_outside() {
    let eth0 = |addresses: &[&str]| {
        vec![
            interface("lo", &["127.0.0.1", "10.255.0.1"]),
            interface("eth0", addresses),
        ]
    };
    let down = |mut interfaces: Vec<kubelet_node::Interface>| {
        interfaces[1].up = false;
        interfaces
    };
    for (about, interfaces, routes, expected) in [
        (
            "a route of each family",
            eth0(&["fd00::7", "10.0.0.7"]),
            Some(vec![route("eth0", true)]),
            "fd00::7",
        ),
        (
            "the loopback's, where links have none",
            eth0(&["fe80::7"]),
            Some(vec![route("eth0", false)]),
            "10.255.0.1",
        ),
        (
            "an interface that is down has none",
            down(eth0(&["10.0.0.7"])),
            Some(vec![route("eth0", false)]),
            "10.255.0.1",
        ),
        ("no route", eth0(&["10.0.0.7"]), Some(vec![]), ""),
        (
            "no interface of the route",
            eth0(&["10.0.0.7"]),
            Some(vec![route("eth9", false)]),
            "",
        ),
        (
            "no list of routes: any interface",
            eth0(&["10.0.0.7"]),
            None,
            "10.0.0.7",
        ),
        (
            "no list of routes, and but a tunnel",
            vec![interface("tun0", &["10.8.0.2"])],
            None,
            "",
        ),
        (
            "no list of routes, the other family",
            eth0(&["fe80::7", "fd00::7"]),
            None,
            "fd00::7",
        ),
    ] {
        let network = Network {
            interfaces,
            routes,
            names: BTreeMap::new(),
        };
        let (found, _) = addresses(NodeConfig::new("n"), network, named("n")).await;
        let wanted: Vec<String> = match expected {
            "" => Vec::new(),
            ip => vec![format!("InternalIP={ip}"), "Hostname=n".to_owned()],
        };
        assert_eq!(found, wanted, "{about}");
    }
}

#[tokio::test]
async fn an_external_cloud_provider_knows_better() {
    let status = |addresses: Value| json!({"addresses": addresses});
    let theirs = json!([{"type": "ExternalIP", "address": "8.8.4.4"}]);
    for (about, node_ips, there, expected, annotation) in [
        (
            "nothing is known",
            "",
            status(json!([])),
            vec!["Hostname=n"],
            None,
        ),
        (
            "an address is given",
            "10.0.0.7",
            status(json!([])),
            vec!["InternalIP=10.0.0.7", "Hostname=n"],
            Some("10.0.0.7"),
        ),
        (
            "what the provider said stays",
            "10.0.0.7",
            status(theirs.clone()),
            vec!["ExternalIP=8.8.4.4"],
            Some("10.0.0.7"),
        ),
        (
            "two are given",
            "10.0.0.7,fd00::7",
            status(json!([])),
            vec!["InternalIP=10.0.0.7", "InternalIP=fd00::7", "Hostname=n"],
            Some("10.0.0.7,fd00::7"),
        ),
        (
            "that of the default route",
            "0.0.0.0",
            status(json!([])),
            vec!["InternalIP=10.0.0.7", "Hostname=n"],
            None,
        ),
    ] {
        let mut config = NodeConfig::new("n");
        config.external_cloud_provider = true;
        config.node_ips = ips(node_ips);
        let node = json!({"metadata": {"name": "n", "annotations": {"alpha.kubernetes.io/provided-node-ip": "old"}}, "status": there});
        let node = serde_json::from_value(node).unwrap();
        let (found, reported) = addresses(config, network(), node).await;
        assert_eq!(
            (found, reported.as_deref()),
            (expected.iter().map(ToString::to_string).collect(), annotation),
            "{about}"
        );
    }
}

#[tokio::test]
async fn a_made_up_host_is_known_by_its_first_address_of_a_family() {
    for (node_ips, expected) in [
        ("", "10.0.0.7"),
        ("::", "fd00::7"),
        ("fd00::7", "fd00::7"),
        ("10.0.0.9", ""),
    ] {
        let mut config = NodeConfig::new("n");
        config.node_ips = ips(node_ips);
        let local = LocalNode::builder(config, MachineInfo::new(1, 1 << 30))
            .network(FixedNetwork::new(ips("10.0.0.7,10.0.0.8,fd00::7")))
            .build();
        let mut node = named("n");
        local.set_status(&mut node).await;
        let addresses = node.status.unwrap().addresses.unwrap_or_default();
        let first = addresses
            .first()
            .map(|first| first.address.as_str())
            .unwrap_or_default();
        assert_eq!(first, expected, "{node_ips}");
    }
}

#[test]
fn arguments_of_node_ip() {
    for (argument, provider, expected) in [
        ("", "", Ok((vec![], vec![]))),
        ("10.0.0.7", "aws", Ok((ips("10.0.0.7"), vec![]))),
        ("::", "", Ok((ips("::"), vec![]))),
        ("010.0.0.07", "", Ok((ips("10.0.0.7"), vec![]))),
        (
            " 10.0.0.7 , fd00::7 ",
            "external",
            Ok((ips("10.0.0.7,fd00::7"), vec![])),
        ),
        ("10.0.0.7,eth0", "", Ok((ips("10.0.0.7"), vec!["eth0"]))),
        ("10.0.0.256", "", Ok((vec![], vec!["10.0.0.256"]))),
        (
            "10.0.0.7,fd00::7",
            "aws",
            Err("dual-stack not supported in this configuration"),
        ),
        (
            "10.0.0.7,10.0.0.8",
            "",
            Err("must contain either a single IP or a dual-stack pair of IPs"),
        ),
        (
            "10.0.0.7,fd00::7,fd00::8",
            "",
            Err("must contain either a single IP or a dual-stack pair of IPs"),
        ),
        (
            "0.0.0.0,fd00::7",
            "",
            Err("dual-stack node IP cannot include '0.0.0.0' or '::'"),
        ),
    ] {
        let found = parse_node_ip(argument, provider).map_err(|error| error.to_string());
        let expected = expected
            .map(|(ips, ignored)| (ips, ignored.into_iter().map(str::to_owned).collect::<Vec<_>>()))
            .map_err(|why| format!("--node-ip {argument:?}: {why}"));
        assert_eq!(found, expected, "{argument}");
    }
}

#[test]
fn host_ips_are_internal_before_external_and_one_of_each_family() {
    for (addresses, expected) in [
        (vec![], ""),
        (vec![("Hostname", "n")], ""),
        (
            vec![("ExternalIP", "8.8.8.8"), ("InternalIP", "10.0.0.7")],
            "10.0.0.7",
        ),
        (
            vec![
                ("InternalIP", "10.0.0.7"),
                ("InternalIP", "10.0.0.8"),
                ("InternalIP", "fd00::7"),
            ],
            "10.0.0.7,fd00::7",
        ),
        (
            vec![("ExternalIP", "2001:db8::1"), ("InternalIP", "10.0.0.7")],
            "10.0.0.7,2001:db8::1",
        ),
    ] {
        let list: Vec<Value> = addresses
            .iter()
            .map(|(kind, address)| json!({"type": kind, "address": address}))
            .collect();
        let node = serde_json::from_value(json!({"metadata": {}, "status": {"addresses": list}})).unwrap();
        assert_eq!(node_host_ips(&node), ips(expected), "{addresses:?}");
    }
}

#[test]
fn a_host_name_is_trimmed_and_in_lower_case() {
    assert_eq!(kubelet_node::hostname("  Node-1\n").unwrap(), "node-1");
    let error = kubelet_node::hostname("  ").unwrap_err();
    assert_eq!(error.to_string(), "hostname \"  \": empty hostname is invalid");
}
