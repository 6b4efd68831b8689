//! The files and folders of a pod (`pkg/kubelet/kubelet_getters.go`).

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
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

    /// Creates the folder and those in it that pods and plugins expect on every node (`setupDataDirs`). A pod may have one as
    /// a volume, e.g. a CSI driver `plugins_registry`, before anything else needs it.
    ///
    /// It does file work on the calling thread.
    ///
    /// # Errors
    ///
    /// If a folder cannot be created, e.g. because a file has its name.
    pub fn create(&self) -> io::Result<()> {
        let folders = [
            ("", 0o750),
            ("pods", 0o750),
            ("plugins", 0o750),
            ("plugins_registry", 0o750),
        ];
        let folders = folders
            .into_iter()
            .chain([("pod-resources", 0o750), ("checkpoints", 0o700)]);
        for (folder, mode) in folders {
            DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(self.0.join(folder))?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_folders_of_the_root_are_created_with_the_modes_of_the_kubelet() {
        let dir = tempfile::tempdir().unwrap();
        let root = RootDir::new(dir.path().join("kubelet"));
        root.create().unwrap();
        root.create().unwrap();
        let mode = |name| root.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
        for name in ["", "pods", "plugins", "plugins_registry", "pod-resources"] {
            assert_eq!(mode(name), 0o750, "{name}");
        }
        assert_eq!(mode("checkpoints"), 0o700);
    }
}
