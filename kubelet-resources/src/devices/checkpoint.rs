//! The devices' state file, `kubelet_internal_checkpoint`.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{AllocatedDevices, DeviceState, DevicesOfPods};
use crate::checkpoint::{GoText, Unreadable, checksum};
use crate::{Error, Result};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Checkpoint {
    data: Data,
    #[serde(default)]
    checksum: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    /// `null` without entries, as the kubelet writes it.
    #[serde(default)]
    pod_device_entries: Option<Vec<Entry>>,
    /// The healthy devices, by resource.
    #[serde(default)]
    registered_devices: BTreeMap<String, Vec<String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    #[serde(rename = "DeviceIDs")]
    device_ids: BTreeMap<i64, Vec<String>>,
    /// In base64.
    alloc_resp: String,
}

/// The contents of the file for this state.
///
/// # Errors
///
/// None in practice: the state can be written as JSON.
pub fn write_device_state(state: &DeviceState) -> Result<Vec<u8>> {
    let mut entries = Vec::new();
    for (pod_uid, containers) in state.allocated() {
        for (container_name, resources) in containers {
            for (resource_name, devices) in resources {
                entries.push(Entry {
                    pod_uid: pod_uid.clone(),
                    container_name: container_name.clone(),
                    resource_name: resource_name.clone(),
                    device_ids: devices.by_node.clone(),
                    alloc_resp: STANDARD.encode(&devices.response),
                });
            }
        }
    }
    let registered = state.registered().map(|resource| {
        let healthy = state.healthy(resource);
        (resource.to_owned(), healthy.into_iter().collect())
    });
    let data = Data {
        registered_devices: registered.collect(),
        pod_device_entries: Some(entries).filter(|entries| !entries.is_empty()),
    };
    let failed = |error: String| Error::Refused(error);
    let text = data.text().map_err(|error| failed(error.to_string()))?;
    let checkpoint = Checkpoint {
        checksum: checksum(&text),
        data,
    };
    serde_json::to_vec(&checkpoint).map_err(|error| failed(error.to_string()))
}

/// What was allocated, and the resources that were registered, in a file with these contents: for
/// [`DeviceState::with_allocated`].
///
/// # Errors
///
/// If the file is damaged. The kubelet then goes on without it.
pub fn read_device_state(contents: &[u8]) -> Result<(DevicesOfPods, Vec<String>)> {
    read(contents).map_err(|error| Error::Refused(error.to_string()))
}

fn read(contents: &[u8]) -> Result<(DevicesOfPods, Vec<String>), Unreadable> {
    let Checkpoint {
        data,
        checksum: found,
    } = serde_json::from_slice(contents)?;
    if found != checksum(&data.text()?) {
        return Err(Unreadable::Corrupt);
    }
    let mut pods = DevicesOfPods::new();
    for entry in data.pod_device_entries.into_iter().flatten() {
        let response = decode(&entry.alloc_resp)?;
        let of_pod = pods.entry(entry.pod_uid).or_default();
        let of_container = of_pod.entry(entry.container_name).or_default();
        of_container.insert(
            entry.resource_name,
            AllocatedDevices {
                by_node: entry.device_ids,
                response,
            },
        );
    }
    Ok((pods, data.registered_devices.into_keys().collect()))
}

impl Data {
    /// The text that is hashed.
    fn text(&self) -> Result<String, Unreadable> {
        let strings = |list: &Vec<String>| GoText::list(list, String::clone);
        let entries = match &self.pod_device_entries {
            None => "<nil>".to_owned(),
            Some(entries) => {
                let texts: Vec<String> = entries.iter().map(Entry::text).collect::<Result<_, _>>()?;
                GoText::list(&texts, String::clone)
            }
        };
        Ok(GoText::of("checkpoint.checkpointData")
            .field("PodDeviceEntries", "[]checkpoint.PodDevicesEntry", entries)
            .field(
                "RegisteredDevices",
                "map[string][]string",
                GoText::map(&self.registered_devices, strings),
            )
            .end())
    }
}

impl Entry {
    fn text(&self) -> Result<String, Unreadable> {
        let response = decode(&self.alloc_resp)?;
        let ids = GoText::map(&self.device_ids, |ids| GoText::list(ids, String::clone));
        Ok(GoText::value()
            .field("PodUID", "string", &self.pod_uid)
            .field("ContainerName", "string", &self.container_name)
            .field("ResourceName", "string", &self.resource_name)
            .field("DeviceIDs", "checkpoint.DevicesPerNUMA", ids)
            .field(
                "AllocResp",
                "[]uint8",
                GoText::list(&response, ToString::to_string),
            )
            .end())
    }
}

fn decode(text: &str) -> Result<Vec<u8>, Unreadable> {
    STANDARD
        .decode(text)
        .map_err(|error| Unreadable::Other(error.to_string()))
}
