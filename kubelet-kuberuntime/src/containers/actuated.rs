//! The resources that running pods and their containers got last (`actuatedState`).

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::ActuatedResources;
use kubelet_core::{PodExt, PodUid};
use parking_lot::Mutex;

use crate::config::{container_amounts, pod_amounts};
use crate::containers::find;
use crate::pod_actions::ContainerAmounts;
use crate::sandbox::resources::Bounds;

/// The resources of each pod that the runtime got last.
#[derive(Default)]
pub(crate) struct Actuated(Mutex<HashMap<PodUid, OfPod>>);

#[derive(Default)]
struct OfPod {
    containers: HashMap<String, ContainerAmounts>,
    /// Whether a pod without an entry in `whole` is known to have got no pod-level resources.
    whole_is_known: bool,
    /// Most pods have no entry.
    whole: Option<Box<Whole>>,
}

/// Of the whole pod.
#[derive(Default)]
struct Whole {
    /// `spec.resources`, if the pod has it.
    amounts: Option<ContainerAmounts>,
    /// The resources of the sandbox that the runtime got since it was created.
    bounds: Option<Bounds>,
    /// A resize was started and has failed.
    is_unfinished: bool,
}

impl Actuated {
    /// A container that an earlier agent started has the resources of its spec at the time when this agent first sees
    /// it.
    pub(crate) fn get_or_take_over(&self, pod: &Pod, container: &str) -> Option<ContainerAmounts> {
        let mut pods = self.0.lock();
        let containers = &mut pods.entry(pod.uid()).or_default().containers;
        if let Some(known) = containers.get(container) {
            return Some(*known);
        }
        let (_, spec) = find(pod, container)?;
        let amounts = container_amounts(pod, &spec).ok()?;
        containers.insert(container.to_owned(), amounts);
        Some(amounts)
    }

    /// The same for the pod-level resources. `None` if the pod got none: a resize may add them.
    pub(crate) fn whole_or_take_over(&self, pod: &Pod) -> Option<ContainerAmounts> {
        let mut pods = self.0.lock();
        let of_pod = pods.entry(pod.uid()).or_default();
        if !of_pod.whole_is_known
            && let Ok(amounts) = pod_amounts(pod)
        {
            of_pod.whole_is_known = true;
            if amounts.is_some() {
                of_pod.whole.get_or_insert_default().amounts = amounts;
            }
        }
        of_pod.whole.as_ref()?.amounts
    }

    pub(crate) fn bounds(&self, pod: &PodUid) -> Option<Bounds> {
        self.whole(pod, |whole| whole.bounds)
    }

    pub(crate) fn is_unfinished(&self, pod: &PodUid) -> bool {
        self.whole(pod, |whole| whole.is_unfinished.then_some(()))
            .is_some()
    }

    /// `None` for a container that this agent has not seen in a sync.
    pub(crate) fn of_container(&self, pod: &PodUid, container: &str) -> Option<ActuatedResources> {
        let pods = self.0.lock();
        let amounts = pods.get(pod)?.containers.get(container)?;
        Some(named(container.to_owned(), amounts))
    }

    /// The pod's containers, by name.
    pub(crate) fn of_pod(&self, pod: &PodUid) -> Vec<ActuatedResources> {
        let pods = self.0.lock();
        let Some(pod) = pods.get(pod) else {
            return Vec::new();
        };
        let whole = pod.whole.iter().filter_map(|whole| whole.amounts.as_ref());
        let whole = whole.map(|amounts| (String::new(), amounts));
        let containers = pod.containers.iter();
        let mut all: Vec<ActuatedResources> = containers
            .map(|(name, amounts)| (name.clone(), amounts))
            .chain(whole)
            .map(|(container, amounts)| named(container, amounts))
            .collect();
        all.sort_by(|a, b| a.container.cmp(&b.container));
        all
    }

    /// Restores the resources that an earlier agent sent to the runtime. Resources that this agent has sent meanwhile
    /// are newer.
    pub(crate) fn restore(&self, pod: &PodUid, actuated: Vec<ActuatedResources>) {
        let mut pods = self.0.lock();
        let of_pod = pods.entry(pod.clone()).or_default();
        of_pod.whole_is_known = true;
        for ActuatedResources {
            container,
            cpu_request,
            cpu_limit,
            memory_request,
            memory_limit,
        } in actuated
        {
            let amounts = ContainerAmounts {
                memory_limit,
                memory_request,
                cpu_limit,
                cpu_request,
            };
            if container.is_empty() {
                let whole = of_pod.whole.get_or_insert_default();
                whole.amounts.get_or_insert(amounts);
            } else {
                of_pod.containers.entry(container).or_insert(amounts);
            }
        }
    }

    pub(crate) fn set(&self, pod: &PodUid, container: &str, amounts: ContainerAmounts) {
        let mut pods = self.0.lock();
        let containers = &mut pods.entry(pod.clone()).or_default().containers;
        containers.insert(container.to_owned(), amounts);
    }

    pub(crate) fn set_whole(&self, pod: &PodUid, amounts: ContainerAmounts) {
        self.change(pod, |whole| whole.amounts = Some(amounts));
    }

    pub(crate) fn set_bounds(&self, pod: &PodUid, bounds: Bounds) {
        self.change(pod, |whole| whole.bounds = Some(bounds));
    }

    pub(crate) fn set_unfinished(&self, pod: &PodUid, is_unfinished: bool) {
        if is_unfinished || self.is_unfinished(pod) {
            self.change(pod, |whole| whole.is_unfinished = is_unfinished);
        }
    }

    /// A new sandbox has the resources of the pod's spec. But the cgroup of a pod outlives its sandboxes, so a resize that
    /// waits, or has failed, is still to do.
    pub(crate) fn made_sandbox(&self, pod: &Pod, has_cgroup: bool) {
        if let Some(of_pod) = self.0.lock().get_mut(&pod.uid()) {
            if !has_cgroup {
                of_pod.whole_is_known = false;
                of_pod.whole = None;
            } else if let Some(whole) = &mut of_pod.whole {
                whole.bounds = None;
            }
        }
        self.whole_or_take_over(pod);
    }

    pub(crate) fn forget(&self, pod: &PodUid) {
        self.0.lock().remove(pod);
    }

    fn whole<T>(&self, pod: &PodUid, read: impl FnOnce(&Whole) -> Option<T>) -> Option<T> {
        read(self.0.lock().get(pod)?.whole.as_ref()?)
    }

    fn change(&self, pod: &PodUid, change: impl FnOnce(&mut Whole)) {
        let mut pods = self.0.lock();
        change(pods.entry(pod.clone()).or_default().whole.get_or_insert_default());
    }
}

fn named(container: String, amounts: &ContainerAmounts) -> ActuatedResources {
    ActuatedResources {
        container,
        cpu_request: amounts.cpu_request,
        cpu_limit: amounts.cpu_limit,
        memory_request: amounts.memory_request,
        memory_limit: amounts.memory_limit,
    }
}
