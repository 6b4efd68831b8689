#![doc = include_str!("../README.md")]
//!
//! # Where to look
//!
//! | you want | look at |
//! |---|---|
//! | to run pods on a CRI runtime | [`CriRuntime`], set up with [`CriRuntimeBuilder`] and [`NodeSettings`] |
//! | only the decision what to do for a pod | [`pod_actions`] |
//! | to probe containers | [`NodeProber`]; `NetworkProber` (feature `probes`) |
//! | to read, follow and rotate logs | [`logs`] |
//! | to remove unused images | [`ImageGcManager`] |
//! | usage of pods | [`CriRuntime::pod_stats`] |
//! | exec, attach and port-forward | [`CriRuntime::run_in_container`], [`CriRuntime::exec_url`] and the methods beside it; [`StreamingRuntime`](kubelet_core::runtime::streaming::StreamingRuntime) |
//! | the runtime's part of the node status | [`CriNodeRuntime`] |
//!
//! # Where things are in the source
//!
//! The folders, in the order of a pod's life:
//!
//! | folder or file | what it does | in the kubelet |
//! |---|---|---|
//! | `sync.rs` | carries out a pod's actions, in order | `SyncPod` |
//! | `pod_actions/` | computes the actions | `computePodActions` |
//! | `sandbox/` | resources and user namespace of the sandbox | `kuberuntime_sandbox.go`, `pkg/kubelet/userns` |
//! | `containers/` | starts and resizes containers, with back-off | `startContainer`, `doPodResizeAction` |
//! | `config/` | generates the configs of sandboxes and containers | `generatePodSandboxConfig`, `generateContainerConfig` |
//! | `images/`, `credential_provider/` | pulls images, and finds their credentials | `pkg/kubelet/images`, `pkg/credentialprovider` |
//! | `hooks/`, `probe/` | run hooks and probes | `pkg/kubelet/lifecycle`, `pkg/probe` |
//! | `kill/` | stops containers and pods | `killContainer`, `killPodWithSyncResult` |
//! | `read/`, `events.rs`, `stats.rs` | read pods, events and usage back from the runtime | `GetPods`, `GetPodStatus`, `pkg/kubelet/stats` |
//! | `logs/`, `streaming.rs`, `streaming_runtime.rs` | logs, and the streams of exec, attach and port-forward | `pkg/kubelet/logs`, `GetExec` |
//! | `gc/`, `image_gc/` | remove dead containers, old logs and unused images | `kuberuntime_gc.go`, `image_gc_manager.go` |
//! | `cgroups/` | the cgroups of pods | `pkg/kubelet/cm` |
//! | `calls/` | metrics and fallbacks of the calls to the runtime | `instrumented_services.go` |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod calls;
mod config;
mod container_logs;
mod containers;
#[cfg(test)]
mod counted;
mod credential_provider;
mod error;
mod events;
mod gc;
mod hooks;
mod image_gc;
mod images;
mod kill;
pub mod logs;
mod node_runtime;
pub mod pod_actions;
mod probe;
mod read;
mod runtime;
mod sandbox;
mod stats;
mod streaming;
mod streaming_runtime;
mod sync;
mod usages;

pub use builder::CriRuntimeBuilder;
pub use config::{ContainerMemoryQos, NodeIps, NodeSettings};
pub use credential_provider::{
    CredentialProvider, ServiceAccountTokenAttributes, ServiceAccountTokenCacheType,
};
pub use error::Error;
pub use image_gc::{FsStats, ImageFsStats, ImageGcManager, ImageGcPolicy};
pub use images::{ImagePullCredentialsVerificationPolicy, ImagePullSettings};
pub use kubelet_core::cgroups::CgroupDriver;
pub use node_runtime::CriNodeRuntime;
#[cfg(feature = "probes")]
pub use probe::NetworkProber;
pub use probe::NodeProber;
pub use runtime::CriRuntime;
pub use sandbox::user_namespaces::UserNamespaceIds;
pub use stats::{ContainerStats, ImageFsInfo, PodStats};
pub use streaming::StreamOptions;
