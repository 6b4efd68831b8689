//! Scratch space that lives as long as its pod (`pkg/volume/emptydir`).

use std::io;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Pod, ResourceRequirements};

use super::dir::make_dir;
use super::ownership::give_to_group;
use super::tmpfs;
use kubelet_core::quantity::Amount;
use kubelet_core::restart_rules::is_restartable_init_container;

/// Where the files are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Disk,
    /// At most this many bytes; by default, the kernel's limit.
    Memory(Option<u64>),
}

impl Medium {
    /// The medium of the source; `None` for huge pages, which are not supported.
    pub(crate) fn of(source: &EmptyDirVolumeSource, pod: &Pod) -> Option<Self> {
        match source.medium.as_deref().unwrap_or_default() {
            "" => Some(Self::Disk),
            "Memory" => Some(Self::Memory(size_in_memory(source, pod))),
            _ => None,
        }
    }
}

/// Creates it once; later calls keep its content (`emptyDir.SetUpAt`).
pub(crate) fn make(dir: &Path, medium: Medium, group: Option<u32>) -> io::Result<()> {
    match medium {
        Medium::Disk => make_on_disk(dir, group),
        Medium::Memory(size) => {
            make_dir(dir, 0o777)?;
            if tmpfs::is_mounted(dir)? {
                return Ok(());
            }
            if !tmpfs::mount(dir, size)? {
                tracing::debug!(path = %dir.display(), "Cannot mount a tmpfs, the volume is on disk");
            }
            group.map_or(Ok(()), |group| give_to_group(dir, group, false))
        }
    }
}

fn make_on_disk(dir: &Path, group: Option<u32>) -> io::Result<()> {
    if dir.exists() {
        return Ok(());
    }
    // Renamed to its name only when it is complete: an existing folder is not checked again.
    let beside = dir.with_extension("making");
    make_dir(&beside, 0o777)?;
    group.map_or(Ok(()), |group| give_to_group(&beside, group, false))?;
    std::fs::rename(beside, dir)
}

/// The smaller of its own limit and the memory limit of its pod (`calculateEmptyDirMemorySize`).
fn size_in_memory(source: &EmptyDirVolumeSource, pod: &Pod) -> Option<u64> {
    let own = source.size_limit.as_ref();
    let own = own.and_then(|limit| Amount::try_from(limit).ok());
    let bounds = [own, memory_limit(pod)].into_iter().flatten();
    let least = bounds.filter(|amount| amount.is_positive()).min()?;
    u64::try_from(least.value()).ok()
}

/// The memory limit of all containers of the pod that can run at the same time, if each has a limit, or the pod has
/// one.
fn memory_limit(pod: &Pod) -> Option<Amount> {
    let spec = pod.spec.as_ref()?;
    if let Some(limit) = limit_of(spec.resources.as_ref()) {
        return Some(limit);
    }
    let of = |container: &Container| limit_of(container.resources.as_ref());
    let mut total: Amount = spec.containers.iter().map(of).sum::<Option<_>>()?;
    // An init container runs beside the sidecars that were started before it.
    let (mut sidecars, mut most) = (Amount::ZERO, Amount::ZERO);
    for container in spec.init_containers.iter().flatten() {
        let needed = sidecars + of(container)?;
        if is_restartable_init_container(container) {
            total = total + of(container)?;
            sidecars = needed;
        }
        most = most.max(needed);
    }
    Some(total.max(most))
}

fn limit_of(resources: Option<&ResourceRequirements>) -> Option<Amount> {
    let limit = resources?.limits.as_ref()?.get("memory")?;
    Amount::try_from(limit).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_in_memory_is_bounded_by_its_own_limit_and_its_pods() {
        let none = json!({});
        let container = |memory: &str| json!({"name": "c", "resources": {"limits": {"memory": memory}}});
        let sidecar = |memory: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"limits": {"memory": memory}}});
        let unbound = json!({"name": "c"});
        let cases: [(Value, Value, Option<u64>); 9] = [
            (none.clone(), json!({"containers": [unbound]}), None),
            (json!({"sizeLimit": "0"}), json!({"containers": [unbound]}), None),
            (
                json!({"sizeLimit": "1Ki"}),
                json!({"containers": [unbound]}),
                Some(1024),
            ),
            (
                none.clone(),
                json!({"containers": [container("2Ki"), container("1Ki")]}),
                Some(3072),
            ),
            (
                none.clone(),
                json!({"containers": [container("2Ki"), unbound]}),
                None,
            ),
            (
                json!({"sizeLimit": "4Ki"}),
                json!({"containers": [container("2Ki")]}),
                Some(2048),
            ),
            (
                json!({"sizeLimit": "1Ki"}),
                json!({"containers": [container("2Ki")]}),
                Some(1024),
            ),
            (
                none.clone(),
                json!({"containers": [container("1Ki")], "initContainers": [sidecar("1Ki"), container("4Ki")]}),
                Some(5120),
            ),
            (
                none,
                json!({"containers": [unbound], "resources": {"limits": {"memory": "8Ki"}}}),
                Some(8192),
            ),
        ];
        for (source, spec, size) in cases {
            let source = serde_json::from_value(source).unwrap();
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(size_in_memory(&source, &pod), size, "{source:?} {spec}");
        }
    }

    #[test]
    fn huge_pages_are_not_offered() {
        let of = |medium: &str| {
            let source = serde_json::from_value(json!({"medium": medium})).unwrap();
            Medium::of(&source, &Pod::default())
        };
        assert_eq!(of(""), Some(Medium::Disk));
        assert_eq!(of("Memory"), Some(Medium::Memory(None)));
        assert_eq!(of("HugePages-2Mi"), None);
    }
}
