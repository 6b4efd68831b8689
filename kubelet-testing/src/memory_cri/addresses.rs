//! The addresses of pods.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses for pods, assigned as CNI's `host-local` does: the first one is the gateway's, and a released
/// address is reused only after all others.
#[derive(Clone, Debug)]
pub(super) struct AddressRange {
    network: IpAddr,
    prefix: u8,
    used: BTreeSet<u128>,
    last: u128,
}

/// The network itself, and the gateway.
const FIRST: u128 = 2;

impl AddressRange {
    /// The range of the network that contains `address`. A prefix longer than the address is cut.
    pub(super) fn new(address: IpAddr, prefix: u8) -> Self {
        let bits = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let prefix = prefix.min(bits);
        let mut range = Self {
            network: address,
            prefix,
            used: BTreeSet::new(),
            last: FIRST - 1,
        };
        let host_bits = range.size() - 1;
        range.network = match address {
            IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(
                v4.to_bits() & !u32::try_from(host_bits).unwrap_or(u32::MAX),
            )),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !host_bits)),
        };
        range
    }

    /// The next free address; `None` if all are taken.
    pub(super) fn take(&mut self) -> Option<IpAddr> {
        // Skips the last one, too: in IPv4 it is the broadcast address.
        let end = self.size().checked_sub(1).filter(|end| *end > FIRST)?;
        let after_last = (self.last + 1..end).chain(FIRST..=self.last.min(end - 1));
        // One more try than there are addresses in use is enough.
        let host = after_last
            .take(self.used.len() + 1)
            .find(|host| !self.used.contains(host))?;
        self.used.insert(host);
        self.last = host;
        Some(self.address(host))
    }

    /// Releases an address, if it is in this range.
    pub(super) fn give_back(&mut self, address: IpAddr) {
        let host = match (address, self.network) {
            (IpAddr::V4(address), IpAddr::V4(network)) => {
                u128::from(address.to_bits().wrapping_sub(network.to_bits()))
            }
            (IpAddr::V6(address), IpAddr::V6(network)) => address.to_bits().wrapping_sub(network.to_bits()),
            _ => return,
        };
        self.used.remove(&host);
    }

    /// The gateway and the last address: how `host-local` names the range.
    pub(super) fn bounds(&self) -> (IpAddr, IpAddr) {
        (
            self.address(FIRST - 1),
            self.address(self.size().saturating_sub(2)),
        )
    }

    fn address(&self, host: u128) -> IpAddr {
        match self.network {
            IpAddr::V4(network) => {
                let host = u32::try_from(host).unwrap_or(u32::MAX);
                IpAddr::V4(Ipv4Addr::from_bits(network.to_bits().saturating_add(host)))
            }
            IpAddr::V6(network) => IpAddr::V6(Ipv6Addr::from_bits(network.to_bits().saturating_add(host))),
        }
    }

    fn size(&self) -> u128 {
        let bits: u8 = match self.network {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        1_u128
            .checked_shl(u32::from(bits - self.prefix))
            .unwrap_or(u128::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(network: &str, prefix: u8) -> AddressRange {
        AddressRange::new(network.parse().unwrap(), prefix)
    }

    fn take(range: &mut AddressRange) -> Option<String> {
        range.take().map(|address| address.to_string())
    }

    #[test]
    fn addresses_are_given_in_turn_and_come_round() {
        let mut range = range("10.88.0.77", 29);
        let all: Vec<_> = std::iter::from_fn(|| take(&mut range)).collect();
        assert_eq!(
            all,
            [
                "10.88.0.74",
                "10.88.0.75",
                "10.88.0.76",
                "10.88.0.77",
                "10.88.0.78"
            ]
        );
    }

    #[test]
    fn one_given_back_comes_last() {
        let mut range = range("10.88.0.0", 29);
        assert_eq!(take(&mut range).unwrap(), "10.88.0.2");
        assert_eq!(take(&mut range).unwrap(), "10.88.0.3");
        range.give_back("10.88.0.2".parse().unwrap());
        for last in [4, 5, 6, 2] {
            assert_eq!(take(&mut range).unwrap(), format!("10.88.0.{last}"));
        }
        assert_eq!(take(&mut range), None);
    }

    #[test]
    fn whatever_network_is_given() {
        assert_eq!(take(&mut range("fd00::", 64)).unwrap(), "fd00::2");
        assert_eq!(take(&mut range("::", 0)).unwrap(), "::2");
        assert_eq!(take(&mut range("0.0.0.0", 0)).unwrap(), "0.0.0.2");
        for prefix in [30, 31, 32, 255] {
            let given = std::iter::from_fn({
                let mut range = range("10.0.0.0", prefix);
                move || range.take()
            });
            assert_eq!(given.count(), usize::from(prefix == 30), "{prefix}");
        }
    }
}
