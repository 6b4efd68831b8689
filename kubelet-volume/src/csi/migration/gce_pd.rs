//! `gcePersistentDisk`

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, GCEPersistentDiskVolumeSource, PersistentVolume, Volume,
};

use super::topology::{OLD_ZONE, ZONE as NODE_ZONE, ZONES_DELIMITER};
use super::{
    Inline, READ_ONLY_MANY, READ_WRITE_MANY, READ_WRITE_ONCE, attributes, fs_type, mode_of, refused, source,
};
use crate::Result;

pub(super) const IN_TREE: &str = "kubernetes.io/gce-pd";
pub(super) const DRIVER: &str = "pd.csi.storage.gke.io";
pub(super) const ZONE: &str = "topology.gke.io/zone";

/// The driver finds out what it is.
const UNSPECIFIED: &str = "UNSPECIFIED";

pub(super) fn persistent(volume: &PersistentVolume) -> Result<Option<CSIPersistentVolumeSource>> {
    let spec = volume.spec.as_ref();
    let Some(disk) = spec.and_then(|spec| spec.gce_persistent_disk.as_ref()) else {
        return Ok(None);
    };
    let labels = volume.metadata.labels.as_ref();
    let label = |key: &str| {
        labels
            .and_then(|all| all.get(key))
            .filter(|value| !value.is_empty())
    };
    let zones = label(OLD_ZONE).or_else(|| label(NODE_ZONE));
    let zones: Vec<&str> = zones.map_or(Vec::new(), |zones| zones.split(ZONES_DELIMITER).collect());
    let name = &disk.pd_name;
    let handle = match zones[..] {
        [] => zonal(UNSPECIFIED, name),
        [zone] => zonal(zone, name),
        _ => format!("projects/{UNSPECIFIED}/regions/{}/disks/{name}", region(&zones)?),
    };
    Ok(Some(translated(disk, handle)))
}

pub(super) fn inline(volume: &Volume, _: &str) -> Result<Option<Inline>> {
    let Some(disk) = &volume.gce_persistent_disk else {
        return Ok(None);
    };
    Ok(Some(Inline {
        name: format!("{DRIVER}-{}", disk.pd_name),
        mode: mode_of(disk.read_only),
        source: translated(disk, zonal(UNSPECIFIED, &disk.pd_name)),
    }))
}

fn zonal(zone: &str, name: &str) -> String {
    format!("projects/{UNSPECIFIED}/zones/{zone}/disks/{name}")
}

fn translated(disk: &GCEPersistentDiskVolumeSource, handle: String) -> CSIPersistentVolumeSource {
    let partition = disk.partition.filter(|partition| *partition != 0);
    let partition = partition
        .map(|partition| partition.to_string())
        .unwrap_or_default();
    CSIPersistentVolumeSource {
        read_only: disk.read_only,
        fs_type: fs_type(disk.fs_type.as_ref()),
        volume_attributes: attributes([("partition", partition)]),
        ..source(DRIVER, handle)
    }
}

/// The region of zones like `us-central1-a` (`gceGetRegionFromZones`).
fn region(zones: &[&str]) -> Result<String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [locale, region, _] = parts[..] else {
            return Err(refused(format!(
                "failed to get region from zones: zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    match regions.len() {
        1 => Ok(regions.pop_first().unwrap_or_default()),
        _ => Err(refused(format!(
            "failed to get region from zones: multiple or no regions gotten from zones, got: {regions:?}"
        ))),
    }
}

/// The in-tree plugin took any mode for `ReadWriteOnce`, except `ReadOnlyMany` alone (`backwardCompatibleAccessModes`).
pub(super) fn access_modes(modes: Option<Vec<String>>) -> Option<Vec<String>> {
    let modes = modes?;
    let writes = modes
        .iter()
        .any(|mode| mode == READ_WRITE_ONCE || mode == READ_WRITE_MANY);
    let reads = modes.iter().any(|mode| mode == READ_ONLY_MANY);
    let mode = match reads && !writes {
        true => READ_ONLY_MANY,
        false => READ_WRITE_ONCE,
    };
    Some(vec![mode.to_owned()])
}
