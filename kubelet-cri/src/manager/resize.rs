//! Giving running containers other resources (`doPodResizeAction`), and what they were given last (`actuatedState`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::runtime::{ActuatedResources, ContainerState, PodStatus, PodSyncResult, SyncAction};
use kubelet_core::{PodExt, PodUid};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::CriRuntime;
use super::config::{container_amounts, container_resources};
use super::container::{describe, find};
use super::images::aggregate;
use super::kill::{Record, failure};
use super::pod_actions::{ContainerAmounts, ContainerToUpdate, PodActions};
use crate::v1;

/// What the runtime was told last of each container's resources.
#[derive(Default)]
pub(super) struct Actuated(Mutex<HashMap<PodUid, HashMap<String, ContainerAmounts>>>);

impl Actuated {
    /// A container that was started by an agent before this one has what its spec said when it was first seen.
    pub(super) fn get_or_take_over(&self, pod: &Pod, container: &str) -> Option<ContainerAmounts> {
        let mut pods = self.0.lock();
        let containers = pods.entry(pod.uid()).or_default();
        if let Some(known) = containers.get(container) {
            return Some(*known);
        }
        let (_, spec) = find(pod, container)?;
        let amounts = container_amounts(pod, &spec).ok()?;
        containers.insert(container.to_owned(), amounts);
        Some(amounts)
    }

    /// Those of the pod, by name.
    pub(super) fn of_pod(&self, pod: &PodUid) -> Vec<ActuatedResources> {
        let pods = self.0.lock();
        let containers = pods.get(pod).into_iter().flatten();
        let mut all: Vec<ActuatedResources> = containers
            .map(|(name, amounts)| ActuatedResources {
                container: name.clone(),
                cpu_request: amounts.cpu_request,
                cpu_limit: amounts.cpu_limit,
                memory_request: amounts.memory_request,
                memory_limit: amounts.memory_limit,
            })
            .collect();
        all.sort_by(|a, b| a.container.cmp(&b.container));
        all
    }

    /// What an agent before this one told the runtime. What this one has told it since is newer.
    pub(super) fn restore(&self, pod: &PodUid, actuated: Vec<ActuatedResources>) {
        let mut pods = self.0.lock();
        let containers = pods.entry(pod.clone()).or_default();
        for ActuatedResources {
            container,
            cpu_request,
            cpu_limit,
            memory_request,
            memory_limit,
        } in actuated
        {
            containers.entry(container).or_insert(ContainerAmounts {
                memory_limit,
                memory_request,
                cpu_limit,
                cpu_request,
            });
        }
    }

    pub(super) fn set(&self, pod: &PodUid, container: &str, amounts: ContainerAmounts) {
        let mut pods = self.0.lock();
        let containers = pods.entry(pod.clone()).or_default();
        containers.insert(container.to_owned(), amounts);
    }

    pub(super) fn forget(&self, pod: &PodUid) {
        self.0.lock().remove(pod);
    }
}

#[derive(Clone, Copy)]
pub(super) enum Resource {
    Memory,
    Cpu,
}

impl Resource {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }
}

impl CriRuntime {
    /// Whether a container that runs was given something else than its spec says (`isContainerResourceResizeInProgress`).
    pub(super) fn has_resize_to_do(&self, pod: &Pod, status: &PodStatus) -> bool {
        let runs = |container: &&Container| {
            let status = status.container(&container.name);
            status.is_some_and(|status| status.state == ContainerState::Running)
        };
        pod.all_containers().filter(runs).any(|container| {
            let actuated = self.actuated.get_or_take_over(pod, &container.name);
            match (actuated, container_amounts(pod, container)) {
                (Some(actuated), Ok(allocated)) => actuated != allocated,
                _ => false,
            }
        })
    }

    /// Memory first, then CPU. What fails ends the resize; the next sync tries what is left of it.
    pub(super) async fn resize_containers(
        &self,
        pod: &Pod,
        sandbox_id: &str,
        actions: &PodActions,
        result: &mut PodSyncResult,
    ) {
        let memory = &actions.containers_to_update_memory;
        let cpu = &actions.containers_to_update_cpu;
        let restarts = actions.update_pod_resources;
        if memory.is_empty() && cpu.is_empty() && !restarts {
            return;
        }
        let began = Instant::now();
        let resized = async {
            self.check_memory_use(pod, memory).await?;
            let mut sandbox = self
                .sandbox_resize(pod, sandbox_id)
                .map_err(|error| error.to_string())?;
            for (resource, updates) in [(Resource::Memory, memory), (Resource::Cpu, cpu)] {
                if !updates.is_empty() || restarts {
                    self.tell_of_sandbox(&mut sandbox, resource, Ordering::Greater)
                        .await?;
                    self.update_resources(pod, updates, resource).await?;
                    self.tell_of_sandbox(&mut sandbox, resource, Ordering::Less)
                        .await?;
                }
            }
            Ok::<_, String>(())
        };
        let failed = resized.await.err();
        let success = if failed.is_none() { "true" } else { "false" };
        metrics::histogram!("kubelet_pod_resize_duration_milliseconds", "success" => success)
            .record(began.elapsed().as_secs_f64() * 1000.0);
        let failed = failed.map(|message| {
            tracing::warn!(pod = %pod.key(), uid = pod.uid_str(), message, "cannot resize the pod in place");
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
            set_amounts(&mut container, amounts);
            let resources = container_resources(&self.node, pod, &container);
            let request = v1::UpdateContainerResourcesRequest {
                container_id: update.id.id().to_owned(),
                linux: Some(resources.map_err(|error| error.to_string())?),
                ..Default::default()
            };
            let updated = self.runtime.update_container_resources(request).await;
            updated.map_err(|error| error.rpc_text())?;
            self.actuated.set(&pod.uid(), &update.name, amounts);
        }
        Ok(())
    }

    /// A limit below what a container uses would have it killed (`validateMemoryResizeAction`).
    async fn check_memory_use(&self, pod: &Pod, updates: &[ContainerToUpdate]) -> Result<(), String> {
        let mut problems = Vec::new();
        for ContainerToUpdate { id, name, from, to } in updates {
            let (old, new) = (from.memory_limit, to.memory_limit);
            if new == 0 || (old != 0 && new >= old) {
                continue;
            }
            let request = v1::ContainerStatsRequest {
                container_id: id.id().to_owned(),
            };
            let stats = self.runtime.container_stats(request).await;
            let stats =
                stats.map_err(|_| format!("unable to read memory usage for pod {:?}", describe(pod)))?;
            let memory = stats.stats.and_then(|stats| stats.memory);
            match memory.and_then(|memory| memory.usage_bytes) {
                None => problems.push(format!("missing container {name:?} memory usage")),
                Some(used) if i64::try_from(used.value).unwrap_or(i64::MAX) >= new => {
                    problems.push(format!(
                        "attempting to set container {name:?} memory limit ({new}) below current usage ({})",
                        used.value
                    ));
                }
                Some(_) => {}
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(format!("cannot decrease memory limits: {}", aggregate(problems))),
        }
    }
}

/// What is now, but for one resource.
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

/// The container with these amounts in place of its own; what else it has stays.
pub(super) fn set_amounts(container: &mut Container, amounts: ContainerAmounts) {
    let resources = container
        .resources
        .get_or_insert_with(ResourceRequirements::default);
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
