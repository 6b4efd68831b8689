//! [`NodeIps`]: the node's addresses, as far as pods are told of them.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::RwLock;

/// The node's IPs, the primary first: what `status.hostIP` and `status.hostIPs` mean to a container. They may change while pods
/// run; clones are the same. Answers to the kubelet's `getHostIPsAnyWay`.
#[derive(Clone, Debug, Default)]
pub struct NodeIps(Arc<RwLock<Vec<IpAddr>>>);

impl NodeIps {
    /// As of now.
    pub fn get(&self) -> Vec<IpAddr> {
        self.0.read().clone()
    }

    /// From now on they are these. What was told to a container stays.
    pub fn set(&self, ips: Vec<IpAddr>) {
        *self.0.write() = ips;
    }
}

impl From<Vec<IpAddr>> for NodeIps {
    fn from(ips: Vec<IpAddr>) -> Self {
        Self(Arc::new(RwLock::new(ips)))
    }
}
