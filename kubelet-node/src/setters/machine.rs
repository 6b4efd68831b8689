//! `capacity`, `allocatable`, and the machine's ids.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, NodeSwapStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::{Amount, Format};
use kubelet_core::{EventType, NodeEventRecorder};

use super::{name, node_info, status};
use crate::reservation::{EPHEMERAL_STORAGE, Reservation, is_huge_pages, subtract};
use crate::{MachineInfo, NodeStatusSetter, Result};

/// Capacity, allocatable and ids of the machine (`nodestatus.MachineInfo`).
///
/// Other resources of the node stay unchanged: other components report them.
pub(crate) struct Machine {
    pub(crate) info: Arc<MachineInfo>,
    pub(crate) reservation: Reservation,
    pub(crate) max_pods: u32,
    pub(crate) pods_per_core: u32,
    pub(crate) local_storage_capacity_isolation: bool,
    pub(crate) events: Arc<dyn NodeEventRecorder>,
    pub(crate) reboot_reported: AtomicBool,
}

#[async_trait]
impl NodeStatusSetter for Machine {
    fn name(&self) -> &str {
        "machine"
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        self.set_info(node);
        let status = status(node);
        let capacity = status.capacity.get_or_insert_default();
        let isolated = self.local_storage_capacity_isolation;
        let of_machine = self::capacity(&self.info);
        capacity.extend(of_machine.filter(|(resource, _)| isolated || resource != EPHEMERAL_STORAGE));
        capacity.insert("pods".to_owned(), decimal(self.pods()));
        let allocatable = status.allocatable.get_or_insert_default();
        allocatable.retain(|resource, _| capacity.contains_key(resource) || !is_extended(resource));
        for (resource, amount) in capacity.iter() {
            allocatable.insert(resource.clone(), self.reservation.allocatable(resource, amount));
        }
        keep_huge_pages_out_of_memory(capacity, allocatable);
        Ok(())
    }
}

impl Machine {
    fn set_info(&self, node: &mut Node) {
        let booted = &node_info(node).boot_id;
        let rebooted = !booted.is_empty() && *booted != self.info.boot_id;
        if rebooted && !self.reboot_reported.swap(true, Ordering::Relaxed) {
            let message = format!(
                "Node {} has been rebooted, boot id: {}",
                name(node),
                self.info.boot_id
            );
            self.events.record_node(EventType::Warning, "Rebooted", message);
        }
        let info = node_info(node);
        info.machine_id.clone_from(&self.info.machine_id);
        info.system_uuid.clone_from(&self.info.system_uuid);
        info.boot_id.clone_from(&self.info.boot_id);
        if self.info.swap != 0 {
            info.swap = Some(NodeSwapStatus {
                capacity: Some(signed(self.info.swap)),
            });
        }
    }

    /// How many pods the node can run.
    fn pods(&self) -> u32 {
        match self.pods_per_core {
            0 => self.max_pods,
            per_core => self.info.cpus.saturating_mul(per_core).min(self.max_pods),
        }
    }
}

/// The machine's capacity (`CapacityFromMachineInfo`, `EphemeralStorageCapacityFromFsInfo`).
pub(crate) fn capacity(machine: &MachineInfo) -> impl Iterator<Item = (String, Quantity)> {
    let storage = machine.storage();
    [
        ("cpu".to_owned(), decimal(machine.cpus)),
        ("memory".to_owned(), bytes(machine.memory)),
    ]
    .into_iter()
    .chain(storage.map(|storage| (EPHEMERAL_STORAGE.to_owned(), bytes(storage))))
    .chain(machine.huge_pages.iter().map(|huge| {
        let size = bytes(huge.page_size);
        (
            format!("hugepages-{}", size.0),
            bytes(huge.page_size.saturating_mul(huge.pages)),
        )
    }))
}

fn decimal(amount: u32) -> Quantity {
    Quantity(Amount::from_units(amount.into()).write(Format::DecimalSi))
}

/// Subtracts the memory that is set aside for huge pages.
fn keep_huge_pages_out_of_memory(
    capacity: &BTreeMap<String, Quantity>,
    allocatable: &mut BTreeMap<String, Quantity>,
) {
    let huge = capacity.iter().filter(|(resource, _)| is_huge_pages(resource));
    let huge: Amount = huge.filter_map(|(_, amount)| Amount::try_from(amount).ok()).sum();
    if let Some(memory) = allocatable.get_mut("memory")
        && huge.is_positive()
        && let Ok(amount) = Amount::try_from(&*memory)
    {
        *memory = Quantity(subtract(amount, huge).write(Format::of(memory)));
    }
}

/// Whether the resource is outside of Kubernetes' own names (`IsExtendedResourceName`).
pub(crate) fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/") && !resource.starts_with("requests.")
}

fn bytes(bytes: u64) -> Quantity {
    Quantity(Amount::from_units(signed(bytes)).write(Format::BinarySi))
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
