//! What must hold of CPUs, memory, devices and claims: nothing belongs to two containers, reserved CPUs are never exclusive, and what a
//! container runs with is on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::annotations::CONFIG_HASH;
use kubelet_core::quantity::Amount;
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::{PodExt, QosClass, qos_class};
use kubelet_cri::v1;
use kubelet_resources::CpuSet;
use kubelet_resources::checkpoint::read_memory_state;
use kubelet_resources::cpu::{CPU_MANAGER_STATE, CpuState};
use kubelet_resources::devices::{DEVICE_MANAGER_STATE, DevicesOfPods, read_device_state};
use kubelet_resources::dra::{DRA_MANAGER_STATE, read_claims};
use kubelet_resources::memory::{MEMORY_MANAGER_STATE, MemoryPolicy, MemoryState};

use super::host::SimulatedMachine;
use super::state_files::StateFiles;
use super::{DRIVER, GPU, NIC};
use crate::memory_cri::{MemoryCri, Planned, RunningContainer, Start};
use crate::simulation::order::Order;

/// The environment variable with the ids of a container's devices of this resource.
pub(super) fn variable(resource: &str) -> String {
    resource.replace(['.', '/'], "_").to_uppercase()
}

/// How much of a resource a container requests.
fn requested(container: &Container, resource: &str) -> Option<Amount> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    Amount::try_from(requests.get(resource)?).ok()
}

/// How many CPUs a container must have for itself.
fn exclusive_cpus(pod: &Pod, container: &Container) -> usize {
    let requested = requested(container, "cpu").unwrap_or_default();
    let whole = requested.milli_value() % 1000 == 0;
    match qos_class(pod) == QosClass::Guaranteed && whole {
        true => usize::try_from(requested.value()).unwrap_or_default(),
        false => 0,
    }
}

/// Whether a container may leave its CPUs and devices to later ones: it runs before them.
fn ends_early(pod: &Pod, name: &str) -> bool {
    let spec = pod.spec.as_ref();
    let mut init = spec
        .into_iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    init.any(|container| container.name == name && !is_restartable_init_container(container))
}

/// What a container runs with.
struct Owned {
    name: String,
    pod: Arc<Pod>,
    /// How many CPUs it must have for itself.
    exclusive_count: usize,
    exclusive: CpuSet,
    /// It was created to share CPUs, and a later agent admitted its static pod. The next reconciliation moves it.
    awaits_own_cpus: bool,
    devices: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Owned {
    /// `None` for a container of a pod that the simulation does not know.
    fn of(
        order: &Order,
        known: &CpuState,
        planned: &Planned,
        resources: &v1::LinuxContainerResources,
    ) -> Option<Self> {
        let pod = order.pod(&planned.pod_uid())?;
        let name = planned.name();
        let container = pod.all_containers().find(|container| container.name == name)?;
        // A static pod that comes back with its UID is started without another admission, as by the kubelet: it shares CPUs.
        let is_static = pod.annotation(CONFIG_HASH).is_some();
        let allocated = known.allocated(pod.uid_str(), name);
        let was_admitted = !is_static || allocated.is_some();
        let requested = exclusive_cpus(&pod, container);
        let cpus: CpuSet = resources.cpuset_cpus.parse().unwrap_or_default();
        let awaits_own_cpus =
            is_static && allocated.is_some_and(|own| *own != cpus) && created_on(planned).len() != requested;
        let exclusive_count = if was_admitted && !awaits_own_cpus {
            requested
        } else {
            0
        };
        let exclusive = match exclusive_count {
            0 => CpuSet::new(),
            _ => cpus,
        };
        let devices = [GPU, NIC].map(|resource| (resource, device_ids(&planned.container, resource)));
        Some(Self {
            name: name.to_owned(),
            pod,
            exclusive_count,
            exclusive,
            awaits_own_cpus,
            devices: devices.into(),
        })
    }

    /// What both have, although both run.
    fn shared_with(&self, other: &Self) -> Vec<String> {
        if self.pod.uid_str() == other.pod.uid_str() && self.name == other.name {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        let of = || format!("also {} of pod {} has, which runs", other.name, other.pod.key());
        let cpus = self.exclusive.intersection(&other.exclusive);
        if !cpus.is_empty() {
            wrong.push(format!("has the exclusive CPUs {cpus}, which {}", of()));
        }
        for (resource, ids) in &self.devices {
            for id in ids.intersection(&other.devices[resource]) {
                wrong.push(format!("has {id} of {resource}, which {}", of()));
            }
        }
        wrong
    }
}

/// The CPUs that a container was created with.
fn created_on(planned: &Planned) -> CpuSet {
    let linux = planned.container.linux.as_ref();
    let resources = linux.and_then(|linux| linux.resources.as_ref());
    let cpus = resources.map(|resources| resources.cpuset_cpus.parse());
    cpus.and_then(Result::ok).unwrap_or_default()
}

fn device_ids(config: &v1::ContainerConfig, resource: &str) -> BTreeSet<String> {
    let variable = variable(resource);
    let env = config.envs.iter().find(|env| env.key == variable);
    let ids = env.map(|env| String::from_utf8_lossy(&env.value).into_owned());
    let ids = ids.unwrap_or_default();
    let ids = ids.split(',').filter(|id| !id.is_empty());
    ids.map(str::to_owned).collect()
}

fn claims(config: &v1::ContainerConfig) -> impl Iterator<Item = &str> {
    let devices = config.cdi_devices.iter().map(|device| device.name.as_str());
    devices.filter_map(|name| name.strip_prefix(DRIVER)?.strip_prefix("/device="))
}

/// The containers that run with a claim that is unprepared.
pub(super) fn users_of(runtime: &MemoryCri, claim: &str) -> Vec<String> {
    let running = runtime.running_containers().into_iter();
    let users = running.filter(|running| claims(&running.planned.container).any(|used| used == claim));
    users
        .map(|running| {
            format!(
                "claim {claim} is unprepared while {} runs with it",
                running.planned.name()
            )
        })
        .collect()
}

impl SimulatedMachine {
    /// What is wrong with a container that starts.
    pub(in crate::simulation) fn wrong_with(&self, start: &Start<'_>) -> Vec<String> {
        let planned = start.planned;
        let resources = planned
            .container
            .linux
            .as_ref()
            .and_then(|linux| linux.resources.clone());
        let resources = resources.unwrap_or_default();
        let known = self.files.cpus().unwrap_or_default();
        let Some(owned) = Owned::of(&self.order, &known, planned, &resources) else {
            return Vec::new();
        };
        let Some(container) = owned
            .pod
            .all_containers()
            .find(|container| container.name == owned.name)
        else {
            return Vec::new();
        };
        let mut wrong = self.wrong_cpus(&owned, &known, &resources);
        for (resource, ids) in &owned.devices {
            let expected = requested(container, resource).unwrap_or_default().value();
            if i64::try_from(ids.len()) != Ok(expected) {
                wrong.push(format!("requests {expected} of {resource}, and has {ids:?}"));
            }
        }
        let used = container
            .resources
            .iter()
            .flat_map(|resources| resources.claims.iter().flatten());
        if used.count() != claims(&planned.container).count() {
            wrong.push(format!(
                "does not have its claims: {:?}",
                planned.container.cdi_devices
            ));
        }
        let prepared = self.driver.prepared();
        for claim in claims(&planned.container).filter(|claim| !prepared.iter().any(|name| name == claim)) {
            wrong.push(format!("is started, and its claim {claim} is not prepared"));
        }
        for other in &start.running {
            let other = self.owned(&known, other);
            wrong.extend(other.iter().flat_map(|other| owned.shared_with(other)));
        }
        wrong
    }

    fn wrong_cpus(
        &self,
        owned: &Owned,
        known: &CpuState,
        resources: &v1::LinuxContainerResources,
    ) -> Vec<String> {
        let expected = owned.exclusive_count;
        let (cpus, mut wrong) = (&owned.exclusive, Vec::new());
        if cpus.len() != expected {
            wrong.push(format!("should have {expected} exclusive CPUs, and has {cpus}"));
        }
        // With strict-cpu-reservation there may be none to share: then it is not limited, as with the kubelet.
        let shares_some = !known.shared.is_empty() && !self.files.may_have_shared_none();
        if resources.cpuset_cpus.is_empty() && shares_some {
            wrong.push("is started without CPUs".to_owned());
        }
        let reserved = cpus.intersection(&self.config.cpu.reserved_cpus);
        if !reserved.is_empty() {
            wrong.push(format!("has the reserved CPUs {reserved} for itself"));
        }
        let by_file = known.allocated(owned.pod.uid_str(), &owned.name).cloned();
        if by_file.unwrap_or_default() != *cpus {
            wrong.push(format!(
                "has the exclusive CPUs {cpus}, which are not in the state file"
            ));
        }
        wrong
    }

    /// What is wrong with the machine at any time.
    pub(in crate::simulation) fn problems(&self, runtime: &MemoryCri) -> Vec<String> {
        let mut wrong = self.files.problems();
        wrong.extend(self.driver.violations());
        let known = self.files.cpus().unwrap_or_default();
        let running = runtime.running_containers();
        let owned = running.iter().filter_map(|running| self.owned(&known, running));
        let owned: Vec<Owned> = owned.collect();
        for (number, one) in owned.iter().enumerate() {
            let by_file = known
                .allocated(one.pod.uid_str(), &one.name)
                .cloned()
                .unwrap_or_default();
            if by_file != one.exclusive && !one.awaits_own_cpus {
                let (cpus, key, name) = (&one.exclusive, one.pod.key(), &one.name);
                wrong.push(format!(
                    "{name} of pod {key} runs on {cpus}, by the state file on {by_file}"
                ));
            }
            for other in &owned[number + 1..] {
                let shared = one.shared_with(other).into_iter();
                wrong.extend(shared.map(|what| format!("{} of pod {} {what}", one.name, one.pod.key())));
            }
        }
        wrong
    }

    fn owned(&self, known: &CpuState, running: &RunningContainer) -> Option<Owned> {
        Owned::of(&self.order, known, &running.planned, &running.resources)
    }

    /// The containers that do not run yet on the CPUs that they should share, or have for themselves.
    pub(in crate::simulation) fn unsettled(&self, runtime: &MemoryCri) -> Vec<String> {
        let known = self.files.cpus().unwrap_or_default();
        let shared = &known.shared;
        let mut unsettled = Vec::new();
        for running in runtime.running_containers() {
            let Some(owned) = self.owned(&known, &running) else {
                continue;
            };
            let cpus: CpuSet = running.resources.cpuset_cpus.parse().unwrap_or_default();
            if owned.exclusive.is_empty() && (cpus != *shared || owned.awaits_own_cpus) {
                let (name, key) = (&owned.name, owned.pod.key());
                unsettled.push(format!(
                    "{name} of pod {key} runs on {cpus}, the shared CPUs are {shared}"
                ));
            }
        }
        unsettled
    }

    /// What pods still have by the state files.
    pub(in crate::simulation) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let cpus = self.files.cpus().unwrap_or_default();
        left.extend(
            cpus.containers
                .keys()
                .map(|uid| format!("the CPU manager keeps CPUs of pod {uid}")),
        );
        let memory = self.files.memory().unwrap_or_default();
        left.extend(
            memory
                .containers
                .keys()
                .map(|uid| format!("the memory manager keeps memory of pod {uid}")),
        );
        let prepared = self.driver.prepared().into_iter();
        left.extend(prepared.map(|claim| format!("claim {claim} is still prepared")));
        let claims = self.files.contents(DRA_MANAGER_STATE);
        let claims = claims
            .and_then(|contents| read_claims(&contents).ok())
            .unwrap_or_default();
        left.extend(
            claims
                .iter()
                .map(|claim| format!("the state file has claim {}", claim.claim_name)),
        );
        left
    }

    /// The pods that have devices by the state file.
    pub(in crate::simulation) fn with_devices(&self) -> BTreeSet<String> {
        self.devices().0.into_keys().collect()
    }

    /// Whether the state file has this resource.
    pub(super) fn has_registered(&self, resource: &str) -> bool {
        self.devices().1.iter().any(|registered| registered == resource)
    }

    fn devices(&self) -> (DevicesOfPods, Vec<String>) {
        let contents = self.files.contents(DEVICE_MANAGER_STATE);
        let known = contents.and_then(|contents| read_device_state(&contents).ok());
        known.unwrap_or_default()
    }
}

impl StateFiles {
    fn memory(&self) -> Option<MemoryState> {
        self.parse_memory(&self.contents(MEMORY_MANAGER_STATE)?).ok()
    }

    fn parse_memory(&self, contents: &[u8]) -> kubelet_resources::Result<MemoryState> {
        use kubelet_resources::checkpoint::StateStore as _;
        let path = self.path(MEMORY_MANAGER_STATE);
        read_memory_state(contents, MemoryPolicy::Static, self.config.gates, &path)
    }
}

/// What is wrong with a state file that was written.
pub(super) fn state_file(files: &StateFiles, name: &str, contents: &[u8]) -> Vec<String> {
    let wrong = match name {
        CPU_MANAGER_STATE => files.parse_cpus(contents).map(|state| wrong_cpus(files, &state)),
        MEMORY_MANAGER_STATE => files.parse_memory(contents).map(|state| wrong_memory(&state)),
        DEVICE_MANAGER_STATE => {
            read_device_state(contents).map(|(pods, _)| wrong_devices(&files.order, &pods))
        }
        DRA_MANAGER_STATE => read_claims(contents).map(|_| Vec::new()),
        _ => return vec![format!("the file {name} is written")],
    };
    let wrong = wrong.unwrap_or_else(|error| vec![error.to_string()]);
    wrong
        .into_iter()
        .map(|wrong| format!("{name}: {wrong}"))
        .collect()
}

fn wrong_cpus(files: &StateFiles, state: &CpuState) -> Vec<String> {
    let mut wrong = Vec::new();
    let reserved = state
        .all_allocated()
        .intersection(&files.config.cpu.reserved_cpus);
    if !reserved.is_empty() {
        wrong.push(format!("the reserved CPUs {reserved} are exclusive"));
    }
    let both = state.all_allocated().intersection(&state.shared);
    if !both.is_empty() {
        wrong.push(format!("the CPUs {both} are both shared and exclusive"));
    }
    let known = state
        .containers
        .iter()
        .flat_map(|(uid, containers)| containers.iter().map(move |(name, cpus)| (uid, name, cpus)));
    let all: Vec<_> = known.collect();
    for (number, (uid, name, cpus)) in all.iter().enumerate() {
        for (other_uid, other_name, other) in &all[number + 1..] {
            let both = cpus.intersection(other);
            if !both.is_empty() && !may_share(&files.order, uid, [name, other_name], uid == other_uid) {
                wrong.push(format!(
                    "{both} belong to {name} of {uid} and to {other_name} of {other_uid}"
                ));
            }
        }
    }
    wrong
}

/// Whether two containers may have the same CPU or device: they belong to one pod, and one ends before the other begins.
fn may_share(order: &Order, uid: &str, names: [&str; 2], same_pod: bool) -> bool {
    let pod = order.pod(&uid.into());
    same_pod && pod.is_none_or(|pod| names.into_iter().any(|name| ends_early(&pod, name)))
}

fn wrong_memory(state: &MemoryState) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut reserved, mut given) = (0, 0);
    for (id, node) in &state.nodes {
        for (resource, table) in &node.memory {
            reserved += table.reserved;
            if table.reserved + table.free != table.allocatable
                || table.allocatable + table.system_reserved != table.total
            {
                wrong.push(format!("{resource} of node {id} does not add up: {table:?}"));
            }
        }
    }
    for block in state.containers.values().flat_map(BTreeMap::values).flatten() {
        given += block.size;
    }
    if reserved != given {
        wrong.push(format!(
            "containers have {given} bytes, and {reserved} are reserved for them"
        ));
    }
    wrong
}

fn wrong_devices(order: &Order, pods: &DevicesOfPods) -> Vec<String> {
    let mut owners: BTreeMap<(&str, String), Vec<(&str, &str)>> = BTreeMap::new();
    for (uid, containers) in pods {
        for (name, resources) in containers {
            for (resource, devices) in resources {
                for id in devices.ids() {
                    owners.entry((resource, id)).or_default().push((uid, name));
                }
            }
        }
    }
    let mut wrong = Vec::new();
    for ((resource, id), of) in owners {
        for (number, (uid, name)) in of.iter().enumerate() {
            for (other_uid, other_name) in &of[number + 1..] {
                if !may_share(order, uid, [name, other_name], uid == other_uid) {
                    wrong.push(format!(
                        "{id} of {resource} belongs to {name} of {uid} and to {other_name} of {other_uid}"
                    ));
                }
            }
        }
    }
    wrong
}
