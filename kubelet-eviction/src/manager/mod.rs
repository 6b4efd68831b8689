//! The manager: decides every ten seconds and whenever the kernel notifies, and does what was decided.

mod notifiers;
mod parts;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::stats::Summary;
use kubelet_core::{Clock, Event, EventRecorder, EventType, NodeEventRecorder, PodExt, SummaryProvider};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use self::notifiers::Notifiers;
pub use self::parts::{ContainerGc, FileSystemInfo, ImageGc, KubeletPods, NodePods};
use crate::config::{EvictionConfig, FileSystems};
use crate::decision::{Decision, Starvation, decide, is_relieved};
use crate::eviction::{Eviction, REASON};
use crate::local_storage::has_limits;
use crate::notifier::ThresholdNotifier;
use crate::pressure::NodePressure;
use crate::reclaim::Reclaim;
use crate::state::EvictionState;

/// How often the manager decides (`evictionMonitoringPeriod`).
const MONITORING_PERIOD: Duration = Duration::from_secs(10);
/// How long it waits until an evicted pod is cleaned up (`podCleanupTimeout`).
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it checks that (`podCleanupPollFreq`).
const CLEANUP_POLL: Duration = Duration::from_secs(1);
/// The shortest time between two decisions that the kernel asks for: under steady pressure it notifies all the time.
const SETTLE: Duration = Duration::from_millis(100);

/// What the manager works with.
#[derive(Clone)]
pub struct EvictionParts {
    /// Measures the usage.
    pub summaries: Arc<dyn SummaryProvider>,
    /// Knows the file systems.
    pub file_systems: Arc<dyn FileSystemInfo>,
    /// The pods, and how they end.
    pub pods: Arc<dyn NodePods>,
    /// Deletes images.
    pub image_gc: Arc<dyn ImageGc>,
    /// Deletes containers.
    pub container_gc: Arc<dyn ContainerGc>,
    /// Records events about pods.
    pub recorder: Arc<dyn EventRecorder>,
    /// Records events about the node.
    pub node_recorder: Arc<dyn NodeEventRecorder>,
    /// The time of conditions.
    pub clock: Clock,
}

/// Evicts pods when the node runs out of memory, disk or process ids (`eviction.managerImpl`).
///
/// It [decides](decide) every ten seconds, and at once when a [`ThresholdNotifier`] notifies. After an eviction it waits until
/// the pod is cleaned up, for at most 30 s, then it decides again. It evicts one pod at a time, but all that exceed limits of
/// their own.
pub struct EvictionManager {
    config: EvictionConfig,
    parts: EvictionParts,
    pressure: NodePressure,
    notifiers: Notifiers,
    state: EvictionState,
    file_systems: Option<FileSystems>,
}

impl EvictionManager {
    /// A manager that reports to `pressure`.
    pub fn new(config: EvictionConfig, parts: EvictionParts, pressure: NodePressure) -> Self {
        Self {
            config,
            parts,
            pressure,
            notifiers: Notifiers::default(),
            state: EvictionState::default(),
            file_systems: None,
        }
    }

    /// Decides also when this notifies (`kernelMemcgNotification`). See
    /// [`memory_notifiers`](crate::notifier::memory_notifiers).
    #[must_use]
    pub fn notifier(mut self, notifier: Box<dyn ThresholdNotifier>) -> Self {
        self.notifiers.add(notifier);
        self
    }

    /// Runs until `shutdown`. Without thresholds and limits to enforce, it does nothing. Spawns no task.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; a pod whose eviction has begun continues to end.
    pub async fn run(mut self, shutdown: CancellationToken) {
        tracing::info!("Eviction manager: starting control loop");
        shutdown.run_until_cancelled_owned(self.work()).await;
    }

    async fn work(&mut self) {
        if self.config.is_off() {
            return std::future::pending().await;
        }
        loop {
            let evicted = self.synchronize().await;
            let decided = Instant::now();
            match evicted.is_empty() {
                true => self.notified_until(decided + MONITORING_PERIOD).await,
                false => self.wait_for_cleanup(&evicted).await,
            }
            // Without a notification this time has passed.
            sleep_until(decided + SETTLE).await;
        }
    }

    /// Waits for a notification, at most until `deadline`.
    async fn notified_until(&mut self, deadline: Instant) {
        if let Ok(description) = timeout_at(deadline, self.notifiers.crossed()).await {
            tracing::info!("eviction manager: {description} crossed");
        }
    }

    /// `waitForPodsCleanup`. Notifications do not end the wait: they may be older than the eviction, and the clean-up may free
    /// what is short.
    async fn wait_for_cleanup(&self, evicted: &[Arc<Pod>]) {
        let pods: Vec<String> = evicted.iter().map(|pod| pod.key().to_string()).collect();
        tracing::info!(
            ?pods,
            "Eviction manager: pods evicted, waiting for pod to be cleaned up"
        );
        let deadline = Instant::now() + CLEANUP_TIMEOUT;
        let cleaned_up = async {
            loop {
                sleep_until(Instant::now() + CLEANUP_POLL).await;
                if evicted.iter().all(|pod| self.parts.pods.is_cleaned_up(pod)) {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = cleaned_up => tracing::info!(?pods, "Eviction manager: pods successfully cleaned up"),
            () = sleep_until(deadline) => {
                tracing::info!(?pods, "Eviction manager: timed out waiting for pods to be cleaned up");
            }
        }
    }

    /// Decides, and does what was decided. Returns the pods that were evicted (`synchronize`).
    async fn synchronize(&mut self) -> Vec<Arc<Pod>> {
        let Some(file_systems) = self.file_systems().await else {
            return Vec::new();
        };
        let pods = self.parts.pods.active_pods();
        let failure = "Eviction manager: failed to get summary stats";
        // Pods are measured only if they have limits, or if one of them may have to be evicted.
        let all = self.config.local_storage_capacity_isolation && has_limits(&pods);
        let Some(mut summary) = self.summary(all, failure).await else {
            return Vec::new();
        };
        self.notifiers.update(&summary).await;
        let now = Instant::now();
        let mut decided = decide(&self.config, file_systems, &self.state, &summary, &pods, now);
        if decided.0.starved.is_some() && summary.pods.is_none() {
            summary = match self.summary(true, failure).await {
                Some(summary) => summary,
                None => return Vec::new(),
            };
            decided = decide(&self.config, file_systems, &self.state, &summary, &pods, now);
        }
        let (decision, state) = decided;
        self.state = state;
        let Decision {
            conditions,
            over_limit,
            starved,
        } = decision;
        self.pressure.set(conditions);
        let mut evicted = Vec::new();
        for eviction in over_limit {
            self.evict(&eviction).await;
            evicted.push(eviction.pod);
        }
        if let Some(starved) = starved {
            evicted.extend(self.relieve(starved, file_systems).await);
        }
        evicted
    }

    async fn file_systems(&mut self) -> Option<FileSystems> {
        if self.file_systems.is_none() {
            match self.parts.file_systems.file_systems().await {
                Ok(file_systems) => self.file_systems = Some(file_systems),
                Err(error) => {
                    tracing::error!(%error, "Eviction manager: failed to get the file systems of the node");
                }
            }
        }
        self.file_systems
    }

    /// With `all`, pods are measured, too.
    async fn summary(&self, all: bool, failure: &str) -> Option<Summary> {
        let summary = match all {
            true => self.parts.summaries.get(true).await,
            false => self.parts.summaries.node(true).await,
        };
        summary
            .inspect_err(|error| tracing::error!(%error, "{failure}"))
            .ok()
    }

    /// Frees what belongs to no pod; if that is not enough, evicts a pod.
    async fn relieve(&self, starved: Starvation, file_systems: FileSystems) -> Option<Arc<Pod>> {
        let resource = starved.resource.as_str();
        tracing::info!(resource, "Eviction manager: attempting to reclaim");
        let message = starved.event_message();
        self.parts
            .node_recorder
            .record_node(EventType::Warning, "EvictionThresholdMet", message);
        if self.reclaim(&starved, file_systems).await {
            tracing::info!(
                resource,
                "Eviction manager: able to reduce resource pressure without evicting pods."
            );
            return None;
        }
        tracing::info!(resource, "Eviction manager: must evict pod(s) to reclaim");
        if !starved.has_pods {
            tracing::error!(
                "Eviction manager: eviction thresholds have been met, but no pods are active to evict"
            );
            return None;
        }
        self.record_ages(&starved);
        let Some(eviction) = starved.eviction else {
            tracing::info!("Eviction manager: unable to evict any pods from the node");
            return None;
        };
        self.evict(&eviction).await;
        Some(eviction.pod)
    }

    /// Whether freeing images and containers was enough (`reclaimNodeLevelResources`).
    async fn reclaim(&self, starved: &Starvation, file_systems: FileSystems) -> bool {
        for reclaim in starved.reclaim {
            let freed = match reclaim {
                Reclaim::DeadContainers => self.parts.container_gc.delete_all_unused_containers().await,
                Reclaim::UnusedImages => self.parts.image_gc.delete_unused_images().await,
            };
            if let Err(error) = freed {
                let resource = starved.resource.as_str();
                tracing::info!(
                    resource, %error,
                    "Eviction manager: unexpected error when attempting to reduce resource pressure"
                );
            }
        }
        if starved.reclaim.is_empty() {
            return false;
        }
        let failure = "Eviction manager: failed to get summary stats after resource reclaim";
        let summary = self.summary(false, failure).await;
        summary.is_some_and(|summary| is_relieved(&self.config, file_systems, &summary))
    }

    /// How old the measurements are by which a pod is evicted.
    fn record_ages(&self, starved: &Starvation) {
        let now = self.parts.clock.now();
        for (signal, measured) in &starved.met {
            let Some(measured) = measured else { continue };
            let age = now.duration_since(*measured).as_secs_f64();
            let signal = signal.as_str();
            metrics::histogram!("kubelet_eviction_stats_age_seconds", "eviction_signal" => signal)
                .record(age);
        }
    }

    /// `evictPod`
    async fn evict(&self, eviction: &Eviction) {
        let pod = &eviction.pod;
        let event = Event::about(pod, EventType::Warning, REASON, eviction.message.clone());
        self.parts
            .recorder
            .record_annotated(event, eviction.annotations.clone());
        let status_fn = eviction.status_fn(self.parts.clock.api_now());
        let ended = self.parts.pods.evict(pod, eviction.grace_period, status_fn).await;
        let (key, uid) = (pod.key(), pod.uid_str());
        match ended {
            Ok(()) => tracing::info!(pod = %key, uid, "Eviction manager: pod is evicted successfully"),
            Err(error) => tracing::error!(pod = %key, uid, %error, "Eviction manager: pod failed to evict"),
        }
        let signal = eviction.counted_for;
        metrics::counter!("kubelet_evictions", "eviction_signal" => signal).increment(1);
    }
}

kubelet_core::impl_debug!(EvictionManager: config, pressure);

kubelet_core::impl_debug!(EvictionParts);
