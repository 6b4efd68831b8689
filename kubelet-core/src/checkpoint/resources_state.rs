//! The resources of all pods in the files of the kubelet, `allocated_pods_state` and `actuated_pods_state`
//! (`pkg/kubelet/allocation/state`).
//!
//! The agent writes them for a kubelet that takes over the node, and reads those that a kubelet wrote. Its own it does not read: the
//! records of the pods are as new. A mark shows which they are; a kubelet does not keep it when it writes something else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::record::Record;
use crate::allocation::Allocation;
use crate::files::{self, Replace};
use crate::quantity::Amount;
use crate::runtime::ActuatedResources;
use crate::{PodUid, fnv32a};

/// `allocatedPodsStateFile`
const ALLOCATED: &str = "allocated_pods_state";
/// `actuatedPodsStateFile`
const ACTUATED: &str = "actuated_pods_state";
/// The mark of a file that the agent wrote.
const WRITER: &str = "kubelet-core";

/// The resources of pods, by their UID.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ResourcesState {
    /// What pods were allocated.
    pub(super) allocated: BTreeMap<PodUid, Arc<Allocation>>,
    /// What their containers were given last.
    pub(super) actuated: BTreeMap<PodUid, Vec<ActuatedResources>>,
}

impl ResourcesState {
    /// Reads the files that a kubelet left in the root folder. A file that cannot be read is logged and renamed.
    pub(super) fn of_kubelet(root: &Path) -> Self {
        Self {
            allocated: read(root, ALLOCATED, |entry| Some(Arc::new(entry.allocation()))),
            actuated: read(root, ACTUATED, Entry::actuated),
        }
    }

    /// Changes the records of pods with other resources. Returns their UIDs.
    pub(super) fn take_over(self, records: &mut FxHashMap<PodUid, Record>) -> BTreeSet<PodUid> {
        let mut changed = BTreeSet::new();
        for (uid, allocation) in self.allocated {
            let record = records.entry(uid.clone()).or_default();
            if record.allocation.as_ref() != Some(&allocation) {
                record.allocation = Some(allocation);
                changed.insert(uid);
            }
        }
        for (uid, actuated) in self.actuated {
            let record = records.entry(uid.clone()).or_default();
            if record.actuated != actuated {
                record.actuated = actuated;
                changed.insert(uid);
            }
        }
        changed
    }

    /// Replaces the files of the root folder.
    pub(super) fn write(&self, root: &Path, durably: bool) -> io::Result<()> {
        let allocated = self.allocated.iter();
        let allocated = allocated.map(|(uid, allocation)| (uid, Entry::allocated(allocation)));
        write(root, ALLOCATED, allocated, durably)?;
        let actuated = self.actuated.iter();
        let actuated = actuated.map(|(uid, resources)| {
            let allocation = self
                .allocated
                .get(uid)
                .map(|allocation| Entry::allocated(allocation));
            (
                uid,
                Entry::of_actuated(resources, &allocation.unwrap_or_default()),
            )
        });
        write(root, ACTUATED, actuated, durably)
    }
}

/// `Checkpoint`
#[derive(Serialize, Deserialize)]
struct OnDisk {
    /// [`Entries`] as JSON.
    data: String,
    checksum: u32,
    /// [`WRITER`], or missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writer: Option<String>,
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

    /// An amount that is as allocated is written in the same way: the kubelet compares exactly, and the agent keeps whole bytes.
    fn of_actuated(resources: &[ActuatedResources], allocated: &Self) -> Self {
        let mut entry = Self::default();
        for of_one in resources {
            let of_pod = of_one.container.is_empty();
            let allocated = match of_pod {
                true => allocated.pod_level_resources.as_ref(),
                false => allocated
                    .container_resources
                    .as_ref()
                    .and_then(|containers| containers.get(&of_one.container)),
            };
            let limits = allocated.and_then(|allocated| allocated.limits.as_ref());
            let requests = allocated.and_then(|allocated| allocated.requests.as_ref());
            let requirements = ResourceRequirements {
                limits: amounts(of_one.cpu_limit, of_one.memory_limit, limits),
                requests: amounts(of_one.cpu_request, of_one.memory_request, requests),
                ..ResourceRequirements::default()
            };
            if of_pod {
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

fn amounts(milli_cpu: i64, bytes: i64, allocated: Option<&List>) -> Option<List> {
    let as_allocated = |name, is_it: &dyn Fn(Amount) -> bool| {
        let quantity = allocated?.get(name)?;
        quantity.0.parse().is_ok_and(is_it).then(|| quantity.clone())
    };
    let cpu = (milli_cpu != 0).then(|| {
        let same = as_allocated("cpu", &|amount| amount.milli_value() == milli_cpu);
        ("cpu", same.unwrap_or_else(|| Quantity(format!("{milli_cpu}m"))))
    });
    let memory = (bytes != 0).then(|| {
        let same = as_allocated("memory", &|amount| amount.value() == bytes);
        ("memory", same.unwrap_or_else(|| Quantity(bytes.to_string())))
    });
    let list = cpu.into_iter().chain(memory);
    let list: List = list.map(|(name, quantity)| (name.to_owned(), quantity)).collect();
    (!list.is_empty()).then_some(list)
}

/// Zero if it is not set.
fn amount(list: Option<&List>, name: &str) -> Option<Amount> {
    match list.and_then(|list| list.get(name)) {
        Some(quantity) => quantity.0.parse().ok(),
        None => Some(Amount::ZERO),
    }
}

fn read<T>(root: &Path, name: &str, resources: impl Fn(Entry) -> Option<T>) -> BTreeMap<PodUid, T> {
    let file = root.join(name);
    let entries = match read_entries(&file) {
        Ok(entries) => entries.entries,
        Err(problem) => {
            let set_aside = fs::rename(&file, root.join(format!("{name}.unreadable")));
            tracing::warn!(file = %file.display(), problem, ?set_aside,
                "Cannot read the resources of pods, renamed the file");
            return BTreeMap::new();
        }
    };
    let pods = entries.into_iter();
    pods.filter_map(|(uid, entry)| {
        // It names a folder.
        let read = Some(entry).filter(|_| !uid.contains('/')).and_then(&resources);
        if read.is_none() {
            tracing::warn!(file = %file.display(), uid, "Ignored the resources of a pod: its UID is a path, or an amount is not a quantity");
        }
        Some((PodUid::from(uid.as_str()), read?))
    })
    .collect()
}

/// Without entries if there is no file, or the agent wrote it.
fn read_entries(file: &Path) -> Result<Entries, String> {
    let Some(json) = files::read(file).map_err(|error| error.to_string())? else {
        return Ok(Entries::default());
    };
    let found: OnDisk = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    let (checksum, expected) = (found.checksum, checksum_of(&found.data));
    if checksum != expected {
        return Err(format!("the checksum is {checksum}, expected {expected}"));
    }
    if found.writer.as_deref() == Some(WRITER) {
        return Ok(Entries::default());
    }
    serde_json::from_str(&found.data).map_err(|error| error.to_string())
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
    let writer = Some(WRITER.to_owned());
    let json = serde_json::to_vec(&OnDisk {
        data,
        checksum,
        writer,
    })?;
    let replace = Replace {
        private: true,
        durable,
    };
    replace.write(&root.join(name), &root.join(format!(".{name}")), &json)
}

/// The hash of the string as Go dumps it (`checksum.New`).
fn checksum_of(data: &str) -> u32 {
    fnv32a("(string)".bytes().chain(data.bytes()))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Written by kubelet v1.36.2: two pods without resources, and two with them.
    const OF_THE_KUBELET: &str = include_str!("resources_state.json");
    const SHARED: &str = "6e68e01e-68d5-421a-8a16-54832a450ed5";

    /// What a kubelet writes that knows the same.
    pub(in crate::checkpoint) fn write_as_kubelet(root: &Path, state: &ResourcesState) {
        state.write(root, false).unwrap();
        for name in [ALLOCATED, ACTUATED] {
            let text = fs::read_to_string(root.join(name)).unwrap();
            let mut json: Value = serde_json::from_str(&text).unwrap();
            json.as_object_mut().unwrap().remove("writer").unwrap();
            fs::write(root.join(name), json.to_string()).unwrap();
        }
    }

    #[test]
    fn the_files_of_the_kubelet_are_read() {
        let root = tempfile::tempdir().unwrap();
        for name in [ALLOCATED, ACTUATED] {
            fs::write(root.path().join(name), OF_THE_KUBELET).unwrap();
        }
        let state = ResourcesState::of_kubelet(root.path());
        let list = json!({"limits": {"memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}});
        let shared = json!({"containers": [{"name": "c", "resources": list}]});
        assert_eq!(json!(*state.allocated[&PodUid::from(SHARED)]), shared);
        let of_shared = ActuatedResources {
            container: "c".to_owned(),
            cpu_request: 100,
            cpu_limit: 0,
            memory_request: 64 << 20,
            memory_limit: 64 << 20,
        };
        assert_eq!(state.actuated[&PodUid::from(SHARED)], [of_shared]);
        assert_eq!((state.allocated.len(), state.actuated.len()), (4, 4));
    }

    #[test]
    fn what_is_written_is_read_by_a_kubelet_only() {
        let root = tempfile::tempdir().unwrap();
        let allocation = json!({
            "pod": {"limits": {"cpu": "2"}},
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "107374182400m"}}},
                {"name": "d"},
                {"name": "resized", "resources": {"requests": {"memory": "1Gi"}}},
            ],
        });
        let allocation: Allocation = serde_json::from_value(allocation).unwrap();
        let actuated = |container: &str, cpu_limit, cpu_request, memory_request| ActuatedResources {
            container: container.to_owned(),
            cpu_request,
            cpu_limit,
            memory_request,
            memory_limit: 0,
        };
        let of_pod = vec![
            actuated("", 2000, 0, 0),
            actuated("c", 0, 1500, 107_374_183),
            actuated("d", 0, 0, 0),
            actuated("resized", 0, 0, 1 << 20),
        ];
        let state = ResourcesState {
            allocated: [("a".into(), Arc::new(allocation))].into(),
            actuated: [("a".into(), of_pod)].into(),
        };
        state.write(root.path(), false).unwrap();
        assert_eq!(ResourcesState::of_kubelet(root.path()), ResourcesState::default());
        write_as_kubelet(root.path(), &state);
        assert_eq!(ResourcesState::of_kubelet(root.path()), state);

        let text = fs::read_to_string(root.path().join(ACTUATED)).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let data: Value = serde_json::from_str(json["data"].as_str().unwrap()).unwrap();
        let expected = json!({"entries": {"a": {
            "PodLevelResources": {"limits": {"cpu": "2"}},
            "ContainerResources": {
                "c": {"requests": {"cpu": "1500m", "memory": "107374182400m"}},
                "d": {},
                "resized": {"requests": {"memory": "1048576"}},
            },
        }}});
        assert_eq!(data, expected, "as allocated, where it is");
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
            let state = ResourcesState::of_kubelet(root.path());
            assert_eq!((state.allocated.len(), state.actuated.len()), (4, 0), "{broken}");
            let aside = fs::read_to_string(root.path().join("actuated_pods_state.unreadable"));
            assert_eq!(aside.unwrap(), broken);
        }
    }

    #[test]
    fn a_pod_with_a_broken_amount_or_uid_is_ignored_and_the_others_are_read() {
        let root = tempfile::tempdir().unwrap();
        let data = r#"{"entries":{"../x":{},"a":{"ContainerResources":{"c":{"limits":{"cpu":"much"}}}},"b":{"ContainerResources":null}}}"#;
        let json = json!({"data": data, "checksum": checksum_of(data)});
        fs::write(root.path().join(ACTUATED), json.to_string()).unwrap();
        let state = ResourcesState::of_kubelet(root.path());
        assert_eq!(state.actuated, [("b".into(), Vec::new())].into());
    }
}
