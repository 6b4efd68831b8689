//! What the rooms look at on this machine before anything is done there.

use std::io;
use std::path::{Path, PathBuf};

use kubelet_core::{Clock, Disk};
use kubelet_node::MachineInfo;
use kubelet_resources::Machine;

use crate::problem::Problems;
use crate::settings::Settings;

/// The settings, and how to look at this machine.
pub(crate) struct Inspection<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    /// Whether containers are on this host, with cgroups that the agent makes.
    pub(crate) makes_cgroups: bool,
    /// Whether the node joins a cluster by the kubeconfig of the settings.
    #[cfg_attr(
        not(feature = "apiserver"),
        allow(dead_code, reason = "without a client there is no cluster")
    )]
    pub(crate) by_kubeconfig: bool,
    /// Instead of this machine.
    pub(crate) machine: Option<&'a MachineInfo>,
    /// Instead of the NUMA nodes of this machine.
    pub(crate) numa_nodes: Option<&'a Machine>,
}

impl Inspection<'_> {
    /// Looks at files, on the disk's thread. What the thread fails with counts as an error of the look.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.disk.run(look).await
    }

    /// Notes that this machine does not have an address on which the agent is to listen.
    #[cfg(any(feature = "http", feature = "server"))]
    pub(crate) async fn has_address(&self, field: &str, address: &str, problems: &mut Problems) {
        let Ok(ip) = address.parse::<std::net::IpAddr>() else {
            return;
        };
        // On any port that is free: the port of the configuration may belong to the agent that runs.
        if let Err(error) = tokio::net::TcpListener::bind((ip, 0)).await {
            problems.add(field, format!("cannot listen on {address}: {error}"));
        }
    }

    /// Notes that a folder cannot be written, or cannot be created.
    pub(crate) async fn writes(&self, field: &str, folder: &Path, problems: &mut Problems) {
        let path = folder.to_owned();
        if let Err(error) = self.look(move || check_writable(&path)).await {
            let folder = folder.display();
            problems.add(
                field,
                format!("the agent cannot write to the folder {folder}: {error}"),
            );
        }
    }
}

/// Checks that files can be created in a folder, or that the folder can be created. It creates a folder in it, or in the nearest one
/// that exists, and removes it again.
fn check_writable(folder: &Path) -> io::Result<()> {
    let missing = |path: &&Path| matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound);
    let mut existing = folder;
    while missing(&existing) {
        existing = existing.parent().ok_or(io::ErrorKind::NotFound)?;
    }
    if !existing.metadata()?.is_dir() {
        let existing = existing.display();
        let problem = format!("{existing} is no folder");
        return Err(io::Error::new(io::ErrorKind::NotADirectory, problem));
    }
    let probe: PathBuf = existing.join(format!(".writable-{}", std::process::id()));
    match std::fs::create_dir(&probe) {
        // Another agent of this process looks at the same time.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => {
            created?;
            // Another agent of this process may have removed it.
            match std::fs::remove_dir(&probe) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_can_be_written_if_files_can_be_created() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        check_writable(root.path()).unwrap();
        check_writable(&root.path().join("a/b")).unwrap();
        let error = check_writable(&root.path().join("file/a")).unwrap_err();
        assert!(!error.to_string().is_empty());
        assert!(check_writable(Path::new("/proc/nothing/there")).is_err());
        let left: Vec<_> = std::fs::read_dir(root.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing is left: {left:?}");
    }
}
