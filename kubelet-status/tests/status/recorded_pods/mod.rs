//! Lives of pods as kubelet v1.36.2 was recorded to tell of them: what its runtime answered goes through the status function
//! and the manager, and gives the sink the statuses that the API server was seen to show, in their order.
//!
//! What a node knows beside its runtime is taken from the recording, too: how starts failed and how long they are backed off
//! (from when it was told), what probes found, that a pod's time was over, why one was not taken. Two of the pods never came
//! to the node, and nothing is told of them.
mod compare;
mod steps;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use compare::{bare, difference, fold};
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_core::runtime::{PodStatus, SyncFailure};
use kubelet_core::{
    Clock, ContainerId, Eviction, PodExt, PodStatusInput, PodStatusReporter, ProbeResult, ProbeResults,
    Result, StatusSink, qos_class,
};
use kubelet_status::{StatusManager, StatusManagerConfig, StatusManagerHandle};
use parking_lot::Mutex;
use serde_json::{Value, json};
use steps::{Step, list, steps};
use tokio_util::sync::CancellationToken;

#[tokio::test(start_paused = true)]
async fn every_recorded_life_is_told_the_same() {
    let mut text = String::new();
    GzDecoder::new(&include_bytes!("../../data/pods.jsonl.gz")[..])
        .read_to_string(&mut text)
        .unwrap();
    let (mut lives, mut elsewhere, mut statuses, mut failures) = (0, Vec::new(), 0, Vec::new());
    for line in text.lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        lives += 1;
        if recorded["object"]["spec"]["nodeName"].is_null() {
            elsewhere.push(recorded["name"].as_str().unwrap().to_owned());
            assert_eq!(
                (list(&recorded["steps"]).len(), of_node(&recorded).count()),
                (0, 0)
            );
            continue;
        }
        let expected = fold(of_node(&recorded).map(bare));
        let told = replay(&recorded).await;
        let told = fold(told.iter().map(|status| bare(&json!(status))));
        if let Some(difference) = difference(&told, &expected) {
            failures.push(format!("{}: {difference}", recorded["name"]));
        }
        statuses += expected.len();
    }
    assert!(
        failures.is_empty(),
        "{} of {lives} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert_eq!((lives, statuses), (74, 387));
    // Unschedulable: the one wants a node that is not there, the other more room than there is.
    assert_eq!(elsewhere, ["ephemeral-storage", "node-selector-mismatch"]);
}

/// What the node told. Before it saw the pod, others did.
fn of_node(recorded: &Value) -> impl Iterator<Item = &Value> {
    let history = list(&recorded["history"]).iter().map(|entry| &entry["status"]);
    history.filter(|status| status["startTime"].is_string())
}

/// The statuses that the sink was told, one after the other.
async fn replay(recorded: &Value) -> Vec<ApiPodStatus> {
    let mut life = Life::new(recorded);
    let mut killed = false;
    let steps = steps(list(&recorded["steps"]));
    if let [Step::Rejected(reason, message)] = &steps[..] {
        life.reject(reason, message).await;
        return life.told.0.lock().clone();
    }
    life.report(false).await;
    for step in steps {
        match step {
            Step::Killed if !killed => {
                life.report(false).await;
                killed = true;
            }
            Step::Deleted => {
                life.delete();
                life.report(false).await;
            }
            Step::Killed | Step::Rejected(..) => {}
            Step::Found {
                sandboxes,
                containers,
            } => {
                let ips = std::mem::take(&mut life.runtime.ips);
                life.runtime.ips = sandboxes.iter().flat_map(|sandbox| sandbox.ips.clone()).collect();
                // What a stopped sandbox has no more is shown as it was.
                if killed || life.runtime.ips.is_empty() {
                    life.runtime.ips = ips;
                }
                (life.runtime.sandboxes, life.runtime.containers) = (sandboxes, containers);
                life.report(killed).await;
            }
            Step::Failed(container, failure) => {
                life.start_failures.insert(container, failure);
                life.report(killed).await;
            }
            Step::Started(container) => {
                life.start_failures.remove(&container);
            }
            Step::Startup(id, success) => {
                life.probes.startup.insert(id.clone(), result(success));
                life.handle.set_container_startup(&life.pod.uid(), &id, success);
                life.report(killed).await;
            }
            Step::Readiness(id, success) => {
                life.probes.readiness.insert(id.clone(), result(success));
                life.handle.set_container_readiness(&life.pod.uid(), &id, success);
                life.settle().await;
            }
            Step::Evicted(reason, message) => life.eviction = Some(Eviction { reason, message }),
        }
    }
    if killed || life.pod.is_deleting() {
        life.report(true).await;
        life.handle.terminate_pod(&life.pod);
        life.settle().await;
    }
    life.told.0.lock().clone()
}

fn result(success: bool) -> ProbeResult {
    match success {
        true => ProbeResult::Success,
        false => ProbeResult::Failure,
    }
}

/// A pod on a node whose manager tells a sink.
struct Life {
    pod: Arc<Pod>,
    runtime: PodStatus,
    start_failures: BTreeMap<String, SyncFailure>,
    probes: Probed,
    eviction: Option<Eviction>,
    handle: StatusManagerHandle,
    told: Told,
}

impl Life {
    fn new(recorded: &Value) -> Self {
        let mut pod: Pod = serde_json::from_value(recorded["object"].clone()).unwrap();
        pod.status = Some(ApiPodStatus {
            phase: Some("Pending".to_owned()),
            ..ApiPodStatus::default()
        });
        pod.metadata.deletion_timestamp = None;
        let mut config = StatusManagerConfig::default();
        config.node.host_ips = vec!["10.99.0.1".parse().unwrap()];
        config.clock = Clock::starting_at("2026-11-21T06:00:00Z".parse().unwrap());
        let told = Told::default();
        let manager = StatusManager::with_config(told.clone(), config);
        let handle = manager.handle();
        tokio::spawn(manager.run(CancellationToken::new()));
        Self {
            runtime: PodStatus::empty(pod.uid(), pod.key(), tokio::time::Instant::now()),
            pod: Arc::new(pod),
            start_failures: BTreeMap::new(),
            probes: Probed::default(),
            eviction: None,
            handle,
            told,
        }
    }

    async fn report(&self, terminal: bool) {
        let is_new = self.runtime.containers.is_empty() && self.runtime.sandboxes.len() == 1;
        if is_new && self.start_failures.is_empty() && !terminal {
            // What is asked of a new sandbox is asked for the containers that come next.
            self.handle.on_pod_sandbox_ready(&self.pod);
        } else {
            let mut input = PodStatusInput::new(&self.pod, &self.runtime);
            input.terminal = terminal;
            input.start_failures = Some(&self.start_failures);
            input.probes = &self.probes;
            input.eviction = self.eviction.as_ref();
            self.handle
                .set_pod_status(&self.pod, self.handle.generate(&input));
        }
        self.settle().await;
    }

    /// As the worker of a pod that is not admitted does.
    async fn reject(&self, reason: &str, message: &str) {
        let status = ApiPodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            qos_class: Some(qos_class(&self.pod).as_str().to_owned()),
            ..ApiPodStatus::default()
        };
        self.handle.set_pod_status(&self.pod, status);
        self.settle().await;
    }

    fn delete(&mut self) {
        let pod = Arc::make_mut(&mut self.pod);
        pod.metadata.generation = pod.metadata.generation.map(|generation| generation + 1);
        pod.metadata.deletion_timestamp = Some(Time("2026-11-21T06:30:00Z".parse().unwrap()));
    }

    /// Virtual time moves once nobody has anything left to do.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What the sink was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<ApiPodStatus>>>);

#[async_trait]
impl StatusSink for Told {
    async fn patch_status(
        &self,
        _: &Arc<Pod>,
        _: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        self.0.lock().push(new.clone());
        Ok(None)
    }
}

#[derive(Default)]
struct Probed {
    startup: HashMap<ContainerId, ProbeResult>,
    readiness: HashMap<ContainerId, ProbeResult>,
}

impl ProbeResults for Probed {
    fn liveness(&self, _: &ContainerId) -> Option<ProbeResult> {
        None
    }
    fn readiness(&self, container: &ContainerId) -> Option<ProbeResult> {
        self.readiness.get(container).copied()
    }
    fn startup(&self, container: &ContainerId) -> Option<ProbeResult> {
        self.startup.get(container).copied()
    }
}
