//! What running pods and their containers were given last (`actuatedState`).

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::ActuatedResources;
use kubelet_core::{PodExt, PodUid};
use parking_lot::Mutex;

use super::config::{container_amounts, pod_amounts};
use super::container::find;
use super::pod_actions::ContainerAmounts;
use super::sandbox_resources::Bounds;

/// What the runtime was told last of each pod's resources.
#[derive(Default)]
pub(super) struct Actuated(Mutex<HashMap<PodUid, OfPod>>);

#[derive(Default)]
struct OfPod {
    containers: HashMap<String, ContainerAmounts>,
    /// `spec.resources`, of a pod that has some.
    whole: Option<ContainerAmounts>,
    /// What the runtime was told of the sandbox.
    bounds: Option<Bounds>,
    /// A resize was begun and has failed since.
    is_unfinished: bool,
}

impl Actuated {
    /// A container that was started by an agent before this one has what its spec said when it was first seen.
    pub(super) fn get_or_take_over(&self, pod: &Pod, container: &str) -> Option<ContainerAmounts> {
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

    /// The same for what the pod has as a whole.
    pub(super) fn whole_or_take_over(&self, pod: &Pod) -> Option<ContainerAmounts> {
        let mut pods = self.0.lock();
        let whole = &mut pods.entry(pod.uid()).or_default().whole;
        if whole.is_none() {
            *whole = pod_amounts(pod).ok().flatten();
        }
        *whole
    }

    pub(super) fn bounds(&self, pod: &PodUid) -> Option<Bounds> {
        self.0.lock().get(pod)?.bounds
    }

    pub(super) fn is_unfinished(&self, pod: &PodUid) -> bool {
        self.0.lock().get(pod).is_some_and(|pod| pod.is_unfinished)
    }

    /// Those of the pod, by name.
    pub(super) fn of_pod(&self, pod: &PodUid) -> Vec<ActuatedResources> {
        let pods = self.0.lock();
        let Some(pod) = pods.get(pod) else {
            return Vec::new();
        };
        let whole = pod.whole.iter().map(|amounts| (String::new(), amounts));
        let containers = pod.containers.iter();
        let mut all: Vec<ActuatedResources> = containers
            .map(|(name, amounts)| (name.clone(), amounts))
            .chain(whole)
            .map(|(container, amounts)| ActuatedResources {
                container,
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
        let of_pod = pods.entry(pod.clone()).or_default();
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
                of_pod.whole.get_or_insert(amounts);
            } else {
                of_pod.containers.entry(container).or_insert(amounts);
            }
        }
    }

    pub(super) fn set(&self, pod: &PodUid, container: &str, amounts: ContainerAmounts) {
        self.change(pod, |pod| {
            pod.containers.insert(container.to_owned(), amounts);
        });
    }

    pub(super) fn set_whole(&self, pod: &PodUid, amounts: ContainerAmounts) {
        self.change(pod, |pod| pod.whole = Some(amounts));
    }

    pub(super) fn set_bounds(&self, pod: &PodUid, bounds: Bounds) {
        self.change(pod, |pod| pod.bounds = Some(bounds));
    }

    pub(super) fn set_unfinished(&self, pod: &PodUid, is_unfinished: bool) {
        self.change(pod, |pod| pod.is_unfinished = is_unfinished);
    }

    /// A new sandbox is made with what the pod's spec says.
    pub(super) fn made_sandbox(&self, pod: &Pod, bounds: Option<Bounds>) {
        self.change(&pod.uid(), |of_pod| {
            of_pod.whole = pod_amounts(pod).ok().flatten();
            of_pod.bounds = bounds;
            of_pod.is_unfinished = false;
        });
    }

    pub(super) fn forget(&self, pod: &PodUid) {
        self.0.lock().remove(pod);
    }

    fn change(&self, pod: &PodUid, change: impl FnOnce(&mut OfPod)) {
        change(self.0.lock().entry(pod.clone()).or_default());
    }
}
