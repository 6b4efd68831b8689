//! Resizes a whole pod: updates the sandbox in the runtime (`updatePodSandboxResources`), then the pod's cgroup
//! (`SetPodCgroupConfig`).

use std::cmp::Ordering;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;
use kubelet_core::cgroups::{
    CgroupLimits, UNLIMITED, milli_cpu_to_quota, milli_cpu_to_shares, shares_to_milli_cpu,
};

use crate::config::{Result as ConfigResult, overhead};
use crate::containers::describe;
use crate::containers::resize::{Resource, set_amounts};
use crate::runtime::CriRuntime;
use kubelet_cri::v1;

/// The present and the desired resources of a whole pod.
pub(crate) struct SandboxResize<'a> {
    pod: &'a Pod,
    sandbox_id: &'a str,
    now: Bounds,
    new: Bounds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    cpu_shares: i64,
    cpu_quota: i64,
    cpu_period: i64,
    memory: i64,
}

/// The resource that is changed.
#[derive(Clone, Copy)]
enum Part {
    Limit,
    Request,
}

impl SandboxResize<'_> {
    pub(crate) fn pod(&self) -> &Pod {
        self.pod
    }

    pub(crate) fn id(&self) -> &str {
        self.sandbox_id
    }

    /// The memory limit, if it is new or lower than before.
    pub(crate) fn memory_that_becomes_less(&self) -> Option<i64> {
        let (now, new) = (self.now.memory, self.new.memory);
        (new > 0 && (now <= 0 || new < now)).then_some(new)
    }
}

impl CriRuntime {
    /// A resize from the present resources to those of the spec. The pod's cgroup has the present ones. If the agent
    /// creates no cgroups, the present ones are those that the runtime got last.
    pub(crate) async fn sandbox_resize<'a>(
        &self,
        pod: &'a Pod,
        sandbox_id: &'a str,
    ) -> Result<SandboxResize<'a>, String> {
        let written = match &self.pod_cgroups {
            Some(cgroups) => cgroups.limits(pod).await.map_err(|error| {
                format!(
                    "unable to get pod cgroup config for pod {:?}: {error}",
                    describe(pod)
                )
            })?,
            None => None,
        };
        let config_error = |error: kubelet_core::Error| error.to_string();
        let now = match (written, self.actuated.bounds(&pod.uid())) {
            (Some(written), _) => self.unlimited().with(&written),
            (None, Some(reported)) => reported,
            (None, None) => self.desired_bounds(&self.as_given(pod)).map_err(config_error)?,
        };
        let desired = self.desired_limits(pod).map_err(config_error)?;
        Ok(SandboxResize {
            pod,
            sandbox_id,
            // A limit that was removed from the spec stays.
            new: now.with(&desired),
            now,
        })
    }

    /// The resources in its spec.
    fn desired_bounds(&self, pod: &Pod) -> kubelet_core::Result<Bounds> {
        Ok(self.unlimited().with(&self.desired_limits(pod)?))
    }

    fn desired_limits(&self, pod: &Pod) -> kubelet_core::Result<CgroupLimits> {
        let mut settings = self.node.pod_cgroups();
        settings.cpu_cfs_quota &= !self.exclusive_cpus.pod_has_exclusive_cpus(pod);
        CgroupLimits::of_pod(&settings, pod)
    }

    fn unlimited(&self) -> Bounds {
        Bounds {
            cpu_shares: 0,
            cpu_quota: UNLIMITED,
            cpu_period: i64::try_from(self.node.cpu_cfs_quota_period.as_micros()).unwrap_or(i64::MAX),
            memory: UNLIMITED,
        }
    }

    /// The pod with a spec that has the resources that it and its containers got last.
    fn as_given(&self, pod: &Pod) -> Pod {
        let mut given = pod.clone();
        let Some(spec) = &mut given.spec else { return given };
        let set = |container: &mut Container| {
            if let Some(amounts) = self.actuated.get_or_take_over(pod, &container.name) {
                let resources = container.resources.get_or_insert_default();
                set_amounts(resources, amounts);
            }
        };
        let init = spec.init_containers.iter_mut().flatten();
        init.chain(&mut spec.containers).for_each(set);
        match (&mut spec.resources, self.actuated.whole_or_take_over(pod)) {
            (Some(resources), Some(whole)) => set_amounts(resources, whole),
            // The pod-level resources are new.
            (resources, None) => *resources = None,
            (None, Some(_)) => {}
        }
        given
    }

    /// Changes the resource if it increases, the limit first, or if it decreases, the limit last. If the runtime
    /// rejects the change, the cgroup stays unchanged. If the cgroup cannot be changed, the runtime gets the previous
    /// resources again.
    pub(crate) async fn resize_sandbox(
        &self,
        resize: &mut SandboxResize<'_>,
        resource: Resource,
        becomes: Ordering,
    ) -> Result<(), String> {
        let parts = match becomes {
            Ordering::Greater => [Part::Limit, Part::Request],
            Ordering::Less | Ordering::Equal => [Part::Request, Part::Limit],
        };
        for part in parts {
            let (now, new) = (resize.now, resize.new);
            let mut change = CgroupLimits::default();
            let ordering = match (resource, part) {
                (Resource::Memory, Part::Limit) => {
                    change.memory = Some(new.memory);
                    new.memory.cmp(&now.memory)
                }
                // This change needs no write.
                (Resource::Memory, Part::Request) => continue,
                (Resource::Cpu, Part::Limit) => {
                    (change.cpu_quota, change.cpu_period) = (Some(new.cpu_quota), Some(new.cpu_period));
                    new.cpu_quota.cmp(&now.cpu_quota)
                }
                (Resource::Cpu, Part::Request) => {
                    change.cpu_shares = Some(new.cpu_shares);
                    new.cpu_shares.cmp(&now.cpu_shares)
                }
            };
            if ordering != becomes {
                continue;
            }
            let next = now.with(&change);
            self.tell_of_sandbox(resize, next).await.map_err(|error| {
                let resource = resource.as_str();
                format!(
                    "failed to notify runtime for UpdatePodSandboxResources (resource={resource}); \
                     resize rejected: {error}"
                )
            })?;
            if let Some(cgroups) = &self.pod_cgroups
                && let Err(error) = cgroups.set_limits(resize.pod, change).await
            {
                if let Err(error) = self.tell_of_sandbox(resize, now).await {
                    tracing::error!(pod = %resize.pod.key(), uid = resize.pod.uid_str(), error,
                        "cannot restore the resources of a sandbox after its cgroup could not be changed");
                }
                return Err(error.to_string());
            }
            resize.now = next;
            self.actuated.set_bounds(&resize.pod.uid(), next);
        }
        Ok(())
    }

    /// A runtime that does not implement the call gets it only once.
    async fn tell_of_sandbox(&self, resize: &SandboxResize<'_>, bounds: Bounds) -> Result<(), String> {
        let id = resize.sandbox_id;
        let request = self
            .sandbox_request(resize, bounds)
            .map_err(|error| error.to_string())?;
        let updated = self.runtime.update_pod_sandbox_resources(request);
        let updated = self.missing.offered("UpdatePodSandboxResources", updated).await;
        match updated {
            Ok(_) => Ok(()),
            Err(error) => {
                let error = error.rpc_text();
                // The kubelet's spelling.
                Err(format!(
                    "updatePodSandboxResources failed for sanboxID {id:?}: {error}"
                ))
            }
        }
    }

    /// The pod's memory usage, if its cgroup reports it.
    pub(crate) async fn cgroup_memory_usage(&self, pod: &Pod) -> Option<u64> {
        self.pod_cgroups.as_ref()?.memory_usage(pod).await
    }

    /// The pod's overhead is a separate field (`generateUpdatePodSandboxResourcesRequest`).
    fn sandbox_request(
        &self,
        resize: &SandboxResize<'_>,
        bounds: Bounds,
    ) -> ConfigResult<v1::UpdatePodSandboxResourcesRequest> {
        let without = bounds.without(overhead(resize.pod)?);
        Ok(v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: resize.sandbox_id.to_owned(),
            overhead: Some(crate::config::sandbox_overhead(&self.node, resize.pod)?),
            resources: Some(v1::LinuxContainerResources {
                cpu_shares: without.cpu_shares,
                cpu_quota: without.cpu_quota,
                cpu_period: without.cpu_period,
                memory_limit_in_bytes: without.memory,
                ..Default::default()
            }),
        })
    }
}

impl Bounds {
    fn with(self, limits: &CgroupLimits) -> Self {
        Self {
            cpu_shares: limits.cpu_shares.unwrap_or(self.cpu_shares),
            cpu_quota: limits.cpu_quota.unwrap_or(self.cpu_quota),
            cpu_period: limits.cpu_period.unwrap_or(self.cpu_period),
            memory: limits.memory.unwrap_or(self.memory),
        }
    }

    /// Subtracts millicores and bytes (`subtractOverheadFromResourceConfig`).
    fn without(self, (milli_cpu, memory): (i64, i64)) -> Self {
        let less = |bound: i64, by: i64| {
            if bound == UNLIMITED {
                bound
            } else {
                bound.saturating_sub(by)
            }
        };
        let shares = match milli_cpu {
            0 => self.cpu_shares,
            _ => milli_cpu_to_shares(shares_to_milli_cpu(self.cpu_shares).saturating_sub(milli_cpu)),
        };
        Self {
            cpu_shares: shares,
            cpu_quota: less(self.cpu_quota, milli_cpu_to_quota(milli_cpu, self.cpu_period)),
            memory: less(self.memory, memory),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_counts_for_none_of_the_bounds() {
        let bounds = Bounds {
            cpu_shares: 1536,
            cpu_quota: 150_000,
            cpu_period: 100_000,
            memory: 1000,
        };
        assert_eq!(bounds.without((0, 0)), bounds);
        let expected = Bounds {
            cpu_shares: 1024,
            cpu_quota: 100_000,
            memory: 900,
            ..bounds
        };
        assert_eq!(bounds.without((500, 100)), expected);
        let unlimited = Bounds {
            cpu_quota: UNLIMITED,
            memory: UNLIMITED,
            ..bounds
        };
        let expected = Bounds {
            cpu_shares: 1024,
            ..unlimited
        };
        assert_eq!(unlimited.without((500, 100)), expected);
    }
}
