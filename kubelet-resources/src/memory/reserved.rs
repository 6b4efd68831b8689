//! The memory that is reserved for the system (`reservedMemory`).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::{Amount, Format};

use super::nodes::Reserved;
use crate::machine::Machine;
use crate::requests::is_memory;
use crate::{Error, Result};

/// The memory that is reserved on one NUMA node (`MemoryReservation`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryReservation {
    /// The node.
    pub numa_node: usize,
    /// How much of each resource.
    pub limits: BTreeMap<String, Quantity>,
}

/// What is reserved on each node (`getSystemReservedMemory`).
///
/// # Errors
///
/// If a node does not exist, or the sums are not what the node reserves as a whole.
pub(super) fn reserved_memory(
    machine: &Machine,
    of_node: &BTreeMap<String, Quantity>,
    reservations: &[MemoryReservation],
) -> Result<Reserved> {
    check(machine, of_node, reservations)?;
    let mut reserved: Reserved = machine
        .nodes
        .iter()
        .map(|node| (node.id, BTreeMap::new()))
        .collect();
    for reservation in reservations {
        for (resource, quantity) in &reservation.limits {
            let amount = amount(quantity);
            let bytes = u64::try_from(amount.value()).ok().filter(|_| amount.is_whole());
            let bytes = bytes.ok_or_else(|| {
                Error::Refused("could not covert a variable of type Quantity to int64".to_owned())
            })?;
            let of_numa_node = reserved.entry(reservation.numa_node).or_default();
            of_numa_node.insert(resource.clone(), bytes);
        }
    }
    let total: u64 = reserved
        .values()
        .filter_map(|of_node| of_node.get("memory"))
        .sum();
    match total {
        0 => Err(Error::Refused(
            "[memorymanager] you should specify the system reserved memory".to_owned(),
        )),
        _ => Ok(reserved),
    }
}

/// `validateReservedMemory`
fn check(
    machine: &Machine,
    of_node: &BTreeMap<String, Quantity>,
    reservations: &[MemoryReservation],
) -> Result<()> {
    let mut totals: BTreeMap<&str, (Amount, Format)> = BTreeMap::new();
    for reservation in reservations {
        let node = reservation.numa_node;
        if !machine.nodes.iter().any(|known| known.id == node) {
            return Err(Error::Refused(format!(
                "the reserved memory configuration references a NUMA node {node} that does not exist on this machine"
            )));
        }
        for (resource, quantity) in &reservation.limits {
            let (total, _) = totals.get(resource.as_str()).copied().unwrap_or_default();
            totals.insert(resource, (total + amount(quantity), Format::of(quantity)));
        }
    }
    let wanted = of_node.keys().map(String::as_str).filter(|name| is_memory(name));
    let resources: BTreeSet<&str> = totals.keys().copied().chain(wanted).collect();
    for resource in resources {
        let (total, format) = totals.get(resource).copied().unwrap_or_default();
        let wanted = of_node.get(resource);
        let wanted_amount = wanted.map(amount).unwrap_or_default();
        if total != wanted_amount {
            return Err(Error::Refused(format!(
                "the total amount {:?} of type {resource:?} is not equal to the value {:?} determined by Node Allocatable \
                 feature",
                total.write(format),
                wanted_amount.write(wanted.map(Format::of).unwrap_or_default()),
            )));
        }
    }
    Ok(())
}

/// A quantity that cannot be parsed counts as zero.
fn amount(quantity: &Quantity) -> Amount {
    Amount::try_from(quantity).unwrap_or_default()
}
