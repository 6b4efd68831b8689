//! Follows the configuration files: a change is validated and applied while the agent runs.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_core::Disk;
use tokio::time::sleep;

use super::Program;
use crate::configured;
use crate::error::Error;
use crate::handle::AgentHandle;

/// What tells two versions of the files apart: path, inode, length, and time of change with nanoseconds. A file that cannot be
/// read is left out.
pub(super) type Version = Vec<(PathBuf, u64, u64, i64, i64)>;

impl Program {
    /// Looks every `fileCheckFrequency` for a change of the configuration file and its drop-ins, and applies it to the agent
    /// ([`AgentHandle::reconfigure`]). One log line names the fields that are applied, and those that wait for a restart. A
    /// configuration that is not valid is logged, and the present one stays. Without files it waits forever.
    ///
    /// [`run`](Self::run) does this already.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn follow_configuration(&self, agent: &AgentHandle) {
        let flags = &self.server.flags;
        let (file, folder) = (
            flags.kubelet_config_file.clone(),
            flags.kubelet_dropin_config_directory.clone(),
        );
        if file.is_empty() && folder.is_empty() {
            return std::future::pending().await;
        }
        let period =
            configured::time(self.server.configuration.file_check_frequency).max(Duration::from_millis(100));
        let look = || {
            let (file, folder) = (PathBuf::from(&file), PathBuf::from(&folder));
            Disk::default().run(move || Ok(version(&file, &folder)))
        };
        // What changed since the program read it is found, too.
        let mut known = self.files.clone();
        loop {
            sleep(period).await;
            // It fails only if the program ends.
            let Ok(found) = look().await else { return };
            if found != known {
                known = found;
                self.reload(agent).await;
            }
        }
    }

    async fn reload(&self, agent: &AgentHandle) {
        let line = self.command_line.clone();
        let load = Disk::default().run(move || Ok(line.load(&Host::detect())));
        let Ok(loaded) = load.await else { return };
        let applied = loaded
            .map_err(Error::from)
            .and_then(|server| agent.reconfigure(&server.configuration));
        match applied {
            Err(error) => {
                tracing::error!(%error, "The changed configuration is not valid; the present one stays in force");
            }
            Ok(done) if done.needs_restart.is_empty() => {
                tracing::info!(applied = ?done.applied, "The changed configuration is in force");
            }
            Ok(done) => tracing::warn!(
                applied = ?done.applied,
                needs_restart = ?done.needs_restart,
                "The changed configuration is in force in part; the rest needs a restart of the agent"
            ),
        }
    }
}

/// The present version of the file and of the drop-ins in the folder.
pub(super) fn version(file: &Path, folder: &Path) -> Version {
    let drop_ins = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut files: Vec<PathBuf> = drop_ins.collect();
    files.push(file.to_owned());
    files.sort_unstable();
    let version = |path: PathBuf| {
        // Through links, as a mounted config map has them.
        let found = std::fs::metadata(&path).ok()?;
        Some((path, found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
    };
    files.into_iter().filter_map(version).collect()
}
