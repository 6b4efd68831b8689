//! The cgroups of pods, of QoS classes and of what is reserved for daemons.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::cgroups::PodCgroupSettings;
use kubelet_core::quantity::Amount;
use kubelet_resources::cgroups::{MemoryQos, PodCgroups, QosReserved, Reserved, ReservedFor};
use kubelet_resources::{CpuSet, Machine};

use crate::context::Context;
use crate::error::{Problems, invalid};
use crate::tasks::Tasks;
use crate::{Result, Settings};

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    problems.note(qos_reserved_percent(settings));
}

/// Opens the cgroups of this host. `memory_capacity` is in bytes.
pub(crate) async fn open(
    context: &Context,
    pods: PodCgroupSettings,
    memory_capacity: u64,
) -> Result<Arc<PodCgroups>> {
    let settings = &*context.settings;
    let (config, gates) = (&settings.configuration, &settings.feature_gates);
    let mut cgroups = PodCgroups::builder(pods).disk(context.disk);
    match config.cpu_manager_policy.as_str() {
        "static" => cgroups = cgroups.without_cpu_load_balance(),
        _ => match context.disk.run(|| Ok(all_cpus())).await {
            Ok(cpus) => cgroups = cgroups.all_cpus(cpus),
            Err(error) => tracing::warn!(%error, "cannot read the CPUs of this machine"),
        },
    }
    if gates.enabled("MemoryQoS") {
        cgroups = cgroups.memory_qos(match config.memory_reservation_policy.as_str() {
            "TieredReservation" => MemoryQos::TieredReservation,
            _ => MemoryQos::NoReservation,
        });
    }
    if gates.enabled("QOSReserved") {
        let percent = qos_reserved_percent(settings)?.unwrap_or_default();
        let memory = allocatable_memory(settings, memory_capacity);
        cgroups = cgroups.qos_reserved(QosReserved::memory(percent, memory));
    }
    Ok(Arc::new(cgroups.build().await?))
}

/// Limits the daemons that resources are reserved for, and keeps the limits of the QoS classes.
pub(crate) fn start(context: &Context, cgroups: &Arc<PodCgroups>, tasks: &mut Tasks) {
    let (of_daemons, reserved) = (cgroups.clone(), reserved(&context.settings));
    let events = context.node_recorder.clone();
    if !reserved.is_empty() {
        tasks.add_fallible("reserved resources", |_| async move {
            for reserved in reserved {
                of_daemons.enforce_reserved(&reserved, &*events).await?;
            }
            Ok(())
        });
    }
    let of_classes = cgroups.clone();
    tasks.add("QoS classes", |shutdown| async move {
        of_classes.run_qos_updates(shutdown).await;
    });
}

/// What `enforceNodeAllocatable` names, beside pods.
fn reserved(settings: &Settings) -> Vec<Reserved> {
    let config = &settings.configuration;
    let enforced = config.enforce_node_allocatable.iter();
    let of_system = || {
        let list = quantities(&config.system_reserved);
        Reserved::new(ReservedFor::System, &config.system_reserved_cgroup, list)
    };
    let of_kube = || {
        let list = quantities(&config.kube_reserved);
        Reserved::new(ReservedFor::Kube, &config.kube_reserved_cgroup, list)
    };
    let reserved = enforced.filter_map(|what| match what.as_str() {
        "system-reserved" => Some(of_system()),
        "kube-reserved" => Some(of_kube()),
        "system-reserved-compressible" => Some(of_system().only_compressible()),
        "kube-reserved-compressible" => Some(of_kube().only_compressible()),
        _ => None,
    });
    reserved.collect()
}

fn quantities(list: &BTreeMap<String, String>) -> BTreeMap<String, Quantity> {
    let list = list.iter();
    list.map(|(resource, amount)| (resource.clone(), Quantity(amount.clone())))
        .collect()
}

/// `ParseQOSReserved`
fn qos_reserved_percent(settings: &Settings) -> Result<Option<u8>> {
    let mut memory = None;
    for (resource, text) in &settings.configuration.qos_reserved {
        let field = format!("qosReserved[{resource}]");
        if resource != "memory" {
            return Err(invalid(
                &field,
                text,
                format!("cannot reserve {resource:?} resource"),
            ));
        }
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        match percent.filter(|percent| *percent <= 100) {
            Some(percent) => memory = Some(percent),
            None => return Err(invalid(&field, text, "not a percentage from 0% to 100%")),
        }
    }
    Ok(memory)
}

/// The memory that all pods together may use (`GetNodeAllocatableAbsolute`).
fn allocatable_memory(settings: &Settings, capacity: u64) -> i64 {
    let config = &settings.configuration;
    let lists = [&config.system_reserved, &config.kube_reserved];
    let reserved = lists.iter().filter_map(|list| {
        let amount = list.get("memory")?.clone();
        Amount::try_from(&Quantity(amount)).ok()
    });
    let capacity = i64::try_from(capacity).unwrap_or(i64::MAX);
    capacity.saturating_sub(reserved.sum::<Amount>().value()).max(0)
}

/// The CPUs of this machine; empty if they cannot be read.
fn all_cpus() -> String {
    let machine = Machine::read(Path::new("/sys")).unwrap_or_default();
    let mut cpus = CpuSet::new();
    for core in machine.nodes.iter().flat_map(|node| &node.cores) {
        core.threads.iter().for_each(|cpu| cpus.insert(*cpu));
    }
    cpus.to_string()
}
