//! The containers of the pods that have not ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;

/// The containers whose resources stay allocated, by the pod's UID.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveContainers {
    /// `None`: it is not known which containers of the pod run, so all of them are active.
    pods: BTreeMap<String, Option<BTreeSet<String>>>,
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
        let names = || pod.all_containers().map(|container| container.name.clone());
        let names = pod.spec.is_some().then(|| names().collect());
        self.pods.insert(pod.uid_str().to_owned(), names);
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
            let names = self.pods.get(pod_uid);
            names.is_some_and(|names| names.as_ref().is_none_or(|names| names.contains(container)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_pod_without_a_spec_all_containers_are_active() {
        let pod = |spec: serde_json::Value| -> Arc<Pod> {
            Arc::new(
                serde_json::from_value(serde_json::json!({"metadata": {"uid": "u"}, "spec": spec})).unwrap(),
            )
        };
        let entries = BTreeMap::from([(
            "u".to_owned(),
            BTreeMap::from([("a".to_owned(), ()), ("b".to_owned(), ())]),
        )]);
        let known = pod(serde_json::json!({"containers": [{"name": "a"}]}));
        let missing = ActiveContainers::of([&known]).missing(&entries);
        assert_eq!(missing, [("u".to_owned(), "b".to_owned())]);
        let unknown = pod(serde_json::Value::Null);
        assert!(ActiveContainers::of([&unknown]).missing(&entries).is_empty());
        assert_eq!(ActiveContainers::default().missing(&entries).len(), 2);
    }
}
