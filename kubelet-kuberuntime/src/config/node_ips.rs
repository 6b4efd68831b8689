//! [`NodeIps`]: the node's addresses for pods.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::RwLock;

/// The node's IPs, the primary one first: `status.hostIP` and `status.hostIPs` for containers. They may change while
/// pods run; clones share them. In the kubelet this is `getHostIPsAnyWay`.
#[derive(Clone, Debug, Default)]
pub struct NodeIps(Arc<RwLock<Vec<IpAddr>>>);

impl NodeIps {
    /// The present IPs.
    pub fn get(&self) -> Vec<IpAddr> {
        self.0.read().clone()
    }

    /// Sets the IPs. Containers that already run keep the values that they got.
    pub fn set(&self, ips: Vec<IpAddr>) {
        *self.0.write() = ips;
    }
}

impl From<Vec<IpAddr>> for NodeIps {
    fn from(ips: Vec<IpAddr>) -> Self {
        Self(Arc::new(RwLock::new(ips)))
    }
}
