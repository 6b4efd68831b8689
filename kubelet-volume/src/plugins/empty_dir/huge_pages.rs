//! Volumes of huge pages.

use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use kubelet_core::PodExt;
use kubelet_core::quantity::{Amount, Format};

use crate::{Error, MountPoint, Result};

/// The medium without a page size: that of the pod's requests (`StorageMediumHugePages`).
const ANY_SIZE: &str = "HugePages";
/// Of media and of resources with a page size (`StorageMediumHugePagesPrefix`, `ResourceHugePagesPrefix`).
const MEDIUM_PREFIX: &str = "HugePages-";
const RESOURCE_PREFIX: &str = "hugepages-";

/// `IsHugePageMedium`
pub(super) fn is_medium(medium: &str) -> bool {
    medium == ANY_SIZE || medium.starts_with(MEDIUM_PREFIX)
}

/// The mount option with the page size: that of the medium, which a container must request, or the only one that the
/// containers request (`getPageSizeMountOption`).
pub(super) fn page_size_option(medium: &str, pod: &Pod) -> Result<String> {
    let of_medium = size_of_medium(medium)?;
    let mut found: Option<Amount> = None;
    for name in requested(pod) {
        let size = parse(&name, RESOURCE_PREFIX)?;
        match of_medium {
            None if found.is_some_and(|found| found != size) => {
                return Err(Error::failed(format!(
                    "medium: {medium} can't be used if container requests multiple huge page sizes"
                )));
            }
            None => found = Some(size),
            Some(wanted) if wanted == size => found = Some(size),
            Some(_) => {}
        }
    }
    let found = found.ok_or_else(|| {
        Error::failed(format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        ))
    })?;
    Ok(format!("pagesize={}", found.write(Format::BinarySi)))
}

/// An existing mount must have the page size of the medium (`setupHugepages`).
pub(super) fn check_mounted(pod: &Pod, dir: &Path, medium: &str, mounts: &[MountPoint]) -> Result<()> {
    let Some(wanted) = size_of_medium(medium)? else {
        return Ok(());
    };
    let mounted = mounts
        .iter()
        .rev()
        .find(|mount| mount.path.file_name() == dir.file_name());
    let mut options = mounted.iter().flat_map(|mount| &mount.options);
    let (uid, dir) = (pod.uid(), dir.display());
    let Some(size) = options.find_map(|option| size_of_mount(option)) else {
        return Err(Error::failed(format!(
            "pod {uid}: mounted dir {dir} pagesize is not determined"
        )));
    };
    if size != wanted {
        let [size, wanted] = [size, wanted].map(|size| size.write(Format::BinarySi));
        return Err(Error::failed(format!(
            "pod {uid}: mounted dir {dir} pagesize '{size}' and requested medium size '{wanted}' differ"
        )));
    }
    Ok(())
}

/// The names of the huge pages that the pod and its containers request.
fn requested(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let all = containers.map(|container| container.resources.as_ref());
    let names = |resources: &ResourceRequirements| {
        let requests = resources.requests.iter().flatten();
        let names = requests.map(|(name, _)| name.clone());
        names
            .filter(|name| name.starts_with(RESOURCE_PREFIX))
            .collect::<Vec<_>>()
    };
    std::iter::once(spec.resources.as_ref())
        .chain(all)
        .flatten()
        .flat_map(names)
        .collect()
}

fn size_of_medium(medium: &str) -> Result<Option<Amount>> {
    match medium {
        ANY_SIZE => Ok(None),
        medium => parse(medium, MEDIUM_PREFIX).map(Some),
    }
}

fn parse(name: &str, prefix: &str) -> Result<Amount> {
    let size = name.strip_prefix(prefix).unwrap_or_default();
    size.parse()
        .map_err(|error| Error::failed(format!("{name}: {error}")))
}

/// The kernel shows `pagesize=2M`.
fn size_of_mount(option: &str) -> Option<Amount> {
    let size = option.strip_prefix("pagesize=")?;
    let is_binary = size.ends_with(['K', 'M', 'G']);
    let size = if is_binary {
        format!("{size}i")
    } else {
        size.to_owned()
    };
    size.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(requests: &[&str]) -> Pod {
        let container =
            |name: &&str| json!({"name": "c", "resources": {"requests": {*name: "4Mi", "cpu": "1"}}});
        let containers: Vec<_> = requests.iter().map(container).collect();
        let pod = json!({"metadata": {"uid": "u"}, "spec": {"containers": containers}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn the_page_size_is_requested() {
        let missing = "hugePages storage requested, but there is no resource request for huge pages";
        for (medium, requests, expected) in [
            ("HugePages", &["hugepages-2Mi"][..], Ok("pagesize=2Mi".to_owned())),
            (
                "HugePages",
                &["hugepages-2Mi", "hugepages-2048Ki"],
                Ok("pagesize=2Mi".to_owned()),
            ),
            (
                "HugePages",
                &["memory"],
                Err(format!("medium HugePages: {missing}")),
            ),
            (
                "HugePages",
                &["hugepages-2Mi", "hugepages-1Gi"],
                Err(
                    "medium: HugePages can't be used if container requests multiple huge page sizes"
                        .to_owned(),
                ),
            ),
            (
                "HugePages-1Gi",
                &["hugepages-2Mi", "hugepages-1Gi"],
                Ok("pagesize=1Gi".to_owned()),
            ),
            (
                "HugePages-1Gi",
                &["hugepages-2Mi"],
                Err(format!("medium HugePages-1Gi: {missing}")),
            ),
        ] {
            let option = page_size_option(medium, &pod(requests)).map_err(|error| error.to_string());
            assert_eq!(option, expected, "{medium} {requests:?}");
        }
    }

    #[test]
    fn a_mount_must_have_the_page_size() {
        let mounted = |option: &str| {
            vec![MountPoint {
                source: "nodev".to_owned(),
                path: "/v".into(),
                fs_type: "hugetlbfs".to_owned(),
                options: vec!["rw".to_owned(), option.to_owned()],
            }]
        };
        let check = |medium: &str, option: &str| {
            let checked = check_mounted(&pod(&[]), Path::new("/v"), medium, &mounted(option));
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check("HugePages", ""), Ok(()));
        assert_eq!(check("HugePages-2Mi", "pagesize=2M"), Ok(()));
        let differs = "pod u: mounted dir /v pagesize '2Mi' and requested medium size '1Gi' differ";
        assert_eq!(check("HugePages-1Gi", "pagesize=2M"), Err(differs.to_owned()));
        let unknown = "pod u: mounted dir /v pagesize is not determined";
        assert_eq!(check("HugePages-1Gi", "relatime"), Err(unknown.to_owned()));
    }
}
