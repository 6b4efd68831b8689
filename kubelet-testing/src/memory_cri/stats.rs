//! Statistics. They only show the scripted usage.

use std::collections::BTreeMap;

use kubelet_cri::{Code, Error, v1};
use tokio::time::Instant;

use super::container::{Container, State as ContainerState, nanos};
use super::lists::{Wanted, has_labels};
use super::sandbox::Sandbox;
use super::state::State;
use super::{Call, MemoryCri};

type Result<T> = std::result::Result<T, Error>;

/// containerd's folder for images and container layers.
pub(super) const CONTAINERD_IMAGES_DIR: &str = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs";
/// The network traffic of a pod per second and direction, in bytes.
const NETWORK_RATE: u64 = 1000;

/// The metrics: name, description, and whether it is a counter.
const METRICS: [(&str, &str, v1::MetricType); 2] = [
    (
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed in seconds.",
        v1::MetricType::Counter,
    ),
    (
        "container_memory_working_set_bytes",
        "Current working set in bytes.",
        v1::MetricType::Gauge,
    ),
];

/// CPU time in nanoseconds, CPU in billionths of a core, memory in bytes.
#[derive(Clone, Copy, Default)]
struct Used {
    cpu_nanos: u64,
    nano_cores: u64,
    memory: u64,
}

impl MemoryCri {
    pub(super) fn container_stats_of(&self, id: &str) -> Result<v1::ContainerStats> {
        let call = Call::ContainerStats.name();
        let now = Instant::now();
        let state = self.settled(now);
        let number = self.find(&state, call, id, |_| "failed to find container: ".to_owned())?;
        match state.containers.get(number) {
            Some(container) if container.is_running() => Ok(stats(&state, container, now)),
            _ => Err(Error::call(
                Code::Unknown,
                call,
                id,
                "unexpected metrics response: []",
            )),
        }
    }

    /// The statistics of all matching containers. Those that do not run have no CPU and memory.
    pub(super) fn all_container_stats(
        &self,
        filter: Option<&v1::ContainerStatsFilter>,
    ) -> Vec<v1::ContainerStats> {
        let filter = filter.cloned().unwrap_or_default();
        let now = Instant::now();
        let state = self.settled(now);
        let wanted = Wanted::of(&state.containers, &filter.id);
        let of = Wanted::of(&state.sandboxes, &filter.pod_sandbox_id);
        let meant = state.containers.iter().filter(|(number, container)| {
            wanted.is(*number)
                && of.is(container.sandbox)
                && has_labels(&container.planned.container.labels, &filter.label_selector)
        });
        meant
            .map(|(_, container)| stats(&state, container, now))
            .collect()
    }

    pub(super) fn sandbox_stats_of(&self, id: &str) -> Result<v1::PodSandboxStats> {
        let call = Call::PodSandboxStats.name();
        let now = Instant::now();
        let state = self.settled(now);
        let number = state.sandboxes.find(id).map_err(|missing| {
            let message = format!("an error occurred when trying to find sandbox {id}: {missing}");
            Error::call(missing.code(), call, id, message)
        })?;
        match state.sandboxes.get(number) {
            Some(sandbox) if sandbox.ready => Ok(pod_stats(&state, sandbox, now)),
            _ => {
                let message = format!(
                    "failed to get pod sandbox stats since sandbox container {id:?} is not in ready state: unavailable"
                );
                Err(Error::call(Code::Unavailable, call, id, message))
            }
        }
    }

    pub(super) fn all_sandbox_stats(
        &self,
        filter: Option<&v1::PodSandboxStatsFilter>,
    ) -> Vec<v1::PodSandboxStats> {
        let filter = filter.cloned().unwrap_or_default();
        let now = Instant::now();
        let state = self.settled(now);
        let wanted = Wanted::of(&state.sandboxes, &filter.id);
        let meant = state.sandboxes.iter().filter(|(number, sandbox)| {
            sandbox.ready && wanted.is(*number) && has_labels(&sandbox.config.labels, &filter.label_selector)
        });
        meant
            .map(|(_, sandbox)| pod_stats(&state, sandbox, now))
            .collect()
    }

    pub(super) fn metric_descriptors(&self) -> Vec<v1::MetricDescriptor> {
        let describe = |(name, help, _): (&str, &str, _)| v1::MetricDescriptor {
            name: name.to_owned(),
            help: help.to_owned(),
            label_keys: ["id", "name", "image"].map(str::to_owned).to_vec(),
        };
        METRICS.map(describe).to_vec()
    }

    pub(super) fn metrics(&self) -> Vec<v1::PodSandboxMetrics> {
        let now = Instant::now();
        let state = self.settled(now);
        let ready = state.sandboxes.iter().filter(|(_, sandbox)| sandbox.ready);
        ready
            .map(|(_, sandbox)| {
                let running = running_in(&state, sandbox);
                v1::PodSandboxMetrics {
                    pod_sandbox_id: sandbox.id.clone(),
                    metrics: Vec::new(),
                    container_metrics: running
                        .map(|container| metrics_of(&state, container, now))
                        .collect(),
                }
            })
            .collect()
    }

    pub(super) fn filesystems(&self) -> v1::ImageFsInfoResponse {
        let state = self.settled(Instant::now());
        let usage = |used: u64, inodes: u64| v1::FilesystemUsage {
            timestamp: nanos(state.clock.now()),
            ..filesystem(&state, used, inodes)
        };
        let images = state.images.used_bytes();
        v1::ImageFsInfoResponse {
            image_filesystems: vec![usage(images, 250 * state.images.len())],
            container_filesystems: vec![usage(0, 0)],
        }
    }
}

fn running_in<'a>(state: &'a State, sandbox: &'a Sandbox) -> impl Iterator<Item = &'a Container> {
    let containers = sandbox.containers.iter();
    containers
        .filter_map(|number| state.containers.get(*number))
        .filter(|container| container.is_running())
}

fn used(container: &Container, now: Instant) -> Used {
    match &container.state {
        ContainerState::Running(running) => {
            let millis = running.run.usage.cpu_millis;
            let ran = now.saturating_duration_since(running.started).as_nanos();
            Used {
                cpu_nanos: u64::try_from(ran * u128::from(millis) / 1000).unwrap_or(u64::MAX),
                nano_cores: millis.saturating_mul(1_000_000),
                memory: running.run.usage.memory_bytes,
            }
        }
        _ => Used::default(),
    }
}

fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

fn cpu(timestamp: i64, used: Used) -> v1::CpuUsage {
    v1::CpuUsage {
        timestamp,
        usage_core_nano_seconds: value(used.cpu_nanos),
        usage_nano_cores: value(used.nano_cores),
        psi: None,
    }
}

fn memory(timestamp: i64, used: Used) -> v1::MemoryUsage {
    v1::MemoryUsage {
        timestamp,
        working_set_bytes: value(used.memory),
        available_bytes: value(0),
        usage_bytes: value(used.memory),
        rss_bytes: value(used.memory / 2),
        page_faults: value(1000),
        major_page_faults: value(0),
        psi: None,
    }
}

fn filesystem(state: &State, used: u64, inodes: u64) -> v1::FilesystemUsage {
    v1::FilesystemUsage {
        timestamp: 0,
        fs_id: Some(v1::FilesystemIdentifier {
            mountpoint: state.images_dir.display().to_string(),
        }),
        used_bytes: value(used),
        inodes_used: value(inodes),
    }
}

fn stats(state: &State, container: &Container, now: Instant) -> v1::ContainerStats {
    let timestamp = nanos(state.clock.now());
    let config = &container.planned.container;
    let running = container.is_running();
    let used = used(container, now);
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: container.id.clone(),
            metadata: config.metadata.clone(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
        }),
        cpu: running.then(|| cpu(timestamp, used)),
        memory: running.then(|| memory(timestamp, used)),
        writable_layer: Some(filesystem(state, 0, 0)),
        swap: None,
        io: None,
    }
}

fn pod_stats(state: &State, sandbox: &Sandbox, now: Instant) -> v1::PodSandboxStats {
    let timestamp = nanos(state.clock.now());
    let all = running_in(state, sandbox).map(|container| used(container, now));
    let total = all.fold(Used::default(), |sum, used| Used {
        cpu_nanos: sum.cpu_nanos.saturating_add(used.cpu_nanos),
        nano_cores: sum.nano_cores.saturating_add(used.nano_cores),
        memory: sum.memory.saturating_add(used.memory),
    });
    let seconds = u64::try_from((timestamp - sandbox.created_at) / 1_000_000_000).unwrap_or(0);
    let interface = || v1::NetworkInterfaceUsage {
        name: "eth0".to_owned(),
        rx_bytes: value(seconds * NETWORK_RATE),
        rx_errors: value(0),
        tx_bytes: value(seconds * NETWORK_RATE),
        tx_errors: value(0),
    };
    // A pod on the host's network has no network statistics.
    let network = (!sandbox.addresses.is_empty()).then(|| v1::NetworkUsage {
        timestamp,
        default_interface: Some(interface()),
        interfaces: Vec::new(),
    });
    let processes = running_in(state, sandbox).count() + 1;
    v1::PodSandboxStats {
        attributes: Some(v1::PodSandboxAttributes {
            id: sandbox.id.clone(),
            metadata: sandbox.config.metadata.clone(),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
        }),
        linux: Some(v1::LinuxPodSandboxStats {
            cpu: Some(cpu(timestamp, total)),
            memory: Some(memory(timestamp, total)),
            network,
            process: Some(v1::ProcessUsage {
                timestamp,
                process_count: value(u64::try_from(processes).unwrap_or(u64::MAX)),
            }),
            containers: running_in(state, sandbox)
                .map(|container| stats(state, container, now))
                .collect(),
            io: None,
        }),
        windows: None,
    }
}

fn metrics_of(state: &State, container: &Container, now: Instant) -> v1::ContainerMetrics {
    let timestamp = nanos(state.clock.now());
    let used = used(container, now);
    let labels = [&container.id, container.planned.name(), container.planned.image()].map(str::to_owned);
    let values = [used.cpu_nanos / 1_000_000_000, used.memory];
    let metric = |((name, _, kind), value): ((&str, &str, v1::MetricType), u64)| v1::Metric {
        name: name.to_owned(),
        timestamp,
        metric_type: kind as i32,
        label_values: labels.to_vec(),
        value: self::value(value),
    };
    v1::ContainerMetrics {
        container_id: container.id.clone(),
        metrics: METRICS.into_iter().zip(values).map(metric).collect(),
    }
}

/// The `info` of a verbose response, which `crictl inspect` shows.
pub(super) fn info(verbose: bool, json: String) -> BTreeMap<String, String> {
    let info = verbose.then(|| ("info".to_owned(), json));
    info.into_iter().collect()
}
