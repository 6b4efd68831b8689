//! The state machine as tables, and the engine under paused time.

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
        // A relist each second, as a PLEG makes it.
        let written = cache.clone();
        let cache_writer = tokio::spawn(async move {
            let mut period = tokio::time::interval(Duration::from_secs(1));
            loop {
                period.tick().await;
                written.update_time(Instant::now());
            }
        });
        Self {
            cache,
            workers: handle,
            calls: received,
            shutdown,
            running,
            cache_writer,
        }
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
    Arc::new(RuntimePod::empty(uid.into(), PodKey::new("ns", uid)))
}

#[tokio::test(start_paused = true)]
async fn a_pod_lives_and_is_deleted() {
    let mut bench = Bench::new();
    let uid = PodUid::from("a");
    assert!(
        bench.workers.could_have_running_containers(&uid),
        "before the first sync of known pods all may"
    );
    bench.update(SyncPodType::Create, &Arc::new(pod("a")));
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    // Nothing happens: it is looked at again after its resync interval, with up to half of it as jitter.
    let synced = Instant::now();
    bench.expect(Sync(SyncPodType::Sync, "a".into())).await;
    assert!(
        (60..=91).contains(&synced.elapsed().as_secs()),
        "{:?}",
        synced.elapsed()
    );

    bench.update(SyncPodType::Update, &deleting("a", 5));
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 5));
    assert!(bench.workers.is_pod_termination_requested(&uid));
    assert!(bench.workers.should_pod_containers_be_terminating(&uid));
    assert!(!bench.workers.is_pod_known_terminated(&uid));
    answer.send(Ok(SyncOutcome::default())).unwrap();
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminated("a".into()));
    assert!(bench.workers.is_pod_known_terminated(&uid));
    assert!(
        bench.workers.should_pod_content_be_removed(&uid),
        "deleted and terminated"
    );
    assert!(!bench.workers.should_pod_be_finished(&uid));
    answer.send(Ok(SyncOutcome::default())).unwrap();

    // What is finished is not begun again, however often it is asked for, until it was forgotten.
    bench.update(SyncPodType::Sync, &Arc::new(pod("b")));
    bench.expect(Sync(SyncPodType::Sync, "b".into())).await;
    bench.update(SyncPodType::Update, &Arc::new(pod("a")));
    assert!(bench.workers.should_pod_be_finished(&uid));
    assert!(
        bench
            .workers
            .sync_known_pods(&uids(["a", "b"]))
            .contains_key(&uid)
    );
    assert!(!bench.workers.sync_known_pods(&uids(["b"])).contains_key(&uid));
    assert!(
        bench.workers.should_pod_content_be_removed(&uid)
            && bench.workers.should_pod_runtime_be_removed(&uid)
    );
    assert!(!bench.workers.could_have_running_containers(&uid));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_pod_is_among_those_that_end_until_it_has_ended() {
    let mut bench = Bench::new();
    let removed = Arc::new(pod("a"));
    let terminating = |bench: &Bench| {
        let pods = bench.workers.terminating_pods();
        pods.iter().map(|pod| pod.uid().to_string()).collect::<Vec<_>>()
    };
    bench.update(SyncPodType::Create, &removed);
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    assert_eq!(terminating(&bench), [""; 0]);
    bench
        .workers
        .update_pod(UpdatePod::kill(removed, KillPod::default()));
    assert_eq!(terminating(&bench), ["a"]);
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 30));
    assert_eq!(terminating(&bench), ["a"]);
    answer.send(Ok(SyncOutcome::default())).unwrap();
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminated("a".into()));
    assert_eq!(terminating(&bench), [""; 0]);
    answer.send(Ok(SyncOutcome::default())).unwrap();
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_asks_for_the_next_gets_it_at_once() {
    let mut bench = Bench::new();
    bench.update(SyncPodType::Create, &Arc::new(pod("a")));
    let (call, answer) = bench.next().await;
    assert_eq!(call, Sync(SyncPodType::Create, "a".into()));
    let asked = Instant::now();
    let again = SyncOutcome {
        again: true,
        ..SyncOutcome::default()
    };
    answer.send(Ok(again)).unwrap();
    bench.expect(Sync(SyncPodType::Sync, "a".into())).await;
    // With the next list, and not with the next resync.
    assert!(asked.elapsed() <= Duration::from_secs(2), "{:?}", asked.elapsed());
    let synced = Instant::now();
    bench.expect(Sync(SyncPodType::Sync, "a".into())).await;
    assert!(synced.elapsed() >= Duration::from_secs(60), "once is once");
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_drops_a_running_sync_and_an_update_does_not() {
    let mut bench = Bench::new();
    let first = Arc::new(pod("a"));
    bench.update(SyncPodType::Create, &first);
    let (call, answer) = bench.next().await;
    assert_eq!(call, Sync(SyncPodType::Create, "a".into()));
    // A hundred updates while it runs are one sync after it.
    for _ in 0..100 {
        bench.update(SyncPodType::Update, &first);
    }
    answer.send(Ok(SyncOutcome::default())).unwrap();
    let (call, _never_answered) = bench.next().await;
    assert_eq!(call, Sync(SyncPodType::Update, "a".into()));
    let (completed, done) = oneshot::channel();
    let kill = KillPod {
        grace_period: Some(Duration::from_secs(7)),
        completed: Some(completed),
        ..KillPod::default()
    };
    bench.workers.update_pod(UpdatePod::kill(first, kill));
    assert_eq!(bench.next().await.0, Dropped("a".into()));
    bench.expect(Terminating("a".into(), 7)).await;
    done.await.unwrap();
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn grace_periods_only_shrink() {
    let mut bench = Bench::new();
    let first = Arc::new(pod("a"));
    bench.update(SyncPodType::Create, &first);
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    bench.update(SyncPodType::Kill, &first);
    let (call, _hangs) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 30), "the pod's own");
    let kill = |seconds| {
        let grace_period = Some(Duration::from_secs(seconds));
        UpdatePod::kill(
            first.clone(),
            KillPod {
                grace_period,
                ..KillPod::default()
            },
        )
    };
    bench.workers.update_pod(kill(4));
    assert_eq!(bench.next().await.0, Dropped("a".into()));
    let (call, _hangs) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 4));
    bench.workers.update_pod(kill(60));
    bench.workers.update_pod(kill(0));
    assert_eq!(bench.next().await.0, Dropped("a".into()));
    bench.expect(Terminating("a".into(), 1)).await;
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn errors_wait_their_turn_and_end_well() {
    let uid = PodUid::from("a");
    let failed = || Error::SyncPod {
        pod: PodKey::new("ns", "a"),
        uid: uid.clone(),
        message: "no".into(),
    };
    let mut bench = Bench::new();
    bench.update(SyncPodType::Create, &Arc::new(pod("a")));
    bench
        .expect_error(Sync(SyncPodType::Create, "a".into()), failed())
        .await;
    let at = Instant::now();
    let error = Error::NetworkNotReady {
        message: "cni".into(),
    };
    bench
        .expect_error(Sync(SyncPodType::Sync, "a".into()), error)
        .await;
    assert!((10..=16).contains(&at.elapsed().as_secs()), "{:?}", at.elapsed());
    let at = Instant::now();
    let until = Instant::now() + Duration::from_secs(20);
    let error = Error::BackOff {
        pod: PodKey::new("ns", "a"),
        uid: uid.clone(),
        until,
        message: "wait".into(),
    };
    bench
        .expect_error(Sync(SyncPodType::Sync, "a".into()), error)
        .await;
    assert!((1..=3).contains(&at.elapsed().as_secs()), "{:?}", at.elapsed());
    let at = Instant::now();
    bench.expect(Sync(SyncPodType::Sync, "a".into())).await;
    assert!((20..=31).contains(&at.elapsed().as_secs()), "{:?}", at.elapsed());

    bench.update(SyncPodType::Kill, &Arc::new(pod("a")));
    bench.expect_error(Terminating("a".into(), 30), failed()).await;
    bench.expect(Terminating("a".into(), 30)).await;
    bench.expect_error(Terminated("a".into()), failed()).await;
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_completes_by_itself_is_ended_and_never_begun_again() {
    let mut bench = Bench::new();
    bench.update(SyncPodType::Create, &Arc::new(pod("a")));
    let (_, answer) = bench.next().await;
    answer
        .send(Ok(SyncOutcome {
            terminal: true,
            ..SyncOutcome::default()
        }))
        .unwrap();
    bench.expect(Terminating("a".into(), 30)).await;
    bench.expect(Terminated("a".into())).await;
    bench.update(SyncPodType::Create, &Arc::new(pod("z")));
    bench.expect(Sync(SyncPodType::Create, "z".into())).await;
    let known = bench.workers.sync_known_pods(&uids(["a", "z"]));
    assert_eq!(known[&PodUid::from("a")].state, PodWorkerState::Terminated);
    assert!(
        !bench.workers.should_pod_content_be_removed(&"a".into()),
        "it is not deleted"
    );
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_the_same_uid_starts_after_the_first_has_ended() {
    let mut bench = Bench::new();
    let (uid, first) = (PodUid::from("a"), Arc::new(pod("a")));
    bench.update(SyncPodType::Create, &first);
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    bench.update(SyncPodType::Kill, &first);
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 30));
    bench.update(SyncPodType::Create, &first);
    assert!(
        bench.workers.sync_known_pods(&uids(["a"])).contains_key(&uid),
        "it has not ended"
    );
    answer.send(Ok(SyncOutcome::default())).unwrap();
    bench.expect(Terminated("a".into())).await;
    // Wait for the worker to take that in: the next pod's call comes after.
    bench.update(SyncPodType::Create, &Arc::new(pod("z")));
    bench.expect(Sync(SyncPodType::Create, "z".into())).await;
    assert!(
        !bench
            .workers
            .sync_known_pods(&uids(["a", "z"]))
            .contains_key(&uid),
        "the caller creates it anew"
    );
    bench.update(SyncPodType::Create, &first);
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn static_pods_of_one_name_run_one_after_the_other() {
    let mut bench = Bench::new();
    let [first, gone, last] = ["1", "2", "3"].map(|uid| static_pod(uid, "web"));
    for pod in [&first, &gone, &last] {
        bench.update(SyncPodType::Create, pod);
    }
    bench.expect(Sync(SyncPodType::Create, "1".into())).await;
    bench.update(SyncPodType::Kill, &gone);
    bench.update(SyncPodType::Kill, &first);
    bench.expect(Terminating("1".into(), 30)).await;
    assert!(
        bench.workers.should_pod_be_finished(&"2".into()),
        "it never began and never will"
    );
    bench.expect(Terminated("1".into())).await;
    // At once, not after a back-off period.
    let freed = Instant::now();
    bench.expect(Sync(SyncPodType::Create, "3".into())).await;
    assert_eq!(freed.elapsed(), Duration::ZERO);
    bench.end().await;
}

/// The manifest changed while the agent was down: the runtime still runs the earlier pod.
async fn a_new_static_pod_behind_one_of_the_runtime() -> Bench {
    let bench = Bench::new();
    let (old, now) = (PodUid::from("old"), Instant::now());
    let mut status = PodStatus::empty(old.clone(), PodKey::new("ns", "web"), now);
    status.sandboxes = vec![SandboxStatus::new("sandbox", SandboxState::Ready)];
    bench.cache.set(&old, Ok(Arc::new(status)), now);
    bench.update(SyncPodType::Create, &static_pod("new", "web"));
    bench
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_starts_after_the_one_of_its_name_that_only_the_runtime_knows() {
    let mut bench = a_new_static_pod_behind_one_of_the_runtime().await;
    // One of another name does not wait.
    bench.update(SyncPodType::Create, &static_pod("other", "other"));
    bench.expect(Sync(SyncPodType::Create, "other".into())).await;
    // Housekeeping finds it. Its end takes longer than a turn is lent.
    let key = PodKey::new("ns", "web");
    let old = Arc::new(RuntimePod::empty("old".into(), key.clone()));
    bench.workers.update_pod(UpdatePod::kill_runtime_pod(old));
    let (call, answer) = bench.next().await;
    assert_eq!(call, TerminatingRuntime("old".into()));
    assert!(bench.workers.is_static_pod_terminating(&key));
    tokio::time::sleep(Duration::from_secs(30)).await;
    answer.send(Ok(SyncOutcome::default())).unwrap();
    let freed = Instant::now();
    bench.expect(Sync(SyncPodType::Create, "new".into())).await;
    assert_eq!(freed.elapsed(), Duration::ZERO);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_does_not_wait_for_long_for_what_nobody_ends() {
    // It may be the API server, without which the sources are never ready.
    let begun = Instant::now();
    let mut bench = a_new_static_pod_behind_one_of_the_runtime().await;
    bench.expect(Sync(SyncPodType::Create, "new".into())).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    bench.end().await;

    // A pod of the API server has the same full name.
    let begun = Instant::now();
    let mut bench = a_new_static_pod_behind_one_of_the_runtime().await;
    let mut old = pod("old");
    old.metadata.name = Some("web".into());
    bench.update(SyncPodType::Create, &Arc::new(old));
    bench.expect(Sync(SyncPodType::Create, "new".into())).await;
    bench.expect(Sync(SyncPodType::Create, "old".into())).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_only_the_runtime_knows_is_terminated_and_forgotten() {
    let mut bench = Bench::new();
    bench
        .workers
        .update_pod(UpdatePod::kill_runtime_pod(runtime_pod("orphan")));
    let (call, answer) = bench.next().await;
    assert_eq!(call, TerminatingRuntime("orphan".into()));
    let known = bench.workers.sync_known_pods(&HashSet::new());
    assert!(!known[&PodUid::from("orphan")].has_config);
    answer.send(Err(Error::Cancelled)).unwrap();
    bench.expect(TerminatingRuntime("orphan".into())).await;
    bench.update(SyncPodType::Create, &Arc::new(pod("z")));
    bench.expect(Sync(SyncPodType::Create, "z".into())).await;
    assert!(!bench.workers.sync_known_pods(&uids(["z"])).contains_key("orphan"));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_desired_no_more_is_driven_to_its_end() {
    let mut bench = Bench::new();
    bench.update(SyncPodType::Create, &Arc::new(pod("a")));
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    let known = bench.workers.sync_known_pods(&HashSet::new());
    assert!(known[&PodUid::from("a")].orphan);
    bench.expect(Terminating("a".into(), 30)).await;
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_had_ended_before_the_agent_started_only_needs_its_clean_up() {
    let mut bench = Bench::new();
    bench.cache.get_observed(&"a".into()).await.unwrap();
    bench.update(SyncPodType::Create, &with_phase("a", "Succeeded"));
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_by_its_source_is_killed_if_the_runtime_was_not_asked_yet() {
    let mut bench = Bench::new();
    assert!(bench.cache.observed_at(&"a".into()).is_none());
    bench.update(SyncPodType::Create, &with_phase("a", "Failed"));
    bench.expect(Terminating("a".into(), 30)).await;
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_ended_within_the_shorter_grace_period() {
    let mut bench = Bench::new();
    let first = Arc::new(pod("a"));
    bench.update(SyncPodType::Create, &first);
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    let (workers, pods) = (bench.workers.clone(), vec![first]);
    let ended = tokio::spawn(async move { workers.end_pods(pods, Some(Duration::from_secs(600))).await });
    bench.expect(Terminating("a".into(), 30)).await;
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminated("a".into()));
    assert!(!ended.is_finished(), "what the pod held is not given back yet");
    answer.send(Ok(SyncOutcome::default())).unwrap();
    ended.await.unwrap();
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_an_end_that_no_worker_brings() {
    let mut bench = Bench::new();
    let pods = vec![Arc::new(pod("a"))];
    let (workers, of_running) = (bench.workers.clone(), pods.clone());
    let waits = tokio::spawn(async move { workers.end_pods(of_running, None).await });
    let (call, _hangs) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 30));
    let workers = bench.workers.clone();
    bench.end().await;
    let hour = Duration::from_secs(3600);
    tokio::time::timeout(hour, waits).await.unwrap().unwrap();
    tokio::time::timeout(hour, workers.end_pods(pods, None))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_sync_is_its_pods_alone() {
    struct Panics(mpsc::UnboundedSender<String>);
    #[async_trait]
    impl PodSyncer for Panics {
        async fn sync_pod(
            &self,
            _: SyncPodType,
            pod: &Arc<Pod>,
            _: Option<&Arc<Pod>>,
            _: &Arc<PodStatus>,
        ) -> Result<SyncOutcome> {
            let _ = self.0.send(pod.uid().to_string());
            assert_ne!(pod.uid_str(), "bad", "a bug");
            Ok(SyncOutcome::default())
        }
        async fn sync_terminating_pod(
            &self,
            _: &Arc<Pod>,
            _: &Arc<PodStatus>,
            _: Option<Duration>,
            _: Option<&PodStatusFn>,
        ) -> Result<()> {
            Ok(())
        }
        async fn sync_terminating_runtime_pod(&self, _: &Arc<RuntimePod>) -> Result<()> {
            Ok(())
        }
        async fn sync_terminated_pod(&self, _: &Arc<Pod>, _: &Arc<PodStatus>) -> Result<()> {
            Ok(())
        }
    }
    let (calls, mut called) = mpsc::unbounded_channel();
    let cache = PodCache::new();
    cache.update_time(Instant::now());
    let workers = PodWorkers::new(
        Arc::new(Panics(calls)),
        cache.clone(),
        PodWorkersConfig::default(),
        Jitter::from_seed(1),
    );
    let (handle, shutdown) = (workers.handle(), CancellationToken::new());
    let running = tokio::spawn(workers.run(shutdown.clone()));
    handle.update_pod(UpdatePod::new(SyncPodType::Create, Arc::new(pod("bad"))));
    assert_eq!(called.recv().await.unwrap(), "bad");
    handle.update_pod(UpdatePod::new(SyncPodType::Create, Arc::new(pod("good"))));
    assert_eq!(called.recv().await.unwrap(), "good");
    cache.update_time(Instant::now() + Duration::from_secs(1));
    assert_eq!(called.recv().await.unwrap(), "bad", "it is tried again");
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_end_does_not_wait_for_a_pod_that_cannot_be_read() {
    let (calls, mut called) = mpsc::unbounded_channel();
    let cache = PodCache::new();
    cache.set(
        &"a".into(),
        Err(Error::runtime(
            "PodSandboxStatus",
            std::io::Error::other("broken"),
        )),
        Instant::now(),
    );
    let config = PodWorkersConfig::default();
    let workers = PodWorkers::new(Arc::new(Script { calls }), cache, config, Jitter::from_seed(1));
    let (handle, shutdown) = (workers.handle(), CancellationToken::new());
    let running = tokio::spawn(workers.run(shutdown.clone()));
    handle.update_pod(UpdatePod::new(SyncPodType::Create, Arc::new(pod("a"))));
    handle.update_pod(UpdatePod::new(SyncPodType::Kill, Arc::new(pod("a"))));
    assert_eq!(called.recv().await.unwrap().0, Terminating("a".into(), 30));
    shutdown.cancel();
    running.await.unwrap();
}

#[test]
fn who_may_have_what_in_which_state() {
    let config = PodWorkersConfig::default();
    let mut registry = Registry::new(config, Jitter::from_seed(1));
    let now = std::time::Instant::now().into();
    let uid = PodUid::from("a");
    registry.update(
        UpdatePod::new(SyncPodType::Create, Arc::new(pod("a"))),
        now,
        |_| None,
    );
    let work = registry.next(now).unwrap();
    assert_eq!((work.state, work.newer_than), (PodWorkerState::Sync, None));
    assert!(registry.next(now).is_none(), "one at a time");
    registry.complete(&uid, ended(work.state, Ok(SyncOutcome::default())), now);
    assert!(registry.next(now).is_none() && registry.next_timer().is_some());
    registry.fire_timers(registry.next_timer().unwrap());
    let work = registry.next(now).unwrap();
    assert_eq!(work.newer_than, Some(now), "the next sync needs a newer status");
    // An eviction marks the content for removal at once, a mere kill does not.
    let evict = KillPod {
        evict: true,
        ..KillPod::default()
    };
    registry.update(UpdatePod::kill(Arc::new(pod("a")), evict), now, |_| None);
    assert!(work.cancel.is_cancelled());
    let record = registry.record(&uid).unwrap();
    assert!(record.evicted && !record.deleted && !record.termination_started);
}

/// A registry in which this pod was created and its first sync has begun.
fn begun(pod: UpdatePod, now: Instant) -> (Registry, Work) {
    let mut registry = Registry::new(PodWorkersConfig::default(), Jitter::from_seed(1));
    registry.update(pod, now, |_| None);
    let work = registry.next(now).unwrap();
    (registry, work)
}

#[test]
fn a_syncer_that_gives_up_by_itself_is_not_called_again_at_once() {
    let now = std::time::Instant::now().into();
    let create = UpdatePod::new(SyncPodType::Create, Arc::new(pod("a")));
    let (mut registry, work) = begun(create, now);
    registry.complete(&work.uid, ended(work.state, Err(Error::Cancelled)), now);
    assert!(registry.next(now).is_none());
    assert!(registry.next_timer().unwrap() >= now + Duration::from_secs(10));
}

#[test]
fn a_mirror_that_went_is_not_shown_to_the_next_sync() {
    let now = std::time::Instant::now().into();
    let (first, mirror) = (static_pod("a", "web"), Arc::new(pod("mirror")));
    let create = UpdatePod::new(SyncPodType::Create, first.clone()).with_mirror(Some(mirror.clone()));
    let (mut registry, work) = begun(create, now);
    assert_eq!(work.request.mirror, Some(mirror));
    registry.complete(&work.uid, ended(work.state, Ok(SyncOutcome::default())), now);
    registry.update(UpdatePod::new(SyncPodType::Update, first), now, |_| None);
    assert_eq!(registry.next(now).unwrap().request.mirror, None);
}

#[test]
fn the_end_of_a_pod_that_nobody_lists_is_tried_again_with_every_look() {
    let now = std::time::Instant::now().into();
    let (mut registry, work) = begun(UpdatePod::kill_runtime_pod(runtime_pod("a")), now);
    registry.sync_known_pods(&HashSet::new());
    assert!(registry.next(now).is_none(), "it is being ended");
    let error = Error::runtime("StopPodSandbox", std::io::Error::other("busy"));
    registry.complete(&work.uid, ended(work.state, Err(error)), now);
    assert!(registry.next(now).is_none());
    registry.sync_known_pods(&HashSet::new());
    assert_eq!(registry.next(now).unwrap().uid, work.uid);
}

#[test]
fn when_a_pod_is_looked_at_again() {
    let now = Instant::from_std(std::time::Instant::now());
    let in_seconds = |seconds| now + Duration::from_secs(seconds);
    let (uid, key) = (PodUid::from("a"), PodKey::new("ns", "a"));
    let failed = |message: &str| Error::SyncPod {
        pod: key.clone(),
        uid: uid.clone(),
        message: message.to_owned(),
    };
    let back_off = |until| Error::BackOff {
        pod: key.clone(),
        uid: uid.clone(),
        until,
        message: "back-off".to_owned(),
    };
    let network = || Error::NetworkNotReady {
        message: "no cni".to_owned(),
    };
    let well = || Ok(SyncOutcome::default());
    type Case = (&'static str, Result<SyncOutcome>, Option<u64>, (f64, f64));
    let cases: [Case; 9] = [
        ("all is well", well(), None, (60.0, 90.0)),
        ("an error", Err(failed("no")), None, (10.0, 15.0)),
        ("a back-off", Err(back_off(in_seconds(40))), None, (40.0, 60.0)),
        ("a back-off that is over", Err(back_off(now)), None, (0.0, 0.0)),
        (
            "a long back-off",
            Err(back_off(in_seconds(600))),
            None,
            (60.0, 90.0),
        ),
        ("no network", Err(network()), None, (1.0, 1.5)),
        ("a deadline", well(), Some(20), (20.0, 20.0)),
        (
            "a deadline within a back-off",
            Err(back_off(in_seconds(40))),
            Some(5),
            (5.0, 5.0),
        ),
        ("a deadline that is over", well(), Some(0), (60.0, 90.0)),
    ];
    for (case, result, deadline, (from, to)) in cases {
        let (mut registry, work) = begun(UpdatePod::new(SyncPodType::Create, Arc::new(pod("a"))), now);
        let ended = Ended {
            look_again_at: deadline.map(in_seconds),
            ..ended(work.state, result)
        };
        registry.complete(&work.uid, ended, now);
        let after = (registry.next_timer().unwrap() - now).as_secs_f64();
        assert!((from..=to).contains(&after), "{case}: {after}");
    }
}

#[test]
fn a_resync_looks_at_the_pod_as_its_source_has_it_by_then() {
    let mut registry = Registry::new(PodWorkersConfig::default(), Jitter::from_seed(1));
    let (uid, now) = (PodUid::from("a"), Instant::now());
    let create = UpdatePod::new(SyncPodType::Create, Arc::new(pod("a")));
    registry.update(create, now, |_| None);
    assert!(registry.next(now).is_some());
    let shown = with_phase("a", "Running");
    registry.observe_pod(&shown);
    let end = ended(PodWorkerState::Sync, Ok(SyncOutcome::default()));
    registry.complete(&uid, end, now);
    assert!(registry.next(now).is_none(), "that is no reason to sync it");
    let later = now + Duration::from_secs(100);
    registry.fire_timers(later);
    let work = registry.next(later).unwrap();
    assert!(Arc::ptr_eq(work.request.target.pod().unwrap(), &shown));
}
