//! The engine.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{Clock, Disk, Jitter, PodExt as _, ResourceUpdates};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::claims::Claims;
use super::grpc::GrpcDialer;
use super::handle::{DraManagerHandle, Shared};
use super::health_file::HealthFile;
use super::health_watch::HealthWatch;
use super::links::Background;
use super::plugin::Dialer;
use super::plugins::DraPlugins;
use super::state_file::StateFile;
use super::{ClaimObjects, DraGates};
use crate::checkpoint::StateStore;
use crate::{NodePods, Result};

/// How often the claims of pods that are gone are unprepared (`defaultReconcilePeriod`).
pub const RECONCILE_PERIOD: Duration = Duration::from_secs(60);
/// How long a driver may be gone before its `ResourceSlice`s are deleted (`defaultWipingDelay`).
pub const WIPING_DELAY: Duration = Duration::from_secs(30);

/// Prepares the claims of pods through the plugins of DRA drivers, and keeps on disk what is prepared (`dra.Manager`).
///
/// [`builder`](Self::builder) reads the claims of the agent before. The [`handle`](Self::handle) prepares and unprepares,
/// [`plugins`](Self::plugins) takes the registrations, and [`run`](Self::run) does what nobody waits for.
pub struct DraManager {
    shared: Arc<Shared>,
    plugins: DraPlugins,
    jitter: Jitter,
    reconcile_period: Duration,
}

/// Makes a [`DraManager`].
pub struct DraManagerBuilder {
    store: Arc<dyn StateStore>,
    objects: Arc<dyn ClaimObjects>,
    dialer: Arc<dyn Dialer>,
    disk: Disk,
    gates: DraGates,
    jitter: Jitter,
    reconcile_period: Duration,
    wiping_delay: Duration,
    clock: Clock,
    updates: Option<ResourceUpdates>,
}

impl DraManager {
    /// A manager with its state file in this store, that reads claims from `objects`.
    pub fn builder(store: Arc<dyn StateStore>, objects: Arc<dyn ClaimObjects>) -> DraManagerBuilder {
        DraManagerBuilder {
            store,
            objects,
            dialer: Arc::new(GrpcDialer),
            disk: Disk::default(),
            gates: DraGates::default(),
            jitter: Jitter::default(),
            reconcile_period: RECONCILE_PERIOD,
            wiping_delay: WIPING_DELAY,
            clock: Clock::default(),
            updates: None,
        }
    }

    /// The handle. It works also while the engine does not run: each call then connects to the plugin for itself.
    pub fn handle(&self) -> DraManagerHandle {
        DraManagerHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// The plugins, for the plugin watcher.
    pub fn plugins(&self) -> DraPlugins {
        self.plugins.clone()
    }

    /// Runs until `shutdown`: keeps plugins connected, deletes the `ResourceSlice`s of all drivers once and later those of drivers that
    /// are gone, unprepares the claims of pods that are gone, and follows the health of devices. Spawns no task.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn run(self, pods: Arc<dyn NodePods>, shutdown: CancellationToken) {
        let background = Background {
            plugins: Arc::clone(&self.shared.plugins),
            objects: Arc::clone(&self.shared.objects),
            jitter: self.jitter.clone(),
            health: self.shared.health.clone(),
        };
        let forget = async {
            if let Some(health) = &self.shared.health {
                health.forget_expired().await;
            }
        };
        let work = async { tokio::join!(background.run(), self.reconcile(pods.as_ref()), forget) };
        shutdown.run_until_cancelled(work).await;
    }

    async fn reconcile(&self, pods: &dyn NodePods) {
        let mut ticks = interval(self.reconcile_period.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Until all sources have reported their pods, nobody knows which are gone.
            let active = || {
                pods.sources_ready()
                    .then(|| pods.holding_pods().iter().map(|pod| pod.uid()).collect())
            };
            self.shared.reconcile(active).await;
        }
    }
}

impl DraManagerBuilder {
    /// How plugins are reached. By default at their sockets.
    #[must_use]
    pub fn dialer(mut self, dialer: Arc<dyn Dialer>) -> Self {
        self.dialer = dialer;
        self
    }

    /// Which thread reads and writes the file.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// The feature gates.
    #[must_use]
    pub fn gates(mut self, gates: DraGates) -> Self {
        self.gates = gates;
        self
    }

    /// What spreads the tries of many nodes.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// How often the claims of pods that are gone are unprepared. By default every 60 s.
    #[must_use]
    pub fn reconcile_period(mut self, period: Duration) -> Self {
        self.reconcile_period = period;
        self
    }

    /// How long a driver may be gone before its slices are deleted. By default 30 s.
    #[must_use]
    pub fn wiping_delay(mut self, delay: Duration) -> Self {
        self.wiping_delay = delay;
        self
    }

    /// The clock for the times in the file `dra_health_state`. By default the operating system's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Where to report the pods with a device whose health changed. The [handle](DraManager::handle) then also goes to
    /// [`KubeletBuilder::resource_health`](kubelet_core::KubeletBuilder::resource_health). By default, nobody is informed.
    #[must_use]
    pub fn updates(mut self, updates: ResourceUpdates) -> Self {
        self.updates = Some(updates);
        self
    }

    /// Takes over the claims of the agent before.
    ///
    /// # Errors
    ///
    /// With the kubelet's text, if the state file is damaged. Also if it cannot be read or written.
    pub async fn start(self) -> Result<DraManager> {
        let file = StateFile::new(Arc::clone(&self.store), self.disk);
        let claims = Claims::new(file.read().await?);
        let health = match self.gates.health {
            true => {
                let file = HealthFile::new(self.store, self.disk);
                let watch = HealthWatch::start(file, claims.clone(), self.updates, self.clock);
                Some(Arc::new(watch.await))
            }
            false => None,
        };
        let plugins = DraPlugins::new(self.dialer, self.wiping_delay);
        let shared = Shared {
            claims,
            file,
            plugins: Arc::clone(&plugins.shared),
            objects: self.objects,
            gates: self.gates,
            health,
        };
        Ok(DraManager {
            shared: Arc::new(shared),
            plugins,
            jitter: self.jitter,
            reconcile_period: self.reconcile_period,
        })
    }
}
