//! The folders of the volumes of pods.

use std::path::PathBuf;

use kubelet_core::{PodUid, RootDir};

use crate::{OnDisk, VolumePlugin, VolumeSpec};

/// The folder of volumes in a pod's folder (`DefaultKubeletVolumesDirName`).
pub(crate) const VOLUMES: &str = "volumes";
/// The folder of links to block devices in a pod's folder (`DefaultKubeletVolumeDevicesDirName`).
pub(crate) const VOLUME_DEVICES: &str = "volumeDevices";

/// Where the volume of a pod is on the host.
pub(crate) fn on_disk(root: &RootDir, uid: &PodUid, plugin: &dyn VolumePlugin, spec: &VolumeSpec) -> OnDisk {
    let folder = if spec.is_block() { VOLUME_DEVICES } else { VOLUMES };
    let name = escaped(spec.name());
    OnDisk {
        uid: uid.clone(),
        dir: plugin_dir(root, uid, folder, plugin.name()).join(&name),
        name,
        is_block: spec.is_block(),
    }
}

fn plugin_dir(root: &RootDir, uid: &PodUid, folder: &str, plugin: &str) -> PathBuf {
    root.pod_dir(uid).join(folder).join(escaped(plugin))
}

/// The name as that of one folder (`EscapeQualifiedName`). The name of a volume that was translated for a CSI driver can be
/// a path.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('/', "~")
}

/// The name of the plugin whose folder has this name (`UnescapeQualifiedName`).
pub(crate) fn plugin_of_folder(folder: &str) -> String {
    folder.replace('~', "/")
}
