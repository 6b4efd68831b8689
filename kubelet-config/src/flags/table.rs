//! All flags of the kubelet.

use std::iter;

use super::flag::Flag;
use super::{configuration_flags, own_flags};

impl Flag {
    /// All flags of the kubelet.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        iter::empty()
            .chain(own_flags::KUBELET_FLAGS)
            .chain(configuration_flags::FLAGS)
            .chain(own_flags::CADVISOR_FLAGS)
            .chain(own_flags::PROGRAM_FLAGS)
    }

    /// The flag of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|flag| flag.name == name)
    }
}
