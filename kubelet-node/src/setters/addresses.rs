//! `addresses`

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, NodeAddress};

use super::{name, status};
use crate::node_ip::{self, check, parse_sloppy};
use crate::{Error, HostNetwork, NodeStatusSetter, Result};

/// The name of the setter.
pub(crate) const ADDRESSES: &str = "addresses";
/// The annotation that gives an external cloud provider the node's address (`AnnotationAlphaProvidedIPAddr`).
const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The node's addresses and its host name (`nodestatus.NodeAddress`).
///
/// A configured address must belong to the host. Without one, the first of these is used: the host name, if it
/// is an address; an address of the host that the node's name resolves to; the address of the interface with
/// the default route.
pub(crate) struct Addresses {
    pub(crate) network: Arc<dyn HostNetwork>,
    pub(crate) node_ips: Vec<IpAddr>,
    pub(crate) hostname: String,
    pub(crate) external_cloud_provider: bool,
}

#[async_trait]
impl NodeStatusSetter for Addresses {
    fn name(&self) -> &str {
        ADDRESSES
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        let given = |index: usize| {
            self.node_ips
                .get(index)
                .copied()
                .filter(|ip| !ip.is_unspecified())
        };
        let (first, second) = (given(0), given(1));
        if first.is_some() || second.is_some() {
            let interfaces = self.network.interfaces()?;
            for address in [first, second].into_iter().flatten() {
                check(address, &interfaces).map_err(|why| refused(node, why))?;
            }
        }
        self.annotate(node, first, second);
        if self.external_cloud_provider {
            let known = status(node).addresses.as_ref();
            if known.is_some_and(|addresses| !addresses.is_empty()) {
                // The provider sets it.
                return Ok(());
            }
            if self.node_ips.is_empty() {
                self.fill(node, []);
                return Ok(());
            }
        }
        match (first, second) {
            (Some(first), Some(second)) => self.fill(node, [first, second]),
            _ => {
                let address = self.one(first, node).await?;
                self.fill(node, [address]);
            }
        }
        Ok(())
    }
}

impl Addresses {
    fn annotate(&self, node: &mut Node, first: Option<IpAddr>, second: Option<IpAddr>) {
        match first {
            Some(first) if self.external_cloud_provider => {
                let second = second.map(|second| format!(",{second}")).unwrap_or_default();
                let annotations = node.metadata.annotations.get_or_insert_default();
                annotations.insert(PROVIDED_NODE_IP.to_owned(), format!("{first}{second}"));
            }
            _ => {
                if let Some(annotations) = &mut node.metadata.annotations {
                    annotations.remove(PROVIDED_NODE_IP);
                }
            }
        }
    }

    async fn one(&self, given: Option<IpAddr>, node: &Node) -> Result<IpAddr> {
        if let Some(address) = given.or_else(|| parse_sloppy(&self.hostname)) {
            return Ok(address);
        }
        let prefer_ipv6 = self.node_ips.first().is_some_and(IpAddr::is_ipv6);
        let interfaces = self.network.interfaces()?;
        let found = self.network.lookup(name(node)).await;
        let usable = || {
            let found = found.iter().map(IpAddr::to_canonical);
            found.filter(|address| check(*address, &interfaces).is_ok())
        };
        let preferred = usable().find(|address| address.is_ipv6() == prefer_ipv6);
        if let Some(address) = preferred.or_else(|| usable().next()) {
            return Ok(address);
        }
        node_ip::of_default_route(&*self.network, prefer_ipv6)?
            .map_err(|why| refused(node, format!("can't get ip address of node: {why}")))
    }

    fn fill(&self, node: &mut Node, addresses: impl IntoIterator<Item = IpAddr>) {
        let address = |type_: &str, address: String| NodeAddress {
            type_: type_.to_owned(),
            address,
        };
        let internal = addresses
            .into_iter()
            .map(|ip| address("InternalIP", ip.to_string()));
        let hostname = address("Hostname", self.hostname.clone());
        status(node).addresses = Some(internal.chain([hostname]).collect());
    }
}

fn refused(node: &Node, why: String) -> Error {
    Error::NoAddress {
        node: name(node).to_owned(),
        why,
    }
}
