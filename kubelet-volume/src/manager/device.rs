//! Mounts and unmounts a volume for the node, once for all its pods.

use super::block;
use std::path::Path;

use super::mount::{Mounting, Problem, before};
use super::next_step::Presence;
use super::operation::{Failure, change, failed};
use super::record::VolumeKey;
use super::shared::Shared;
use crate::{DeviceMount, Error};

/// What follows the root folder in the path of a device mount (`kubernetesPluginPathPrefix`).
const PLUGINS_FOLDER: &str = "/plugins/kubernetes.io/";

/// Mounts the device unless it is mounted (`MountDevice`).
pub(crate) async fn mount(shared: &Shared, key: &VolumeKey, mounting: &mut Mounting) -> Result<(), Problem> {
    let plugin = mounting.plugin.clone();
    let Some(device) = plugin.device_mountable() else {
        return Ok(());
    };
    let path = device.device_mount_path(&mounting.mount.spec);
    let path = path.map_err(before("MountVolume.GetDeviceMountPath failed"))?;
    mounting.mount.device_mount_path = Some(path.clone());
    if mounting.device == Presence::Mounted {
        return Ok(());
    }
    change(shared, key, |record| {
        record.device_mount_path = Some(path.clone());
        record.situation.device = Presence::Uncertain;
        record.device_label = Some(mounting.mount.selinux_label.clone().unwrap_or_default());
    });
    let mount = DeviceMount {
        spec: mounting.mount.spec.clone(),
        device_path: mounting.device_path.clone(),
        device_mount_path: path,
        fs_group: mounting.mount.fs_group,
        selinux_label: mounting.mount.selinux_label.clone(),
    };
    let result = device.mount_device(&mount).await;
    mark(shared, key, mounting, result.as_ref().err());
    result.map_err(before("MountVolume.MountDevice failed"))
}

/// Records what came of an attempt to mount or map the device (`markDeviceErrorState`).
pub(crate) fn mark(shared: &Shared, key: &VolumeKey, mounting: &Mounting, error: Option<&Error>) {
    change(shared, key, |record| {
        let was_found = record.device_was_found && mounting.device == Presence::Uncertain;
        record.situation.device = match error {
            None => Presence::Mounted,
            Some(error) if error.is_uncertain() || was_found => Presence::Uncertain,
            Some(_) => Presence::Absent,
        };
        record.device_was_found &= error.is_some();
    });
}

/// Unmounts the device, or removes its map (`GenerateUnmountDeviceFunc`, `GenerateUnmapDeviceFunc`).
pub(crate) async fn unmount(shared: &Shared, key: &VolumeKey) -> Result<(), Failure> {
    let read = {
        let state = shared.state.lock();
        let record = state.records.get(key);
        record.map(|record| {
            let path = record.device_mount_path.clone();
            (
                record.plugin.clone(),
                record.spec.clone(),
                path,
                record.device_path.clone(),
            )
        })
    };
    let Some((plugin, spec, path, device_path)) = read else {
        return Ok(());
    };
    change(shared, key, |record| {
        record.situation.device = Presence::Uncertain
    });
    if spec.is_block() {
        block::tear_down(shared, &*plugin, &spec, path, &device_path).await?;
    } else if let Some(device) = plugin.device_mountable() {
        // The volume may have been replaced by another one with the same name since it was mounted.
        let path = path.map_or_else(|| device.device_mount_path(&spec), Ok);
        let path = path.map_err(failed("GetDeviceMountPath failed"))?;
        check_references(shared, &path)
            .await
            .map_err(failed("GetDeviceMountRefs check failed"))?;
        device
            .unmount_device(&path)
            .await
            .map_err(failed("UnmountDevice failed"))?;
    }
    change(shared, key, |record| {
        record.situation.device = Presence::Absent;
        record.device_was_found = false;
    });
    Ok(())
}

/// A pod that this agent does not know of may use the device, too.
async fn check_references(shared: &Shared, path: &Path) -> crate::Result<()> {
    let Some(mounter) = &shared.mounter else {
        return Ok(());
    };
    let mut references = mounter.references(path).await?;
    references.retain(|reference| !is_device_mount(reference, path));
    if references.is_empty() {
        return Ok(());
    }
    let references: Vec<String> = references.iter().map(|path| path.display().to_string()).collect();
    Err(Error::failed(format!(
        "the device mount path {path:?} is still mounted by other references [{}]",
        references.join(" ")
    )))
}

/// Whether a mount is the device mount itself, seen by another path: the root folder may be mounted in a second place
/// (`HasMountRefs`).
fn is_device_mount(reference: &Path, device_mount_path: &Path) -> bool {
    let path = device_mount_path.to_string_lossy();
    let below_root = path.find(PLUGINS_FOLDER).and_then(|at| path.get(at..));
    reference.to_string_lossy().contains(below_root.unwrap_or(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_folder_in_a_second_root_is_no_other_mount() {
        let is_own = |reference: &str, path: &str| is_device_mount(Path::new(reference), Path::new(path));
        let path = "/var/lib/kubelet/plugins/kubernetes.io/x/mounts/v";
        assert!(is_own(path, path));
        assert!(is_own(
            "/rootfs/var/lib/kubelet/plugins/kubernetes.io/x/mounts/v",
            path
        ));
        assert!(is_own("/mnt/disk/kubelet/plugins/kubernetes.io/x/mounts/v", path));
        assert!(!is_own(
            "/mnt/disk/kubelet/plugins/kubernetes.io/x/mounts/w",
            path
        ));
        assert!(!is_own("/var/lib/kubelet/pods/1/volumes/kubernetes.io~x/v", path));
        assert!(!is_own("/data/manual", path));
        // A path elsewhere is compared as a whole.
        assert!(is_own("/host/srv/stage/v", "/srv/stage/v"));
        assert!(!is_own("/srv/other/v", "/srv/stage/v"));
    }
}
