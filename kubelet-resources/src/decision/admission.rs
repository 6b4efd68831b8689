//! The admission of a pod in steps, so that plugins can be called between them.
//!
//! An [`Allocator`] decides without I/O. Each step first merges the hints of all providers ([`Allocator::next_share`]). Then the
//! caller may call plugins with the merged hint, and wait for them. At last the CPU and memory managers allocate
//! ([`Allocator::allocate`]).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;
use tokio::time::Instant;

use super::Allocator;
use crate::metrics::{self, Aligned, Boundary, Scope};
use crate::topology::{HintProvider, TopologyHint, TopologyPolicy, TopologyScope, provider_error};
use crate::{Error, Result};

/// An admission that is under way. End it with [`Allocator::end`].
#[derive(Debug)]
pub struct PodAdmission {
    pod: Arc<Pod>,
    started: Instant,
    /// The number of the container that is next.
    next: usize,
    /// The hint for the whole pod, under scope `pod`.
    of_pod: Option<TopologyHint>,
    done: bool,
}

/// What is allocated in one step: the resources of one container, or of the pod as a whole.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Share {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The number of the container in the order of [`PodExt::all_containers`]. `None`: the whole pod, which has pod-level
    /// resources.
    pub container: Option<usize>,
    /// The merged hint. Without nodes under the policy `none`.
    pub hint: TopologyHint,
}

impl Share {
    /// The container. `None`: the share is that of the whole pod.
    pub fn container(&self) -> Option<&Container> {
        self.pod.all_containers().nth(self.container?)
    }
}

impl Allocator {
    /// Begins an admission: see [`admit`](Self::admit). Only one may be under way.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kubelet_resources::{Allocator, Result, Share};
    /// # async fn call_plugins(_: &Share) -> Result<()> { Ok(()) }
    /// async fn admit(allocator: &mut Allocator, pod: &Arc<Pod>, active: &[Arc<Pod>]) -> Result<()> {
    ///     let mut admission = allocator.begin(pod, Some(active));
    ///     while let Some(share) = allocator.next_share(&mut admission) {
    ///         let called = match &share {
    ///             Ok(share) => call_plugins(share).await,
    ///             Err(_) => Ok(()),
    ///         };
    ///         if let Err(error) = share.and_then(|share| called.and_then(|()| allocator.allocate(&share))) {
    ///             return allocator.end(admission, Err(error));
    ///         }
    ///     }
    ///     allocator.end(admission, Ok(()))
    /// }
    /// ```
    pub fn begin(&mut self, pod: &Arc<Pod>, active: Option<&[Arc<Pod>]>) -> PodAdmission {
        let started = Instant::now();
        self.admitting = Some(Arc::clone(pod));
        if let Some(active) = active {
            self.remove_stale(active);
        }
        PodAdmission {
            pod: Arc::clone(pod),
            started,
            next: 0,
            of_pod: None,
            done: false,
        }
    }

    /// The next share to allocate, with its merged hint. `None`: all is allocated. After an error, end the admission with it.
    pub fn next_share(&mut self, admission: &mut PodAdmission) -> Option<Result<Share>> {
        if admission.done {
            return None;
        }
        let share = match (self.topology.policy(), self.scope) {
            (TopologyPolicy::None, _) => Ok(admission.next_container(TopologyHint::default())),
            (_, TopologyScope::Container) => self.next_of_container(admission),
            (_, TopologyScope::Pod) => self.next_of_pod(admission),
        };
        match share {
            Ok(Some(share)) => Some(Ok(share)),
            Ok(None) => {
                admission.done = true;
                None
            }
            Err(error) => {
                admission.done = true;
                Some(Err(error))
            }
        }
    }

    /// Allocates the CPUs and the memory of a share, and what the providers of this allocator have.
    ///
    /// # Errors
    ///
    /// If the pod is rejected: end the admission with the error.
    pub fn allocate(&mut self, share: &Share) -> Result<()> {
        for provider in self.providers() {
            let allocated = match share.container() {
                Some(container) => provider.allocate(&share.pod, container, share.hint),
                None => provider.allocate_pod(&share.pod, share.hint),
            };
            allocated.map_err(provider_error)?;
        }
        if self.scope == TopologyScope::Container {
            self.count_alignment(Scope::Container, Aligned::Succeeded);
        }
        Ok(())
    }

    /// Ends an admission with its result, and counts it. What was allocated for a rejected pod is freed with the next
    /// [`begin`](Self::begin) or [`remove_stale`](Self::remove_stale) in which it is not active.
    ///
    /// # Errors
    ///
    /// The one given.
    pub fn end(&mut self, admission: PodAdmission, result: Result<()>) -> Result<()> {
        self.admitting = None;
        if self.topology.policy() != TopologyPolicy::None {
            match result {
                Ok(()) if self.scope == TopologyScope::Pod => {
                    self.count_alignment(Scope::Pod, Aligned::Succeeded);
                }
                Ok(()) => {}
                Err(_) => metrics::count_admission_error(),
            }
        }
        metrics::count_admission(admission.started.elapsed());
        result
    }

    fn providers(&mut self) -> impl Iterator<Item = &mut dyn HintProvider> {
        let others = self.providers.iter_mut().map(|provider| provider.as_mut() as _);
        others.chain([
            &mut self.cpu as &mut dyn HintProvider,
            &mut self.memory as &mut dyn HintProvider,
        ])
    }

    /// Scope `container`: the hints of each container are merged when it is its turn.
    fn next_of_container(&mut self, admission: &mut PodAdmission) -> Result<Option<Share>> {
        let pod = Arc::clone(&admission.pod);
        let Some(container) = pod.all_containers().nth(admission.next) else {
            return Ok(None);
        };
        let providers = self.providers();
        let hints = providers.map(|provider| provider.container_hints(&pod, container));
        let hints = hints.collect();
        let (hint, admitted) = self.topology.merge(hints);
        tracing::debug!(pod = %pod.key(), container = container.name, ?hint, admitted, "merged hint");
        if !admitted {
            self.count_alignment(Scope::Container, Aligned::Failed);
            return Err(match self.gates.allocate_for_pod(&pod) {
                true => Error::PodTopologyAffinity(
                    "pod with pod-level resources failed admission with a container-level topology manager",
                ),
                false => Error::TopologyAffinity,
            });
        }
        self.merged.set(pod.uid_str(), &container.name, hint);
        Ok(admission.next_container(hint))
    }

    /// Scope `pod`: the hints of the pod are merged once, for all its containers.
    fn next_of_pod(&mut self, admission: &mut PodAdmission) -> Result<Option<Share>> {
        let pod = Arc::clone(&admission.pod);
        let as_a_whole = self.gates.allocate_for_pod(&pod);
        let hint = match admission.of_pod {
            Some(_) if as_a_whole => return Ok(None),
            Some(hint) => hint,
            None => {
                let hint = self.merge_for_pod(&pod, as_a_whole)?;
                admission.of_pod = Some(hint);
                hint
            }
        };
        if as_a_whole {
            for container in pod.all_containers() {
                self.merged.set(pod.uid_str(), &container.name, hint);
            }
            return Ok(Some(Share {
                pod,
                container: None,
                hint,
            }));
        }
        if let Some(container) = pod.all_containers().nth(admission.next) {
            self.merged.set(pod.uid_str(), &container.name, hint);
        }
        Ok(admission.next_container(hint))
    }

    fn merge_for_pod(&mut self, pod: &Arc<Pod>, as_a_whole: bool) -> Result<TopologyHint> {
        let hints = self.providers().map(|provider| provider.pod_hints(pod)).collect();
        let (hint, admitted) = self.topology.merge(hints);
        tracing::debug!(pod = %pod.key(), ?hint, admitted, "merged hint");
        if admitted {
            return Ok(hint);
        }
        self.count_alignment(Scope::Pod, Aligned::Failed);
        Err(match as_a_whole {
            true => Error::PodTopologyAffinity(
                "pod with pod-level resources failed admission under pod-scope topology manager",
            ),
            false => Error::TopologyAffinity,
        })
    }

    /// Only `single-numa-node` guarantees that resources are aligned (`IsAlignmentGuaranteed`).
    fn count_alignment(&self, scope: Scope, aligned: Aligned) {
        if self.topology.policy() == TopologyPolicy::SingleNumaNode {
            metrics::add_aligned(scope, Boundary::NumaNode, aligned, 1);
        }
    }
}

impl PodAdmission {
    fn next_container(&mut self, hint: TopologyHint) -> Option<Share> {
        let number = self.next;
        self.pod.all_containers().nth(number)?;
        self.next += 1;
        Some(Share {
            pod: Arc::clone(&self.pod),
            container: Some(number),
            hint,
        })
    }
}
