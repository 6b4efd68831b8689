//! The position of a pod in the tree of cgroups (`pkg/kubelet/cm`).

use k8s_openapi::api::core::v1::Pod;

use super::name::CgroupName;
use crate::{PodExt, QosClass, qos_class};

/// The cgroup of all pods (`defaultNodeAllocatableCgroupName`).
const ALL_PODS: &str = "kubepods";
/// The prefix of a pod's cgroup name, before its UID (`podCgroupNamePrefix`).
const POD_PREFIX: &str = "pod";

/// The cgroup driver of pods (`cgroupDriver`, `cgroupsPerQOS`, `cgroupRoot`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CgroupDriver {
    /// The sandbox config has no cgroup parent, and the runtime decides (`cgroupsPerQOS: false`).
    #[default]
    None,
    /// Paths such as `/kubepods/burstable/pod<uid>`, below this root (`/` by default).
    Cgroupfs {
        /// `cgroupRoot`
        root: String,
    },
    /// Slices such as `kubepods-burstable-pod<uid>.slice`.
    Systemd {
        /// `cgroupRoot`
        root: String,
    },
}

impl CgroupDriver {
    /// The driver for the values of `cgroupsPerQOS`, `cgroupDriver` and `cgroupRoot`.
    pub fn configured(cgroups_per_qos: bool, driver: &str, root: &str) -> Self {
        let root = if root.is_empty() { "/" } else { root }.to_owned();
        match (cgroups_per_qos, driver) {
            (false, _) => Self::None,
            (true, "systemd") => Self::Systemd { root },
            (true, _) => Self::Cgroupfs { root },
        }
    }
    /// The name of the cgroup of all pods; `None` if the runtime decides where pods are.
    pub fn all_pods(&self) -> Option<CgroupName> {
        match self {
            Self::Cgroupfs { root } | Self::Systemd { root } => {
                Some(CgroupName::from_cgroupfs(root).join(ALL_PODS))
            }
            Self::None => None,
        }
    }

    /// The name of the cgroup that contains the pods of a QoS class: guaranteed pods are in that of all pods.
    pub fn class(&self, class: QosClass) -> Option<CgroupName> {
        let all_pods = self.all_pods()?;
        Some(match class {
            QosClass::Guaranteed => all_pods,
            QosClass::Burstable => all_pods.join("burstable"),
            QosClass::BestEffort => all_pods.join("besteffort"),
        })
    }

    /// The name of a pod's cgroup (`GetPodContainerName`).
    pub fn pod(&self, pod: &Pod) -> Option<CgroupName> {
        Some(self.below(self.class(qos_class(pod))?, pod.uid_str()))
    }

    /// The name of the cgroup of the pod with this UID in the cgroup of its class (`GetPodCgroupNameSuffix`).
    pub fn below(&self, class: CgroupName, uid: &str) -> CgroupName {
        class.join(format!("{POD_PREFIX}{uid}"))
    }

    /// The path of a cgroup from the root of its hierarchy (`Name`).
    pub fn path(&self, name: &CgroupName) -> String {
        match self {
            Self::Systemd { .. } => name.to_systemd(),
            Self::Cgroupfs { .. } | Self::None => name.to_cgroupfs(),
        }
    }

    /// The cgroup with this path, or with systemd, with this name of a slice (`CgroupName`).
    pub fn parse(&self, path: &str) -> CgroupName {
        match self {
            Self::Systemd { .. } => CgroupName::from_systemd(path),
            Self::Cgroupfs { .. } | Self::None => CgroupName::from_cgroupfs(path),
        }
    }

    /// The UID of the pod of this cgroup; `None` if the last part of the name is not that of a pod's.
    pub fn pod_uid<'a>(&self, name: &'a CgroupName) -> Option<&'a str> {
        let uid = name.parts().last()?.strip_prefix(POD_PREFIX)?;
        (!uid.is_empty() && self.all_pods().is_some()).then_some(uid)
    }

    /// The cgroup of a pod's sandbox and containers (`GetPodCgroupParent`): a path for cgroupfs, a path of slices for
    /// systemd; empty if the runtime decides.
    pub fn pod_cgroup_parent(&self, pod: &Pod) -> String {
        self.pod(pod).map(|name| self.path(&name)).unwrap_or_default()
    }

    /// The path of the cgroup of all pods (`NodeAllocatableRoot`), e.g. `/kubepods` or `/kubepods.slice`; `None` if the runtime
    /// decides where pods are.
    pub fn pods_cgroup(&self) -> Option<String> {
        Some(self.path(&self.all_pods()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodStatus;

    #[test]
    fn parents_follow_the_driver_and_the_class() {
        let root = |root: &str| root.to_owned();
        let cgroupfs = CgroupDriver::Cgroupfs { root: root("/") };
        let nested = CgroupDriver::Cgroupfs {
            root: root("/edge/node"),
        };
        let systemd = CgroupDriver::Systemd { root: root("/") };
        let cases = [
            (&CgroupDriver::None, "Burstable", ""),
            (&cgroupfs, "Guaranteed", "/kubepods/poda-1"),
            (&cgroupfs, "Burstable", "/kubepods/burstable/poda-1"),
            (&cgroupfs, "BestEffort", "/kubepods/besteffort/poda-1"),
            (&nested, "Guaranteed", "/edge/node/kubepods/poda-1"),
            (&systemd, "Guaranteed", "/kubepods.slice/kubepods-poda_1.slice"),
            (
                &systemd,
                "Burstable",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_1.slice",
            ),
        ];
        for (driver, class, parent) in cases {
            let mut pod = Pod::default();
            pod.metadata.uid = Some("a-1".into());
            pod.status = Some(PodStatus {
                qos_class: Some(class.into()),
                ..Default::default()
            });
            assert_eq!(driver.pod_cgroup_parent(&pod), parent, "{driver:?} {class}");
        }
    }

    #[test]
    fn pods_are_put_into_cgroups_as_configured() {
        let root = |root: &str| root.to_owned();
        for (per_qos, driver, at, expected) in [
            (false, "systemd", "/edge", CgroupDriver::None),
            (
                true,
                "systemd",
                "/edge",
                CgroupDriver::Systemd { root: root("/edge") },
            ),
            (true, "cgroupfs", "", CgroupDriver::Cgroupfs { root: root("/") }),
        ] {
            assert_eq!(CgroupDriver::configured(per_qos, driver, at), expected);
        }
    }
}
