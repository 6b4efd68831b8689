//! The adapter's records of sandboxes and containers, in memory and in a folder.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_core::files::{self, Replace};
use parking_lot::{Mutex, RwLock};
use prost::Message;

use crate::v1;
use crate::verbs::ContainerKey;

/// All records. A record is added in memory first and then on disk, and removed from disk first and then from memory.
pub(super) struct Records {
    dir: Option<PathBuf>,
    maps: RwLock<Maps>,
}

#[derive(Default)]
struct Maps {
    sandboxes: BTreeMap<String, Arc<SandboxEntry>>,
    containers: BTreeMap<String, Arc<ContainerEntry>>,
    /// Grows with every id, so that no two ids are equal.
    made: u64,
}

/// A sandbox.
pub(super) struct SandboxEntry {
    pub(super) id: String,
    pub(super) config: v1::PodSandboxConfig,
    pub(super) runtime_handler: String,
    pub(super) created_at: i64,
    phase: Mutex<SandboxPhase>,
    /// Held while its pod begins or ends.
    pub(super) turn: tokio::sync::Mutex<()>,
}

/// The phase of a sandbox in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SandboxPhase {
    /// The runtime begins its pod. Nobody sees the sandbox. On disk it is stopped, so that the next agent ends the pod if this
    /// one ends meanwhile.
    Beginning,
    Ready,
    Stopped,
}

/// A container.
pub(super) struct ContainerEntry {
    pub(super) id: String,
    pub(super) sandbox_id: String,
    pub(super) key: ContainerKey,
    pub(super) config: v1::ContainerConfig,
    pub(super) created_at: i64,
    phase: Mutex<Phase>,
    /// Held while the container is started or removed.
    pub(super) turn: tokio::sync::Mutex<()>,
}

/// The phase of a container in the record. The runtime's own state takes precedence.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    /// Not started.
    Created,
    /// The runtime reported a successful start.
    Started { at: i64 },
    /// It could not be started.
    Failed { at: i64, message: String },
    /// It was started, and the runtime does not list it any more.
    Lost { started_at: i64, at: i64 },
    /// It is being removed.
    Removing,
}

impl Records {
    pub(super) fn new(dir: Option<PathBuf>) -> Self {
        Self {
            dir,
            maps: RwLock::default(),
        }
    }

    /// The folder of the records, if there is one.
    pub(super) fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Reads the records of an earlier adapter. A file that cannot be read is logged and not changed.
    pub(super) fn load(&self) -> Result<(), String> {
        let Some(dir) = &self.dir else { return Ok(()) };
        make_private_dir(dir).map_err(|error| format!("make {}: {error}", dir.display()))?;
        let files = std::fs::read_dir(dir).map_err(|error| format!("read {}: {error}", dir.display()))?;
        let mut maps = self.maps.write();
        for file in files {
            let path = file
                .map_err(|error| format!("read {}: {error}", dir.display()))?
                .path();
            let read = match path.extension().and_then(|extension| extension.to_str()) {
                Some("sandbox") => read(&path).and_then(|record: SandboxRecord| {
                    let entry = record.into_entry()?;
                    maps.sandboxes.insert(entry.id.clone(), Arc::new(entry));
                    Ok(())
                }),
                Some("container") => read(&path).and_then(|record: ContainerRecord| {
                    let entry = record.into_entry()?;
                    maps.containers.insert(entry.id.clone(), Arc::new(entry));
                    Ok(())
                }),
                _ => continue,
            };
            if let Err(error) = read {
                tracing::warn!(path = %path.display(), %error, "skipping a record that cannot be read");
            }
        }
        let Maps {
            sandboxes,
            containers,
            ..
        } = &mut *maps;
        containers.retain(|_, container| {
            let known = sandboxes.contains_key(&container.sandbox_id);
            if !known {
                tracing::warn!(uid = %container.key.pod, container = %container.key.container, id = %container.id,
                    "skipping the record of a container without a sandbox");
            }
            known
        });
        Ok(())
    }

    pub(super) fn sandboxes(&self) -> Vec<Arc<SandboxEntry>> {
        let maps = self.maps.read();
        let seen = maps.sandboxes.values().filter(|sandbox| !sandbox.is_beginning());
        seen.cloned().collect()
    }

    pub(super) fn containers(&self) -> Vec<Arc<ContainerEntry>> {
        self.maps.read().containers.values().cloned().collect()
    }

    pub(super) fn containers_of(&self, sandbox_id: &str) -> Vec<Arc<ContainerEntry>> {
        let mut containers = self.containers();
        containers.retain(|container| container.sandbox_id == sandbox_id);
        containers
    }

    /// By its id, or by the beginning of it if that fits one only.
    pub(super) fn sandbox(&self, id: &str) -> Option<Arc<SandboxEntry>> {
        by_id(&self.maps.read().sandboxes, id).filter(|sandbox| !sandbox.is_beginning())
    }

    /// By its id, or by the beginning of it if that fits one only.
    pub(super) fn container(&self, id: &str) -> Option<Arc<ContainerEntry>> {
        by_id(&self.maps.read().containers, id)
    }

    pub(super) fn container_by_key(&self, key: &ContainerKey) -> Option<Arc<ContainerEntry>> {
        let maps = self.maps.read();
        maps.containers.values().find(|entry| entry.key == *key).cloned()
    }

    /// Adds a sandbox. If there is already one for this pod and attempt, the error has its id.
    pub(super) fn add_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: String,
        created_at: i64,
        phase: SandboxPhase,
    ) -> Result<Arc<SandboxEntry>, AddError> {
        let entry = {
            let mut maps = self.maps.write();
            let same = |other: &&Arc<SandboxEntry>| other.pod_and_attempt() == pod_and_attempt(&config);
            if let Some(other) = maps.sandboxes.values().find(same) {
                return Err(AddError::Exists(other.id.clone()));
            }
            let entry = Arc::new(SandboxEntry {
                id: maps.new_id((pod_and_attempt(&config), created_at)),
                config,
                runtime_handler,
                created_at,
                phase: Mutex::new(phase),
                turn: tokio::sync::Mutex::default(),
            });
            maps.sandboxes.insert(entry.id.clone(), entry.clone());
            entry
        };
        self.save_sandbox(&entry).inspect_err(|_| {
            self.maps.write().sandboxes.remove(&entry.id);
        })?;
        Ok(entry)
    }

    /// Adds a container to a ready sandbox. If there is already one with this key, the error has its id.
    pub(super) fn add_container(
        &self,
        sandbox: &SandboxEntry,
        key: ContainerKey,
        config: v1::ContainerConfig,
        created_at: i64,
    ) -> Result<Arc<ContainerEntry>, AddError> {
        let entry = {
            let mut maps = self.maps.write();
            if sandbox.is_stopped() || !maps.sandboxes.contains_key(&sandbox.id) {
                return Err(AddError::SandboxNotReady);
            }
            if let Some(other) = maps.containers.values().find(|other| other.key == key) {
                return Err(AddError::Exists(other.id.clone()));
            }
            let entry = Arc::new(ContainerEntry {
                id: maps.new_id((&key, created_at)),
                sandbox_id: sandbox.id.clone(),
                key,
                config,
                created_at,
                phase: Mutex::new(Phase::Created),
                turn: tokio::sync::Mutex::default(),
            });
            maps.containers.insert(entry.id.clone(), entry.clone());
            entry
        };
        self.save_container(&entry, &Phase::Created).inspect_err(|_| {
            self.maps.write().containers.remove(&entry.id);
        })?;
        Ok(entry)
    }

    /// Its pod has begun.
    pub(super) fn make_ready(&self, entry: &SandboxEntry) -> io::Result<()> {
        self.save_sandbox_as(entry, SandboxPhase::Ready)?;
        *entry.phase.lock() = SandboxPhase::Ready;
        Ok(())
    }

    /// From now on, no container is added or started in it. Returns whether it was ready before.
    pub(super) fn stop_sandbox(&self, entry: &SandboxEntry) -> io::Result<bool> {
        let before = {
            let _maps = self.maps.write();
            std::mem::replace(&mut *entry.phase.lock(), SandboxPhase::Stopped)
        };
        if before != SandboxPhase::Stopped {
            self.save_sandbox(entry)?;
        }
        Ok(before == SandboxPhase::Ready)
    }

    pub(super) fn remove_sandbox(&self, entry: &SandboxEntry) -> io::Result<()> {
        self.delete(&entry.id, "sandbox")?;
        self.maps.write().sandboxes.remove(&entry.id);
        Ok(())
    }

    pub(super) fn remove_container(&self, entry: &ContainerEntry) -> io::Result<()> {
        self.delete(&entry.id, "container")?;
        self.maps.write().containers.remove(&entry.id);
        Ok(())
    }

    /// Records a phase. It changes in memory in any case. A write error is only logged, because the runtime's state
    /// takes precedence over the record.
    pub(super) fn set_phase(&self, entry: &ContainerEntry, phase: Phase) {
        let mut current = entry.phase.lock();
        *current = phase;
        self.try_save_container(entry, &current);
    }

    /// Records that the runtime does not list a started container any more, unless it is being removed. Returns whether
    /// it was recorded.
    pub(super) fn lost(&self, entry: &ContainerEntry, at: i64) -> bool {
        // Locked until it is written. Otherwise a removal could come in between, and the write would leave a file
        // behind.
        let mut current = entry.phase.lock();
        let Phase::Started { at: started_at } = *current else {
            return false;
        };
        *current = Phase::Lost { started_at, at };
        self.try_save_container(entry, &current);
        true
    }

    fn try_save_container(&self, entry: &ContainerEntry, phase: &Phase) {
        if let Err(error) = self.save_container(entry, phase) {
            tracing::warn!(uid = %entry.key.pod, container = %entry.key.container, id = %entry.id, %error,
                "cannot write the record of a container");
        }
    }

    fn save_sandbox(&self, entry: &SandboxEntry) -> io::Result<()> {
        let phase = *entry.phase.lock();
        self.save_sandbox_as(entry, phase)
    }

    fn save_sandbox_as(&self, entry: &SandboxEntry, phase: SandboxPhase) -> io::Result<()> {
        self.save(&entry.id, "sandbox", || {
            SandboxRecord::new(entry, phase).encode_to_vec()
        })
    }

    fn save_container(&self, entry: &ContainerEntry, phase: &Phase) -> io::Result<()> {
        self.save(&entry.id, "container", || {
            ContainerRecord::new(entry, phase).encode_to_vec()
        })
    }

    fn save(&self, id: &str, kind: &str, bytes: impl FnOnce() -> Vec<u8>) -> io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let partial = dir.join(format!("{id}.{kind}.partial"));
        Replace::default().write(&dir.join(format!("{id}.{kind}")), &partial, &bytes())
    }

    fn delete(&self, id: &str, kind: &str) -> io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        files::remove(&dir.join(format!("{id}.{kind}")))
    }
}

/// Why a record was not added.
#[derive(Debug)]
pub(super) enum AddError {
    /// The container or sandbox with this id has the same key.
    Exists(String),
    SandboxNotReady,
    Io(io::Error),
}

impl From<io::Error> for AddError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl SandboxEntry {
    pub(super) fn is_stopped(&self) -> bool {
        *self.phase.lock() != SandboxPhase::Ready
    }

    fn is_beginning(&self) -> bool {
        *self.phase.lock() == SandboxPhase::Beginning
    }

    /// If it is not ready now, it is stopped: the pod that may be left has to be ended.
    pub(super) fn begin_is_over(&self) {
        let mut phase = self.phase.lock();
        if *phase == SandboxPhase::Beginning {
            *phase = SandboxPhase::Stopped;
        }
    }

    fn pod_and_attempt(&self) -> (&str, u32) {
        pod_and_attempt(&self.config)
    }
}

fn pod_and_attempt(config: &v1::PodSandboxConfig) -> (&str, u32) {
    config
        .metadata
        .as_ref()
        .map_or(("", 0), |metadata| (&metadata.uid, metadata.attempt))
}

impl ContainerEntry {
    pub(super) fn phase(&self) -> Phase {
        self.phase.lock().clone()
    }

    /// Sets the phase only in memory, while a call runs.
    pub(super) fn replace_phase(&self, phase: Phase) -> Phase {
        std::mem::replace(&mut *self.phase.lock(), phase)
    }
}

impl Maps {
    /// 64 hexadecimal digits, like containerd's ids.
    fn new_id(&mut self, from: impl Hash) -> String {
        self.made += 1;
        let part = |n: u8| {
            let mut hasher = DefaultHasher::new();
            (n, self.made, &from).hash(&mut hasher);
            format!("{:016x}", hasher.finish())
        };
        (0..4).map(part).collect()
    }
}

fn by_id<T>(entries: &BTreeMap<String, Arc<T>>, id: &str) -> Option<Arc<T>> {
    if let Some(entry) = entries.get(id) {
        return Some(entry.clone());
    }
    if id.is_empty() {
        return None;
    }
    let mut fitting = entries
        .range(id.to_owned()..)
        .take_while(|(other, _)| other.starts_with(id));
    match (fitting.next(), fitting.next()) {
        (Some((_, entry)), None) => Some(entry.clone()),
        _ => None,
    }
}

/// A sandbox on disk.
#[derive(Clone, PartialEq, Message)]
struct SandboxRecord {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    config: Option<v1::PodSandboxConfig>,
    #[prost(string, tag = "3")]
    runtime_handler: String,
    #[prost(int64, tag = "4")]
    created_at: i64,
    #[prost(bool, tag = "5")]
    stopped: bool,
}

/// A container on disk.
#[derive(Clone, PartialEq, Message)]
struct ContainerRecord {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    sandbox_id: String,
    #[prost(string, tag = "3")]
    pod_uid: String,
    #[prost(message, optional, tag = "4")]
    config: Option<v1::ContainerConfig>,
    #[prost(int64, tag = "5")]
    created_at: i64,
    #[prost(bool, tag = "6")]
    started: bool,
    #[prost(string, optional, tag = "7")]
    failure: Option<String>,
    /// When it failed or was lost.
    #[prost(int64, tag = "8")]
    ended_at: i64,
    /// 0 in records of adapters that did not write it.
    #[prost(int64, tag = "9")]
    started_at: i64,
}

impl SandboxRecord {
    fn new(entry: &SandboxEntry, phase: SandboxPhase) -> Self {
        Self {
            id: entry.id.clone(),
            config: Some(entry.config.clone()),
            runtime_handler: entry.runtime_handler.clone(),
            created_at: entry.created_at,
            stopped: phase != SandboxPhase::Ready,
        }
    }

    fn into_entry(self) -> io::Result<SandboxEntry> {
        Ok(SandboxEntry {
            config: self.config.ok_or_else(incomplete)?,
            id: self.id,
            runtime_handler: self.runtime_handler,
            created_at: self.created_at,
            phase: Mutex::new(if self.stopped {
                SandboxPhase::Stopped
            } else {
                SandboxPhase::Ready
            }),
            turn: tokio::sync::Mutex::default(),
        })
    }
}

impl ContainerRecord {
    fn new(entry: &ContainerEntry, phase: &Phase) -> Self {
        let (started_at, failure, ended_at) = match phase {
            Phase::Created => (None, None, 0),
            Phase::Failed { at, message } => (None, Some(message.clone()), *at),
            Phase::Lost { started_at, at } => (Some(*started_at), None, *at),
            Phase::Started { at } => (Some(*at), None, 0),
            Phase::Removing => (Some(0), None, 0),
        };
        Self {
            id: entry.id.clone(),
            sandbox_id: entry.sandbox_id.clone(),
            pod_uid: entry.key.pod.to_string(),
            config: Some(entry.config.clone()),
            created_at: entry.created_at,
            started: started_at.is_some(),
            failure,
            ended_at,
            started_at: started_at.unwrap_or_default(),
        }
    }

    fn into_entry(self) -> io::Result<ContainerEntry> {
        let config = self.config.ok_or_else(incomplete)?;
        let metadata = config.metadata.as_ref().ok_or_else(incomplete)?;
        let started_at = match self.started_at {
            0 => self.created_at,
            at => at,
        };
        let phase = match (self.started, self.failure) {
            (_, Some(message)) => Phase::Failed {
                at: self.ended_at,
                message,
            },
            (true, None) if self.ended_at != 0 => Phase::Lost {
                started_at,
                at: self.ended_at,
            },
            (true, None) => Phase::Started { at: started_at },
            (false, None) => Phase::Created,
        };
        Ok(ContainerEntry {
            key: ContainerKey::new(self.pod_uid, &metadata.name, metadata.attempt),
            id: self.id,
            sandbox_id: self.sandbox_id,
            config,
            created_at: self.created_at,
            phase: Mutex::new(phase),
            turn: tokio::sync::Mutex::default(),
        })
    }
}

fn read<T: Message + Default>(path: &Path) -> io::Result<T> {
    T::decode(&*std::fs::read(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn incomplete() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the record is incomplete")
}

fn make_private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}
