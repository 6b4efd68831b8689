//! Keeps the state files up to date.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use kubelet_core::Disk;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::checkpoint::{StateStore, read_cpu_state, read_memory_state, write_cpu_state, write_memory_state};
use crate::cpu::{CPU_MANAGER_STATE, CpuPolicy, CpuState};
use crate::decision::{Allocator, ResourcesState};
use crate::memory::{MEMORY_MANAGER_STATE, MemoryPolicy, MemoryState};
use crate::requests::Gates;
use crate::{Error, Result};

/// The pod's UID and the container's name, by the container's id.
pub(super) type ContainerNames = BTreeMap<String, (String, String)>;

/// The files of both managers.
#[derive(Clone)]
pub(super) struct StateFiles {
    store: Arc<dyn StateStore>,
    disk: Disk,
    gates: Gates,
    /// The contents on disk. One write at a time, and a write always has the latest state.
    written: Arc<AsyncMutex<BTreeMap<&'static str, Vec<u8>>>>,
}

impl StateFiles {
    pub(super) fn new(store: Arc<dyn StateStore>, disk: Disk, gates: Gates) -> Self {
        Self {
            store,
            disk,
            gates,
            written: Arc::default(),
        }
    }

    /// Reads the state of the agent before, written under these policies. Empty where there is no file.
    ///
    /// # Errors
    ///
    /// With the kubelet's texts, if a file cannot be used.
    pub(super) async fn read(
        &self,
        (cpu_policy, memory_policy): (CpuPolicy, MemoryPolicy),
        names: &ContainerNames,
    ) -> Result<ResourcesState> {
        Ok(ResourcesState {
            cpu: self.read_cpu(cpu_policy, names).await?,
            memory: self.read_memory(memory_policy).await?,
        })
    }

    pub(super) async fn read_cpu(&self, policy: CpuPolicy, names: &ContainerNames) -> Result<CpuState> {
        let Some(contents) = self.contents(CPU_MANAGER_STATE).await? else {
            return Ok(CpuState::default());
        };
        let path = self.store.path(CPU_MANAGER_STATE);
        let state = read_cpu_state(&contents, policy, self.gates, names, &path);
        state.map_err(|error| at_start("cpu", &error))
    }

    pub(super) async fn read_memory(&self, policy: MemoryPolicy) -> Result<MemoryState> {
        let Some(contents) = self.contents(MEMORY_MANAGER_STATE).await? else {
            return Ok(MemoryState::default());
        };
        let path = self.store.path(MEMORY_MANAGER_STATE);
        let state = read_memory_state(&contents, policy, self.gates, &path);
        state.map_err(|error| at_start("memory", &error))
    }

    /// Writes each file whose contents changed.
    ///
    /// # Errors
    ///
    /// If one cannot be written. The next call tries again.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, a write that began runs to its end before the next one begins.
    pub(super) async fn write(&self, allocator: &Mutex<Allocator>) -> Result<()> {
        let mut written = Arc::clone(&self.written).lock_owned().await;
        let files = self.latest(&allocator.lock())?;
        for (name, contents) in files {
            if written.get(name) == Some(&contents) {
                continue;
            }
            let store = Arc::clone(&self.store);
            // The lock goes with the work: it is held until the write has ended, even if nobody waits for it.
            let work = move || {
                let result = store.write(name, &contents);
                if result.is_ok() {
                    written.insert(name, contents);
                }
                Ok((written, result))
            };
            let result;
            (written, result) = self
                .disk
                .run(work)
                .await
                .map_err(|error| self.failed(name, error))?;
            result.map_err(|error| self.failed(name, error))?;
        }
        Ok(())
    }

    fn latest(&self, allocator: &Allocator) -> Result<[(&'static str, Vec<u8>); 2]> {
        let (cpu_policy, memory_policy) = allocator.policies();
        Ok([
            (
                CPU_MANAGER_STATE,
                write_cpu_state(allocator.cpu_state(), cpu_policy, self.gates)?,
            ),
            (
                MEMORY_MANAGER_STATE,
                write_memory_state(allocator.memory_state(), memory_policy, self.gates)?,
            ),
        ])
    }

    async fn contents(&self, name: &'static str) -> Result<Option<Vec<u8>>> {
        let store = Arc::clone(&self.store);
        let contents = self.disk.run(move || store.read(name)).await;
        contents.map_err(|error| self.failed(name, error))
    }

    fn failed(&self, name: &str, source: io::Error) -> Error {
        Error::File {
            path: self.store.path(name),
            source,
        }
    }
}

/// The kubelet's text for a manager that does not start.
pub(super) fn at_start(manager: &str, error: &Error) -> Error {
    Error::Refused(format!("start {manager} manager error: {error}"))
}
