//! The containers of a host, found by their cgroups alone.

use std::collections::BTreeMap;

use kubelet_core::stats::{PodReference, PodStats};

use super::node::container;
use super::{NodeSummary, cgroup, time};
use crate::cgroup_name::{container_id, pod_uid};
use crate::reading::{Reading, Snapshot};

impl NodeSummary {
    /// Each cgroup whose name ends with the id of a container, in the pod whose cgroup is above. A container without a pod
    /// is in a pod that has the name of the cgroup above.
    pub(super) fn pods_of_cgroups(&self, snapshot: &Snapshot) -> Vec<PodStats> {
        let psi = self.inner.config.psi;
        let mut pods: BTreeMap<&str, PodStats> = BTreeMap::new();
        for (name, reading) in &snapshot.cgroups {
            if pod_uid(name).is_some() {
                pods.entry(name).or_insert_with(|| new_pod(name, Some(reading)));
            }
            let id = container_id(name);
            let Some((above, _)) = name.rsplit_once('/').filter(|_| is_id(id)) else {
                continue;
            };
            let pod = pods.entry(above).or_insert_with(|| new_pod(above, None));
            let mut stats = container(reading, id, psi);
            if let Some(known) = &reading.container {
                stats.name.clone_from(&known.name);
            }
            pod.containers.get_or_insert_default().push(stats);
        }
        for (name, pod) in &mut pods {
            if let Some(reading) = snapshot.cgroup(name) {
                pod.cpu = Some(cgroup::cpu(reading, psi));
                pod.memory = Some(cgroup::memory(reading, psi));
                pod.swap = cgroup::swap(reading);
                pod.io = cgroup::io(reading, psi);
            }
        }
        pods.into_values().collect()
    }
}

fn new_pod(name: &str, reading: Option<&std::sync::Arc<Reading>>) -> PodStats {
    let known = reading.and_then(|reading| reading.pod.as_deref());
    let pod_ref = match (known, pod_uid(name)) {
        (Some(pod), _) => PodReference {
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            uid: pod.uid.clone(),
        },
        (None, Some(uid)) => PodReference {
            uid,
            ..Default::default()
        },
        (None, None) => PodReference {
            name: name.to_owned(),
            ..Default::default()
        },
    };
    PodStats {
        pod_ref,
        start_time: reading
            .and_then(|reading| reading.spec.creation_time)
            .and_then(time),
        ..Default::default()
    }
}

/// 64 digits of a hexadecimal number.
fn is_id(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}
