//! Whole clusters in virtual time: agents, their runtimes and an API server on one paused clock.
//!
//! ```
//! use std::time::Duration;
//! use kubelet_testing::{FaultPlan, Simulation, Workload};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let simulation = |seed| {
//!     let simulation = Simulation::seed(seed).node("node-1").workload(Workload::churn(2));
//!     simulation.faults(FaultPlan::none().agent_restarts(Duration::from_secs(60)))
//! };
//! let history = simulation(7).run(Duration::from_secs(300))?;
//! assert!(history.count("the agent is killed") > 0);
//! assert_eq!(history, simulation(7).run(Duration::from_secs(300))?);
//! # Ok(())
//! # }
//! ```

mod agent;
mod driver;
mod faults;
mod history;
mod judge;
mod leftovers;
mod order;
mod prepared_lists;
mod stages;
mod static_pods;
mod turns;
mod users;
mod witness;
mod workload;

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use self::agent::{AgentError, HistoryRecorder, SimulatedClient, SimulatedNode};
pub use self::faults::FaultPlan;
pub use self::history::{Failure, History, Step};
pub use self::static_pods::StaticPods;
pub use self::workload::Workload;

use self::agent::{StartAgent, start_with};
use self::driver::Driver;
use self::faults::Time;
use self::turns::Turns;

/// A cluster that is simulated: nodes with an agent and a [`MemoryCri`](crate::memory_cri::MemoryCri) each, one
/// [`ApiServer`](crate::ApiServer), users and faults; one thread, one paused clock, one seed.
///
/// The same seed gives the same [`History`], to the byte: whatever happens follows from the seed, the setting and the agents.
/// (An agent of one's own keeps it so if it takes its randomness from [`SimulatedNode::seed`], does file work
/// [on the spot](kubelet_core::Disk::inline), and iterates over no map of random order.)
///
/// From the start to the end must hold: no container runs twice at a time, or before the init containers that precede it; a
/// terminal phase is never left; counts of restarts only grow; the API server lets go of no pod whose containers run (unless a
/// user would not wait for them), and none is started afterwards.
///
/// When the time is over, the faults end. Within half an hour what the API server was told of each pod must be what its runtime
/// shows, what should run must run and be ready, and nothing may be left of pods that are gone: in the runtimes, on the disks,
/// in what agents [show](SimulatedNode::show) of their memory. Then every agent is replaced by another, which may show in no
/// status of a pod whose containers stay as they are. Then all pods are deleted, and within half an hour nothing may be left
/// of any, no task either beyond what new agents have. At last every agent must end when it is asked to, and leave no task
/// behind.
#[must_use]
pub struct Simulation {
    seed: u64,
    nodes: Vec<String>,
    workload: Workload,
    faults: FaultPlan,
    turns: Turns,
    agent: StartAgent,
}

impl Simulation {
    /// One that follows from this seed, with no node yet.
    pub fn seed(seed: u64) -> Self {
        Self {
            seed,
            nodes: Vec::new(),
            workload: Workload::none(),
            faults: FaultPlan::none(),
            turns: Turns::default(),
            agent: start_with(SimulatedNode::run_kubelet),
        }
    }

    /// One node more.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.nodes.push(name.into());
        self
    }

    /// What users do. Nothing by default.
    pub fn workload(mut self, workload: Workload) -> Self {
        self.workload = workload;
        self
    }

    /// What goes wrong. Nothing by default.
    pub fn faults(mut self, faults: FaultPlan) -> Self {
        self.faults = faults;
        self
    }

    /// Users and faults act for so long, then all is left alone for so long, by turns; at first they act. What
    /// [`Workload::every`] and a [`FaultPlan`] say of how often counts the busy time alone, so a day of a busy hour in all has
    /// an hour's changes. Calls and requests go wrong at all times. By default it is never quiet.
    pub fn by_turns(mut self, busy: Duration, quiet: Duration) -> Self {
        self.turns = Turns::new(busy, quiet);
        self
    }

    /// Runs this agent on the nodes in place of this project's. It is called for each start: at first, and again after it was
    /// killed. Its future is dropped when it is killed, and is to end soon after the token is cancelled.
    pub fn agent<F>(
        mut self,
        agent: impl Fn(SimulatedNode, CancellationToken) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), AgentError>> + Send + 'static,
    {
        self.agent = start_with(agent);
        self
    }

    /// Runs it for this long, and until all has come to rest.
    ///
    /// Makes a tokio runtime of its own, so it is called from a plain test, not from an async one. It has timers and no
    /// sockets: while a packet is on its way nothing would keep the paused clock from running on.
    ///
    /// # Errors
    ///
    /// A [`Failure`] tells what should never happen and did, the last steps before it, and how to have it again.
    pub fn run(self, time: Duration) -> Result<History, Box<Failure>> {
        let replay = self.replay(time);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        let runtime = runtime.map_err(|error| {
            let problems = vec![format!("no tokio runtime: {error}")];
            Box::new(Failure {
                problems,
                replay: replay.clone(),
                history: History::default(),
            })
        })?;
        let (history, problems) = runtime.block_on(Driver::run(self, time));
        if problems.is_empty() {
            Ok(history)
        } else {
            Err(Box::new(Failure {
                problems,
                replay,
                history,
            }))
        }
    }

    /// As it is written in a test.
    fn replay(&self, time: Duration) -> String {
        let nodes: String = self.nodes.iter().map(|name| format!(".node({name:?})")).collect();
        let Self {
            seed,
            workload,
            faults,
            turns,
            ..
        } = self;
        format!(
            "Simulation::seed({seed}){nodes}.workload({workload}).faults({faults}){turns}.run({})",
            Time(time)
        )
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.replay(Duration::ZERO))
    }
}
