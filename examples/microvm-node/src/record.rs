//! What the next agent needs to take over pods and containers: a file in the folder of each.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use kubelet_core::files::{self, Replace};
use kubelet_cri::verbs::{ContainerKey, Exit, PodKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::network::Lease;

const FILE: &str = "record.json";

/// A pod that has begun.
#[derive(Serialize, Deserialize)]
pub(crate) struct PodRecord {
    uid: String,
    attempt: u32,
    pub(crate) lease: Option<Lease>,
    /// Of its containers.
    pub(crate) resolv_conf: String,
}

/// A container that is started, runs or has ended.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    uid: String,
    pod_attempt: u32,
    container: String,
    attempt: u32,
    pub(crate) log_path: Option<PathBuf>,
    pub(crate) stdin: bool,
    pub(crate) started_at: Timestamp,
    /// Whether its VM was booted.
    pub(crate) booted: bool,
    exit: Option<ExitRecord>,
}

#[derive(Clone, Serialize, Deserialize)]
struct ExitRecord {
    finished_at: Timestamp,
    code: i32,
    reason: String,
    message: String,
}

impl PodRecord {
    pub(crate) fn new(key: &PodKey, lease: Option<Lease>, resolv_conf: String) -> Self {
        Self { uid: key.uid.to_string(), attempt: key.attempt, lease, resolv_conf }
    }

    pub(crate) fn key(&self) -> PodKey {
        PodKey::new(self.uid.as_str(), self.attempt)
    }
}

impl ContainerRecord {
    pub(crate) fn new(
        key: &ContainerKey,
        pod: &PodKey,
        log_path: Option<PathBuf>,
        stdin: bool,
        started_at: Timestamp,
    ) -> Self {
        Self {
            uid: key.pod.to_string(),
            pod_attempt: pod.attempt,
            container: key.container.clone(),
            attempt: key.attempt,
            log_path,
            stdin,
            started_at,
            booted: false,
            exit: None,
        }
    }

    pub(crate) fn key(&self) -> ContainerKey {
        ContainerKey::new(self.uid.as_str(), &self.container, self.attempt)
    }

    pub(crate) fn pod_key(&self) -> PodKey {
        PodKey::new(self.uid.as_str(), self.pod_attempt)
    }

    pub(crate) fn exit(&self) -> Option<Exit> {
        self.exit.as_ref().map(|exit| Exit {
            started_at: self.started_at,
            finished_at: exit.finished_at,
            code: exit.code,
            reason: exit.reason.clone(),
            message: exit.message.clone(),
        })
    }

    pub(crate) fn set_exit(&mut self, exit: &Exit) {
        self.exit = Some(ExitRecord {
            finished_at: exit.finished_at,
            code: exit.code,
            reason: exit.reason.clone(),
            message: exit.message.clone(),
        });
    }
}

/// `None` if there is none in this folder.
pub(crate) fn read<T: DeserializeOwned>(dir: &Path) -> io::Result<Option<T>> {
    let bytes = files::read(&dir.join(FILE))?;
    Ok(bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose()?)
}

/// All or nothing.
pub(crate) fn write<T: Serialize>(dir: &Path, record: &T) -> io::Result<()> {
    let partial = dir.join(format!("{FILE}.partial"));
    Replace::default().write(&dir.join(FILE), &partial, &serde_json::to_vec(record)?)
}
