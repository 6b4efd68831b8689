//! A simulated host: what its containers use, and what runs short.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::stats::{
    ContainerStats, FsStats, MemoryStats, NodeStats, PodReference, PodStats, ProcessStats, RlimitStats,
    RuntimeStats, SYSTEM_CONTAINER_PODS, Summary,
};
use kubelet_core::{Clock, SummaryProvider};
use kubelet_cri::{RuntimeService, v1};
use kubelet_node::shutdown::ShutdownTrigger;
use parking_lot::Mutex;

use crate::memory_cri::{MemoryCri, hash};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The memory, and the disk.
const MEMORY: u64 = 8 * GIB;
const DISK: u64 = 100 * GIB;
const INODES: u64 = 1_000_000;
const MAX_PIDS: u64 = 32_768;
/// What a reclaim of images or of dead containers frees.
const GARBAGE: u64 = 2 * GIB;

/// A resource that can run short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scarce {
    Memory,
    Disk,
    Inodes,
    Pids,
}

impl Scarce {
    pub(super) const ALL: [Self; 4] = [Self::Memory, Self::Disk, Self::Inodes, Self::Pids];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Inodes => "inodes",
            Self::Pids => "process ids",
        }
    }

    /// What a container of weight 1 uses, in good times, and in addition for each second of a shortage.
    fn rates(self) -> (u64, u64) {
        match self {
            Self::Memory => (20 * MIB, 16 * MIB),
            Self::Disk => (200 * MIB, 150 * MIB),
            Self::Inodes => (100, 2000),
            Self::Pids => (3, 60),
        }
    }
}

/// A host of a simulated node. Clones share it. It outlives its agents.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedHost {
    runtime: MemoryCri,
    clock: Clock,
    /// Shuts the host down.
    pub(super) trigger: ShutdownTrigger,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    shortage: Option<(Scarce, Timestamp)>,
    /// Images and dead containers, in bytes.
    garbage: u64,
    problems: Vec<String>,
    /// The agent has freed garbage, and measures next what that brought.
    has_reclaimed: bool,
    /// What the agent last decided by.
    decided_by: Summary,
    /// How many pods it evicted since.
    evicted: usize,
}

/// What a container or pod uses.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    memory: u64,
    disk: u64,
    inodes: u64,
    pids: u64,
}

impl SimulatedHost {
    pub(crate) fn new(runtime: MemoryCri, clock: Clock) -> Self {
        Self {
            runtime,
            clock,
            trigger: ShutdownTrigger::new(),
            state: Arc::default(),
        }
    }

    /// From now on containers use more and more of this.
    pub(super) fn run_short_of(&self, scarce: Scarce) {
        let mut state = self.state.lock();
        state.shortage = Some((scarce, self.clock.now()));
        state.garbage = GARBAGE;
    }

    /// Containers use again what they need.
    pub(crate) fn has_enough(&self) {
        self.state.lock().shortage = None;
    }

    /// The violations.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.state.lock().problems.clone()
    }

    pub(super) fn wrong(&self, problem: String) {
        self.state.lock().problems.push(problem);
    }

    /// The agent frees garbage.
    pub(super) fn reclaim(&self) {
        let mut state = self.state.lock();
        state.garbage = state.garbage.saturating_sub(GARBAGE / 2);
        state.has_reclaimed = true;
    }

    /// The agent evicts this pod. Checks it against what the agent decided by.
    pub(super) fn evicts(&self, pod: &Pod, considered: &[Arc<Pod>]) -> Vec<String> {
        let mut state = self.state.lock();
        state.evicted += 1;
        let mut wrong = Vec::new();
        if state.evicted > 1 {
            wrong.push(format!(
                "is one of {} pods that are evicted at a time",
                state.evicted
            ));
        }
        if let Some((scarce, _)) = state.shortage {
            wrong.extend(super::checks::frees_nothing(
                pod,
                considered,
                scarce,
                &state.decided_by,
            ));
        }
        wrong
    }

    fn measure(&self, containers: &[v1::Container]) -> Summary {
        let now = self.clock.now();
        let (shortage, garbage) = {
            let state = self.state.lock();
            (state.shortage, state.garbage)
        };
        let mut pods: BTreeMap<String, PodStats> = BTreeMap::new();
        for sandbox in self.runtime.sandboxes() {
            let metadata = sandbox.metadata.unwrap_or_default();
            let stats = pods.entry(metadata.uid.clone()).or_default();
            stats.pod_ref = PodReference {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
            };
            stats.memory = Some(MemoryStats::default());
            stats.process_stats = Some(ProcessStats {
                process_count: Some(0),
            });
        }
        let mut all = Used::default();
        for container in containers {
            let Some(stats) = container
                .labels
                .get("io.kubernetes.pod.uid")
                .and_then(|uid| pods.get_mut(uid))
            else {
                continue;
            };
            let used = used(container, shortage, now);
            all = all.and(used);
            let memory = stats.memory.get_or_insert_default();
            memory.working_set_bytes = Some(memory.working_set_bytes.unwrap_or(0) + used.memory);
            let processes = stats.process_stats.get_or_insert_default();
            processes.process_count = Some(processes.process_count.unwrap_or(0) + used.pids);
            let measured = ContainerStats {
                name: container.metadata.clone().unwrap_or_default().name,
                rootfs: Some(FsStats {
                    used_bytes: Some(used.disk),
                    inodes_used: Some(used.inodes),
                    ..FsStats::default()
                }),
                ..ContainerStats::default()
            };
            stats.containers.get_or_insert_default().push(measured);
        }
        Summary {
            node: node(all, garbage, &Time(now)),
            pods: Some(pods.into_values().collect()),
        }
    }
}

impl Used {
    fn and(self, other: Self) -> Self {
        Self {
            memory: self.memory + other.memory,
            disk: self.disk + other.disk,
            inodes: self.inodes + other.inodes,
            pids: self.pids + other.pids,
        }
    }
}

/// One container in four uses nothing worth mentioning.
fn used(container: &v1::Container, shortage: Option<(Scarce, Timestamp)>, now: Timestamp) -> Used {
    let weight = hash(3, &container.id) % 4;
    let amount = |scarce: Scarce| {
        let (always, per_second) = scarce.rates();
        let seconds = match shortage {
            Some((short, since)) if short == scarce => {
                let made = Timestamp::from_nanosecond(container.created_at.into()).unwrap_or(since);
                u64::try_from(now.duration_since(since.max(made)).as_secs()).unwrap_or(0)
            }
            _ => 0,
        };
        weight * (always + per_second * seconds)
    };
    Used {
        memory: amount(Scarce::Memory),
        disk: amount(Scarce::Disk),
        inodes: amount(Scarce::Inodes),
        pids: amount(Scarce::Pids),
    }
}

fn node(used: Used, garbage: u64, now: &Time) -> NodeStats {
    let memory = |working_set: u64| MemoryStats {
        time: Some(now.clone()),
        available_bytes: Some(MEMORY.saturating_sub(working_set)),
        usage_bytes: Some(working_set.min(MEMORY)),
        working_set_bytes: Some(working_set.min(MEMORY)),
        ..MemoryStats::default()
    };
    let fs = FsStats {
        time: Some(now.clone()),
        available_bytes: Some(DISK.saturating_sub(used.disk + garbage)),
        capacity_bytes: Some(DISK),
        used_bytes: Some((used.disk + garbage).min(DISK)),
        inodes_free: Some(INODES.saturating_sub(used.inodes)),
        inodes: Some(INODES),
        inodes_used: Some(used.inodes.min(INODES)),
    };
    let signed = |count: u64| i64::try_from(count).ok();
    NodeStats {
        memory: Some(memory(used.memory)),
        system_containers: vec![ContainerStats {
            name: SYSTEM_CONTAINER_PODS.to_owned(),
            memory: Some(memory(used.memory)),
            ..ContainerStats::default()
        }],
        runtime: Some(RuntimeStats {
            image_fs: Some(fs.clone()),
            container_fs: Some(fs.clone()),
        }),
        fs: Some(fs),
        rlimit: Some(RlimitStats {
            time: Some(now.clone()),
            max_pid: signed(MAX_PIDS),
            num_of_running_processes: signed(used.pids.min(MAX_PIDS)),
        }),
        ..NodeStats::default()
    }
}

/// The runtime is asked for its containers, so the faults of its calls are those of the measurement.
#[async_trait]
impl SummaryProvider for SimulatedHost {
    async fn get(&self, _: bool) -> Result<Summary, Box<dyn std::error::Error + Send + Sync>> {
        let running = v1::ContainerStateValue {
            state: v1::ContainerState::ContainerRunning.into(),
        };
        let request = v1::ListContainersRequest {
            filter: Some(v1::ContainerFilter {
                state: Some(running),
                ..v1::ContainerFilter::default()
            }),
        };
        let after_reclaim = std::mem::take(&mut self.state.lock().has_reclaimed);
        let listed = self.runtime.list_containers(request).await?;
        let summary = self.measure(&listed.containers);
        let mut state = self.state.lock();
        if !after_reclaim {
            state.decided_by = summary.clone();
            state.evicted = 0;
        }
        Ok(summary)
    }
}
