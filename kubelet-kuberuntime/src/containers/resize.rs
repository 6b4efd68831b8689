//! Resizes running pods and containers (`doPodResizeAction`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::PodExt;
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::runtime::{ContainerState, PodStatus, PodSyncResult, ResizeRefusal, SyncAction};
use tokio::time::Instant;

use crate::config::{
    LabeledInfo, container_amounts, container_resources, may_swap, pod_amounts, without_quota,
};
use crate::containers::{describe, find};
use crate::images::aggregate;
use crate::kill::{Record, failure};
use crate::pod_actions::{ContainerAmounts, ContainerToUpdate, PodActions, has_other_whole};
use crate::runtime::CriRuntime;
use crate::sandbox::resources::SandboxResize;
use kubelet_cri::v1;

#[derive(Clone, Copy)]
pub(crate) enum Resource {
    Memory,
    Cpu,
}

impl Resource {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }
}

impl CriRuntime {
    /// Whether a running container, or the whole pod, has other resources than its spec (`IsPodResizeInProgress`). An
    /// init container that is not restartable does not count.
    pub(crate) fn has_resize_to_do(&self, pod: &Pod, status: &PodStatus) -> bool {
        let Some(spec) = &pod.spec else { return false };
        let runs = |container: &&Container| {
            let status = status.container(&container.name);
            status.is_some_and(|status| status.state == ContainerState::Running)
        };
        let init = spec.init_containers.iter().flatten();
        let sidecars = init.filter(|container| is_restartable_init_container(container));
        let mut containers = sidecars.chain(&spec.containers).filter(runs);
        let is_to_do = containers.any(|container| {
            let actuated = self.actuated.get_or_take_over(pod, &container.name);
            match (actuated, container_amounts(pod, container)) {
                (Some(actuated), Ok(allocated)) => actuated != allocated,
                _ => false,
            }
        });
        is_to_do
            || has_other_whole(pod, self.actuated.whole_or_take_over(pod))
            || self.actuated.is_unfinished(&pod.uid())
    }

    /// A container's swap limit follows from its memory request and cannot be changed while it runs, so such a resize
    /// is refused (`disallowResizeForSwappableContainers`).
    pub(crate) fn refuses_to_resize_swap(&self, desired: &Pod, allocated: &Pod) -> Option<ResizeRefusal> {
        let asks_for = |pod: &Pod, container: &Container| {
            let amounts = container_amounts(pod, container).ok()?;
            Some(amounts.memory_request)
        };
        let starts_again = |container: &Container| {
            let mut policies = container.resize_policy.iter().flatten();
            let policy = policies.find(|policy| policy.resource_name == "memory");
            policy.is_some_and(|policy| policy.restart_policy == "RestartContainer")
        };
        let swaps = |pod: &Pod, container: &Container| may_swap(&self.node, pod, container).unwrap_or(false);
        let is_refused = |new: &Container| {
            let mut containers = allocated.all_containers();
            containers.find(|old| old.name == new.name).is_some_and(|old| {
                asks_for(desired, new) != asks_for(allocated, old)
                    && !starts_again(old)
                    && (swaps(desired, new) || swaps(allocated, old))
            })
        };
        desired.all_containers().any(is_refused).then(|| {
            let message = "In-place resize of containers with swap is not supported.";
            ResizeRefusal::new(message, "swap_limitation")
        })
    }

    /// Resizes memory first, then CPU. For each resource the order is: the pod if it gets more, its containers, the pod
    /// if it gets less. The first failure ends the resize. Nothing is reverted; the next sync continues.
    pub(crate) async fn resize_pod(
        &self,
        pod: &Pod,
        sandbox_id: &str,
        actions: &PodActions,
        result: &mut PodSyncResult,
    ) {
        let memory = &actions.containers_to_update_memory;
        let cpu = &actions.containers_to_update_cpu;
        let of_pod = actions.update_pod_resources || actions.update_pod_level_resources;
        if memory.is_empty() && cpu.is_empty() && !of_pod {
            return;
        }
        let began = Instant::now();
        let resized = async {
            let mut sandbox = self.sandbox_resize(pod, sandbox_id).await?;
            if of_pod || !memory.is_empty() {
                self.check_memory_use(&sandbox, memory).await?;
            }
            for (resource, updates) in [(Resource::Memory, memory), (Resource::Cpu, cpu)] {
                if updates.is_empty() && !of_pod {
                    continue;
                }
                self.resize_sandbox(&mut sandbox, resource, Ordering::Greater)
                    .await?;
                self.update_resources(pod, updates, resource).await?;
                self.resize_sandbox(&mut sandbox, resource, Ordering::Less)
                    .await?;
                if actions.update_pod_level_resources
                    && let Ok(Some(to)) = pod_amounts(pod)
                {
                    let now = self.actuated.whole_or_take_over(pod).unwrap_or_default();
                    self.actuated.set_whole(&pod.uid(), with(now, to, resource));
                }
            }
            Ok::<_, String>(())
        };
        let failed = resized.await.err();
        self.actuated.set_unfinished(&pod.uid(), failed.is_some());
        let success = if failed.is_none() { "true" } else { "false" };
        metrics::histogram!("kubelet_pod_resize_duration_milliseconds", "success" => success)
            .record(began.elapsed().as_secs_f64() * 1000.0);
        let failed = failed.map(|message| {
            tracing::warn!(pod = %pod.key(), uid = pod.uid_str(), "cannot resize the pod in place: {message}");
            failure("ResizePodInPlaceError", message)
        });
        result.record(SyncAction::ResizePodInPlace, &describe(pod), failed);
    }

    async fn update_resources(
        &self,
        pod: &Pod,
        updates: &[ContainerToUpdate],
        resource: Resource,
    ) -> Result<(), String> {
        for update in updates {
            let Some((_, container)) = find(pod, &update.name) else {
                continue;
            };
            let now = self.actuated.get_or_take_over(pod, &update.name);
            let amounts = with(now.unwrap_or(update.from), update.to, resource);
            let mut container = container.into_owned();
            set_amounts(container.resources.get_or_insert_default(), amounts);
            let resources = container_resources(&self.node, pod, &container);
            let mut resources = resources.map_err(|error| error.to_string())?;
            if self.exclusive_cpus.container_has_exclusive_cpus(pod, &container) {
                resources = without_quota(resources);
            }
            let request = v1::UpdateContainerResourcesRequest {
                container_id: update.id.id().to_owned(),
                linux: Some(resources),
                ..Default::default()
            };
            let updated = self.runtime.update_container_resources(request).await;
            updated.map_err(|error| error.rpc_text())?;
            self.actuated.set(&pod.uid(), &update.name, amounts);
        }
        Ok(())
    }

    /// A memory limit below the usage would cause an OOM kill, so it is refused (`validateMemoryResizeAction`).
    async fn check_memory_use(
        &self,
        sandbox: &SandboxResize<'_>,
        updates: &[ContainerToUpdate],
    ) -> Result<(), String> {
        let pod = sandbox.pod();
        let limit_of_pod = sandbox.memory_that_becomes_less();
        let limits: HashMap<&str, i64> = updates
            .iter()
            .filter(|ContainerToUpdate { from, to, .. }| {
                let (old, new) = (from.memory_limit, to.memory_limit);
                new != 0 && (old == 0 || new < old)
            })
            .map(|update| (update.name.as_str(), update.to.memory_limit))
            .collect();
        if limit_of_pod.is_none() && limits.is_empty() {
            return Ok(());
        }
        let request = v1::ListContainerStatsRequest {
            filter: Some(v1::ContainerStatsFilter {
                pod_sandbox_id: sandbox.id().to_owned(),
                ..Default::default()
            }),
        };
        let listed = self.runtime.list_container_stats(request).await;
        let listed =
            listed.map_err(|_| format!("unable to read memory usage for pod {:?}", describe(pod)))?;
        // A restarted container may be listed more than once: the highest usage counts.
        let mut used: BTreeMap<String, Option<u64>> = BTreeMap::new();
        for stats in listed.stats {
            let Some(attributes) = stats.attributes else {
                continue;
            };
            let labels = LabeledInfo::from_labels(&attributes.labels);
            let memory = stats.memory.and_then(|memory| memory.usage_bytes);
            let usage = used.entry(labels.container_name).or_default();
            *usage = (*usage).max(memory.map(|memory| memory.value));
        }
        let is_too_much = |used: u64, limit: i64| i64::try_from(used).unwrap_or(i64::MAX) >= limit;
        let mut problems = Vec::new();
        if let Some(limit) = limit_of_pod {
            let of_cgroup = self.cgroup_memory_usage(pod).await;
            let in_all = || used.values().flatten().sum();
            let in_use = of_cgroup.unwrap_or_else(in_all);
            if is_too_much(in_use, limit) {
                problems.push(format!(
                    "attempting to set pod memory limit ({limit}) below current usage ({in_use})"
                ));
            }
        }
        for (name, used) in &used {
            match (limits.get(name.as_str()), *used) {
                (None, _) => {}
                (Some(_), None) => problems.push(format!("missing container {name:?} memory usage")),
                (Some(limit), Some(used)) if is_too_much(used, *limit) => {
                    problems.push(format!(
                        "attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"
                    ));
                }
                (Some(_), Some(_)) => {}
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(format!("cannot decrease memory limits: {}", aggregate(problems))),
        }
    }
}

/// The present resources, with one resource changed.
fn with(now: ContainerAmounts, to: ContainerAmounts, resource: Resource) -> ContainerAmounts {
    match resource {
        Resource::Memory => ContainerAmounts {
            memory_limit: to.memory_limit,
            memory_request: to.memory_request,
            ..now
        },
        Resource::Cpu => ContainerAmounts {
            cpu_limit: to.cpu_limit,
            cpu_request: to.cpu_request,
            ..now
        },
    }
}

/// Replaces these amounts and keeps all others.
pub(crate) fn set_amounts(resources: &mut ResourceRequirements, amounts: ContainerAmounts) {
    let set = |list: &mut Option<BTreeMap<String, Quantity>>, cpu: i64, memory: i64| {
        let list = list.get_or_insert_default();
        list.insert("cpu".to_owned(), Quantity(format!("{cpu}m")));
        list.insert("memory".to_owned(), Quantity(memory.to_string()));
    };
    set(&mut resources.limits, amounts.cpu_limit, amounts.memory_limit);
    set(
        &mut resources.requests,
        amounts.cpu_request,
        amounts.memory_request,
    );
}
