//! The state files of an agent's managers: each write is checked, and the agent may crash at it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubelet_resources::ResourcesConfig;
use kubelet_resources::checkpoint::{StateFolder, StateStore, read_cpu_state};
use kubelet_resources::cpu::{CPU_MANAGER_STATE, CpuPolicy, CpuState};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::checks;
use crate::matching_calls::drawn;
use crate::simulation::order::Order;

/// The longest time between the creation of a container and its start.
const LONGEST_START: Duration = Duration::from_secs(180);

/// The state files in a node's folder.
pub(super) struct StateFiles {
    folder: StateFolder,
    seed: u64,
    pub(super) config: Arc<ResourcesConfig>,
    pub(super) order: Order,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    agent: Option<AbortHandle>,
    /// The fraction of writes at which the agent crashes.
    crash_rate: f64,
    writes: u64,
    /// What the driver of the simulation has not noticed yet.
    crash: Option<String>,
    problems: Vec<String>,
    /// When the last CPUs that were exclusive became shared.
    shared_again: Option<Instant>,
}

impl StateFiles {
    pub(super) fn new(root_dir: &Path, seed: u64, config: Arc<ResourcesConfig>, order: Order) -> Self {
        Self {
            folder: StateFolder::new(root_dir),
            seed,
            config,
            order,
            state: Mutex::default(),
        }
    }

    pub(super) fn set_crash_rate(&self, rate: f64) {
        self.state.lock().crash_rate = rate;
    }

    pub(super) fn agent_starts(&self, agent: AbortHandle) {
        self.state.lock().agent = Some(agent);
    }

    pub(super) fn take_crash(&self) -> Option<String> {
        self.state.lock().crash.take()
    }

    pub(super) fn problems(&self) -> Vec<String> {
        self.state.lock().problems.clone()
    }

    /// `None` before it was ever written.
    pub(super) fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.folder.read(name).ok()?
    }

    /// The CPUs by the file. `None` before it was ever written.
    pub(super) fn cpus(&self) -> Option<CpuState> {
        self.parse_cpus(&self.contents(CPU_MANAGER_STATE)?).ok()
    }

    /// Whether no CPU was shared when a container that starts now was created.
    pub(super) fn may_have_shared_none(&self) -> bool {
        let again = self.state.lock().shared_again;
        again.is_some_and(|again| again.elapsed() < LONGEST_START)
    }

    pub(super) fn parse_cpus(&self, contents: &[u8]) -> kubelet_resources::Result<CpuState> {
        let path = self.folder.path(CPU_MANAGER_STATE);
        read_cpu_state(
            contents,
            CpuPolicy::Static,
            self.config.gates,
            &Default::default(),
            &path,
        )
    }

    /// Whether the agent crashes at this write, and if so, whether the file has been replaced by then.
    fn crash(&self) -> Option<bool> {
        let mut state = self.state.lock();
        state.writes += 1;
        let mut rng = drawn(self.seed, state.writes);
        (rng.f64() < state.crash_rate).then(|| rng.bool())
    }

    /// Ends the agent as soon as its current step ends.
    fn kill(&self, name: &str, replaced: bool) -> io::Error {
        let mut state = self.state.lock();
        if let Some(agent) = state.agent.take() {
            agent.abort();
            let when = if replaced { "after" } else { "before" };
            state.crash = Some(format!("the agent crashes {when} the write of {name}"));
        }
        io::Error::other("the agent has crashed")
    }
}

impl StateStore for StateFiles {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.folder.read(name)
    }

    fn write(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        if self.state.lock().agent.is_none() {
            return Err(io::Error::other("the agent has crashed"));
        }
        let crash = self.crash();
        if crash == Some(false) {
            return Err(self.kill(name, false));
        }
        let shares_none = || self.cpus().is_some_and(|state| state.shared.is_empty());
        if name == CPU_MANAGER_STATE && shares_none() {
            self.state.lock().shared_again = Some(Instant::now());
        }
        self.folder.write(name, contents)?;
        let wrong = checks::state_file(self, name, contents);
        self.state.lock().problems.extend(wrong);
        match crash {
            Some(_) => Err(self.kill(name, true)),
            None => Ok(()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }
}
