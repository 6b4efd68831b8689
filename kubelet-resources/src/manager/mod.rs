//! The engine: the decisions with state files and a loop.

mod exclusive_cpus;
mod handle;
mod parts;
mod persist;
mod reconcile;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kubelet_core::Disk;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use self::handle::Shared;
pub use self::handle::{Placement, ResourceManagerHandle};
pub use self::parts::{ContainerUpdates, KubeletPods, NodePods, PluginAllocator};
use self::persist::{StateFiles, at_start};
use crate::checkpoint::StateStore;
use crate::cpu::CpuPolicy;
use crate::decision::{Allocator, ResourcesConfig};
use crate::machine::Machine;
use crate::topology::HintProvider;
use crate::{Error, Result};

/// How often containers are given the CPUs that they should have, by default (`cpuManagerReconcilePeriod`).
pub const DEFAULT_RECONCILE_PERIOD: Duration = Duration::from_secs(10);

/// Allocates CPUs and memory to containers, keeps this on disk and in force (the CPU, memory and topology managers of
/// `containerManagerImpl`).
///
/// [`builder`](Self::builder) reads the state of the agent before. Its [`handle`](Self::handle) admits pods at once;
/// [`run`](Self::run) frees what pods had that are gone, and updates running containers.
pub struct ResourceManager {
    shared: Arc<Shared>,
    updates: Arc<dyn ContainerUpdates>,
    reconcile_period: Duration,
    policy: CpuPolicy,
}

/// Makes a [`ResourceManager`].
pub struct ResourceManagerBuilder {
    store: Arc<dyn StateStore>,
    updates: Arc<dyn ContainerUpdates>,
    reconcile_period: Duration,
    disk: Disk,
    providers: Vec<Box<dyn HintProvider>>,
    plugins: Vec<Arc<dyn PluginAllocator>>,
    containers: BTreeMap<String, (String, String)>,
}

impl ResourceManager {
    /// A manager with state files in this store, that updates containers through `updates`.
    pub fn builder(store: Arc<dyn StateStore>, updates: Arc<dyn ContainerUpdates>) -> ResourceManagerBuilder {
        ResourceManagerBuilder {
            store,
            updates,
            reconcile_period: DEFAULT_RECONCILE_PERIOD,
            disk: Disk::default(),
            providers: Vec::new(),
            plugins: Vec::new(),
            containers: BTreeMap::new(),
        }
    }

    /// The handle. Add it to the [`Admission`](kubelet_core::Admission) of the agent.
    pub fn handle(&self) -> ResourceManagerHandle {
        ResourceManagerHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Runs until `shutdown`. Under the CPU policy `none` there is nothing to update. Spawns no task.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn run(self, pods: Arc<dyn NodePods>, shutdown: CancellationToken) {
        tracing::info!(period = ?self.reconcile_period, policy = ?self.policy, "resource manager: starting control loop");
        // Nobody else sets it: `run` takes the manager.
        let _ = self.shared.pods.set(Arc::downgrade(&pods));
        shutdown.run_until_cancelled_owned(self.work()).await;
    }

    async fn work(&self) {
        if self.policy == CpuPolicy::None {
            return std::future::pending().await;
        }
        let mut ticks = interval(self.reconcile_period.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.shared.reconcile(self.updates.as_ref()).await;
        }
    }
}

impl ResourceManagerBuilder {
    /// Adds a provider of hints, e.g. of devices. It is asked before the CPU and memory managers.
    #[must_use]
    pub fn provider(mut self, provider: Box<dyn HintProvider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Adds a part that allocates through plugins, e.g. devices. It is asked before the CPU and memory managers, in the order of the
    /// additions.
    #[must_use]
    pub fn plugins(mut self, plugins: Arc<dyn PluginAllocator>) -> Self {
        self.plugins.push(plugins);
        self
    }

    /// How often running containers are updated. By default every 10 s.
    #[must_use]
    pub fn reconcile_period(mut self, period: Duration) -> Self {
        self.reconcile_period = period;
        self
    }

    /// Which thread reads and writes the files.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// The containers that the runtime has: the pod's UID and the container's name, by the container's id. Only a CPU state of
    /// a very old kubelet needs them.
    #[must_use]
    pub fn containers(mut self, containers: BTreeMap<String, (String, String)>) -> Self {
        self.containers = containers;
        self
    }

    /// All that [`start`](Self::start) would refuse: settings that do not suit each other or the machine, and state files of the agent
    /// before that are damaged or do not suit them, each with the field of the manager's policy. Changes nothing.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn problems(
        store: Arc<dyn StateStore>,
        disk: Disk,
        machine: &Machine,
        config: &ResourcesConfig,
    ) -> Vec<(&'static str, Error)> {
        let mut allocator = match Allocator::without_state(machine, config) {
            Ok(allocator) => allocator,
            Err(_) => return Allocator::problems(machine, config),
        };
        let files = StateFiles::new(store, disk, config.gates);
        let (cpu_policy, memory_policy) = allocator.policies();
        let no_names = BTreeMap::new();
        let cpu = files.read_cpu(cpu_policy, &no_names).await.and_then(|state| {
            allocator
                .start_cpu(state)
                .map_err(|error| at_start("cpu", &error))
        });
        let memory = files.read_memory(memory_policy).await.and_then(|state| {
            let started = allocator.start_memory(state);
            started.map_err(|error| at_start("memory", &error))
        });
        let (cpu, memory) = (cpu.err(), memory.err());
        let cpu = cpu.map(|error| ("cpuManagerPolicy", error));
        cpu.into_iter()
            .chain(memory.map(|error| ("memoryManagerPolicy", error)))
            .collect()
    }

    /// Checks the settings, and takes over the state of the agent before.
    ///
    /// # Errors
    ///
    /// With the kubelet's texts, if the settings do not suit each other or the machine, or if a state file is damaged or does not
    /// suit them. Also if a file cannot be read or written.
    pub async fn start(self, machine: &Machine, config: &ResourcesConfig) -> Result<ResourceManager> {
        let mut allocator = Allocator::without_state(machine, config)?;
        config.topology_options.warn();
        let files = StateFiles::new(self.store, self.disk, config.gates);
        let state = files.read(allocator.policies(), &self.containers).await?;
        allocator
            .start_cpu(state.cpu)
            .map_err(|error| at_start("cpu", &error))?;
        allocator
            .start_memory(state.memory)
            .map_err(|error| at_start("memory", &error))?;
        for provider in self.providers {
            allocator = allocator.with_provider(provider);
        }
        for plugins in &self.plugins {
            allocator = allocator.with_hints(Arc::clone(plugins) as _);
        }
        let (policy, _) = allocator.policies();
        let shared = Shared {
            turn: AsyncMutex::default(),
            plugins: self.plugins,
            allocator: Mutex::new(allocator),
            files,
            pods: OnceLock::new(),
            given: Mutex::default(),
        };
        shared.files.write(&shared.allocator).await?;
        Ok(ResourceManager {
            shared: Arc::new(shared),
            updates: self.updates,
            reconcile_period: self.reconcile_period,
            policy,
        })
    }
}
