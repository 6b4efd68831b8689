//! Telling the runtime what a pod as a whole may have from now on, before its cgroup changes and its containers do, or after
//! (`updatePodSandboxResources`).

use std::cmp::Ordering;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::CriRuntime;
use super::cgroups::Limits;
use super::config::{Result as ConfigResult, milli_cpu_to_quota, milli_cpu_to_shares, overhead};
use super::resize::{Resource, set_amounts};
use crate::v1;

/// The mark of no bound.
const UNLIMITED: i64 = -1;

/// What the runtime was told last of a sandbox, or what there was before, and what it is to be told.
pub(super) struct SandboxResize<'a> {
    pod: &'a Pod,
    sandbox_id: &'a str,
    now: Bounds,
    new: Bounds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    cpu_shares: i64,
    cpu_quota: i64,
    cpu_period: i64,
    memory: i64,
}

/// What is told at once.
#[derive(Clone, Copy)]
enum Part {
    Limit,
    Request,
}

impl CriRuntime {
    /// From what the pod's containers were given last to what its spec says.
    pub(super) fn sandbox_resize<'a>(
        &self,
        pod: &'a Pod,
        sandbox_id: &'a str,
    ) -> ConfigResult<SandboxResize<'a>> {
        let period = i64::try_from(self.node.cpu_cfs_quota_period.as_micros()).unwrap_or(i64::MAX);
        let unlimited = Bounds {
            cpu_shares: 0,
            cpu_quota: UNLIMITED,
            cpu_period: period,
            memory: UNLIMITED,
        };
        let now = unlimited.with(&Limits::of_pod(&self.node, &self.as_given(pod))?);
        Ok(SandboxResize {
            pod,
            sandbox_id,
            // A bound that there is no more stays.
            new: now.with(&Limits::of_pod(&self.node, pod)?),
            now,
        })
    }

    /// The pod as if its spec said what its containers were given last.
    fn as_given(&self, pod: &Pod) -> Pod {
        let mut given = pod.clone();
        let Some(spec) = &mut given.spec else { return given };
        let set = |container: &mut Container| {
            if let Some(amounts) = self.actuated.get_or_take_over(pod, &container.name) {
                set_amounts(container, amounts);
            }
        };
        let init = spec.init_containers.iter_mut().flatten();
        init.chain(&mut spec.containers).for_each(set);
        given
    }

    /// Tells of what becomes more, the limit first, or of what becomes less, the limit last. A runtime that does not offer the
    /// call is asked once.
    pub(super) async fn tell_of_sandbox(
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
            let (ordering, next) = match (resource, part) {
                (Resource::Memory, Part::Limit) => (
                    new.memory.cmp(&now.memory),
                    Bounds {
                        memory: new.memory,
                        ..now
                    },
                ),
                // It is written nowhere.
                (Resource::Memory, Part::Request) => continue,
                (Resource::Cpu, Part::Limit) => {
                    let (cpu_quota, cpu_period) = (new.cpu_quota, new.cpu_period);
                    (
                        cpu_quota.cmp(&now.cpu_quota),
                        Bounds {
                            cpu_quota,
                            cpu_period,
                            ..now
                        },
                    )
                }
                (Resource::Cpu, Part::Request) => {
                    let cpu_shares = new.cpu_shares;
                    (cpu_shares.cmp(&now.cpu_shares), Bounds { cpu_shares, ..now })
                }
            };
            if ordering != becomes {
                continue;
            }
            let request = self
                .sandbox_request(resize, next)
                .map_err(|error| error.to_string())?;
            let updated = self.runtime.update_pod_sandbox_resources(request);
            let updated = self.missing.offered("UpdatePodSandboxResources", updated).await;
            updated.map_err(|error| {
                let error = error.rpc_text();
                format!(
                    "failed to notify runtime for UpdatePodSandboxResources (resource={}); resize rejected: \
                     updatePodSandboxResources failed for sandboxID {:?}: {error}",
                    resource.as_str(),
                    resize.sandbox_id
                )
            })?;
            resize.now = next;
        }
        Ok(())
    }

    /// The overhead of the pod stands apart (`generateUpdatePodSandboxResourcesRequest`).
    fn sandbox_request(
        &self,
        resize: &SandboxResize<'_>,
        bounds: Bounds,
    ) -> ConfigResult<v1::UpdatePodSandboxResourcesRequest> {
        let without = bounds.without(overhead(resize.pod)?);
        Ok(v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: resize.sandbox_id.to_owned(),
            overhead: Some(super::config::sandbox_overhead(&self.node, resize.pod)?),
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
    fn with(self, limits: &Limits) -> Self {
        Self {
            cpu_shares: limits.cpu_shares.unwrap_or(self.cpu_shares),
            cpu_quota: limits.cpu_quota.unwrap_or(self.cpu_quota),
            cpu_period: limits.cpu_period.unwrap_or(self.cpu_period),
            memory: limits.memory.unwrap_or(self.memory),
        }
    }

    /// Without so many thousandths of a CPU and bytes (`subtractOverheadFromResourceConfig`).
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

/// `SharesToMilliCPU`
fn shares_to_milli_cpu(shares: i64) -> i64 {
    shares.saturating_mul(1000).saturating_add(1023) / 1024
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
