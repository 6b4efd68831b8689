//! The metrics of the machine (cAdvisor's `PrometheusMachineCollector`).

use super::text::Kind::Gauge;
use super::text::Number::{self, Whole};
use super::text::{Text, push_label};
use crate::reading::{Machine, SystemVersion};

/// `cadvisor_version_info`. The kubelet contains no version of Docker and of cAdvisor.
pub(super) fn write_version(version: &SystemVersion, text: &mut Text) {
    let name = "cadvisor_version_info";
    let help = "A metric with a constant '1' value labeled by kernel version, OS version, docker version, \
                cadvisor version & cadvisor revision.";
    text.header(name, Gauge, help);
    let mut labels = "cadvisorRevision=\"\",cadvisorVersion=\"\",dockerVersion=\"\"".to_owned();
    push_label(&mut labels, ",kernelVersion", &version.kernel);
    push_label(&mut labels, ",osVersion", &version.os);
    text.series(name, [&labels], Whole(1), None);
}

/// `machine_*`. Without a machine, there was an error.
pub(super) fn write(machine: Option<&Machine>, text: &mut Text) {
    let mut labels = Labels::default();
    if let Some(machine) = machine {
        labels = Labels::new(machine);
        let mut one = |name, help, value| labels.one(text, name, help, value);
        one("machine_cpu_books", "Number of CPU books.", Whole(machine.books));
        one(
            "machine_cpu_cores",
            "Number of logical CPU cores.",
            Whole(machine.cores),
        );
        one(
            "machine_cpu_drawers",
            "Number of CPU drawers.",
            Whole(machine.drawers),
        );
        let (physical, sockets) = (machine.physical_cores, machine.sockets);
        one(
            "machine_cpu_physical_cores",
            "Number of physical CPU cores.",
            Whole(physical),
        );
        one("machine_cpu_sockets", "Number of CPU sockets.", Whole(sockets));
        labels.modules(machine, text);
        let memory = Whole(machine.memory_capacity);
        labels.one(
            text,
            "machine_memory_bytes",
            "Amount of memory installed on the machine.",
            memory,
        );
        labels.nvm(text);
    }
    let help = "1 if there was an error while getting machine metrics, 0 otherwise.";
    text.single(
        "machine_scrape_error",
        Gauge,
        help,
        Whole(machine.is_none().into()),
        None,
    );
    if let Some(machine) = machine {
        let swap = Whole(machine.swap_capacity);
        let help = "Amount of swap memory available on the machine.";
        labels.one(text, "machine_swap_bytes", help, swap);
    }
}

/// The labels of each metric, with room before `system_uuid`.
#[derive(Default)]
struct Labels {
    boot_and_machine: String,
    system: String,
}

impl Labels {
    fn new(machine: &Machine) -> Self {
        let mut labels = Self::default();
        push_label(&mut labels.boot_and_machine, "boot_id", &machine.boot_id);
        push_label(&mut labels.boot_and_machine, ",machine_id", &machine.machine_id);
        push_label(&mut labels.system, ",system_uuid", &machine.system_uuid);
        labels
    }

    fn one(&self, text: &mut Text, name: &str, help: &str, value: Number) {
        text.header(name, Gauge, help);
        text.series(name, [self.boot_and_machine.as_str(), &self.system], value, None);
    }

    /// Memory modules. Most machines do not describe them.
    fn modules(&self, machine: &Machine, text: &mut Text) {
        let modules = &machine.memory_by_type;
        if modules.is_empty() {
            return;
        }
        let capacity = "Total RAM DIMM capacity (all types memory modules) value labeled by dimm type.";
        let count = "Number of RAM DIMM (all types memory modules) value labeled by dimm type.";
        for (name, help, is_capacity) in [
            ("machine_dimm_capacity_bytes", capacity, true),
            ("machine_dimm_count", count, false),
        ] {
            text.header(name, Gauge, help);
            for (kind, bytes, count) in modules {
                let mut label = String::new();
                push_label(&mut label, ",type", kind);
                let value = Whole(if is_capacity { *bytes } else { *count });
                text.series(
                    name,
                    [self.boot_and_machine.as_str(), &self.system, &label],
                    value,
                    None,
                );
            }
        }
    }

    /// Persistent memory. It is read with a library that the kubelet is not built with, so it is 0.
    fn nvm(&self, text: &mut Text) {
        self.one(
            text,
            "machine_nvm_avg_power_budget_watts",
            "NVM power budget.",
            Whole(0),
        );
        let name = "machine_nvm_capacity";
        let help = "NVM capacity value labeled by NVM mode (memory mode or app direct mode).";
        text.header(name, Gauge, help);
        for mode in [",mode=\"app_direct_mode\"", ",mode=\"memory_mode\""] {
            let labels = [self.boot_and_machine.as_str(), mode, &self.system];
            text.series(name, labels, Whole(0), None);
        }
    }
}
