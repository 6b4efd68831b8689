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
mod csi;
mod driver;
mod faults;
mod history;
mod judge;
mod leftovers;
mod order;
mod prepared_lists;
mod pressure;
mod resources;
mod restarts;
mod stages;
mod static_pods;
mod storage;
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

/// A simulated cluster: nodes, each with an agent and a [`MemoryCri`](crate::memory_cri::MemoryCri), one
/// [`ApiServer`](crate::ApiServer), users and faults. It has one thread, one paused clock and one seed.
///
/// The same seed gives the same [`History`], to the byte. Everything follows from the seed, the settings and the
/// agents. Your own agent must be deterministic, too: take randomness from [`SimulatedNode::seed`], do file work
/// [inline](kubelet_core::Disk::inline), and iterate over no map with random order.
///
/// The simulation always checks that
///
/// * no container runs twice at the same time, or before the init containers that precede it,
/// * no pod leaves a terminal phase,
/// * restart counts never decrease,
/// * the API server deletes no pod whose containers run (unless a user forces it), and no container of a deleted pod
///   starts,
/// * a static pod whose manifest is removed and written again at once ends and starts again,
/// * no container starts before its volumes are mounted, no volume is unmounted while a container runs with it, a CSI
///   driver gets its calls in the right order, and no volume is detached while it is staged,
/// * if nodes [run short](FaultPlan::shortages) of something: pods are evicted one at a time, no critical or static pod is evicted,
///   none that frees nothing while another does, and no condition ends within its transition period,
/// * if agents [manage resources](Simulation::managed_resources): no CPU, memory or device belongs to two containers, reserved CPUs are never
///   exclusive, containers run on what their agent's state files say, also after a crash at any write of such a file, and no
///   claim is unprepared while a container uses it,
/// * if hosts [shut down](FaultPlan::shutdowns): no container runs afterwards that had time to end.
///
/// At the end of the given time, the faults stop, and the simulation checks in this order:
///
/// 1. Within half an hour, the status of each pod in the API server agrees with its runtime, and what should run is
///    running and ready. Nothing is left of deleted pods: in the runtimes, on the disks, in what agents
///    [show](SimulatedNode::show) of their memory.
/// 2. Every agent is replaced. This must change no status of a pod whose containers do not change.
/// 3. All pods are deleted. Within half an hour nothing is left of them, and the agents have no more tasks than new
///    ones.
/// 4. Every agent gets a shutdown signal. It must end and leave no task.
#[must_use]
pub struct Simulation {
    seed: u64,
    nodes: Vec<String>,
    workload: Workload,
    faults: FaultPlan,
    turns: Turns,
    managed_resources: bool,
    agent: StartAgent,
}

impl Simulation {
    /// A simulation with this seed, without nodes.
    pub fn seed(seed: u64) -> Self {
        Self {
            seed,
            nodes: Vec::new(),
            workload: Workload::none(),
            faults: FaultPlan::none(),
            turns: Turns::default(),
            managed_resources: false,
            agent: start_with(SimulatedNode::run_kubelet),
        }
    }

    /// Adds a node.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.nodes.push(name.into());
        self
    }

    /// Sets what users do. The default is nothing.
    pub fn workload(mut self, workload: Workload) -> Self {
        self.workload = workload;
        self
    }

    /// Sets the faults. The default is none.
    pub fn faults(mut self, faults: FaultPlan) -> Self {
        self.faults = faults;
        self
    }

    /// Alternates busy and quiet time, busy time first. In quiet time users and scheduled faults do nothing. The
    /// frequencies of [`Workload::every`] and [`FaultPlan`] count busy time only, so a day with one busy hour has the
    /// changes of one hour. Calls and requests can fail at any time. By default there is no quiet time.
    pub fn by_turns(mut self, busy: Duration, quiet: Duration) -> Self {
        self.turns = Turns::new(busy, quiet);
        self
    }

    /// Gives each node a machine with NUMA nodes, device plugins and a driver of claims, and its agent static policies for CPUs and
    /// memory. Some pods of a [churn](Workload::churn) then have CPUs of their own, devices and claims. The machine, the policies and
    /// the requests are drawn from the seed. By default no agent manages resources.
    pub fn managed_resources(mut self) -> Self {
        self.managed_resources = true;
        self
    }

    /// Runs this agent on the nodes instead of this project's. The simulation calls it for each start, also after a
    /// kill. To kill an agent, the simulation drops its future. To shut it down, it cancels the token; the future
    /// must then end soon.
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

    /// Runs the simulation for this time, and then until the cluster is at rest.
    ///
    /// It makes a tokio runtime of its own, so call it from a plain test, not from an async one. The tokio runtime
    /// has timers but no sockets: the paused clock would jump while a packet is on its way.
    ///
    /// # Errors
    ///
    /// A [`Failure`] has the violations, the last steps before them, and the code that reproduces them.
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

    /// Prints the code for it in a test.
    fn replay(&self, time: Duration) -> String {
        let nodes: String = self.nodes.iter().map(|name| format!(".node({name:?})")).collect();
        let Self {
            seed,
            workload,
            faults,
            turns,
            managed_resources,
            ..
        } = self;
        let managed = if *managed_resources {
            ".managed_resources()"
        } else {
            ""
        };
        format!(
            "Simulation::seed({seed}){nodes}.workload({workload}).faults({faults}){turns}{managed}.run({})",
            Time(time)
        )
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.replay(Duration::ZERO))
    }
}
