//! The containers of the pods that have not ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;

/// The containers whose resources stay allocated, by the pod's UID.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveContainers {
    pods: BTreeMap<String, BTreeSet<String>>,
}

impl ActiveContainers {
    pub(crate) fn of<'a>(pods: impl IntoIterator<Item = &'a Arc<Pod>>) -> Self {
        let mut containers = Self::default();
        for pod in pods {
            containers.add(pod);
        }
        containers
    }

    pub(crate) fn add(&mut self, pod: &Pod) {
        let names = pod.all_containers().map(|container| container.name.clone());
        self.pods.insert(pod.uid_str().to_owned(), names.collect());
    }

    pub(crate) fn contains_pod(&self, pod_uid: &str) -> bool {
        self.pods.contains_key(pod_uid)
    }

    /// The entries whose containers are not active.
    pub(crate) fn missing<T>(
        &self,
        entries: &BTreeMap<String, BTreeMap<String, T>>,
    ) -> Vec<(String, String)> {
        let is_active = |pod_uid: &str, container: &str| {
            self.pods
                .get(pod_uid)
                .is_some_and(|names| names.contains(container))
        };
        let entries = entries
            .iter()
            .flat_map(|(pod_uid, containers)| containers.keys().map(move |container| (pod_uid, container)));
        entries
            .filter(|(pod_uid, container)| !is_active(pod_uid, container))
            .map(|(pod_uid, container)| (pod_uid.clone(), container.clone()))
            .collect()
    }
}
