//! The position of a pod in the tree of cgroups (`pkg/kubelet/cm`).

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, QosClass, qos_class};

use super::CgroupDriver;

/// The cgroup of a pod's sandbox and containers (`GetPodCgroupParent`): a path for cgroupfs, a path of slices for
/// systemd; empty if the runtime decides.
pub(crate) fn pod_cgroup_parent(driver: &CgroupDriver, pod: &Pod) -> String {
    let (CgroupDriver::Cgroupfs { root } | CgroupDriver::Systemd { root }) = driver else {
        return String::new();
    };
    let class = match qos_class(pod) {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    };
    let pod = format!("pod{}", pod.uid_str());
    path(driver, root, class.into_iter().chain([pod.as_str()]))
}

impl CgroupDriver {
    /// The cgroup of all pods (`NodeAllocatableRoot`), e.g. `/kubepods` or `/kubepods.slice`; `None` if the runtime decides
    /// where pods are.
    pub fn pods_cgroup(&self) -> Option<String> {
        match self {
            Self::Cgroupfs { root } | Self::Systemd { root } => Some(path(self, root, [])),
            Self::None => None,
        }
    }
}

/// A cgroup below that of all pods.
fn path<'a>(driver: &CgroupDriver, root: &'a str, below: impl IntoIterator<Item = &'a str>) -> String {
    let root = root.split('/').filter(|part| !part.is_empty());
    let name: Vec<&str> = root.chain(["kubepods"]).chain(below).collect();
    match driver {
        CgroupDriver::Systemd { .. } => systemd_path(&name),
        _ => format!("/{}", name.join("/")),
    }
}

/// The name of a slice contains the names of all its parents (`ToSystemd`). Dashes part names, so those within a name
/// become underscores.
fn systemd_path(name: &[&str]) -> String {
    let mut path = String::new();
    let mut slice = String::new();
    for part in name {
        if !slice.is_empty() {
            slice.push('-');
        }
        slice.push_str(&part.replace('-', "_"));
        // Writing to a String cannot fail.
        let _ = write!(path, "/{slice}.slice");
    }
    path
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
            assert_eq!(pod_cgroup_parent(driver, &pod), parent, "{driver:?} {class}");
        }
    }
}
