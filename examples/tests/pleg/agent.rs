//! The whole agent on a containerd with events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubelet_config::{PodConfig, StreamSource};
use kubelet_core::{
    Kubelet, PodCache, PodExt, PodLifecycleEventGenerator, PodUid, RuntimeReader, annotations,
};
use kubelet_pleg::{EventedPleg, GenericPleg};
use kubelet_status::{MemorySink, StatusManager};
use kubelet_testing::{Containerd, wait_until};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::observed::Observed;
use super::stage::{Stage, sleeping_pod};
use super::{show, within};

/// One after the other, each from its manifest to its end.
const PODS: usize = 5;

/// A running agent.
struct Agent {
    observed: Arc<Observed>,
    pods: watch::Sender<Vec<Arc<Pod>>>,
    sink: MemorySink,
    shutdown: CancellationToken,
    running: JoinHandle<kubelet_core::Result<()>>,
    stage: Stage,
}

impl Agent {
    async fn start<P>(endpoint: String, pleg: impl FnOnce(Arc<Observed>, PodCache) -> P) -> Self
    where
        P: PodLifecycleEventGenerator,
    {
        let stage = Stage::on(endpoint).await;
        let (observed, cache) = (Observed::new(stage.runtime.clone()), PodCache::new());
        let (pods, sink) = (watch::Sender::new(Vec::new()), MemorySink::new());
        let desired = unfold((pods.subscribe(), true), |(mut pods, first)| async move {
            if !first {
                pods.changed().await.ok()?;
            }
            let now: Vec<Arc<Pod>> = pods.borrow_and_update().clone();
            Some((now, (pods, false)))
        });
        let kubelet = Kubelet::builder()
            .pods(
                PodConfig::builder()
                    .source(StreamSource::new(annotations::API_SOURCE, desired))
                    .build()
                    .unwrap(),
            )
            .runtime(stage.runtime.clone())
            .pleg(pleg(observed.clone(), cache.clone()), cache)
            .statuses(StatusManager::new(sink.clone()))
            .root_dir(stage.root_dir())
            .build()
            .unwrap();
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(kubelet.run(shutdown.clone()));
        Self { observed, pods, sink, shutdown, running, stage }
    }

    /// Runs a pod and deletes it; returns how long it took to start and to be deleted.
    async fn live(&self, pod: &Arc<Pod>) -> (Duration, Duration) {
        let uid = pod.uid();
        let created = Instant::now();
        self.pods.send_replace(vec![pod.clone()]);
        let runs = wait_until(self.sink.watch(), "the pod runs", |pods| {
            pods.get(&uid).is_some_and(|pod| pod.status.phase.as_deref() == Some("Running"))
        });
        within("the pod runs", runs).await.unwrap();
        let ran = created.elapsed();
        let made = self.made(&uid).await;
        assert_eq!(made.len(), 1 + 2, "a sandbox and two containers, each made once");

        // As an API server asks for it; and it is deleted there once nothing of it runs.
        let mut ending = Pod::clone(pod);
        ending.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
        ending.metadata.deletion_grace_period_seconds = Some(1);
        let deleted = Instant::now();
        self.pods.send_replace(vec![Arc::new(ending)]);
        let gone = wait_until(self.sink.watch(), "the pod is gone", |pods| !pods.contains_key(&uid));
        within("the pod is gone", gone).await.unwrap();
        let went = deleted.elapsed();
        self.pods.send_replace(Vec::new());
        assert!(self.made(&uid).await.is_subset(&made), "nothing was made anew");
        (ran, went)
    }

    /// The sandboxes and containers of a pod, including ended ones. It lists them, because with a second watcher of
    /// containerd's events, containerd 1.7 sent fewer events to the agent.
    async fn made(&self, pod: &PodUid) -> BTreeSet<String> {
        let Some(pod) = self.stage.runtime.pod(pod).await.unwrap() else { return BTreeSet::new() };
        let sandboxes = pod.sandboxes.iter().map(|it| it.id.to_string());
        sandboxes.chain(pod.containers.iter().map(|it| it.id.to_string())).collect()
    }

    async fn stop(self) {
        self.shutdown.cancel();
        within("the end of the agent", self.running).await.unwrap().unwrap();
    }
}

/// The two PLEGs with their defaults, one after the other.
#[tokio::test]
async fn each_container_is_started_once_with_either() {
    let Some(containerd) = Containerd::start_2().await.unwrap() else { return };
    for (name, is_evented) in [("generic PLEG", false), ("evented PLEG", true)] {
        let agent = if is_evented {
            Agent::start(containerd.endpoint(), |runtime, cache| EventedPleg::new(runtime, cache)).await
        } else {
            Agent::start(containerd.endpoint(), |runtime, cache| GenericPleg::new(runtime, cache)).await
        };
        let mut took = Vec::new();
        for number in 0..PODS {
            took.push(agent.live(&sleeping_pod(&format!("{}-{number}", &name[..7]), 2)).await);
        }
        show_both(name, took);
        let lists = agent.observed.lists().len();
        println!("{name}, lists of the whole runtime meanwhile: {lists}");
        agent.stop().await;
    }
}

fn show_both(pleg: &str, took: Vec<(Duration, Duration)>) {
    let (ran, gone): (Vec<_>, Vec<_>) = took.into_iter().unzip();
    show(&format!("{pleg}, a pod of two containers created to Running"), ran);
    show(&format!("{pleg}, deleted to gone"), gone);
}
