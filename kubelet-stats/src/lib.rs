//! What node, pods and containers use: the summary of a kubelet, the metrics of cAdvisor, the resource metrics.
//!
//! In a kubelet this is cAdvisor and `pkg/kubelet/stats`. Here nothing runs between questions: a [`Collector`] reads when
//! somebody asks, callers share a reading, and each says how old it may be.
//!
//! This prints what the containers of this host use. It needs no runtime and no agent:
//!
//! ```no_run
//! use kubelet_stats::{Collector, CollectorConfig, NodeSummary, SummaryConfig};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let roots = ["/kubepods", "/kubepods.slice", "/system.slice", "/docker", "/k8s.io"];
//!     let collector = Collector::new(CollectorConfig::host(roots)?);
//!     let summary = NodeSummary::new(collector, SummaryConfig::new("this host"));
//!     for pod in summary.cpu_and_memory_summary().await?.pods.unwrap_or_default() {
//!         for container in pod.containers.unwrap_or_default() {
//!             let (cpu, memory) = (container.cpu.unwrap_or_default(), container.memory.unwrap_or_default());
//!             println!("{} {:?} ns {:?} bytes", container.name, cpu.usage_core_nano_seconds, memory.working_set_bytes);
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # The parts
//!
//! | part | what it is | in the kubelet |
//! |---|---|---|
//! | [`source`] | reads cgroups v1 and v2, processes, the machine, file systems; each behind a small trait | `libcontainer`, `machine`, `fs` of cAdvisor |
//! | [`reading`] | what was read: plain data | `info/v1` of cAdvisor |
//! | [`Collector`] | reads on demand, finds the container and pod of each cgroup, computes rates | cAdvisor's `manager` |
//! | [`NodeSummary`] | the summary, also the part with CPU and memory only; a [`SummaryProvider`](kubelet_core::SummaryProvider) for eviction | `summaryProviderImpl`, `criStatsProvider` |
//! | [`Endpoints`] | the summary as JSON, and the metrics as Prometheus text; a [`StatsProvider`](kubelet_core::StatsProvider) for the server | `PrometheusCollector` of cAdvisor, `pkg/kubelet/metrics/collectors` |
//!
//! The runtime is asked through [`RuntimeUsages`](kubelet_core::stats::RuntimeUsages), volumes through
//! [`VolumeUsages`](kubelet_core::VolumeUsages), and pods through [`StatsPods`](kubelet_core::stats::StatsPods): traits of
//! `kubelet-core`. `CriRuntime` (`kubelet-kuberuntime`), `NodeVolumesHandle` (`kubelet-volume`) and `PodManager` implement them.
//!
//! # What is read
//!
//! `/metrics/cadvisor` needs some 25 files of a cgroup of version 1, and the open files of each process. The summary and the
//! resource metrics need a third of that, and a reading for them leaves out the rest ([`Detail`](source::Detail)). All accept
//! each other's readings if they have enough details. Containers on the host's network share one reading of it.
//!
//! # What goes wrong
//!
//! * A container that ends while it is read is left out. A number is never shown without the others of its cgroup.
//! * A file that is cut off or no text: the cgroup's last reading stays, with its time, for two minutes.
//! * A counter that goes back: there is no rate until the next reading.
//! * A file system that hangs is left out after 2 s, and not asked again until it has answered.
//!
//! # Tasks and time
//!
//! No task runs between calls. Files are read on another thread ([`Disk`](kubelet_core::Disk)). Dropping a call is safe.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod cgroup_name;
pub mod collector;
mod error;
pub mod metrics;
pub mod reading;
pub mod source;
mod summary;

pub use collector::{Collector, CollectorConfig, DEFAULT_AGE};
pub use error::{Error, Result};
pub use metrics::Endpoints;
pub use reading::{Machine, Reading, Snapshot};
pub use summary::{NodeSummary, SummaryConfig};
