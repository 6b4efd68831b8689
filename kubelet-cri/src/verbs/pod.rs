//! Pods, for a runtime to which a pod is more than its containers.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use async_trait::async_trait;
use kubelet_core::PodUid;

use super::container::{Limits, PodInfo};
use super::error::{Result, RuntimeError};

/// Begins and ends pods: for a runtime to which a pod is more than its containers, such as a virtual machine, a network or
/// a folder (CRI `RunPodSandbox`, `StopPodSandbox`, `RemovePodSandbox`).
///
/// # What a caller may rely on
///
/// * A pod is identified only by its [`PodKey`]. If a pod begins anew, the next attempt is another pod; the earlier one
///   was ended before, or is ended after it.
/// * [`begin`](Self::begin) is idempotent by key, also across a restart of the agent if pods outlive it.
/// * [`end`](Self::end) succeeds for a pod that does not exist.
///
/// # What a runtime may rely on
///
/// * A container is started only in a pod that has begun and not ended; [`ContainerSpec::pod_key`] names it.
/// * The containers of a pod are stopped before it ends. They are removed later, and are listed until then.
/// * A pod whose begin failed, was dropped or was cut short by the end of the agent is ended, at once or later. It is not begun
///   again with this key, unless that end succeeded.
/// * `begin` and `end` do not run at the same time for one pod.
///
/// [`ContainerSpec::pod_key`]: super::ContainerSpec::pod_key
#[async_trait]
pub trait Pods: Send + Sync {
    /// All pods that have begun and not ended. A pod that ended by itself is not among them: its sandbox is no longer ready
    /// then, and a kubelet ends the pod and begins its next attempt, if the restart policy allows.
    async fn list(&self) -> Result<Vec<Pod>>;

    /// One pod of this list; [`ErrorClass::Gone`] if it is not there. By default it is looked up in the list.
    ///
    /// [`ErrorClass::Gone`]: super::ErrorClass::Gone
    async fn inspect(&self, key: &PodKey) -> Result<Pod> {
        let pods = self.list().await?;
        let pod = pods.into_iter().find(|pod| pod.key == *key);
        pod.ok_or_else(|| RuntimeError::gone(key, "no such pod"))
    }

    /// Begins a pod, and returns once containers can be started in it. A pod that has begun is returned as it is.
    ///
    /// # Errors
    ///
    /// The sandbox is then not made. A kubelet tries again later.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await. [`end`](Self::end) is called for this pod later, and removes what is left of it.
    async fn begin(&self, spec: &PodSpec) -> Result<Pod>;

    /// Ends a pod, and returns once nothing is left of it: its network, its processes, its files. Kills what still runs in
    /// it. Succeeds if the pod does not exist.
    async fn end(&self, key: &PodKey) -> Result<()>;
}

/// Identifies a pod on a node: its UID, and the attempt (CRI `PodSandboxMetadata`).
///
/// A pod that begins anew, because it ended by itself or its sandbox has to change, has the next attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    /// The pod's UID.
    pub uid: PodUid,
    /// From 0.
    pub attempt: u32,
}

impl PodKey {
    /// The key of this attempt.
    pub fn new(uid: impl Into<PodUid>, attempt: u32) -> Self {
        Self {
            uid: uid.into(),
            attempt,
        }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {} (attempt {})", self.uid, self.attempt)
    }
}

/// The spec of a pod to begin: the parts of CRI's `PodSandboxConfig` that concern the pod as a whole.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PodSpec {
    /// The key of the pod. Begin is idempotent by this key.
    pub key: PodKey,
    /// Its name, labels and annotations.
    pub info: PodInfo,
    /// Whether it asks for the network of the host.
    pub host_network: bool,
    /// The ports of the host at which its containers are to be reached; each has the same number in the container.
    pub host_ports: Vec<u16>,
    /// How its containers resolve names.
    pub dns: DnsSettings,
    /// The sum of its containers' limits, without the overhead.
    pub limits: Limits,
    /// What the pod itself needs beside its containers: `overhead` of the pod, which a runtime class sets.
    pub overhead: Limits,
    /// The cgroup that the kubelet made for the pod, as the cgroup driver names it; it limits the containers together with the
    /// overhead. `None`: there is none.
    pub cgroup_parent: Option<PathBuf>,
}

impl PodSpec {
    /// A spec with only the key. Set the other fields that you need.
    pub fn new(key: PodKey) -> Self {
        Self {
            key,
            info: PodInfo::default(),
            host_network: false,
            host_ports: Vec::new(),
            dns: DnsSettings::default(),
            limits: Limits::default(),
            overhead: Limits::default(),
            cgroup_parent: None,
        }
    }
}

/// How the containers of a pod resolve names. `Display` prints it as a `resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DnsSettings {
    /// The addresses of the name servers.
    pub servers: Vec<String>,
    /// The domains in which short names are searched.
    pub searches: Vec<String>,
    /// The options, such as `ndots:5`.
    pub options: Vec<String>,
}

impl fmt::Display for DnsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for server in &self.servers {
            writeln!(f, "nameserver {server}")?;
        }
        for (what, words) in [("search", &self.searches), ("options", &self.options)] {
            if !words.is_empty() {
                writeln!(f, "{what} {}", words.join(" "))?;
            }
        }
        Ok(())
    }
}

/// A pod that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pod {
    /// Its key.
    pub key: PodKey,
    /// Its own IP addresses, the first one is `podIP`. Empty if it has none: it then has the adapter's
    /// [`pod_ip`](super::CriAdapterBuilder::pod_ip).
    pub addresses: Vec<IpAddr>,
}

impl Pod {
    /// A pod without addresses of its own.
    pub fn new(key: PodKey) -> Self {
        Self {
            key,
            addresses: Vec::new(),
        }
    }
}
