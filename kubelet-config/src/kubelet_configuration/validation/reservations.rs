//! Reserved CPUs and memory, and where the reservations are enforced.

use std::collections::{BTreeMap, BTreeSet};

use kubelet_core::quantity::Amount;

use super::super::KubeletConfiguration;
use super::super::effective::cpu_range;
use super::errors::Problems;

const ENFORCE: &str = "enforceNodeAllocatable";

const PODS: &str = "pods";
const SYSTEM_RESERVED: &str = "system-reserved";
const SYSTEM_RESERVED_COMPRESSIBLE: &str = "system-reserved-compressible";
const KUBE_RESERVED: &str = "kube-reserved";
const KUBE_RESERVED_COMPRESSIBLE: &str = "kube-reserved-compressible";
const NONE: &str = "none";

pub(super) fn validate(config: &KubeletConfiguration, problems: &mut Problems) {
    enforcement(config, problems);
    reserved_cpus(config, problems);
    reserved_memory(config, problems);
}

fn enforcement(config: &KubeletConfiguration, problems: &mut Problems) {
    let enforced = &config.enforce_node_allocatable;
    let has = |key: &str| enforced.iter().any(|enforced| enforced == key);
    for (whole, compressible) in [
        (SYSTEM_RESERVED, SYSTEM_RESERVED_COMPRESSIBLE),
        (KUBE_RESERVED, KUBE_RESERVED_COMPRESSIBLE),
    ] {
        if has(whole) && has(compressible) {
            let why = format!("cannot contain both {whole:?} and {compressible:?}");
            problems.invalid(ENFORCE, format!("{enforced:?}"), why);
        }
    }

    let mut seen = BTreeSet::new();
    for (at, key) in enforced.iter().enumerate() {
        let field = format!("{ENFORCE}[{at}]");
        if !seen.insert(key) {
            problems.invalid_text(field, key, "is there twice");
            continue;
        }
        match key.as_str() {
            PODS => {}
            SYSTEM_RESERVED | SYSTEM_RESERVED_COMPRESSIBLE => {
                cgroup_given(
                    "systemReservedCgroup",
                    &config.system_reserved_cgroup,
                    key,
                    problems,
                );
            }
            KUBE_RESERVED | KUBE_RESERVED_COMPRESSIBLE => {
                cgroup_given("kubeReservedCgroup", &config.kube_reserved_cgroup, key, problems);
            }
            NONE => {
                if enforced.len() > 1 {
                    problems.invalid_text(field, key, "cannot stand with other enforcements");
                }
                continue;
            }
            _ => {
                let keys = [
                    PODS,
                    SYSTEM_RESERVED,
                    SYSTEM_RESERVED_COMPRESSIBLE,
                    KUBE_RESERVED,
                    KUBE_RESERVED_COMPRESSIBLE,
                    NONE,
                ];
                problems.unless_one_of(&field, key, &keys);
                continue;
            }
        }
        if !config.cgroups_per_qos {
            problems.invalid(
                "cgroupsPerQOS",
                false,
                format!("must be true when {ENFORCE} contains {key:?}"),
            );
        }
    }
}

fn cgroup_given(field: &str, cgroup: &str, key: &str, problems: &mut Problems) {
    if cgroup.is_empty() {
        problems.invalid_text(
            field,
            cgroup,
            format!("must be set when {ENFORCE} contains {key:?}"),
        );
    }
}

fn reserved_cpus(config: &KubeletConfiguration, problems: &mut Problems) {
    const FIELD: &str = "reservedSystemCPUs";
    let cpus = &config.reserved_system_cpus;
    if cpus.is_empty() {
        return;
    }
    if !config.system_reserved_cgroup.is_empty() || !config.kube_reserved_cgroup.is_empty() {
        let why = "cannot be set together with systemReservedCgroup or kubeReservedCgroup";
        problems.invalid_text(FIELD, cpus, why);
    }
    if let Some(range) = cpus.split(',').find(|range| cpu_range(range).is_none()) {
        problems.invalid_text(
            FIELD,
            cpus,
            format!("{range:?} is neither a CPU nor a range of CPUs"),
        );
    }
}

fn reserved_memory(config: &KubeletConfiguration, problems: &mut Problems) {
    let mut seen: BTreeMap<i32, BTreeSet<&str>> = BTreeMap::new();
    for (at, reservation) in config.reserved_memory.iter().enumerate() {
        let node = reservation.numa_node;
        for (resource, quantity) in &reservation.limits {
            let field = format!("reservedMemory[{at}].limits.{resource}");
            if resource != "memory" && !resource.starts_with("hugepages-") {
                let why = "is not supported: only memory and hugepages-<size> are";
                problems.invalid_text(field.clone(), &quantity.0, why);
            }
            if Amount::try_from(quantity).is_ok_and(Amount::is_zero) {
                problems.invalid_text(field.clone(), &quantity.0, "must not be zero");
            }
            if !seen.entry(node).or_default().insert(resource) {
                let why = format!("NUMA node {node} has it already");
                problems.invalid_text(field, &quantity.0, why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ranges() {
        for range in ["0", "7", "0-3", "3-3", "+1", "007"] {
            assert!(cpu_range(range).is_some(), "{range}");
        }
        for range in [
            "",
            "a",
            "1-0",
            "-1",
            "1-",
            "1-2-3",
            "a-b",
            " 1",
            "1.5",
            "99999999999999999999",
        ] {
            assert!(cpu_range(range).is_none(), "{range}");
        }
    }
}
