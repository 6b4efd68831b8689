//! Where CSI volumes are on the host, and what they are called.

use std::path::{Path, PathBuf};

use kubelet_core::{PodUid, RootDir};
use sha2::{Digest, Sha256};

use super::PLUGIN_NAME;
use crate::{Error, Result};

/// The file with what is known of a volume, in the folder above the mount.
pub(crate) const VOLUME_DATA: &str = "vol_data.json";

/// The folders of CSI volumes below the root folder of the agent.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    root: RootDir,
}

impl Paths {
    pub(crate) fn new(root: RootDir) -> Self {
        Self { root }
    }

    /// `<root>/plugins/kubernetes.io/csi`: a folder for each driver, and `volumeDevices`.
    pub(crate) fn staged(&self) -> PathBuf {
        self.root.path().join("plugins").join(PLUGIN_NAME)
    }

    /// `<root>/plugins/kubernetes.io/csi/<driver>/<hash of the handle>/globalmount`
    pub(crate) fn device_mount(&self, driver: &str, handle: &str) -> Result<PathBuf> {
        let dir = self.staged().join(file_name(driver)?);
        Ok(dir.join(hash(&[handle])).join(GLOBAL_MOUNT))
    }

    /// `<root>/plugins/kubernetes.io/csi/volumeDevices`
    fn devices(&self) -> PathBuf {
        self.staged().join("volumeDevices")
    }

    /// The folders of the block volume of this name.
    pub(crate) fn block(&self, name: &str) -> Result<BlockPaths> {
        let (devices, name) = (self.devices(), file_name(name)?);
        let volume = devices.join(name);
        Ok(BlockPaths {
            global_map: volume.join("dev"),
            data: volume.join("data"),
            staging: devices.join("staging").join(name),
            publish: devices.join("publish").join(name),
            volume,
        })
    }

    /// `<root>/pods/<uid>/volumeDevices/kubernetes.io~csi`
    pub(crate) fn pod_devices(&self, uid: &PodUid) -> PathBuf {
        let dir = self.root.pod_dir(uid).join("volumeDevices");
        dir.join(PLUGIN_NAME.replace('/', "~"))
    }
}

/// The folders of one block volume, below `<root>/plugins/kubernetes.io/csi/volumeDevices`.
pub(crate) struct BlockPaths {
    /// `<name>`: holds `dev` and `data`.
    pub(crate) volume: PathBuf,
    /// `<name>/dev`
    pub(crate) global_map: PathBuf,
    /// `<name>/data`
    pub(crate) data: PathBuf,
    /// `staging/<name>`
    pub(crate) staging: PathBuf,
    /// `publish/<name>`
    publish: PathBuf,
}

impl BlockPaths {
    /// `publish/<name>`: holds the device of each pod.
    pub(crate) fn publish_dir(&self) -> &Path {
        &self.publish
    }

    /// `publish/<name>/<uid>`: the device of a pod.
    pub(crate) fn publish(&self, uid: &PodUid) -> PathBuf {
        self.publish.join(uid.as_str())
    }
}

/// The kubelet's `globalMountInGlobalPath`.
const GLOBAL_MOUNT: &str = "globalmount";

/// The driver mounts a pod's volume on this folder in the volume's folder; the volume's data are beside it.
pub(crate) fn mount_of(volume_dir: &Path) -> PathBuf {
    volume_dir.join("mount")
}

/// The folder that holds the data of the volume that is mounted at `mount`.
pub(crate) fn data_dir_of(mount: &Path) -> &Path {
    mount.parent().unwrap_or(mount)
}

/// The name of the `VolumeAttachment` of a volume on a node (`getAttachmentName`).
pub(crate) fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", hash(&[handle, driver, node]))
}

/// The handle of an inline volume (`makeVolumeHandle`).
pub(crate) fn ephemeral_handle(uid: &PodUid, name: &str) -> String {
    format!("csi-{}", hash(&[uid.as_str(), name]))
}

fn hash(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
    }
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The name as that of one file: no name of an object may lead out of the folder.
fn file_name(name: &str) -> Result<&str> {
    let is_plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    is_plain
        .then_some(name)
        .ok_or_else(|| Error::failed(format!("{PLUGIN_NAME}: {name:?} cannot be the name of a folder")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kubelet() {
        let paths = Paths::new(RootDir::default());
        assert_eq!(
            attachment_name("vol-1", "a.example.com", "node-1"),
            format!("csi-{}", hash(&["vol-1a.example.comnode-1"])),
            "the parts are hashed as one string"
        );
        // sha256 of "abc"
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(
            paths.device_mount("a.example.com", "abc").unwrap(),
            PathBuf::from(format!(
                "/var/lib/kubelet/plugins/kubernetes.io/csi/a.example.com/{known}/globalmount"
            ))
        );
        assert_eq!(ephemeral_handle(&PodUid::from("a"), "bc"), format!("csi-{known}"));
        let block = paths.block("pv-1").unwrap();
        let devices = Path::new("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices");
        assert_eq!(block.global_map, devices.join("pv-1/dev"));
        assert_eq!(block.data, devices.join("pv-1/data"));
        assert_eq!(block.staging, devices.join("staging/pv-1"));
        assert_eq!(block.publish(&PodUid::from("u")), devices.join("publish/pv-1/u"));
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let paths = Paths::new(RootDir::default());
        for name in ["", ".", "..", "../x", "a/b", "a\0b"] {
            assert!(paths.device_mount(name, "handle").is_err(), "{name:?}");
            assert!(paths.block(name).is_err(), "{name:?}");
        }
    }
}
