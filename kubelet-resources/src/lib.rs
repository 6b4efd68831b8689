//! The container manager of a kubelet: which CPUs a container runs on, from which NUMA nodes its memory comes, and whether these
//! and its devices are close to each other.
//!
//! The decision is a pure function of settings, state and pods. It does no I/O, so you can use it with an agent of your own, or to
//! try out a policy on a machine that you do not have. The engine around it keeps the state in the files of the kubelet: an agent
//! can take over from a kubelet v1.36 and hand back, and no container moves to another CPU.
//!
//! # Example: which CPUs would this pod get?
//!
//! ```toml
//! [dependencies]
//! k8s-openapi = { version = "0.29", features = ["v1_36"] } # your program selects the API version
//! kubelet-core = "0.2"
//! kubelet-resources = "0.2"
//! serde_json = "1"
//! ```
//!
//! ```
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kubelet_core::quantity::Amount;
//! use kubelet_resources::cpu::CpuPolicy;
//! use kubelet_resources::topology::TopologyPolicy;
//! use kubelet_resources::{Allocator, Core, Machine, NumaNode, ResourcesConfig, ResourcesState};
//! use serde_json::{from_value, json};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two NUMA nodes with four cores of one CPU each. `Machine::read("/sys".as_ref())` reads the machine that you have.
//! let core = |node: usize, id: usize| Core {
//!     id,
//!     socket: node,
//!     threads: vec![4 * node + id],
//!     uncore_cache: None,
//! };
//! let node = |id: usize| NumaNode {
//!     id,
//!     cores: (0..4).map(|number| core(id, number)).collect(),
//!     ..NumaNode::default()
//! };
//! let machine = Machine { nodes: vec![node(0), node(1)] };
//!
//! // One CPU is reserved for the system. The resources of a container must be on one NUMA node.
//! let mut config = ResourcesConfig::default();
//! config.cpu.policy = CpuPolicy::Static;
//! config.cpu.reserved = Some(Amount::from_units(1));
//! config.topology_policy = TopologyPolicy::SingleNumaNode;
//! let mut allocator = Allocator::new(&machine, &config, ResourcesState::default())?;
//!
//! let pod = |name: &str, cpus: &str| -> serde_json::Result<Arc<Pod>> {
//!     let resources = json!({"cpu": cpus, "memory": "1Gi"});
//!     Ok(Arc::new(from_value(json!({
//!         "metadata": {"name": name, "uid": name},
//!         "spec": {"containers": [{"name": "c", "resources": {"requests": resources, "limits": resources}}]},
//!     }))?))
//! };
//! let (a, b) = (pod("a", "3")?, pod("b", "4")?);
//! allocator.admit(&a, Some(&[]))?;
//! allocator.admit(&b, Some(&[a.clone()]))?;
//! assert_eq!(allocator.cpu_state().cpus("a", "c").to_string(), "1-3");
//! assert_eq!(allocator.cpu_state().cpus("b", "c").to_string(), "4-7");
//! assert_eq!(allocator.cpu_state().shared.to_string(), "0");
//!
//! // No node has two free CPUs now.
//! let rejection = allocator.admit(&pod("d", "2")?, Some(&[a, b])).unwrap_err().rejection();
//! assert_eq!(rejection.reason, "TopologyAffinityError");
//! # Ok(())
//! # }
//! ```
//!
//! # The parts
//!
//! | part                              | does                                                                                |
//! |-----------------------------------|-------------------------------------------------------------------------------------|
//! | [`Machine`]                       | sockets, cores, caches, NUMA nodes and huge pages, from `/sys` or made up            |
//! | [`Allocator`]                     | the decision: admits pods, allocates, frees, without I/O                             |
//! | [`cpu`], [`memory`], [`topology`] | the settings and states of the three managers, and the merge of hints                |
//! | [`topology::HintProvider`]        | lets another resource, e.g. devices, take part in the alignment                      |
//! | [`checkpoint`]                    | the state files of the kubelet: `cpu_manager_state` and `memory_manager_state`       |
//! | [`devices`]                       | which devices of plugins a container gets, and `kubelet_internal_checkpoint`         |
//! | [`cgroups`]                       | the cgroups of pods, of QoS classes and of the reservations                          |
//! | `devices::DeviceManager`          | the engine of device plugins: registration, devices, calls (feature `plugins`)       |
//! | `pod_resources`                   | the API that lists what containers have (feature `plugins`)                          |
//! | `dra`                             | claims of pods, prepared through the plugins of DRA drivers, and `dra_manager_state` (feature `plugins`) |
//! | [`ResourceManager`]               | the engine: state files, admission, updates of running containers                    |
//! | [`PluginAllocator`]               | lets a resource take part that is allocated by calls to plugins                      |
//!
//! The engine needs the pods of the node ([`NodePods`]; [`KubeletPods`] is that of `kubelet-core`) and something that changes the
//! CPUs of a running container ([`ContainerUpdates`]; with CRI this is `UpdateContainerResources`). The handle implements
//! [`ContainerResources`](kubelet_core::ContainerResources), which adds CPUs, NUMA nodes and devices to the config of a container;
//! `kubelet-kuberuntime` takes it.
//!
//! # Admission and plugins
//!
//! The decision is made in steps ([`Allocator::begin`]): merge the hints, let plugins allocate, allocate CPUs and memory. Between the
//! steps nothing is locked, so a plugin may be slow. Pods are admitted one after the other.
//!
//! # Features
//!
//! * `plugins`: what talks gRPC: the device manager, the pod-resources API and dynamic resource allocation (`dra`), with the messages and
//!   services of all three. It needs version 1.36 of the API.
//! * `apiserver`: the claims of an API server (`dra::ApiServerClaims`). It turns on `plugins`.
//! * `systemd`: the cgroup driver systemd.
//!
//! # Time and tasks
//!
//! The loop uses tokio's time. [`ResourceManager`] spawns no task: [`run`](ResourceManager::run) is one future, which you spawn or join.
//! `DeviceManager` spawns a task for each connected plugin, and joins it before its `run` returns. `dra::DraManager` spawns none.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod active;
pub mod cgroups;
pub mod checkpoint;
pub mod cpu;
mod cpu_set;
mod decision;
pub mod devices;
#[cfg(feature = "plugins")]
#[cfg_attr(docsrs, doc(cfg(feature = "plugins")))]
pub mod dra;
mod error;
mod go_values;
#[cfg(feature = "plugins")]
mod grpc;
mod machine;
mod manager;
pub mod memory;
mod metrics;
mod numa_set;
#[cfg(feature = "plugins")]
#[cfg_attr(docsrs, doc(cfg(feature = "plugins")))]
pub mod pod_resources;
mod requests;
pub mod topology;

pub use cpu_set::{CpuSet, CpuSetError};
pub use decision::{Allocator, PodAdmission, ResourcesConfig, ResourcesState, Share};
pub use error::{BoxError, Error, Result};
pub use machine::{Core, HugePages, Machine, NumaNode};
pub use manager::{
    ContainerUpdates, DEFAULT_RECONCILE_PERIOD, KubeletPods, NodePods, Placement, PluginAllocator,
    ResourceManager, ResourceManagerBuilder, ResourceManagerHandle,
};
pub use numa_set::NumaSet;
pub use requests::Gates;
