//! The state machine as tables, and the engine under paused time.

mod engine;
mod registry;

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus as ApiPodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::annotations;
use crate::pod_syncer::{PodStatusFn, SyncPodType};
use crate::runtime::{RuntimePod, SandboxState, SandboxStatus};

fn pod(uid: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("ns".into());
    pod.metadata.name = Some(uid.into());
    pod.metadata.uid = Some(uid.into());
    pod.spec = Some(PodSpec {
        termination_grace_period_seconds: Some(30),
        ..PodSpec::default()
    });
    pod
}

fn static_pod(uid: &str, name: &str) -> Arc<Pod> {
    let mut pod = pod(uid);
    pod.metadata.name = Some(name.into());
    pod.metadata.annotations = Some(
        [(
            annotations::CONFIG_SOURCE.to_owned(),
            annotations::FILE_SOURCE.to_owned(),
        )]
        .into(),
    );
    Arc::new(pod)
}

fn deleting(uid: &str, grace: i64) -> Arc<Pod> {
    let mut pod = pod(uid);
    pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    Arc::new(pod)
}

fn with_phase(uid: &str, phase: &str) -> Arc<Pod> {
    let mut pod = pod(uid);
    pod.status = Some(ApiPodStatus {
        phase: Some(phase.into()),
        ..ApiPodStatus::default()
    });
    Arc::new(pod)
}

fn ended(state: PodWorkerState, result: Result<SyncOutcome>) -> Ended {
    Ended {
        state,
        result,
        look_again_at: None,
    }
}

/// What a syncer was asked, in order.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    Sync(SyncPodType, String),
    Terminating(String, u64),
    TerminatingRuntime(String),
    Terminated(String),
    /// A sync was dropped before it ended.
    Dropped(String),
}

use Call::*;

/// Tells each call, then waits for the test to say how it ends.
struct Script {
    calls: mpsc::UnboundedSender<(Call, oneshot::Sender<Result<SyncOutcome>>)>,
}

impl Script {
    async fn ask(&self, call: Call, name: &str) -> Result<SyncOutcome> {
        struct Guard<'a>(&'a Script, String, AtomicBool);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                if !self.2.load(Ordering::Relaxed) {
                    let _ = self.0.calls.send((Dropped(self.1.clone()), oneshot::channel().0));
                }
            }
        }
        let guard = Guard(self, name.to_owned(), AtomicBool::new(false));
        let (answer, answered) = oneshot::channel();
        self.calls.send((call, answer)).map_err(|_| Error::Cancelled)?;
        let result = answered.await.unwrap_or(Ok(SyncOutcome::default()));
        guard.2.store(true, Ordering::Relaxed);
        result
    }
}

#[async_trait]
impl PodSyncer for Script {
    async fn sync_pod(
        &self,
        update: SyncPodType,
        pod: &Arc<Pod>,
        _: Option<&Arc<Pod>>,
        _: &Arc<PodStatus>,
    ) -> Result<SyncOutcome> {
        self.ask(Sync(update, pod.uid().to_string()), pod.uid_str()).await
    }

    async fn sync_terminating_pod(
        &self,
        pod: &Arc<Pod>,
        _: &Arc<PodStatus>,
        grace: Option<Duration>,
        _: Option<&PodStatusFn>,
    ) -> Result<()> {
        let grace = grace.unwrap_or_default().as_secs();
        self.ask(Terminating(pod.uid().to_string(), grace), pod.uid_str())
            .await
            .map(drop)
    }

    async fn sync_terminating_runtime_pod(&self, running: &Arc<RuntimePod>) -> Result<()> {
        self.ask(TerminatingRuntime(running.uid.to_string()), running.uid.as_str())
            .await
            .map(drop)
    }

    async fn sync_terminated_pod(&self, pod: &Arc<Pod>, _: &Arc<PodStatus>) -> Result<()> {
        self.ask(Terminated(pod.uid().to_string()), pod.uid_str())
            .await
            .map(drop)
    }
}

/// Running workers over a cache that always has news.
struct Bench {
    workers: PodWorkersHandle,
    calls: mpsc::UnboundedReceiver<(Call, oneshot::Sender<Result<SyncOutcome>>)>,
    shutdown: CancellationToken,
    cache: PodCache,
    running: JoinHandle<()>,
    cache_writer: JoinHandle<()>,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self::before_the_first_list();
        // A relist each second, as a PLEG makes it.
        let written = bench.cache.clone();
        bench.cache_writer = tokio::spawn(async move {
            let mut period = tokio::time::interval(Duration::from_secs(1));
            loop {
                period.tick().await;
                written.update_time(Instant::now());
            }
        });
        bench
    }

    /// The test writes the cache itself.
    fn before_the_first_list() -> Self {
        let (calls, received) = mpsc::unbounded_channel();
        let cache = PodCache::new();
        let workers = PodWorkers::new(
            Arc::new(Script { calls }),
            cache.clone(),
            PodWorkersConfig::default(),
            Jitter::from_seed(1),
        );
        let shutdown = CancellationToken::new();
        let handle = workers.handle();
        let running = tokio::spawn(workers.run(shutdown.clone()));
        let cache_writer = tokio::spawn(async {});
        Self {
            cache,
            workers: handle,
            calls: received,
            shutdown,
            running,
            cache_writer,
        }
    }

    /// The runtime runs this pod.
    fn cache_runs(&self, uid: &PodUid, name: &str) {
        let now = Instant::now();
        let mut status = PodStatus::empty(uid.clone(), PodKey::new("ns", name), now);
        status.sandboxes = vec![SandboxStatus::new("sandbox", SandboxState::Ready)];
        self.cache.set(uid, Ok(Arc::new(status)), now);
    }

    async fn next(&mut self) -> (Call, oneshot::Sender<Result<SyncOutcome>>) {
        // Virtual time: an hour passes at once where nothing else is to be done.
        let next = tokio::time::timeout(Duration::from_secs(3600), self.calls.recv()).await;
        next.expect("no call within an hour").expect("the syncer is gone")
    }

    /// The next call is this one, and ends well.
    async fn expect(&mut self, call: Call) {
        let (next, answer) = self.next().await;
        assert_eq!(next, call);
        answer.send(Ok(SyncOutcome::default())).unwrap();
    }

    async fn expect_error(&mut self, call: Call, error: Error) {
        let (next, answer) = self.next().await;
        assert_eq!(next, call);
        answer.send(Err(error)).unwrap();
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.running.await.unwrap();
        self.cache_writer.abort();
    }

    fn update(&self, update: SyncPodType, pod: &Arc<Pod>) {
        self.workers.update_pod(UpdatePod::new(update, pod.clone()));
    }
}

fn uids<const N: usize>(uids: [&str; N]) -> HashSet<PodUid> {
    uids.into_iter().map(PodUid::from).collect()
}

fn runtime_pod(uid: &str) -> Arc<RuntimePod> {
    runtime_pod_named(uid, uid)
}

fn runtime_pod_named(uid: &str, name: &str) -> Arc<RuntimePod> {
    Arc::new(RuntimePod::empty(uid.into(), PodKey::new("ns", name)))
}
