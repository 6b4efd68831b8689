//! The settings of the node and of the kubelet's configuration that configs need.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kubelet_core::cgroups::{CgroupDriver, PodCgroupSettings};
use kubelet_core::quantity::Amount;
use kubelet_core::{Disk, RootDir};

use super::memory_qos::ContainerMemoryQos;
use super::node_ips::NodeIps;
use crate::sandbox::user_namespaces::UserNamespaceIds;

/// The settings of the node for the configs of sandboxes and containers: the fields of `KubeletConfiguration` with the
/// same names, and facts of the host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeSettings {
    /// `rootDir`: the folder of the pods' files.
    pub root_dir: RootDir,
    /// `podLogsDir`, `/var/log/pods` by default.
    pub pod_logs_dir: PathBuf,
    /// How file work is done.
    pub disk: Disk,
    /// The node's IPs: `status.hostIP` and `status.hostIPs` for containers.
    pub node_ips: NodeIps,
    /// `clusterDNS`
    pub cluster_dns: Vec<IpAddr>,
    /// Whether the cluster has a DNS server. On by default: then a pod with `dnsPolicy: ClusterFirst` gets the event
    /// `MissingClusterDNS` if `cluster_dns` is empty. If it is off, such a pod gets the host's settings without an event.
    pub cluster_has_dns: bool,
    /// `clusterDomain`, without a trailing dot; empty for none.
    pub cluster_domain: String,
    /// `resolvConf`: the file with the settings of `dnsPolicy: Default`; `None` for no host settings.
    pub resolv_conf: Option<PathBuf>,
    /// The cgroup driver of pods.
    pub cgroup_driver: CgroupDriver,
    /// `cpuCFSQuota`: whether CPU limits are enforced.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod`
    pub cpu_cfs_quota_period: Duration,
    /// `podPidsLimit`: how many processes a pod may have; `None` and −1 mean no limit.
    pub pod_pids_limit: Option<i64>,
    /// The node's memory in bytes; 0 if unknown. Then all burstable containers get the same OOM score.
    pub memory_capacity: u64,
    /// The node's allocatable CPU in millicores. A container without a limit sees it as its limit.
    pub allocatable_cpu_millis: u64,
    /// The node's allocatable memory in bytes: likewise.
    pub allocatable_memory: u64,
    /// The node's allocatable ephemeral storage in bytes: likewise.
    pub allocatable_ephemeral_storage: u64,
    /// The sizes of huge pages that the kernel supports, in its spelling: `2MB`, `1GB`.
    pub huge_page_sizes: Vec<String>,
    /// Paths in `/sys` that containers must not see, beyond those of every node (`thermal_throttle` of each CPU).
    pub masked_paths: Vec<String>,
    /// `seccompDefault`: whether a pod without a profile gets `RuntimeDefault`.
    pub seccomp_default: bool,
    /// Whether the node has one cgroup hierarchy (cgroup v2).
    pub cgroup_v2: bool,
    /// `singleProcessOOMKill`: with cgroup v2, whether an OOM kills one process and not the whole container.
    pub single_process_oom_kill: bool,
    /// Whether the kernel accounts for swap in cgroups.
    pub swap_controller: bool,
    /// Whether `memorySwap.swapBehavior` is `LimitedSwap`: with cgroup v2, each container of a burstable pod may then
    /// use its share of the node's swap. Off by default: no container may swap.
    pub limited_swap: bool,
    /// The node's swap in bytes.
    pub swap_capacity: u64,
    /// Which memory of containers the kernel protects, and from where on it slows them down (the gate `MemoryQoS`); with cgroup v2
    /// only. Off by default.
    pub memory_qos: Option<ContainerMemoryQos>,
    /// Whether SELinux is enabled.
    pub selinux: bool,
    /// Whether each sub-path of a volume is bind-mounted in its pod's folder, as in the kubelet. Then no container can
    /// replace it by a link before the runtime mounts it. On by default. If it is off, or if this process may not
    /// mount, the runtime gets the path in the volume. Switch it off if the runtime does not see the mounts of this
    /// process.
    pub mount_sub_paths: bool,
    /// The ids for the user namespaces of pods (`userNamespaces.idsPerPod`, and the host's ranges).
    pub user_namespaces: UserNamespaceIds,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            root_dir: RootDir::default(),
            disk: Disk::default(),
            pod_logs_dir: PathBuf::from("/var/log/pods"),
            node_ips: NodeIps::default(),
            cluster_dns: Vec::new(),
            cluster_has_dns: true,
            cluster_domain: String::new(),
            resolv_conf: Some(PathBuf::from("/etc/resolv.conf")),
            cgroup_driver: CgroupDriver::default(),
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            pod_pids_limit: None,
            memory_capacity: 0,
            allocatable_cpu_millis: 0,
            allocatable_memory: 0,
            allocatable_ephemeral_storage: 0,
            huge_page_sizes: Vec::new(),
            masked_paths: Vec::new(),
            seccomp_default: false,
            cgroup_v2: false,
            single_process_oom_kill: false,
            swap_controller: false,
            limited_swap: false,
            swap_capacity: 0,
            memory_qos: None,
            selinux: false,
            mount_sub_paths: true,
            user_namespaces: UserNamespaceIds::default(),
        }
    }
}

impl NodeSettings {
    /// The settings for the cgroups of pods.
    pub fn pod_cgroups(&self) -> PodCgroupSettings {
        let mut settings = PodCgroupSettings::default();
        settings.driver = self.cgroup_driver.clone();
        settings.cpu_cfs_quota = self.cpu_cfs_quota;
        settings.cpu_cfs_quota_period = self.cpu_cfs_quota_period;
        settings.pod_pids_limit = self.pod_pids_limit;
        settings.huge_page_sizes.clone_from(&self.huge_page_sizes);
        settings
    }

    /// Takes the allocatable resources from the node's object. A resource that is missing there keeps its value.
    pub fn set_allocatable(&mut self, node: &Node) {
        let allocatable = node
            .status
            .as_ref()
            .and_then(|status| status.allocatable.as_ref());
        let amount = |resource: &str| Amount::try_from(allocatable?.get(resource)?).ok();
        let set = |field: &mut u64, found: Option<i64>| {
            if let Some(found) = found.and_then(|found| u64::try_from(found).ok()) {
                *field = found;
            }
        };
        set(
            &mut self.allocatable_cpu_millis,
            amount("cpu").map(Amount::milli_value),
        );
        set(&mut self.allocatable_memory, amount("memory").map(Amount::value));
        let storage = amount("ephemeral-storage").map(Amount::value);
        set(&mut self.allocatable_ephemeral_storage, storage);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_node_does_not_say_stays() {
        let node = json!({"status": {"allocatable": {"cpu": "1500m", "ephemeral-storage": "1Gi"}}});
        let mut settings = NodeSettings {
            allocatable_memory: 7,
            ..NodeSettings::default()
        };
        settings.set_allocatable(&serde_json::from_value(node).unwrap());
        assert_eq!(settings.allocatable_cpu_millis, 1500);
        assert_eq!(settings.allocatable_memory, 7);
        assert_eq!(settings.allocatable_ephemeral_storage, 1 << 30);
    }
}
