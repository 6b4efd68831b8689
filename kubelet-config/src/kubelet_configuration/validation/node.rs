//! The node: its cgroups, swap, topology, network and taints.

use k8s_openapi::api::core::v1::Taint;

use super::super::KubeletConfiguration;
use super::errors::Problems;
use super::host::Host;
use crate::{FeatureGates, names};

/// User namespaces are handed out in pieces of this many IDs (`userNsUnitLength`).
const USER_NS_UNIT_LENGTH: i64 = 65_536;
const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn validate(
    config: &KubeletConfiguration,
    gates: &FeatureGates,
    host: &Host,
    problems: &mut Problems,
) {
    if !config.system_cgroups.is_empty() && config.cgroup_root.is_empty() {
        problems.invalid_text("systemCgroups", &config.system_cgroups, "requires cgroupRoot");
    }
    cgroup_version(config, host, problems);
    user_namespaces(config, problems);
    swap(config, gates, problems);

    let policies = ["none", "best-effort", "restricted", "single-numa-node"];
    problems.unless_one_of(
        "topologyManagerPolicy",
        &config.topology_manager_policy,
        &policies,
    );
    let scopes = ["container", "pod"];
    problems.unless_one_of("topologyManagerScope", &config.topology_manager_scope, &scopes);
    let modes = ["none", "hairpin-veth", "promiscuous-bridge"];
    problems.unless_one_of("hairpinMode", &config.hairpin_mode, &modes);

    for (at, taint) in config.register_with_taints.iter().enumerate() {
        self::taint(&format!("registerWithTaints[{at}]"), taint, problems);
    }
}

fn cgroup_version(config: &KubeletConfiguration, host: &Host, problems: &mut Problems) {
    if !host.cgroup_v1 {
        return;
    }
    if config.fail_cgroup_v1 {
        let why = "this host uses cgroup v1; `failCgroupV1: false` (`--fail-cgroupv1=false`) runs on it all the same";
        problems.invalid("failCgroupV1", true, why);
    }
    if config.single_process_oom_kill == Some(false) {
        problems.invalid("singleProcessOOMKill", false, "must not be false with cgroup v1");
    }
}

fn user_namespaces(config: &KubeletConfiguration, problems: &mut Problems) {
    const FIELD: &str = "userNamespaces.idsPerPod";
    let Some(ids) = config.user_namespaces.as_ref().and_then(|pods| pods.ids_per_pod) else {
        return;
    };
    if ids < USER_NS_UNIT_LENGTH {
        problems.invalid(FIELD, ids, format!("must be at least {USER_NS_UNIT_LENGTH}"));
    } else if ids % USER_NS_UNIT_LENGTH != 0 {
        problems.invalid(FIELD, ids, format!("must be a multiple of {USER_NS_UNIT_LENGTH}"));
    } else if ids > i64::from(u32::MAX) {
        problems.invalid(FIELD, ids, format!("must be at most {}", u32::MAX));
    }
}

fn swap(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    const FIELD: &str = "memorySwap.swapBehavior";
    let behavior = &config.memory_swap.swap_behavior;
    if gates.enabled("NodeSwap") {
        problems.unless_one_of(FIELD, behavior, &["", "LimitedSwap", "NoSwap"]);
    } else if !behavior.is_empty() {
        problems.invalid_text(FIELD, behavior, "requires feature gate NodeSwap");
    }
}

/// `CheckTaintValidation`, and no time.
fn taint(field: &str, taint: &Taint, problems: &mut Problems) {
    if let Err(why) = names::qualified_name(&taint.key) {
        problems.invalid_text(format!("{field}.key"), &taint.key, why);
    }
    let value = taint.value.as_deref().unwrap_or_default();
    if let Err(why) = names::label_value(value) {
        problems.invalid_text(format!("{field}.value"), value, why);
    }
    if !taint.effect.is_empty() {
        problems.unless_one_of(&format!("{field}.effect"), &taint.effect, &TAINT_EFFECTS);
    }
    if let Some(added) = &taint.time_added {
        problems.invalid(format!("{field}.timeAdded"), added.0, "must not be set");
    }
}
