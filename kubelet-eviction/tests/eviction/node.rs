//! A node in memory: its usage, its pods, and what the manager did to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::stats::Summary;
use kubelet_core::{
    Clock, Event, EventRecorder, EventType, NodeEventRecorder, PodExt, PodStatusFn, SummaryProvider,
};
use kubelet_eviction::{
    BoxError, ContainerGc, EvictionConfig, EvictionManager, EvictionParts, EvictionSettings, FileSystemInfo,
    FileSystems, ImageGc, NodePods, NodePressure, ThresholdNotifier,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 1000;

/// A pod by name, with this spec.
pub(crate) fn pod(name: &str, spec: Value) -> Arc<Pod> {
    let mut pod =
        json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": []}});
    pod["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// Settings with these hard thresholds.
pub(crate) fn hard(thresholds: &[(&str, &str)]) -> EvictionConfig {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    };
    let settings = EvictionSettings {
        hard: &map(thresholds),
        soft: &map(&[]),
        soft_grace_period: &map(&[]),
        minimum_reclaim: &map(&[]),
        enforce_node_allocatable: &[],
    };
    EvictionConfig {
        pressure_transition_period: Duration::from_secs(60),
        ..EvictionConfig::parse(settings).unwrap()
    }
}

#[derive(Debug, Default)]
struct State {
    /// MiB of each pod.
    pods: Vec<(Arc<Pod>, u64)>,
    /// MiB that no pod uses.
    others: u64,
    /// Free GiB of 100, and how much more images and dead containers hold.
    disk: u64,
    images: u64,
    dead_containers: u64,
    /// Calls fail.
    is_blind: bool,
    /// It can be measured without its pods.
    has_own_usage: bool,
    file_systems: Option<FileSystems>,
    /// When an evicted pod is cleaned up, after its eviction.
    cleanup: Duration,
    evicted: BTreeMap<String, Instant>,
}

/// A node of 1,000 MiB. Clones share it.
#[derive(Clone)]
pub(crate) struct Node {
    state: Arc<Mutex<State>>,
    /// What happened: second and text.
    history: Arc<watch::Sender<Vec<(u64, String)>>>,
    started: Instant,
    pub(crate) pressure: NodePressure,
}

impl Node {
    pub(crate) fn new() -> Self {
        let state = State {
            disk: 50,
            file_systems: Some(FileSystems::default()),
            cleanup: Duration::from_secs(2),
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            history: Arc::default(),
            started: Instant::now(),
            pressure: NodePressure::new(),
        }
    }

    pub(crate) fn with(self, pod: Arc<Pod>, mib: u64) -> Self {
        self.state.lock().pods.push((pod, mib));
        self
    }

    pub(crate) fn use_memory(&self, name: &str, mib: u64) {
        for (pod, used) in &mut self.state.lock().pods {
            if *pod.key().name == *name {
                *used = mib;
            }
        }
    }

    pub(crate) fn free_disk(&self, free: u64, images: u64, dead_containers: u64) {
        let mut state = self.state.lock();
        (state.disk, state.images, state.dead_containers) = (free, images, dead_containers);
    }

    /// Measures the node also without its pods.
    pub(crate) fn with_own_usage(self) -> Self {
        self.state.lock().has_own_usage = true;
        self
    }

    pub(crate) fn blind(&self, is_blind: bool) {
        self.state.lock().is_blind = is_blind;
    }

    pub(crate) fn file_systems(&self, file_systems: Option<FileSystems>) {
        self.state.lock().file_systems = file_systems;
    }

    pub(crate) fn cleanup(&self, cleanup: Duration) {
        self.state.lock().cleanup = cleanup;
    }

    fn log(&self, what: impl Into<String>) {
        let entry = (self.started.elapsed().as_secs(), what.into());
        self.history.send_modify(|history| history.push(entry));
    }

    pub(crate) fn history(&self) -> Vec<(u64, String)> {
        self.history.borrow().clone()
    }

    /// What happened except measurements.
    pub(crate) fn deeds(&self) -> Vec<(u64, String)> {
        let mut history = self.history();
        history.retain(|(_, what)| what != "measure");
        history
    }

    /// The seconds of the measurements.
    pub(crate) fn measured(&self) -> Vec<u64> {
        let history = self.history();
        let measured = history.iter().filter(|(_, what)| what == "measure");
        measured.map(|(second, _)| *second).collect()
    }

    fn parts(&self) -> EvictionParts {
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        EvictionParts {
            summaries: Arc::new(self.clone()),
            file_systems: Arc::new(self.clone()),
            pods: Arc::new(self.clone()),
            image_gc: Arc::new(self.clone()),
            container_gc: Arc::new(self.clone()),
            recorder: Arc::new(self.clone()),
            node_recorder: Arc::new(self.clone()),
            clock: Clock::starting_at(start),
        }
    }

    /// Runs a manager for so many seconds.
    pub(crate) async fn run_for(
        &self,
        seconds: u64,
        config: EvictionConfig,
        notifiers: Vec<Box<dyn ThresholdNotifier>>,
    ) {
        let manager = EvictionManager::new(config, self.parts(), self.pressure.clone());
        let manager = notifiers.into_iter().fold(manager, EvictionManager::notifier);
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(manager.run(shutdown.clone()));
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        shutdown.cancel();
        running.await.unwrap();
    }
}

#[async_trait]
impl SummaryProvider for Node {
    async fn get(&self, update: bool) -> Result<Summary, BoxError> {
        assert!(update);
        self.log("measure");
        self.measure()
    }

    async fn node(&self, update: bool) -> Result<Summary, BoxError> {
        if !self.state.lock().has_own_usage {
            return self.get(update).await;
        }
        assert!(update);
        self.log("measure the node");
        Ok(Summary {
            pods: None,
            ..self.measure()?
        })
    }
}

impl Node {
    fn measure(&self) -> Result<Summary, BoxError> {
        let state = self.state.lock();
        if state.is_blind {
            return Err("nothing can be measured".into());
        }
        let used: u64 = state.others + state.pods.iter().map(|(_, used)| used).sum::<u64>();
        let memory = |used: u64| {
            json!({"availableBytes": CAPACITY.saturating_sub(used) * MIB, "usageBytes": used * MIB,
                "workingSetBytes": used * MIB})
        };
        let pods = state.pods.iter().map(|(pod, used)| {
            json!({"podRef": {"uid": pod.uid_str()}, "memory": memory(*used),
                "ephemeral-storage": {"usedBytes": used * MIB}})
        });
        let fs = json!({"availableBytes": state.disk << 30, "capacityBytes": 100_u64 << 30});
        let summary = json!({
            "node": {"memory": memory(used), "fs": fs, "runtime": {"imageFs": fs, "containerFs": fs}},
            "pods": pods.collect::<Vec<_>>(),
        });
        Ok(serde_json::from_value(summary).unwrap())
    }
}

#[async_trait]
impl FileSystemInfo for Node {
    async fn file_systems(&self) -> Result<FileSystems, BoxError> {
        self.state
            .lock()
            .file_systems
            .ok_or_else(|| "not known yet".into())
    }
}

#[async_trait]
impl NodePods for Node {
    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.state
            .lock()
            .pods
            .iter()
            .map(|(pod, _)| pod.clone())
            .collect()
    }

    async fn evict(&self, pod: &Arc<Pod>, grace: Duration, status_fn: PodStatusFn) -> Result<(), BoxError> {
        let mut status = PodStatus::default();
        status_fn(&mut status);
        assert_eq!(status.reason.as_deref(), Some("Evicted"));
        tokio::time::sleep(grace).await;
        self.log(format!("evict {} in {} s", pod.key().name, grace.as_secs()));
        let mut state = self.state.lock();
        state.pods.retain(|(other, _)| other.uid() != pod.uid());
        state.evicted.insert(pod.uid_str().to_owned(), Instant::now());
        Ok(())
    }

    fn is_cleaned_up(&self, pod: &Pod) -> bool {
        let state = self.state.lock();
        state.evicted[pod.uid_str()].elapsed() >= state.cleanup
    }
}

#[async_trait]
impl ImageGc for Node {
    async fn delete_unused_images(&self) -> Result<(), BoxError> {
        self.log("delete images");
        let mut state = self.state.lock();
        state.disk += std::mem::take(&mut state.images);
        Ok(())
    }
}

#[async_trait]
impl ContainerGc for Node {
    async fn delete_all_unused_containers(&self) -> Result<(), BoxError> {
        self.log("delete containers");
        let mut state = self.state.lock();
        state.disk += std::mem::take(&mut state.dead_containers);
        Err("one could not be deleted".into())
    }
}

impl EventRecorder for Node {
    fn record(&self, event: Event<'_>) {
        self.record_annotated(event, BTreeMap::new());
    }

    fn record_annotated(&self, event: Event<'_>, annotations: BTreeMap<String, String>) {
        let starved = annotations.get("starved_resource").map_or("", String::as_str);
        self.log(format!("{} {} {starved}", event.reason, event.pod.key().name));
    }
}

impl NodeEventRecorder for Node {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        self.log(format!("{} {reason} {message}", event_type.as_str()));
    }
}
