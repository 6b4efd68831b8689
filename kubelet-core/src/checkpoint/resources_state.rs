//! The resources of all pods in the files of the kubelet, `allocated_pods_state` and `actuated_pods_state`
//! (`pkg/kubelet/allocation/state`).
//!
//! The agent writes them when it ends, for a kubelet that takes over the node. It reads and removes them when it starts: a kubelet may have
//! written them since. In between, the records of the pods have newer resources.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::PodUid;
use crate::allocation::Allocation;
use crate::files::{self, Replace};
use crate::quantity::Amount;
use crate::runtime::ActuatedResources;

/// `allocatedPodsStateFile`
const ALLOCATED: &str = "allocated_pods_state";
/// `actuatedPodsStateFile`
const ACTUATED: &str = "actuated_pods_state";

/// The resources of pods, by their UID.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ResourcesState {
    /// What pods were allocated.
    pub(super) allocated: BTreeMap<PodUid, Arc<Allocation>>,
    /// What their containers were given last.
    pub(super) actuated: BTreeMap<PodUid, Vec<ActuatedResources>>,
}

impl ResourcesState {
    /// Reads the files of the root folder and removes them. A file that cannot be read is logged and renamed.
    pub(super) fn take(root: &Path) -> Self {
        Self {
            allocated: take(root, ALLOCATED, |entry| Some(Arc::new(entry.allocation()))),
            actuated: take(root, ACTUATED, Entry::actuated),
        }
    }

    /// Replaces the files of the root folder.
    pub(super) fn write(&self, root: &Path, durably: bool) -> io::Result<()> {
        let allocated = self.allocated.iter();
        let allocated = allocated.map(|(uid, allocation)| (uid, Entry::allocated(allocation)));
        write(root, ALLOCATED, allocated, durably)?;
        let actuated = self.actuated.iter();
        let actuated = actuated.map(|(uid, resources)| (uid, Entry::of_actuated(resources)));
        write(root, ACTUATED, actuated, durably)
    }
}

/// `Checkpoint`
#[derive(Serialize, Deserialize)]
struct OnDisk {
    /// [`Entries`] as JSON.
    data: String,
    checksum: u32,
}

/// `PodResourceCheckpointInfo`
#[derive(Default, Serialize, Deserialize)]
struct Entries {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, Entry>,
}

/// `PodResourceInfo`
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Entry {
    container_resources: Option<BTreeMap<String, ResourceRequirements>>,
    pod_level_resources: Option<ResourceRequirements>,
}

impl Entry {
    fn allocated(allocation: &Allocation) -> Self {
        Self {
            container_resources: Some(allocation.of_containers().collect()),
            pod_level_resources: allocation.of_pod(),
        }
    }

    fn allocation(self) -> Allocation {
        Allocation::new(
            self.pod_level_resources,
            self.container_resources.unwrap_or_default(),
        )
    }

    fn of_actuated(resources: &[ActuatedResources]) -> Self {
        let mut entry = Self::default();
        for of_one in resources {
            let requirements = ResourceRequirements {
                limits: amounts(of_one.cpu_limit, of_one.memory_limit),
                requests: amounts(of_one.cpu_request, of_one.memory_request),
                ..ResourceRequirements::default()
            };
            if of_one.container.is_empty() {
                entry.pod_level_resources = Some(requirements);
            } else {
                let containers = entry.container_resources.get_or_insert_default();
                containers.insert(of_one.container.clone(), requirements);
            }
        }
        entry
    }

    /// `None` if an amount is not a quantity.
    fn actuated(self) -> Option<Vec<ActuatedResources>> {
        let of_pod = self
            .pod_level_resources
            .map(|resources| (String::new(), resources));
        let of_containers = self.container_resources.unwrap_or_default();
        of_pod
            .into_iter()
            .chain(of_containers)
            .map(|(container, resources)| {
                Some(ActuatedResources {
                    container,
                    cpu_request: amount(resources.requests.as_ref(), "cpu")?.milli_value(),
                    cpu_limit: amount(resources.limits.as_ref(), "cpu")?.milli_value(),
                    memory_request: amount(resources.requests.as_ref(), "memory")?.value(),
                    memory_limit: amount(resources.limits.as_ref(), "memory")?.value(),
                })
            })
            .collect()
    }
}

type List = BTreeMap<String, Quantity>;

fn amounts(milli_cpu: i64, bytes: i64) -> Option<List> {
    let cpu = (milli_cpu != 0).then(|| ("cpu".to_owned(), Quantity(format!("{milli_cpu}m"))));
    let memory = (bytes != 0).then(|| ("memory".to_owned(), Quantity(bytes.to_string())));
    let list: List = cpu.into_iter().chain(memory).collect();
    (!list.is_empty()).then_some(list)
}

/// Zero if it is not set.
fn amount(list: Option<&List>, name: &str) -> Option<Amount> {
    match list.and_then(|list| list.get(name)) {
        Some(quantity) => quantity.0.parse().ok(),
        None => Some(Amount::ZERO),
    }
}

fn take<T>(root: &Path, name: &str, read: impl Fn(Entry) -> Option<T>) -> BTreeMap<PodUid, T> {
    let file = root.join(name);
    let found = match read_entries(&file) {
        Ok(entries) => {
            let pods = entries.entries.into_iter();
            let pods = pods.map(|(uid, entry)| match read(entry) {
                Some(resources) => Ok((PodUid::from(uid.as_str()), resources)),
                None => Err(format!("the resources of pod {uid:?} are no quantities")),
            });
            pods.collect()
        }
        Err(problem) => Err(problem),
    };
    match found {
        Ok(found) => {
            if let Err(error) = files::remove(&file) {
                tracing::warn!(file = %file.display(), %error, "Cannot remove the resources of pods");
            }
            found
        }
        Err(problem) => {
            let set_aside = fs::rename(&file, root.join(format!("{name}.unreadable")));
            tracing::warn!(file = %file.display(), problem, ?set_aside,
                "Cannot read the resources of pods, renamed the file");
            BTreeMap::new()
        }
    }
}

/// Without entries if there is no file.
fn read_entries(file: &Path) -> Result<Entries, String> {
    let Some(json) = files::read(file).map_err(|error| error.to_string())? else {
        return Ok(Entries::default());
    };
    let OnDisk { data, checksum } = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    let expected = checksum_of(&data);
    if checksum != expected {
        return Err(format!("the checksum is {checksum}, expected {expected}"));
    }
    serde_json::from_str(&data).map_err(|error| error.to_string())
}

fn write<'a>(
    root: &Path,
    name: &str,
    pods: impl Iterator<Item = (&'a PodUid, Entry)>,
    durable: bool,
) -> io::Result<()> {
    let entries = pods
        .map(|(uid, entry)| (uid.as_str().to_owned(), entry))
        .collect();
    let data = serde_json::to_string(&Entries { entries })?;
    let checksum = checksum_of(&data);
    let json = serde_json::to_vec(&OnDisk { data, checksum })?;
    let replace = Replace {
        private: true,
        durable,
    };
    replace.write(&root.join(name), &root.join(format!(".{name}")), &json)
}

/// FNV-1a in 32 bits of the string as Go dumps it (`checksum.New`).
fn checksum_of(data: &str) -> u32 {
    let dump = b"(string)".iter().chain(data.as_bytes());
    dump.fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Written by kubelet v1.36.2: two pods without resources, and two with them.
    const OF_THE_KUBELET: &str = include_str!("resources_state.json");

    fn quantity(text: &str) -> serde_json::Value {
        json!({"cpu": text})
    }

    #[test]
    fn the_files_of_the_kubelet_are_read_and_removed() {
        let root = tempfile::tempdir().unwrap();
        for name in [ALLOCATED, ACTUATED] {
            fs::write(root.path().join(name), OF_THE_KUBELET).unwrap();
        }
        let state = ResourcesState::take(root.path());
        let list = json!({"limits": {"memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}});
        let shared = json!({"containers": [{"name": "c", "resources": list}]});
        assert_eq!(
            json!(*state.allocated[&PodUid::from("6e68e01e-68d5-421a-8a16-54832a450ed5")]),
            shared
        );
        let of_shared = ActuatedResources {
            container: "c".to_owned(),
            cpu_request: 100,
            cpu_limit: 0,
            memory_request: 64 << 20,
            memory_limit: 64 << 20,
        };
        assert_eq!(
            state.actuated[&PodUid::from("6e68e01e-68d5-421a-8a16-54832a450ed5")],
            [of_shared]
        );
        assert_eq!((state.allocated.len(), state.actuated.len()), (4, 4));
        assert_eq!(ResourcesState::take(root.path()), ResourcesState::default());
    }

    #[test]
    fn what_is_written_is_read() {
        let root = tempfile::tempdir().unwrap();
        let allocation = json!({"pod": {"limits": quantity("2")}, "containers": [{"name": "c", "resources": {"requests": quantity("1500m")}}, {"name": "d"}]});
        let allocation: Allocation = serde_json::from_value(allocation).unwrap();
        let actuated = |container: &str, cpu_limit, memory_request| ActuatedResources {
            container: container.to_owned(),
            cpu_request: 0,
            cpu_limit,
            memory_request,
            memory_limit: 0,
        };
        let state = ResourcesState {
            allocated: [("a".into(), Arc::new(allocation))].into(),
            actuated: [(
                "a".into(),
                vec![
                    actuated("", 2000, 0),
                    actuated("c", 0, 1 << 30),
                    actuated("d", 0, 0),
                ],
            )]
            .into(),
        };
        state.write(root.path(), false).unwrap();
        assert_eq!(ResourcesState::take(root.path()), state);
    }

    #[test]
    fn a_broken_file_is_renamed_and_the_other_one_read() {
        for broken in [
            "",
            "{",
            r#"{"data": "{}", "checksum": 7}"#,
            r#"{"data": "7", "checksum": 1}"#,
        ] {
            let root = tempfile::tempdir().unwrap();
            fs::write(root.path().join(ACTUATED), broken).unwrap();
            fs::write(root.path().join(ALLOCATED), OF_THE_KUBELET).unwrap();
            let state = ResourcesState::take(root.path());
            assert_eq!((state.allocated.len(), state.actuated.len()), (4, 0), "{broken}");
            let aside = fs::read_to_string(root.path().join("actuated_pods_state.unreadable"));
            assert_eq!(aside.unwrap(), broken);
        }
    }
}
