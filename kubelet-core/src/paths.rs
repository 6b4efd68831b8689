//! The files and folders of a pod (`pkg/kubelet/kubelet_getters.go`).

use std::path::{Path, PathBuf};

use crate::PodUid;

/// The root folder of an agent, `/var/lib/kubelet` by default, and the paths in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootDir(PathBuf);

impl RootDir {
    /// The tree below this folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `<root>/pods`
    pub fn pods_dir(&self) -> PathBuf {
        self.0.join("pods")
    }

    /// `<root>/pods/<uid>`
    pub fn pod_dir(&self, uid: &PodUid) -> PathBuf {
        self.pods_dir().join(uid.as_str())
    }

    /// `<root>/pods/<uid>/volumes`
    pub fn pod_volumes_dir(&self, uid: &PodUid) -> PathBuf {
        self.pod_dir(uid).join("volumes")
    }

    /// `<root>/pods/<uid>/volume-subpaths`: sub-paths of volumes are mounted here for the runtime, by volume, container
    /// and index of the volume mount (`getPodVolumeSubpathsDir`).
    pub fn pod_volume_subpaths_dir(&self, uid: &PodUid) -> PathBuf {
        self.pod_dir(uid).join("volume-subpaths")
    }

    /// `<root>/pods/<uid>/plugins`
    pub fn pod_plugins_dir(&self, uid: &PodUid) -> PathBuf {
        self.pod_dir(uid).join("plugins")
    }

    /// `<root>/pods/<uid>/containers/<name>`: holds a container's termination log.
    pub fn pod_container_dir(&self, uid: &PodUid, container: &str) -> PathBuf {
        self.pod_dir(uid).join("containers").join(container)
    }

    /// `<root>/pods/<uid>/userns`: the ids of its user namespace, if it has one (`mappingsFile`).
    pub fn pod_user_namespace_file(&self, uid: &PodUid) -> PathBuf {
        self.pod_dir(uid).join("userns")
    }

    /// `<root>/pods/<uid>/etc-hosts`
    pub fn etc_hosts(&self, uid: &PodUid) -> PathBuf {
        self.pod_dir(uid).join("etc-hosts")
    }
}

impl Default for RootDir {
    fn default() -> Self {
        Self::new("/var/lib/kubelet")
    }
}
