//! The eviction manager and the shutdown manager of a simulated agent, with checks of what they do.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{Clock, KubeletBuilder, KubeletHandle, PodExt, PodStatusFn};
use kubelet_eviction::{
    BoxError, ContainerGc, EvictionConfig, EvictionManager, EvictionParts, EvictionSettings, FileSystems,
    ImageGc, KubeletPods, NodePods, NodePressure,
};
use kubelet_node::shutdown::{self, NodeShutdown, ShutdownGracePeriods, ShutdownManager, ShutdownParts};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::checks::watch_conditions;
use super::host::SimulatedHost;
use crate::simulation::agent::{AgentError, HistoryRecorder};

/// `evictionPressureTransitionPeriod`
const TRANSITION: Duration = Duration::from_secs(300);
/// `evictionMaxPodGracePeriod`
const MAX_POD_GRACE_PERIOD: Duration = Duration::from_secs(20);
const HARD: [(&str, &str); 5] = [
    ("memory.available", "200Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "12%"),
    ("pid.available", "5%"),
];
const SOFT: [(&str, &str); 2] = [("memory.available", "1Gi"), ("nodefs.available", "15%")];
const SOFT_GRACE_PERIOD: [(&str, &str); 2] = [("memory.available", "30s"), ("nodefs.available", "1m")];
const MINIMUM_RECLAIM: [(&str, &str); 1] = [("nodefs.available", "1Gi")];

/// `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods`.
pub(super) const SHUTDOWN: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// The managers before there is a kubelet.
pub(crate) struct Managers {
    host: SimulatedHost,
    config: EvictionConfig,
    pressure: NodePressure,
    shutdown: NodeShutdown,
}

impl Managers {
    pub(crate) fn new(host: SimulatedHost) -> Result<Self, AgentError> {
        let settings = |settings: &[(&str, &str)]| -> BTreeMap<String, String> {
            let settings = settings.iter();
            settings
                .map(|(signal, value)| ((*signal).to_owned(), (*value).to_owned()))
                .collect()
        };
        let mut config = EvictionConfig::parse(EvictionSettings {
            hard: &settings(&HARD),
            soft: &settings(&SOFT),
            soft_grace_period: &settings(&SOFT_GRACE_PERIOD),
            minimum_reclaim: &settings(&MINIMUM_RECLAIM),
            enforce_node_allocatable: &["pods".to_owned()],
        })?;
        config.pressure_transition_period = TRANSITION;
        config.max_pod_grace_period = MAX_POD_GRACE_PERIOD;
        config.local_storage_capacity_isolation = true;
        Ok(Self {
            host,
            config,
            pressure: NodePressure::new(),
            shutdown: NodeShutdown::new(),
        })
    }

    /// They reject pods.
    pub(crate) fn admission(&self, kubelet: KubeletBuilder) -> KubeletBuilder {
        let kubelet = kubelet.admission(Arc::new(self.pressure.clone()));
        kubelet.admission(Arc::new(self.shutdown.clone()))
    }

    /// The running managers of this kubelet.
    pub(crate) async fn run(
        self,
        kubelet: KubeletHandle,
        recorder: Arc<HistoryRecorder>,
        clock: Clock,
        root_dir: &Path,
        ends: CancellationToken,
    ) {
        let Self {
            host,
            config,
            pressure,
            shutdown,
        } = self;
        let garbage = Arc::new(host.clone());
        let pods = Watched {
            pods: KubeletPods::new(kubelet.clone(), recorder.clone()),
            host: host.clone(),
            considered: Mutex::default(),
            recorder: recorder.clone(),
        };
        let parts = EvictionParts {
            summaries: garbage.clone(),
            file_systems: Arc::new(FileSystems::default()),
            pods: Arc::new(pods),
            image_gc: garbage.clone(),
            container_gc: garbage,
            recorder: recorder.clone(),
            node_recorder: recorder.clone(),
            clock,
        };
        let eviction = EvictionManager::new(config, parts, pressure.clone());
        let parts = ShutdownParts::new(
            Arc::new(shutdown::KubeletPods::new(kubelet, recorder.clone())),
            recorder.clone(),
        );
        let parts = parts.state_folder(root_dir).clock(clock);
        let periods = ShutdownGracePeriods::new(SHUTDOWN.0, SHUTDOWN.1);
        let shutdown = ShutdownManager::new(periods, parts, shutdown);
        let note = |what: String| recorder.note(what);
        let watch = watch_conditions(pressure, TRANSITION, host.clone(), note);
        tokio::join!(
            eviction.run(ends.clone()),
            shutdown.run(host.trigger.clone(), ends.clone()),
            ends.run_until_cancelled(watch),
        );
    }
}

/// The pods of the kubelet. It checks each eviction.
struct Watched {
    pods: KubeletPods,
    host: SimulatedHost,
    /// The pods of the last decision.
    considered: Mutex<Vec<Arc<Pod>>>,
    recorder: Arc<HistoryRecorder>,
}

#[async_trait]
impl NodePods for Watched {
    fn active_pods(&self) -> Vec<Arc<Pod>> {
        let pods = self.pods.active_pods();
        self.considered.lock().clone_from(&pods);
        pods
    }

    async fn evict(
        &self,
        pod: &Arc<Pod>,
        grace_period: Duration,
        status_fn: PodStatusFn,
    ) -> Result<(), BoxError> {
        self.recorder
            .note(format!("evicts {} with {grace_period:?}", pod.key()));
        let mut wrong = self.host.evicts(pod, &self.considered.lock());
        if super::is_spared(pod) {
            wrong.push("is evicted, and is critical".to_owned());
        }
        for wrong in wrong {
            self.host.wrong(format!("pod {} {wrong}", pod.key()));
        }
        self.pods.evict(pod, grace_period, status_fn).await
    }

    fn is_cleaned_up(&self, pod: &Pod) -> bool {
        self.pods.is_cleaned_up(pod)
    }
}

#[async_trait]
impl ImageGc for SimulatedHost {
    async fn delete_unused_images(&self) -> Result<(), BoxError> {
        self.reclaim();
        Ok(())
    }
}

#[async_trait]
impl ContainerGc for SimulatedHost {
    async fn delete_all_unused_containers(&self) -> Result<(), BoxError> {
        self.reclaim();
        Ok(())
    }
}
