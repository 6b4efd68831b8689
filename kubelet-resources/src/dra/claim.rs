//! A claim on this node: who uses it, and what its drivers prepared.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::ResourceClaim;
use kubelet_core::PodUid;
use serde::{Deserialize, Deserializer, Serialize};

/// A `ResourceClaim` that at least one pod of this node uses (`state.ClaimInfoState`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ClaimState {
    /// The claim's UID.
    #[serde(rename = "ClaimUID")]
    pub claim_uid: String,
    /// Its name.
    pub claim_name: String,
    /// Its namespace.
    pub namespace: String,
    /// The UIDs of the pods that use it.
    #[serde(rename = "PodUIDs", deserialize_with = "null_is_empty")]
    pub pod_uids: BTreeMap<String, Member>,
    /// What each driver prepared. A driver from which devices are allocated is here also if it prepared none.
    #[serde(deserialize_with = "null_is_empty")]
    pub driver_state: BTreeMap<String, DriverState>,
}

/// An element of a set, as Go writes one: `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {}

/// What one driver prepared for a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
#[non_exhaustive]
pub struct DriverState {
    /// The devices. `None` before the claim was prepared.
    pub devices: Option<Vec<Device>>,
}

/// A device that a driver prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Device {
    /// The pool of the device.
    pub pool_name: String,
    /// The device in the pool.
    pub device_name: String,
    /// Which share of the device it is, if the device is shared.
    #[serde(rename = "ShareID")]
    pub share_id: Option<String>,
    /// The requests of the claim that it is for. If empty, it is for all.
    pub request_names: Option<Vec<String>>,
    /// How the container runtime finds it.
    #[serde(rename = "CDIDeviceIDs")]
    pub cdi_device_ids: Option<Vec<String>>,
}

/// The namespace and the name of a claim.
pub(crate) type ClaimKey = (String, String);

impl ClaimState {
    /// The state of a claim that no pod uses yet (`newClaimInfoFromClaim`). `None` if it is not allocated.
    pub(crate) fn of(claim: &ResourceClaim) -> Option<Self> {
        let allocation = claim.status.as_ref()?.allocation.as_ref()?;
        let results = allocation
            .devices
            .as_ref()
            .and_then(|devices| devices.results.as_ref());
        let drivers = results
            .into_iter()
            .flatten()
            .map(|result| (result.driver.clone(), DriverState::default()));
        Some(Self {
            claim_uid: claim.metadata.uid.clone().unwrap_or_default(),
            claim_name: claim.metadata.name.clone().unwrap_or_default(),
            namespace: claim.metadata.namespace.clone().unwrap_or_default(),
            pod_uids: BTreeMap::new(),
            driver_state: drivers.collect(),
        })
    }

    pub(crate) fn key(&self) -> ClaimKey {
        (self.namespace.clone(), self.claim_name.clone())
    }

    pub(crate) fn is_used_by(&self, pod: &PodUid) -> bool {
        self.pod_uids.contains_key(pod.as_str())
    }

    /// The ids of the devices for a request; for all requests if `request` is empty (`cdiDevicesAsList`).
    pub(crate) fn cdi_devices(&self, request: &str) -> impl Iterator<Item = &String> {
        self.devices()
            .map(|(_, device)| device)
            .filter(move |device| request.is_empty() || device.is_for(request))
            .flat_map(|device| device.cdi_device_ids.iter().flatten())
    }

    /// The devices with their drivers.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&String, &Device)> {
        self.driver_state
            .iter()
            .flat_map(|(driver, state)| state.devices.iter().flatten().map(move |device| (driver, device)))
    }

    pub(crate) fn drivers(&self) -> BTreeSet<String> {
        self.driver_state.keys().cloned().collect()
    }
}

impl Device {
    /// Whether it is for this request. A device without requests is for all.
    pub(crate) fn is_for(&self, request: &str) -> bool {
        let requests = self.request_names.as_deref().unwrap_or_default();
        requests.is_empty() || requests.iter().any(|name| name == request)
    }
}

/// Go writes a map that was not made as `null`.
fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
