//! [`Location`]: the server of a node, and the container of a pod.

use std::fmt;
use std::net::IpAddr;

use serde_json::Value;

use super::plain_error;
use crate::objects::Fields;
use crate::request::Attributes;
use crate::resource::Resource;
use crate::server::Shared;
use crate::status_error::StatusError;

/// The types of addresses, the preferred one first. As kubeadm sets `--kubelet-preferred-address-types`.
const PREFERRED: [&str; 3] = ["InternalIP", "ExternalIP", "Hostname"];
/// The port of a node that does not report one (`--kubelet-port`).
const KUBELET_PORT: i64 = 10250;
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// A server on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) https: bool,
    pub(super) host: String,
    pub(super) port: String,
    /// The node if it is the kubelet, which gets the API server's certificate.
    pub(super) kubelet: Option<String>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl Location {
    /// The kubelet of a node.
    ///
    /// # Errors
    ///
    /// The node does not exist, or has no address.
    pub(super) fn kubelet(shared: &Shared, name: &str) -> Result<Self, StatusError> {
        let resource =
            Resource::find("", "v1", "nodes").ok_or_else(|| plain_error("nodes are not served".into()))?;
        let node = shared.lookup(resource, "", name);
        let node = node.ok_or_else(|| StatusError::not_found(resource, name))?;
        let status = &node["status"];
        let port = status["daemonEndpoints"]["kubeletEndpoint"].number("Port");
        Ok(Location {
            https: true,
            host: address(status.list("addresses"))?,
            port: port.filter(|port| *port > 0).unwrap_or(KUBELET_PORT).to_string(),
            kubelet: Some(name.to_owned()),
        })
    }

    /// The server that the name in `nodes/<name>/proxy` or `pods/<name>/proxy` means: `one`, `one:10255`, `https:one:10250`,
    /// `https:one:`.
    ///
    /// # Errors
    ///
    /// The name has another form, or the object does not exist, has no address, or has one that is not proxied to.
    pub(super) fn of_proxy(shared: &Shared, attributes: &Attributes) -> Result<Self, StatusError> {
        let (resource, name) = (attributes.resource, &attributes.name);
        let parts = SchemeNamePort::split(name).ok_or_else(|| {
            StatusError::bad_request(format!("invalid {} request {name:?}", resource.singular))
        })?;
        let location = if resource.plural == "nodes" {
            Self::of_node(shared, &parts)?
        } else {
            let pod = shared.lookup(resource, &attributes.namespace, parts.name);
            let pod = pod.ok_or_else(|| StatusError::not_found(resource, parts.name))?;
            Self::of_pod(&pod, &parts)
        };
        if !is_proxyable(&location.host) {
            return Err(StatusError::bad_request("address not allowed"));
        }
        Ok(location)
    }

    /// The node's kubelet, or the server at another port (`node.ResourceLocation`).
    fn of_node(shared: &Shared, parts: &SchemeNamePort<'_>) -> Result<Self, StatusError> {
        let kubelet = Self::kubelet(shared, parts.name)?;
        if parts.port.is_empty() || parts.port == kubelet.port {
            return Ok(kubelet);
        }
        Ok(Location {
            https: parts.scheme == "https",
            port: parts.port.to_owned(),
            kubelet: None,
            ..kubelet
        })
    }

    /// The pod's first address, and the port that is named, the first one that a container declares, or that of the
    /// scheme (`pod.ResourceLocation`).
    fn of_pod(pod: &Value, parts: &SchemeNamePort<'_>) -> Self {
        let https = parts.scheme == "https";
        let declared = || {
            let mut containers = pod["spec"].list("containers").iter();
            let first = containers.find_map(|container| container.list("ports").first())?;
            first.number("containerPort").map(|port| port.to_string())
        };
        let port = match parts.port {
            "" => declared().unwrap_or_else(|| if https { "443" } else { "80" }.to_owned()),
            port => port.to_owned(),
        };
        let status = &pod["status"];
        let host = match status.list("podIPs").first() {
            Some(first) => first.text("ip"),
            None => status.text("podIP"),
        };
        Location {
            https,
            host: host.to_owned(),
            port,
            kubelet: None,
        }
    }

    /// `host:port`.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// The parts of a name before `proxy` (`SplitSchemeNamePort`).
struct SchemeNamePort<'a> {
    /// `http`, `https`, or empty.
    scheme: &'a str,
    name: &'a str,
    /// As it was written. It may be empty.
    port: &'a str,
}

impl<'a> SchemeNamePort<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match *parts.as_slice() {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => return None,
        };
        let is_valid = !name.is_empty() && matches!(scheme, "" | "http" | "https");
        is_valid.then_some(Self { scheme, name, port })
    }
}

fn address(addresses: &[Value]) -> Result<String, StatusError> {
    let of_type = |kind: &&str| addresses.iter().find(|address| address.text("type") == *kind);
    if let Some(address) = PREFERRED.iter().find_map(of_type) {
        return Ok(address.text("address").to_owned());
    }
    let known: Vec<String> = addresses
        .iter()
        .map(|address| format!("{{{} {}}}", address.text("type"), address.text("address")))
        .collect();
    let known = known.join(" ");
    Err(plain_error(format!(
        "no preferred addresses found; known addresses: [{known}]"
    )))
}

/// Whether the address may be that of a node or a pod (`isProxyableHostname`, `IsGlobalUnicast`). Unlike in the API server,
/// it may be on this host.
fn is_proxyable(host: &str) -> bool {
    if host.is_empty() {
        return false;
    }
    host.parse().is_ok_and(|address: IpAddr| match address {
        IpAddr::V4(address) => {
            !address.is_unspecified()
                && !address.is_multicast()
                && !address.is_link_local()
                && !address.is_broadcast()
        }
        IpAddr::V6(address) => {
            !address.is_unspecified() && !address.is_multicast() && !address.is_unicast_link_local()
        }
    }) || host.parse::<IpAddr>().is_err()
}

/// The container that a request is for: the named one, or the only one (`validateContainer`).
///
/// # Errors
///
/// The pod has no such container, or more than one container and none is named.
pub(super) fn container(pod: &Value, name: &str, asked: &str) -> Result<String, StatusError> {
    let spec = &pod["spec"];
    let all: Vec<&str> = CONTAINER_LISTS
        .iter()
        .flat_map(|list| spec.list(list))
        .map(|container| container.text("name"))
        .collect();
    if !asked.is_empty() {
        if all.contains(&asked) {
            return Ok(asked.to_owned());
        }
        let message = format!("container {asked} is not valid for pod {name}");
        return Err(StatusError::bad_request(message));
    }
    match spec.list("containers") {
        [only] => Ok(only.text("name").to_owned()),
        [] => Err(StatusError::bad_request(format!(
            "a container name must be specified for pod {name}"
        ))),
        _ => Err(StatusError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
    }
}
