//! CPU, memory and huge pages in the configs for the runtime (`kuberuntime_container_linux.go`,
//! `kuberuntime_sandbox_linux.go`, `pkg/kubelet/qos`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::cgroups::{UNLIMITED, huge_page_size, milli_cpu_to_quota, milli_cpu_to_shares};
use kubelet_core::quantity::Amount;

use super::memory_qos::memory_qos;
use super::oom_score::oom_score_adj;
use super::resource_lists::{ResourceList, ResourceLists, amounts, get, pod_owner, pod_total};
use super::swap::swap_limit;
use super::{NodeSettings, Result};
use crate::pod_actions::ContainerAmounts;
use kubelet_cri::v1::{HugepageLimit, LinuxContainerResources};

/// The resources of a container (`generateLinuxContainerResources`).
pub(crate) fn container_resources(
    node: &NodeSettings,
    pod: &Pod,
    container: &Container,
) -> Result<LinuxContainerResources> {
    let lists = ResourceLists::of_container(container)?;
    let of_pod = ResourceLists::of_pod(pod)?;
    let limit = |name: &str| match get(&lists.limits, name) {
        amount if amount.is_zero() => get(&of_pod.limits, name),
        amount => amount,
    };
    let mut resources = linux_resources(
        node,
        lists.requests.get("cpu").copied(),
        limit("cpu"),
        limit("memory"),
    );
    resources.oom_score_adj = oom_score_adj(node, pod, container)?;
    resources.hugepage_limits = hugepage_limits(node, &of_pod.limits, &lists.limits);
    if node.swap_controller {
        if node.cgroup_v2 {
            let limit = swap_limit(node, pod, container)?;
            resources
                .unified
                .insert("memory.swap.max".to_owned(), limit.to_string());
        } else {
            resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes;
        }
    }
    resources.unified.extend(memory_qos(node, pod, container)?);
    Ok(resources)
}

/// A container with CPUs of its own may use all of their time (`DisableCPUQuotaWithExclusiveCPUs`).
pub(crate) fn without_quota(mut resources: LinuxContainerResources) -> LinuxContainerResources {
    if resources.cpu_period != 0 {
        resources.cpu_quota = UNLIMITED;
    }
    resources
}

/// The CPU and memory of a container (`containerResourcesFromRequirements`).
pub(crate) fn container_amounts(pod: &Pod, container: &Container) -> Result<ContainerAmounts> {
    let lists = ResourceLists::of_container(container)?;
    let of_pod = ResourceLists::of_pod(pod)?;
    let limit = |name: &str| match lists.limits.get(name) {
        Some(amount) => *amount,
        None => get(&of_pod.limits, name),
    };
    Ok(ContainerAmounts {
        memory_limit: limit("memory").value(),
        memory_request: get(&lists.requests, "memory").value(),
        cpu_limit: limit("cpu").milli_value(),
        cpu_request: get(&lists.requests, "cpu").milli_value(),
    })
}

/// The pod-level resources, if the spec has any (`podResourcesFromRequirements`).
pub(crate) fn pod_amounts(pod: &Pod) -> Result<Option<ContainerAmounts>> {
    if pod.spec.as_ref().is_none_or(|spec| spec.resources.is_none()) {
        return Ok(None);
    }
    let lists = ResourceLists::of_pod(pod)?;
    Ok(Some(ContainerAmounts {
        memory_limit: get(&lists.limits, "memory").value(),
        memory_request: get(&lists.requests, "memory").value(),
        cpu_limit: get(&lists.limits, "cpu").milli_value(),
        cpu_request: get(&lists.requests, "cpu").milli_value(),
    }))
}

/// The resources of a whole pod without its overhead (`calculateSandboxResources`).
pub(super) fn sandbox_resources(node: &NodeSettings, pod: &Pod) -> Result<LinuxContainerResources> {
    let requests = pod_total(pod, |lists| &lists.requests)?;
    let limits = pod_total(pod, |lists| &lists.limits)?;
    Ok(linux_resources(
        node,
        requests.get("cpu").copied(),
        get(&limits, "cpu"),
        get(&limits, "memory"),
    ))
}

/// The pod's overhead, in millicores and in bytes.
pub(crate) fn overhead(pod: &Pod) -> Result<(i64, i64)> {
    let overhead = pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref());
    let overhead = amounts(&pod_owner(pod), "overhead", overhead)?;
    Ok((
        get(&overhead, "cpu").milli_value(),
        get(&overhead, "memory").value(),
    ))
}

/// The overhead in CRI's form (`convertOverheadToLinuxResources`).
pub(crate) fn sandbox_overhead(node: &NodeSettings, pod: &Pod) -> Result<LinuxContainerResources> {
    let overhead = pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref());
    let Some(overhead) = overhead else {
        return Ok(LinuxContainerResources::default());
    };
    let overhead = amounts(&pod_owner(pod), "overhead", Some(overhead))?;
    let cpu = get(&overhead, "cpu");
    Ok(linux_resources(node, Some(cpu), cpu, get(&overhead, "memory")))
}

/// `calculateLinuxResources`
fn linux_resources(
    node: &NodeSettings,
    cpu_request: Option<Amount>,
    cpu_limit: Amount,
    memory_limit: Amount,
) -> LinuxContainerResources {
    let mut resources = LinuxContainerResources {
        cpu_shares: milli_cpu_to_shares(cpu_request.unwrap_or(cpu_limit).milli_value()),
        memory_limit_in_bytes: memory_limit.value(),
        ..Default::default()
    };
    if node.cpu_cfs_quota {
        let period = i64::try_from(node.cpu_cfs_quota_period.as_micros()).unwrap_or(i64::MAX);
        resources.cpu_quota = milli_cpu_to_quota(cpu_limit.milli_value(), period);
        resources.cpu_period = period;
    }
    if node.cgroup_v2 && !node.single_process_oom_kill {
        // On an OOM, the kernel then kills all processes of the container and not just one.
        resources
            .unified
            .insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    resources
}

/// A limit for each page size that the kernel supports; 0 if the container requests none
/// (`GetHugepageLimitsFromResources`).
fn hugepage_limits(node: &NodeSettings, pod: &ResourceList, container: &ResourceList) -> Vec<HugepageLimit> {
    let mut limits = BTreeMap::new();
    for (name, amount) in pod.iter().chain(container) {
        if let Some(size) = huge_page_size(name) {
            limits.insert(size, u64::try_from(amount.value()).unwrap_or(0));
        }
    }
    let sizes = node.huge_page_sizes.iter();
    sizes
        .map(|size| HugepageLimit {
            page_size: size.clone(),
            limit: limits.get(size).copied().unwrap_or(0),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    fn list(items: &[(&str, &str)]) -> Option<BTreeMap<String, Quantity>> {
        let items = items
            .iter()
            .map(|(k, v)| ((*k).to_owned(), Quantity((*v).into())));
        Some(items.collect())
    }

    fn requirements(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Option<ResourceRequirements> {
        Some(ResourceRequirements {
            requests: list(requests),
            limits: list(limits),
            ..Default::default()
        })
    }

    fn container(name: &str, requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Container {
        Container {
            name: name.into(),
            resources: requirements(requests, limits),
            ..Default::default()
        }
    }

    fn sidecar(name: &str, requests: &[(&str, &str)]) -> Container {
        Container {
            restart_policy: Some("Always".into()),
            ..container(name, requests, &[])
        }
    }

    fn pod(init_containers: Vec<Container>, containers: Vec<Container>) -> Pod {
        Pod {
            spec: Some(PodSpec {
                init_containers: Some(init_containers),
                containers,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn node() -> NodeSettings {
        NodeSettings {
            memory_capacity: 1000 << 20,
            huge_page_sizes: vec!["2MB".into(), "1GB".into()],
            ..Default::default()
        }
    }

    #[test]
    fn cpu_becomes_shares_and_quota() {
        let cases = [
            // request, limit, shares, quota
            (None, "0", 2, 0),
            (None, "500m", 512, 50_000),
            (Some("100m"), "2", 102, 200_000),
            (Some("0"), "1", 2, 100_000),
            (Some("1m"), "1m", 2, 1000),
            (Some("1000"), "0", 262_144, 0),
        ];
        for (request, limit, shares, quota) in cases {
            let amount = |text: &str| text.parse::<Amount>().unwrap();
            let resources = linux_resources(&node(), request.map(amount), amount(limit), Amount::ZERO);
            assert_eq!(
                (resources.cpu_shares, resources.cpu_quota, resources.cpu_period),
                (shares, quota, 100_000),
                "{request:?} {limit}"
            );
        }
    }

    #[test]
    fn oom_scores_follow_the_memory_asked_for() {
        let small = container("small", &[("memory", "100Mi")], &[]);
        let big = container("big", &[("memory", "600Mi")], &[]);
        let all = container("all", &[("memory", "1000Mi")], &[]);
        let cpu = container("cpu", &[("cpu", "1")], &[]);
        let helper = sidecar("helper", &[("memory", "1Mi")]);
        let pod = pod(vec![helper.clone()], vec![small.clone(), big.clone()]);
        for (container, score) in [(small, 900), (big, 400), (all, 3), (cpu, 999), (helper, 900)] {
            assert_eq!(
                oom_score_adj(&node(), &pod, &container).unwrap(),
                score,
                "{}",
                container.name
            );
        }
    }

    #[test]
    fn a_sandbox_gets_the_largest_moment() {
        let pod = pod(
            vec![
                sidecar("s", &[("cpu", "100m")]),
                container("i", &[("cpu", "1")], &[]),
            ],
            vec![container("a", &[("cpu", "250m")], &[("memory", "64Mi")])],
        );
        let resources = sandbox_resources(&node(), &pod).unwrap();
        assert_eq!(resources.cpu_shares, 1126);
        assert_eq!(resources.memory_limit_in_bytes, 64 << 20);
    }

    #[test]
    fn huge_pages_and_pod_limits_reach_the_container() {
        let mut pod = pod(vec![], vec![]);
        pod.spec.as_mut().unwrap().resources =
            requirements(&[], &[("memory", "1Gi"), ("hugepages-1Gi", "1Gi")]);
        let container = container("a", &[], &[("hugepages-2Mi", "4Mi")]);
        let resources = container_resources(&node(), &pod, &container).unwrap();
        assert_eq!(resources.memory_limit_in_bytes, 1 << 30);
        let limits: Vec<u64> = resources.hugepage_limits.iter().map(|page| page.limit).collect();
        assert_eq!(limits, [4 << 20, 1 << 30]);
    }

    #[test]
    fn swap_is_off_by_default() {
        let container = container("a", &[], &[("memory", "1Mi")]);
        let mut node = node();
        node.swap_controller = true;
        let resources = container_resources(&node, &Pod::default(), &container).unwrap();
        assert_eq!(resources.memory_swap_limit_in_bytes, 1 << 20);
        node.cgroup_v2 = true;
        let resources = container_resources(&node, &Pod::default(), &container).unwrap();
        let unified: Vec<_> = resources.unified.into_iter().collect();
        assert_eq!(
            unified,
            [
                ("memory.oom.group".to_owned(), "1".to_owned()),
                ("memory.swap.max".to_owned(), "0".to_owned())
            ]
        );
    }

    #[test]
    fn what_is_no_amount_is_named() {
        let container = container("web", &[], &[("cpu", "lots")]);
        let error = container_resources(&node(), &Pod::default(), &container).unwrap_err();
        assert_eq!(
            error.to_string(),
            "container web: limits.cpu: \"lots\" is not a quantity"
        );
    }
}
