//! What the simulation knows about pods and a runtime does not: the order of containers, and which pods are deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, PodUid};
use parking_lot::Mutex;

use super::resources::SimulatedMachine;
use super::storage;
use crate::MemoryMounter;
use crate::memory_cri::{MemoryCri, Start};

/// All pods that were ever created. Clones share the data.
#[derive(Clone, Debug, Default)]
pub(super) struct Order(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// The init containers of each pod in their order.
    init: BTreeMap<PodUid, Vec<Init>>,
    /// Sandboxes whose pods are initialized: one of their regular containers was started.
    initialized: BTreeSet<String>,
    /// Init containers that were done, each with its sandbox. Garbage collection may remove the instance that proves it.
    done: BTreeSet<(String, String)>,
    /// All of them, with their specs.
    pods: BTreeMap<PodUid, Arc<Pod>>,
    /// Pods that the API server deleted after all of their containers had ended.
    gone: BTreeSet<PodUid>,
}

#[derive(Clone, Debug)]
struct Init {
    name: String,
    is_sidecar: bool,
}

impl Order {
    /// Allows this pod to run.
    pub(super) fn add(&self, pod: &Pod) {
        let init = pod
            .spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten());
        let init = init.map(|container| Init {
            name: container.name.clone(),
            is_sidecar: container.restart_policy.as_deref() == Some("Always"),
        });
        let mut known = self.0.lock();
        known.gone.remove(&pod.uid());
        known.init.insert(pod.uid(), init.collect());
        known.pods.insert(pod.uid(), Arc::new(pod.clone()));
    }

    /// The pod as it was created.
    pub(super) fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.0.lock().pods.get(uid).cloned()
    }

    /// Forbids this pod to run from now on.
    pub(super) fn gone(&self, uid: PodUid) {
        self.0.lock().gone.insert(uid);
    }

    /// Adds the checks to a runtime.
    pub(super) fn watch(
        &self,
        runtime: &MemoryCri,
        mounter: &MemoryMounter,
        machine: Option<SimulatedMachine>,
    ) {
        let (known, mounter) = (self.0.clone(), mounter.clone());
        runtime.check_starts(move |start| {
            let mut wrong = known.lock().wrong_with(start);
            wrong.extend(storage::missing(&start.planned.container, &mounter));
            wrong.extend(machine.iter().flat_map(|machine| machine.wrong_with(start)));
            wrong
        });
    }
}

impl Known {
    fn wrong_with(&mut self, start: &Start<'_>) -> Vec<String> {
        let uid = start.planned.pod_uid();
        if self.gone.contains(&uid) {
            return vec!["is started, and its pod is gone".to_owned()];
        }
        let Some(init) = self.init.get(&uid) else {
            return Vec::new();
        };
        if self.initialized.contains(start.sandbox) {
            return Vec::new();
        }
        let position = init.iter().position(|init| init.name == start.planned.name());
        let before = &init[..position.unwrap_or(init.len())];
        let of_sandbox = |init: &Init| (start.sandbox.to_owned(), init.name.clone());
        let mut wrong = Vec::new();
        for init in before {
            if init.is_done(start) {
                self.done.insert(of_sandbox(init));
            } else if !self.done.contains(&of_sandbox(init)) {
                wrong.push(format!("is started before init container {} is done", init.name));
            }
        }
        match position.map(|position| &init[position]) {
            None => {
                self.initialized.insert(start.sandbox.to_owned());
            }
            Some(init) if init.is_sidecar => {
                self.done.insert(of_sandbox(init));
            }
            Some(_) => {}
        }
        wrong
    }
}

impl Init {
    /// Whether later containers may start.
    fn is_done(&self, start: &Start<'_>) -> bool {
        let instances = start
            .containers
            .iter()
            .filter(|container| container.name == self.name);
        match self.is_sidecar {
            true => instances.into_iter().any(|container| container.was_started),
            false => instances
                .into_iter()
                .any(|container| container.exit_code == Some(0)),
        }
    }
}
