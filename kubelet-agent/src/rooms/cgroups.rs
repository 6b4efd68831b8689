//! The cgroups of pods, of QoS classes and of what is reserved for daemons.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::cgroups::{CgroupDriver, ExclusiveCpus, PodCgroupSettings};
use kubelet_core::quantity::Amount;
use kubelet_resources::cgroups::{CgroupMounts, MemoryQos, PodCgroups, QosReserved, Reserved, ReservedFor};
use kubelet_resources::{CpuSet, Machine};

use crate::context::Context;
use crate::error::{Result, invalid};
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    problems.note("qosReserved", qos_reserved_percent(settings));
    for reserved in reserved(settings).iter().filter(|it| it.resources.is_empty()) {
        let (field, list) = fields_of(reserved.reserved_for);
        let why = format!(
            "{field} {:?} is to be limited, but {list} is empty",
            reserved.cgroup
        );
        problems.add("enforceNodeAllocatable", why);
    }
}

/// Notes cgroups that do not exist.
pub(crate) async fn inspect(inspection: &Inspection<'_>, problems: &mut Problems) {
    let config = &inspection.settings.configuration;
    if !inspection.makes_cgroups || !config.cgroups_per_qos {
        return;
    }
    let mounts = match inspection.look(CgroupMounts::of_this_host).await {
        Ok(mounts) => mounts,
        Err(error) => return problems.add("cgroupsPerQOS", error.to_string()),
    };
    let driver = CgroupDriver::configured(true, &config.cgroup_driver, &config.cgroup_root);
    // The runtime, which may not answer yet, may report the other driver.
    let other = match driver {
        CgroupDriver::Systemd { .. } => "cgroupfs",
        _ => "systemd",
    };
    let other = CgroupDriver::configured(true, other, &config.cgroup_root);
    for reserved in reserved(inspection.settings) {
        let (mounts, driver, other) = (mounts.clone(), driver.clone(), other.clone());
        let cgroup = reserved.cgroup;
        let look = move || {
            let checked = mounts.check(&driver, &cgroup);
            Ok(checked.or_else(|missing| mounts.check(&other, &cgroup).map_err(|_| missing)))
        };
        let checked = inspection.look(look).await;
        let (field, _) = fields_of(reserved.reserved_for);
        match checked {
            Ok(Ok(())) => {}
            Ok(Err(missing)) => problems.add(field, missing),
            Err(error) => problems.add(field, error.to_string()),
        }
    }
    // The cgroup of all pods is made, if it is not there.
    let Some(all_pods) = driver.all_pods() else {
        return;
    };
    let of_pods = driver.path(&all_pods);
    let is_systemd = matches!(driver, CgroupDriver::Systemd { .. });
    let (at, look) = (mounts.clone(), driver.clone());
    let exists = inspection
        .look(move || Ok(at.check(&look, &of_pods).is_ok()))
        .await;
    if !is_systemd && !exists.unwrap_or_default() {
        for mount in mounts.all() {
            inspection.writes("cgroupsPerQOS", mount, problems).await;
        }
    }
}

/// The field with the cgroup, and the one with the resources.
fn fields_of(reserved_for: ReservedFor) -> (&'static str, &'static str) {
    match reserved_for {
        ReservedFor::System => ("systemReservedCgroup", "systemReserved"),
        _ => ("kubeReservedCgroup", "kubeReserved"),
    }
}

/// Opens the cgroups of this host. `memory_capacity` is in bytes.
pub(crate) async fn open(
    context: &Context,
    pods: PodCgroupSettings,
    memory_capacity: u64,
    exclusive_cpus: Arc<dyn ExclusiveCpus>,
) -> Result<Arc<PodCgroups>> {
    let settings = &*context.settings;
    let (config, gates) = (&settings.configuration, &settings.feature_gates);
    let mut cgroups = PodCgroups::builder(pods)
        .disk(context.disk)
        .exclusive_cpus(exclusive_cpus);
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

/// Limits the daemons that resources are reserved for and the cgroup of all pods, and keeps the limits of the QoS classes. `bound` is
/// what all pods together may use.
pub(crate) fn start(
    context: &Context,
    cgroups: &Arc<PodCgroups>,
    bound: BTreeMap<String, Quantity>,
    tasks: &mut Tasks,
) {
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
    let (of_all, events) = (cgroups.clone(), context.node_recorder.clone());
    tasks.add("allocatable", |shutdown| async move {
        let bounds = of_all.enforce_node_allocatable(&bound, &*events);
        shutdown.run_until_cancelled(bounds).await;
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
        let mut settings = Settings::new("/nowhere");
        change(&mut settings);
        settings
    }

    fn list(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter()
            .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()))
            .collect()
    }

    #[test]
    fn qos_reserved_is_a_percentage_of_memory() {
        let of = |reserved: &[(&str, &str)]| {
            let settings = settings(|settings| settings.configuration.qos_reserved = list(reserved));
            qos_reserved_percent(&settings).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("memory", "50%")]), Ok(Some(50)));
        assert_eq!(of(&[("memory", "0%")]), Ok(Some(0)));
        for (resource, text, words) in [
            ("memory", "50", "not a percentage"),
            ("memory", "101%", "not a percentage"),
            ("memory", "-1%", "not a percentage"),
            ("cpu", "50%", "cannot reserve \"cpu\" resource"),
        ] {
            let error = of(&[(resource, text)]).unwrap_err();
            assert!(error.contains(&format!("qosReserved[{resource}]")), "{error}");
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_reserved_is_enforced_where_it_is_named() {
        let settings = settings(|settings| {
            let config = &mut settings.configuration;
            config.system_reserved = list(&[("cpu", "100m"), ("memory", "1Gi")]);
            config.kube_reserved = list(&[("memory", "512Mi")]);
            config.system_reserved_cgroup = "/system".to_owned();
            config.kube_reserved_cgroup = "/kube".to_owned();
            let enforced = ["pods", "system-reserved-compressible", "kube-reserved"];
            config.enforce_node_allocatable = enforced.map(str::to_owned).to_vec();
        });
        let found = reserved(&settings).into_iter().map(|reserved| {
            let resources: Vec<String> = reserved
                .resources
                .iter()
                .map(|(name, Quantity(amount))| format!("{name}={amount}"))
                .collect();
            (
                reserved.cgroup,
                reserved.reserved_for,
                reserved.only_compressible,
                resources.join(" "),
            )
        });
        let expected = [
            (
                "/system".to_owned(),
                ReservedFor::System,
                true,
                "cpu=100m memory=1Gi".to_owned(),
            ),
            (
                "/kube".to_owned(),
                ReservedFor::Kube,
                false,
                "memory=512Mi".to_owned(),
            ),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!(allocatable_memory(&settings, 4 << 30), (4 << 30) - (3 << 29));
        assert_eq!(allocatable_memory(&settings, 1 << 30), 0);
    }
}
