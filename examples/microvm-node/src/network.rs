//! The network of the pods: each has four addresses of a subnet, one for the host's end of its tap device and one for the guest.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::api::Net;

/// The addresses of a block: its network, the host, the guest, its broadcast.
const BLOCK: u32 = 4;
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 252);

/// The addresses of all pods of a node, such as `10.88.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    base: u32,
    blocks: u32,
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (base, bits) = text.split_once('/')?;
            let (base, bits): (Ipv4Addr, u32) = (base.parse().ok()?, bits.parse().ok()?);
            let size = 1_u32.checked_shl(32_u32.checked_sub(bits)?)?;
            let base = u32::from(base);
            (size >= BLOCK && base.is_multiple_of(size)).then_some(Self { base, blocks: size / BLOCK })
        };
        parse().ok_or_else(|| format!("{text:?} is no subnet such as 10.88.0.0/16"))
    }
}

/// The place of a pod in the subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Lease {
    block: u32,
    host: Ipv4Addr,
    pub(crate) guest: Ipv4Addr,
}

impl Subnet {
    /// The first free place; `None` if there is none.
    pub(crate) fn lease(&self, taken: &BTreeSet<Lease>) -> Option<Lease> {
        let blocks: BTreeSet<u32> = taken.iter().map(|lease| lease.block).collect();
        let block = (0..self.blocks).find(|block| !blocks.contains(block))?;
        let first = self.base + block * BLOCK;
        Some(Lease { block, host: Ipv4Addr::from(first + 1), guest: Ipv4Addr::from(first + 2) })
    }
}

impl Lease {
    /// The network device of a VM.
    pub(crate) fn device(&self) -> Net {
        let [a, b, c, d] = self.guest.octets();
        Net {
            tap: format!("vm{}", self.block),
            ip: self.host.to_string(),
            mask: MASK.to_string(),
            // A MAC address of one's own begins with 02.
            mac: format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}"),
        }
    }

    /// What the kernel needs to set the device up (`ip=` in its `nfsroot.rst`).
    pub(crate) fn kernel_parameter(&self, hostname: &str) -> String {
        format!("ip={}::{}:{MASK}:{hostname}:eth0:off", self.guest, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_has_a_block() {
        let subnet: Subnet = "10.88.0.0/29".parse().unwrap();
        let first = subnet.lease(&BTreeSet::new()).unwrap();
        assert_eq!(first.guest.to_string(), "10.88.0.2");
        let device = first.device();
        assert_eq!((&*device.tap, &*device.ip, &*device.mac), ("vm0", "10.88.0.1", "02:00:0a:58:00:02"));
        assert_eq!(first.kernel_parameter("web"), "ip=10.88.0.2::10.88.0.1:255.255.255.252:web:eth0:off");
        let second = subnet.lease(&BTreeSet::from([first])).unwrap();
        assert_eq!(second.guest.to_string(), "10.88.0.6");
        assert_eq!(subnet.lease(&BTreeSet::from([first, second])), None);
        assert_eq!(subnet.lease(&BTreeSet::from([second])), Some(first));
        for bad in ["", "10.88.0.0", "10.88.0.1/16", "10.88.0.0/31", "10.88.0.0/33", "10.88.0.0/0"] {
            assert!(bad.parse::<Subnet>().is_err(), "{bad}");
        }
    }
}
