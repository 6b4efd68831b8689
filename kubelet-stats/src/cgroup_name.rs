//! Names of cgroups: what they say of pods and containers.

/// The UID of the pod whose cgroup has this name, with either driver: `/kubepods/burstable/podUID`, or
/// `…/kubepods-burstable-podUID_WITH_UNDERSCORES.slice` (`GetPodCgroupNameSuffix`).
pub(crate) fn pod_uid(name: &str) -> Option<String> {
    let last = name.rsplit('/').next()?;
    let uid = match last.strip_suffix(".slice") {
        Some(slice) => slice.rsplit('-').next()?.strip_prefix("pod")?.replace('_', "-"),
        None => last.strip_prefix("pod")?.to_owned(),
    };
    (!uid.is_empty()).then_some(uid)
}

/// The id of the container whose cgroup has this name, if it is a container's: `…/ID`, `…/crio-ID`, or
/// `…/cri-containerd-ID.scope` (`extractIDFromCgroupPath`). Empty for the process that watches a container of CRI-O,
/// `…/crio-conmon-ID.scope`.
pub(crate) fn container_id(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or_default();
    let scope = last.strip_suffix(".scope");
    if scope.unwrap_or(last).starts_with("crio-conmon-") {
        return "";
    }
    match scope {
        Some(scope) => scope.rsplit('-').next().unwrap_or_default(),
        None => last.strip_prefix("crio-").unwrap_or(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_both_drivers() {
        assert_eq!(pod_uid("/kubepods/burstable/poda-b").as_deref(), Some("a-b"));
        assert_eq!(
            pod_uid("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice").as_deref(),
            Some("a-b")
        );
        assert_eq!(pod_uid("/kubepods/burstable"), None);
        assert_eq!(pod_uid("/kubepods.slice"), None);
        assert_eq!(pod_uid("/"), None);
        assert_eq!(container_id("/kubepods/poda/9be2"), "9be2");
        assert_eq!(container_id("/kubepods/poda/crio-9be2"), "9be2");
        assert_eq!(container_id("/x.slice/crio-9be2.scope"), "9be2");
        assert_eq!(container_id("/x.slice/crio-conmon-9be2.scope"), "");
        assert_eq!(container_id("/kubepods/poda/crio-conmon-9be2"), "");
        assert_eq!(
            container_id("/kubepods.slice/x.slice/cri-containerd-9be2.scope"),
            "9be2"
        );
    }
}
