//! The record of a container on disk, so that the next agent finds the container.

use std::io;
use std::path::Path;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::files::{self, Replace};
use serde::{Deserialize, Serialize};

use super::attach::InputKind;
use crate::verbs::{ContainerKey, Exit};

/// The file in a container's folder.
const FILE: &str = "state.json";

/// A container on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) pod_uid: String,
    /// `None` in the records of a runtime that did not write it.
    #[serde(default)]
    pub(super) pod_attempt: Option<u32>,
    pub(super) container: String,
    pub(super) attempt: u32,
    pub(super) working_dir: std::path::PathBuf,
    pub(super) log_path: Option<std::path::PathBuf>,
    /// The signal's name in CRI; `None`: `SIGTERM`.
    pub(super) stop_signal: Option<String>,
    #[serde(default)]
    pub(super) input: InputKind,
    pub(super) started_at: Timestamp,
    /// Its leader. `None` until the process is spawned.
    pub(super) process: Option<ProcessId>,
    pub(super) exit: Option<ExitRecord>,
}

/// The identity of a process, also when another process gets the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessId {
    pub(super) pid: i32,
    pub(super) start_time: u64,
    pub(super) session: i32,
    /// Its boot and pid namespace.
    pub(super) world: String,
}

/// How it ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ExitRecord {
    pub(super) finished_at: Timestamp,
    pub(super) code: i32,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Record {
    pub(super) fn key(&self) -> ContainerKey {
        ContainerKey::new(self.pod_uid.as_str(), &self.container, self.attempt)
    }

    pub(super) fn set_exit(&mut self, exit: &Exit) {
        self.exit = Some(ExitRecord {
            finished_at: exit.finished_at,
            code: exit.code,
            reason: exit.reason.clone(),
            message: exit.message.clone(),
        });
    }

    /// `None` if there is none in this folder.
    pub(super) fn read(dir: &Path) -> io::Result<Option<Self>> {
        let bytes = files::read(&dir.join(FILE))?;
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose()?)
    }

    /// All or nothing.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        let partial = dir.join(format!("{FILE}.partial"));
        Replace::default().write(&dir.join(FILE), &partial, &serde_json::to_vec(self)?)
    }
}
