//! A number for each fixture, and everything that follows from it. Concurrent fixtures must not share these.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;

use crate::{Error, Result};

/// How many fixtures can run at the same time on one host.
const SLOTS: u8 = 64;

/// A number that no other fixture on this host has, in this process or another.
///
/// A socket with an abstract name holds it. The socket ends with its process, however that ends, and leaves no file.
/// If the folder of a free number still exists, its last owner was killed.
#[derive(Debug)]
pub(super) struct Slot {
    number: u8,
    _lock: UnixListener,
}

impl Slot {
    /// The lowest free number.
    pub(super) fn claim() -> Result<Self> {
        (0..SLOTS)
            .find_map(Self::claim_number)
            .ok_or_else(|| Error::Containerd {
                message: format!("all {SLOTS} slots for fixtures are in use on this host"),
            })
    }

    /// The free numbers whose last owner was killed before it cleaned up.
    pub(super) fn abandoned() -> impl Iterator<Item = Self> {
        (0..SLOTS)
            .filter(|number| folder(*number).exists())
            .filter_map(Self::claim_number)
            // Check again, because the owner may have ended normally meanwhile.
            .filter(|slot| slot.folder().exists())
    }

    fn claim_number(number: u8) -> Option<Self> {
        let address = SocketAddr::from_abstract_name(format!("kubelet-testing/containerd/{number}")).ok()?;
        let lock = UnixListener::bind_addr(&address).ok()?;
        Some(Self { number, _lock: lock })
    }

    /// The folder of all files.
    pub(super) fn folder(&self) -> PathBuf {
        folder(self.number)
    }

    /// The name of the network and its bridge.
    pub(super) fn network(&self) -> String {
        format!("ktest{}", self.number)
    }

    /// The pods' addresses.
    pub(super) fn subnet(&self) -> String {
        format!("10.213.{}.0/24", self.number)
    }
}

fn folder(number: u8) -> PathBuf {
    let temp = std::env::temp_dir();
    // Resolved, because the kernel resolves the paths of mounts.
    let temp = temp.canonicalize().unwrap_or(temp);
    temp.join(format!("kubelet-testing-containerd-{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_have_one_number_and_a_dropped_one_is_free() {
        let claim = || Slot::claim_number(SLOTS + 1);
        let first = claim();
        assert!(first.is_some());
        assert!(claim().is_none());
        drop(first);
        assert!(claim().is_some());
    }
}
