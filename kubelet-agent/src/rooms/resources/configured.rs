//! The settings of the resource managers.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::Amount;
use kubelet_resources::cpu::{CpuPolicy, CpuPolicyOptions};
use kubelet_resources::memory::{MemoryPolicy, MemoryReservation};
use kubelet_resources::topology::{TopologyOptions, TopologyPolicy, TopologyScope};
use kubelet_resources::{CpuSet, Gates, ResourcesConfig};

use crate::error::{Error, Result, invalid};
use crate::settings::Settings;

/// `reserved` is what the node reserves as a whole.
pub(super) fn resources(
    settings: &Settings,
    reserved: &BTreeMap<String, Quantity>,
) -> Result<ResourcesConfig> {
    let config = &settings.configuration;
    let field = |name: &str, value: &str, error: &dyn std::fmt::Display| invalid(name, value, error);
    let mut resources = ResourcesConfig::default();
    resources.gates = gates(settings);
    let policy = &config.cpu_manager_policy;
    resources.cpu.policy =
        CpuPolicy::parse(policy).map_err(|error| field("cpuManagerPolicy", policy, &error))?;
    resources
        .cpu
        .options
        .clone_from(&config.cpu_manager_policy_options);
    let cpus = &config.reserved_system_cpus;
    resources.cpu.reserved_cpus = cpus
        .parse::<CpuSet>()
        .map_err(|error| field("reservedSystemCPUs", cpus, &error))?;
    resources.cpu.reserved = reserved.get("cpu").and_then(|cpu| Amount::try_from(cpu).ok());
    let policy = &config.memory_manager_policy;
    resources.memory.policy =
        MemoryPolicy::parse(policy).map_err(|error| field("memoryManagerPolicy", policy, &error))?;
    resources.memory.node_reserved.clone_from(reserved);
    for reservation in &config.reserved_memory {
        let node = reservation.numa_node;
        let numa_node = usize::try_from(node);
        resources.memory.reserved.push(MemoryReservation {
            numa_node: numa_node.map_err(|error| field("reservedMemory", &node.to_string(), &error))?,
            limits: reservation.limits.clone(),
        });
    }
    let policy = &config.topology_manager_policy;
    resources.topology_policy =
        TopologyPolicy::parse(policy).map_err(|error| field("topologyManagerPolicy", policy, &error))?;
    let scope = &config.topology_manager_scope;
    resources.topology_scope =
        TopologyScope::parse(scope).map_err(|error| field("topologyManagerScope", scope, &error))?;
    resources.topology_options = TopologyOptions::parse(&config.topology_manager_policy_options)?;
    Ok(resources)
}

/// Each field that is no policy, scope or option, with why.
pub(super) fn problems(settings: &Settings) -> Vec<(&'static str, Error)> {
    let config = &settings.configuration;
    let refused = |name: &str, value: &str, error: kubelet_resources::Error| invalid(name, value, error);
    let mut problems = Vec::new();
    let mut note = |field: &'static str, value: &str, error: Option<kubelet_resources::Error>| {
        problems.extend(error.map(|error| (field, refused(field, value, error))));
    };
    let (cpu, memory) = (&config.cpu_manager_policy, &config.memory_manager_policy);
    let (topology, scope) = (&config.topology_manager_policy, &config.topology_manager_scope);
    note("cpuManagerPolicy", cpu, CpuPolicy::parse(cpu).err());
    note("memoryManagerPolicy", memory, MemoryPolicy::parse(memory).err());
    note(
        "topologyManagerPolicy",
        topology,
        TopologyPolicy::parse(topology).err(),
    );
    note("topologyManagerScope", scope, TopologyScope::parse(scope).err());
    // Without a static policy there is nothing that options could change.
    let options = &config.cpu_manager_policy_options;
    if CpuPolicy::parse(cpu).is_ok_and(|policy| policy == CpuPolicy::Static) {
        let parsed = CpuPolicyOptions::parse(options, gates(settings)).err();
        problems.extend(parsed.map(|error| ("cpuManagerPolicyOptions", Error::from(error))));
    } else if !options.is_empty() {
        let names: Vec<&str> = options.keys().map(String::as_str).collect();
        let why = format!("the policy {cpu:?} has no options");
        problems.push((
            "cpuManagerPolicyOptions",
            invalid("cpuManagerPolicyOptions", &names.join(","), why),
        ));
    }
    let options = &config.topology_manager_policy_options;
    let parsed = TopologyOptions::parse(options).err();
    problems.extend(parsed.map(|error| ("topologyManagerPolicyOptions", Error::from(error))));
    // What is left: `reservedSystemCPUs` and `reservedMemory`.
    if problems.is_empty() {
        let rest = resources(settings, &BTreeMap::new()).err();
        problems.extend(rest.map(|error| ("reservedMemory", error)));
    }
    problems
}

fn gates(settings: &Settings) -> Gates {
    let enabled = |name| settings.feature_gates.enabled(name);
    let mut gates = Gates::default();
    gates.cpu_policy_alpha_options = enabled("CPUManagerPolicyAlphaOptions");
    gates.cpu_policy_beta_options = enabled("CPUManagerPolicyBetaOptions");
    gates.pod_level_resources = enabled("PodLevelResources");
    gates.pod_level_resource_managers = enabled("PodLevelResourceManagers");
    gates.disable_cpu_quota_with_exclusive_cpus = enabled("DisableCPUQuotaWithExclusiveCPUs");
    gates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_sets_the_managers() {
        let mut settings = Settings::new("/var/lib/agent");
        let config = &mut settings.configuration;
        config.cpu_manager_policy = "static".to_owned();
        config.cpu_manager_policy_options = [("full-pcpus-only".to_owned(), "true".to_owned())].into();
        config.memory_manager_policy = "Static".to_owned();
        config.topology_manager_policy = "restricted".to_owned();
        config.topology_manager_scope = "pod".to_owned();
        config.reserved_system_cpus = "0-1".to_owned();
        let reserved = [("cpu".to_owned(), Quantity("2".to_owned()))].into();
        let resources = resources(&settings, &reserved).unwrap();
        assert_eq!(resources.cpu.policy, CpuPolicy::Static);
        assert_eq!(resources.cpu.options.len(), 1);
        assert_eq!(resources.cpu.reserved_cpus.to_string(), "0-1");
        assert_eq!(resources.cpu.reserved, Some(Amount::from_units(2)));
        assert_eq!(resources.memory.policy, MemoryPolicy::Static);
        assert_eq!(resources.topology_policy, TopologyPolicy::Restricted);
        assert_eq!(resources.topology_scope, TopologyScope::Pod);
        assert!(resources.gates.disable_cpu_quota_with_exclusive_cpus);

        settings.configuration.topology_manager_policy = "best".to_owned();
        let error = super::resources(&settings, &BTreeMap::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "misconfigured: topologyManagerPolicy \"best\": unknown policy: \"best\""
        );
    }
}
