//! The usage of pods, containers and images (`criStatsProvider`).

use std::collections::{BTreeMap, HashMap};

use futures::future::try_join;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{ContainerId, PodKey, PodUid};
use parking_lot::Mutex;

use crate::config::LabeledInfo;
use crate::read::{Listing, timestamp};
use crate::runtime::CriRuntime;
use crate::streaming::cri_error;
use kubelet_cri::{Error, v1};

/// A usage that was not updated for this long is removed (`defaultCachePeriod`), in nanoseconds.
const CACHE_PERIOD: i64 = 10 * 60 * 1_000_000_000;

/// The usage of a pod, as the runtime reports it. A value that the runtime does not report is `None`; the kubelet reads
/// it from cAdvisor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PodStats {
    /// The pod.
    pub uid: PodUid,
    /// Its name and namespace.
    pub key: PodKey,
    /// Its sandbox, by its id in the runtime.
    pub sandbox_id: String,
    /// When the sandbox was created.
    pub started_at: Option<Timestamp>,
    /// CPU time of the whole pod.
    pub cpu: Option<v1::CpuUsage>,
    /// Memory of the whole pod.
    pub memory: Option<v1::MemoryUsage>,
    /// Its network interfaces; none for a pod on the host's network.
    pub network: Option<v1::NetworkUsage>,
    /// How many processes it has.
    pub processes: Option<u64>,
    /// Its running containers.
    pub containers: Vec<ContainerStats>,
}

/// The usage of a container, as the runtime reports it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ContainerStats {
    /// Its name in the pod.
    pub name: String,
    /// Its id.
    pub id: ContainerId,
    /// When it was created.
    pub started_at: Option<Timestamp>,
    /// CPU time. If the runtime reports no rate, `usage_nano_cores` is the rate since the last request for stats.
    pub cpu: Option<v1::CpuUsage>,
    /// Memory.
    pub memory: Option<v1::MemoryUsage>,
    /// Swap.
    pub swap: Option<v1::SwapUsage>,
    /// Usage of its writable layer.
    pub writable_layer: Option<v1::FilesystemUsage>,
}

/// The usage of the file systems of images and of containers, which are often the same. The first one of each counts.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ImageFsInfo {
    /// The file system of images.
    pub image_filesystems: Vec<v1::FilesystemUsage>,
    /// The file system of the containers' writable layers. Runtimes before CRI 1.29 do not report it.
    pub container_filesystems: Vec<v1::FilesystemUsage>,
}

/// The CPU time of a container at the last request.
#[derive(Default)]
pub(crate) struct CpuTimes(Mutex<HashMap<String, (i64, u64)>>);

impl CpuTimes {
    /// Fills in the rate since the last request, if there is none (`getAndUpdateContainerUsageNanoCores`).
    fn fill_rate(&self, id: &str, cpu: &mut v1::CpuUsage) {
        let Some(time) = cpu.usage_core_nano_seconds.as_ref().map(|time| time.value) else {
            return;
        };
        if cpu.usage_nano_cores.is_some() {
            return;
        }
        let mut times = self.0.lock();
        let (at_before, before) = match times.get(id).copied() {
            // The counter was reset.
            Some((_, before)) if time < before => (cpu.timestamp, time),
            Some(known) => known,
            None => (cpu.timestamp, time),
        };
        let passed = cpu.timestamp.saturating_sub(at_before);
        if passed > 0 {
            let rate = u128::from(time - before) * 1_000_000_000 / passed.unsigned_abs() as u128;
            cpu.usage_nano_cores = Some(v1::UInt64Value {
                value: u64::try_from(rate).unwrap_or(u64::MAX),
            });
        }
        if passed >= 0 {
            times.insert(id.to_owned(), (cpu.timestamp, time));
        }
    }

    fn forget_before(&self, now: Timestamp) {
        let now = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
        self.0
            .lock()
            .retain(|_, (at, _)| now.saturating_sub(*at) <= CACHE_PERIOD);
    }
}

impl CriRuntime {
    /// The usage of all pods (`ListPodStats`): from `ListPodSandboxStats`, or from `ListContainerStats` if the runtime
    /// does not implement that; then only the usage of containers is known. If a pod has several sandboxes, the ready
    /// ones count. Of containers, the running ones count.
    ///
    /// # Errors
    ///
    /// Those of the calls; [`Error::is_unimplemented`] if the runtime has no stats at all.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn pod_stats(&self) -> Result<Vec<PodStats>, Error> {
        let all = Listing::default();
        let listed = try_join(self.list_sandboxes(all), self.list_containers(all)).await;
        let (sandboxes, containers) = listed.map_err(|error| cri_error("ListPodSandboxStats", error))?;
        let mut known = Known::of(sandboxes, containers);
        let request = v1::ListPodSandboxStatsRequest::default();
        let stats = self.missing.offered(
            "ListPodSandboxStats",
            self.runtime.list_pod_sandbox_stats(request),
        );
        match stats.await? {
            Some(response) => {
                for stats in response.stats {
                    self.add_sandbox(&mut known, stats);
                }
            }
            None => {
                let request = v1::ListContainerStatsRequest::default();
                for stats in self.runtime.list_container_stats(request).await?.stats {
                    self.add_container(&mut known, stats);
                }
            }
        }
        self.cpu_times.forget_before(self.clock.now());
        Ok(known
            .pods
            .into_values()
            .filter(|(_, reported)| *reported)
            .map(|(pod, _)| pod)
            .collect())
    }

    /// The disk usage of images and containers (`ImageFsInfo`).
    ///
    /// # Errors
    ///
    /// Those of the call; [`Error::InvalidResponse`] if the runtime reports no file system.
    pub async fn image_fs_info(&self) -> Result<ImageFsInfo, Error> {
        const CALL: &str = "ImageFsInfo";
        let response = self
            .image_service
            .image_fs_info(v1::ImageFsInfoRequest {})
            .await?;
        if response.image_filesystems.is_empty() {
            let message = "imageFs information is unavailable".to_owned();
            return Err(Error::InvalidResponse {
                call: CALL,
                id: String::new(),
                message,
            });
        }
        Ok(ImageFsInfo {
            image_filesystems: response.image_filesystems,
            container_filesystems: response.container_filesystems,
        })
    }

    fn add_sandbox(&self, known: &mut Known, stats: v1::PodSandboxStats) {
        let Some(id) = stats.attributes.map(|attributes| attributes.id) else {
            return;
        };
        let Some((pod, reported)) = known.pods.get_mut(&id) else {
            return;
        };
        *reported = true;
        let Some(linux) = stats.linux else { return };
        pod.cpu = linux.cpu;
        pod.memory = linux.memory;
        pod.network = linux.network;
        pod.processes = linux
            .process
            .and_then(|process| Some(process.process_count?.value));
        for stats in linux.containers {
            self.add_container(known, stats);
        }
    }

    fn add_container(&self, known: &mut Known, stats: v1::ContainerStats) {
        let Some(id) = stats.attributes.map(|attributes| attributes.id) else {
            return;
        };
        let Some(container) = known.containers.get(&id) else {
            return;
        };
        let Some((pod, reported)) = known.pods.get_mut(&container.sandbox_id) else {
            return;
        };
        let mut cpu = stats.cpu;
        if let Some(cpu) = &mut cpu {
            self.cpu_times.fill_rate(&id, cpu);
        }
        *reported = true;
        pod.containers.push(ContainerStats {
            name: container.name.clone(),
            id: self.container_id(&id),
            started_at: container.created_at,
            cpu,
            memory: stats.memory,
            swap: stats.swap,
            writable_layer: stats.writable_layer,
        });
    }
}

/// The pods and containers that stats may refer to.
struct Known {
    /// By the id of the sandbox, with a flag whether there are stats for it.
    pods: BTreeMap<String, (PodStats, bool)>,
    containers: HashMap<String, KnownContainer>,
}

struct KnownContainer {
    name: String,
    sandbox_id: String,
    created_at: Option<Timestamp>,
}

impl Known {
    /// (`getPodAndContainerMaps`)
    fn of(sandboxes: Vec<v1::PodSandbox>, containers: Vec<v1::Container>) -> Self {
        let mut by_name: BTreeMap<PodKey, Vec<v1::PodSandbox>> = BTreeMap::new();
        for sandbox in sandboxes {
            let key = LabeledInfo::from_labels(&sandbox.labels).key;
            by_name.entry(key).or_default().push(sandbox);
        }
        let mut pods = BTreeMap::new();
        for (key, mut sandboxes) in by_name {
            let is_ready = |sandbox: &v1::PodSandbox| sandbox.state() == v1::PodSandboxState::SandboxReady;
            if sandboxes.iter().any(is_ready) {
                sandboxes.retain(is_ready);
            } else {
                sandboxes.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.created_at));
                sandboxes.truncate(1);
            }
            for sandbox in sandboxes {
                let stats = PodStats {
                    uid: LabeledInfo::from_labels(&sandbox.labels).uid,
                    key: key.clone(),
                    started_at: timestamp(sandbox.created_at),
                    sandbox_id: sandbox.id.clone(),
                    cpu: None,
                    memory: None,
                    network: None,
                    processes: None,
                    containers: Vec::new(),
                };
                pods.insert(sandbox.id, (stats, false));
            }
        }
        let runs = |container: &v1::Container| container.state() == v1::ContainerState::ContainerRunning;
        let containers = containers.into_iter().filter(runs).map(|container| {
            let known = KnownContainer {
                name: LabeledInfo::from_labels(&container.labels).container_name,
                sandbox_id: container.pod_sandbox_id,
                created_at: timestamp(container.created_at),
            };
            (container.id, known)
        });
        Self {
            pods,
            containers: containers.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_since_the_last_look() {
        let times = CpuTimes::default();
        let rate = |timestamp, time: Option<u64>, reported: Option<u64>| {
            let value = |value: u64| v1::UInt64Value { value };
            let mut cpu = v1::CpuUsage {
                timestamp,
                usage_core_nano_seconds: time.map(value),
                usage_nano_cores: reported.map(value),
                ..Default::default()
            };
            times.fill_rate("c", &mut cpu);
            cpu.usage_nano_cores.map(|rate| rate.value)
        };
        const SECOND: i64 = 1_000_000_000;
        assert_eq!(rate(0, None, None), None);
        assert_eq!(rate(0, Some(1000), None), None);
        assert_eq!(rate(2 * SECOND, Some(5000), None), Some(2000));
        assert_eq!(rate(2 * SECOND, Some(5000), None), None, "no time has passed");
        assert_eq!(
            rate(3 * SECOND, Some(6000), Some(7)),
            Some(7),
            "the runtime's own rate is kept"
        );
        assert_eq!(rate(4 * SECOND, Some(9000), None), Some(2000));
        assert_eq!(rate(5 * SECOND, Some(10), None), None, "the counter was reset");
        assert_eq!(rate(6 * SECOND, Some(110), None), Some(100));
        times.forget_before(Timestamp::from_second(607).unwrap());
        assert_eq!(rate(8 * SECOND, Some(200), None), None);
    }
}
