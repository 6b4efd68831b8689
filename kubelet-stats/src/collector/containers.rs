//! To which container and pod a cgroup belongs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kubelet_core::stats::{RuntimeContainer, RuntimeList, RuntimeUsages, StatsPods};
use kubelet_core::{PodExt, PodUid};
use parking_lot::Mutex;

use super::CollectorConfig;
use crate::cgroup_name::{container_id, pod_uid};
use crate::reading::{ContainerRecord, PodRef};

/// So often the runtime is asked about a cgroup that it does not know: a container may have its cgroup before the runtime
/// lists it.
const TRIES: u8 = 3;

/// The containers of the runtime. It is asked only when a cgroup appears that may be a new container's.
#[derive(Default)]
pub(super) struct Containers(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// By the id of the container or sandbox.
    containers: HashMap<String, Owner>,
    /// Pods by UID, from sandboxes.
    pods: HashMap<String, Arc<PodRef>>,
    /// How often the runtime did not know a cgroup.
    unknown: HashMap<Arc<str>, u8>,
}

/// Whose cgroup it is.
#[derive(Clone, Default)]
pub(super) struct Owner {
    pub(super) container: Option<Arc<ContainerRecord>>,
    pub(super) pod: Option<Arc<PodRef>>,
}

impl Containers {
    /// The owner of each cgroup that has one.
    pub(super) async fn owners(
        &self,
        names: &[Arc<str>],
        config: &CollectorConfig,
    ) -> HashMap<Arc<str>, Owner> {
        if let Some(runtime) = &config.runtime
            && self.must_list(names)
        {
            self.list(runtime.as_ref(), names).await;
        }
        let known = self.0.lock();
        let owner = |name: &Arc<str>| known.owner(name, config.pods.as_deref());
        names
            .iter()
            .filter_map(|name| Some((name.clone(), owner(name)?)))
            .collect()
    }

    /// A cgroup below that of a pod is unknown, and may be a container's.
    fn must_list(&self, names: &[Arc<str>]) -> bool {
        let known = self.0.lock();
        let mut candidates = names.iter().filter(|name| is_in_pod(name));
        candidates.any(|name| {
            !known.containers.contains_key(container_id(name))
                && known.unknown.get(name).is_none_or(|tries| *tries < TRIES)
        })
    }

    async fn list(&self, runtime: &dyn RuntimeUsages, names: &[Arc<str>]) {
        let list = match runtime.list().await {
            Ok(list) => list,
            Err(error) => {
                tracing::warn!(%error, "list the containers of the runtime: new ones have no labels yet");
                return;
            }
        };
        let (sandboxes, containers) = self.0.lock().new_in(&list);
        let images = runtime.image_names(&sandboxes, &containers).await;
        let mut known = self.0.lock();
        known.replace(list, images);
        let mut unknown = std::mem::take(&mut known.unknown);
        for name in names.iter().filter(|name| is_in_pod(name)) {
            if !known.containers.contains_key(container_id(name)) {
                let tries = unknown.remove(name).unwrap_or(0).saturating_add(1);
                known.unknown.insert(name.clone(), tries);
            }
        }
    }
}

impl Known {
    /// The sandboxes and containers that were not known.
    fn new_in(&self, list: &RuntimeList) -> (Vec<String>, Vec<RuntimeContainer>) {
        let sandboxes = list.sandboxes.iter().map(|sandbox| &sandbox.id);
        let sandboxes = sandboxes.filter(|id| !self.containers.contains_key(*id)).cloned();
        let containers = list.containers.iter();
        let containers = containers.filter(|container| !self.containers.contains_key(&container.id));
        (sandboxes.collect(), containers.cloned().collect())
    }

    /// `images` are the names of images of what is new.
    fn replace(&mut self, list: RuntimeList, mut images: BTreeMap<String, String>) {
        let before = std::mem::take(&mut self.containers);
        self.pods.clear();
        let mut image_of = |id: &str| {
            let known = || Some(before.get(id)?.container.as_ref()?.image.clone());
            images.remove(id).or_else(known)
        };
        let mut pods: BTreeMap<String, Arc<PodRef>> = BTreeMap::new();
        for sandbox in list.sandboxes {
            let pod = Arc::new(PodRef {
                namespace: sandbox.namespace,
                name: sandbox.pod,
                uid: sandbox.uid.clone(),
            });
            self.pods.insert(sandbox.uid, pod.clone());
            pods.insert(sandbox.id.clone(), pod.clone());
            let record = ContainerRecord {
                image: image_of(&sandbox.id).unwrap_or_default(),
                id: sandbox.id.clone(),
                labels: sandbox.labels,
                is_sandbox: true,
                ..Default::default()
            };
            let owner = Owner {
                container: Some(Arc::new(record)),
                pod: Some(pod),
            };
            self.containers.insert(sandbox.id, owner);
        }
        for container in list.containers {
            let record = ContainerRecord {
                image: image_of(&container.id).unwrap_or(container.image),
                id: container.id.clone(),
                labels: container.labels,
                is_sandbox: false,
                name: container.name,
            };
            let owner = Owner {
                container: Some(Arc::new(record)),
                pod: pods.get(&container.sandbox_id).cloned(),
            };
            self.containers.insert(container.id, owner);
        }
    }

    fn owner(&self, name: &str, pods: Option<&dyn StatsPods>) -> Option<Owner> {
        if let Some(owner) = self.containers.get(container_id(name)) {
            return Some(owner.clone());
        }
        let uid = pod_uid(name)?;
        let from_agent = pods.and_then(|pods| {
            let pod = pods.pod(&PodUid::from(uid.as_str()))?;
            let key = pod.key();
            Some(Arc::new(PodRef {
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                uid: uid.clone(),
            }))
        });
        let pod = from_agent.or_else(|| self.pods.get(&uid).cloned())?;
        Some(Owner {
            container: None,
            pod: Some(pod),
        })
    }
}

/// The cgroup lies directly in that of a pod.
fn is_in_pod(name: &str) -> bool {
    name.rsplit_once('/')
        .is_some_and(|(parent, _)| pod_uid(parent).is_some())
}
