use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::{ContainerId, PodStatusInput, PodUid, ProbeKind, ProbeResults};

/// A status per pod, and what the probes told of containers.
#[derive(Default)]
struct Statuses {
    pods: Mutex<BTreeMap<PodUid, Arc<ApiPodStatus>>>,
    told: Mutex<Vec<String>>,
}

impl PodStatusReporter for Statuses {
    fn generate(&self, _: &PodStatusInput<'_>) -> ApiPodStatus {
        ApiPodStatus::default()
    }
    fn pod_status(&self, uid: &PodUid) -> Option<Arc<ApiPodStatus>> {
        self.pods.lock().get(uid).cloned()
    }
    fn set_pod_status(&self, pod: &Arc<Pod>, status: ApiPodStatus) {
        self.pods.lock().insert(pod.uid(), Arc::new(status));
    }
    fn set_container_readiness(&self, uid: &PodUid, container: &ContainerId, ready: bool) {
        self.told.lock().push(format!("{uid} {container} ready={ready}"));
    }
    fn set_container_startup(&self, uid: &PodUid, container: &ContainerId, started: bool) {
        self.told
            .lock()
            .push(format!("{uid} {container} started={started}"));
    }
    fn observe_pod(&self, _: &Arc<Pod>) {}
    fn terminate_pod(&self, _: &Arc<Pod>) {}
    fn remove_orphaned_statuses(&self, _: &HashSet<PodUid>) {}
}

type Answer = Arc<dyn Fn(&ProbeTarget, usize) -> ProbeOutcome + Send + Sync>;

/// Answers as it is told, and tells each attempt: when, what, whose.
struct Script {
    answer: Answer,
    attempts: mpsc::UnboundedSender<(f64, String)>,
    counts: Mutex<BTreeMap<String, usize>>,
    takes: Duration,
    began: Instant,
}

#[async_trait]
impl Prober for Script {
    async fn probe(&self, target: &ProbeTarget) -> ProbeOutcome {
        let what = format!("{} {}", target.kind, target.container_id.id());
        let count = {
            let mut counts = self.counts.lock();
            let count = counts.entry(what.clone()).or_default();
            *count += 1;
            *count
        };
        self.attempts
            .send((self.began.elapsed().as_secs_f64(), what))
            .ok();
        tokio::time::sleep(self.takes).await;
        (self.answer)(target, count)
    }
}

#[derive(Default)]
struct Recorded(Mutex<Vec<String>>);

impl EventRecorder for Recorded {
    fn record(&self, event: Event<'_>) {
        let part = event.field_path.unwrap_or_default();
        self.0
            .lock()
            .push(format!("{part} {} {}", event.reason, event.message));
    }
}

struct Bench {
    statuses: Arc<Statuses>,
    events: Arc<Recorded>,
    results: ProbeResultCache,
    handle: ProbeManagerHandle,
    updates: ProbeUpdates,
    attempts: mpsc::UnboundedReceiver<(f64, String)>,
    clock: Clock,
    began: Instant,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

impl Bench {
    fn start(
        takes: Duration,
        answer: impl Fn(&ProbeTarget, usize) -> ProbeOutcome + Send + Sync + 'static,
    ) -> Self {
        let (statuses, events) = (Arc::new(Statuses::default()), Arc::new(Recorded::default()));
        let (sender, attempts) = mpsc::unbounded_channel();
        let began = Instant::now();
        let prober = Script {
            answer: Arc::new(answer),
            attempts: sender,
            counts: Mutex::default(),
            takes,
            began,
        };
        let clock = Clock::starting_at(Timestamp::from_second(1_700_000_000).unwrap());
        let results = ProbeResultCache::new();
        let config = ProbeManagerConfig {
            clock,
            jitter: Jitter::from_seed(1),
            recorder: events.clone(),
        };
        let manager = ProbeManager::new(prober, results.clone(), statuses.clone(), config);
        let (handle, updates, shutdown) = (manager.handle(), manager.updates(), CancellationToken::new());
        let running = tokio::spawn(manager.run(shutdown.clone()));
        Self {
            statuses,
            events,
            results,
            handle,
            updates,
            attempts,
            clock,
            began,
            shutdown,
            running,
        }
    }

    /// As the status manager has it: the container runs, since now.
    fn runs(&self, pod: &Arc<Pod>, container: &str, started: bool) -> ContainerId {
        let id = ContainerId::new("fake", container);
        let status = json!({"phase": "Running", "containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "started": started,
            "containerID": id.to_string(), "state": {"running": {"startedAt": self.clock.api_now()}},
        }]});
        self.statuses
            .set_pod_status(pod, serde_json::from_value(status).unwrap());
        id
    }

    /// The moments of all attempts within the next seconds.
    async fn attempts_within(&mut self, seconds: u64) -> Vec<(f64, String)> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let mut attempts = Vec::new();
        while let Ok(attempt) = self.attempts.try_recv() {
            attempts.push(attempt);
        }
        attempts
    }

    async fn updated(&mut self) -> Option<PodUid> {
        tokio::time::timeout(Duration::from_secs(100), self.updates.next())
            .await
            .ok()
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap();
    }
}

fn pod(uid: &str, probes: Value) -> Arc<Pod> {
    let mut container = json!({"name": "c"});
    for (kind, probe) in probes.as_object().unwrap() {
        container[kind] = probe.clone();
    }
    let pod = json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": {"containers": [container]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// Older than the longest period here: no more jitter.
async fn grown_up() {
    tokio::time::sleep(Duration::from_secs(100)).await;
}

fn succeeds(_: &ProbeTarget, _: usize) -> ProbeOutcome {
    ProbeOutcome::Success
}

fn times(attempts: &[(f64, String)]) -> Vec<f64> {
    attempts
        .iter()
        .map(|(at, _)| (at * 1000.0).round() / 1000.0)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_probe_keeps_its_beat() {
    let mut bench = Bench::start(Duration::from_millis(300), succeeds);
    grown_up().await;
    let web = pod("web", json!({"readinessProbe": {"periodSeconds": 10}}));
    bench.runs(&web, "1", true);
    bench.handle.add_pod(&web);
    assert_eq!(
        times(&bench.attempts_within(35).await),
        [100.0, 110.0, 120.0, 130.0]
    );
    // Synced again, it is not probed more often.
    bench.handle.add_pod(&web);
    bench.handle.add_pod(&web);
    assert_eq!(bench.handle.worker_count(), 1);
    assert_eq!(times(&bench.attempts_within(10).await), [140.0]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_probe_is_made_again_at_once_and_never_twice_at_a_time() {
    let mut bench = Bench::start(Duration::from_secs(25), succeeds);
    grown_up().await;
    let web = pod("web", json!({"livenessProbe": {"periodSeconds": 10}}));
    bench.runs(&web, "1", true);
    bench.handle.add_pod(&web);
    assert_eq!(
        times(&bench.attempts_within(80).await),
        [100.0, 125.0, 150.0, 175.0]
    );
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_start_first_probes_are_spread_over_their_periods() {
    let mut bench = Bench::start(Duration::ZERO, succeeds);
    for n in 0..500 {
        let pod = pod(&format!("p{n}"), json!({"livenessProbe": {"periodSeconds": 10}}));
        bench.runs(&pod, &n.to_string(), true);
        bench.handle.add_pod(&pod);
    }
    let first = times(&bench.attempts_within(10).await);
    assert_eq!(first.len(), 500);
    for second in 0..10 {
        let second = f64::from(second);
        let within = first
            .iter()
            .filter(|at| (second..second + 1.0).contains(*at))
            .count();
        assert!((20..=90).contains(&within), "{within} in second {second}");
    }
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn liveness_is_told_when_it_fails_and_rests_until_there_is_another_container() {
    let fails = |_: &ProbeTarget, _| ProbeOutcome::failure("no");
    let mut bench = Bench::start(Duration::ZERO, fails);
    grown_up().await;
    let web = pod(
        "web",
        json!({"livenessProbe": {"periodSeconds": 10, "failureThreshold": 3}}),
    );
    let first = bench.runs(&web, "1", true);
    bench.handle.add_pod(&web);
    assert_eq!(bench.updated().await, Some(web.uid()));
    assert_eq!(bench.began.elapsed().as_secs(), 120, "that it lives is no news");
    assert_eq!(bench.results.liveness(&first), Some(ProbeResult::Failure));
    assert_eq!(bench.attempts_within(60).await.len(), 3);
    assert_eq!(
        *bench.events.0.lock(),
        ["spec.containers{c} Unhealthy Liveness probe failed: no"; 3]
    );

    let second = bench.runs(&web, "2", true);
    assert_eq!(bench.attempts_within(15).await.len(), 2);
    assert_eq!(bench.results.liveness(&first), None);
    assert_eq!(bench.results.liveness(&second), Some(ProbeResult::Success));
    assert_eq!(bench.updated().await, Some(web.uid()));
    assert_eq!(bench.results.liveness(&second), Some(ProbeResult::Failure));
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn startup_goes_first_and_readiness_follows() {
    let third = |target: &ProbeTarget, count| match (target.kind, count) {
        (ProbeKind::Startup, 1..3) => ProbeOutcome::failure("not yet"),
        _ => ProbeOutcome::Success,
    };
    let mut bench = Bench::start(Duration::ZERO, third);
    grown_up().await;
    let probe = json!({"periodSeconds": 10, "failureThreshold": 5});
    let web = pod(
        "web",
        json!({"startupProbe": probe, "readinessProbe": probe, "livenessProbe": probe}),
    );
    bench.runs(&web, "1", false);
    bench.handle.add_pod(&web);
    let attempts = bench.attempts_within(55).await;
    assert!(
        attempts.iter().all(|(_, what)| what == "Startup 1"),
        "{attempts:?}"
    );
    assert_eq!(times(&attempts), [100.0, 110.0, 120.0]);
    let told = [
        "web fake://1 started=false",
        "web fake://1 ready=false",
        "web fake://1 started=true",
    ];
    assert_eq!(*bench.statuses.told.lock(), told);

    // The status manager has heard it; whoever makes the pod's status asks for its readiness at once.
    bench.runs(&web, "1", true);
    let status = bench.statuses.pod_status(&web.uid()).unwrap();
    bench.handle.probe_unready(&web.uid(), &status);
    let attempts = bench.attempts_within(1).await;
    assert_eq!(attempts, [(155.0, "Readiness 1".to_owned())]);
    assert_eq!(
        bench.statuses.told.lock().last().unwrap(),
        "web fake://1 ready=true"
    );
    // The beat begins anew with what was asked for; what is ready is not asked for.
    bench.handle.probe_unready(&web.uid(), &status);
    let mut attempts = bench.attempts_within(20).await;
    attempts.retain(|(_, what)| what == "Readiness 1");
    assert_eq!(times(&attempts), [165.0, 175.0]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn errors_are_tried_three_times_told_once_and_thrown_away() {
    let errs = |_: &ProbeTarget, count| match count {
        1..=2 => ProbeOutcome::unknown("dropped"),
        3 => ProbeOutcome::Success,
        _ => ProbeOutcome::unknown("rpc error"),
    };
    let mut bench = Bench::start(Duration::ZERO, errs);
    grown_up().await;
    let web = pod(
        "web",
        json!({"readinessProbe": {"periodSeconds": 10, "failureThreshold": 1}}),
    );
    let id = bench.runs(&web, "1", true);
    bench.handle.add_pod(&web);
    assert_eq!(times(&bench.attempts_within(5).await), [100.0; 3]);
    assert!(bench.events.0.lock().is_empty());
    assert_eq!(times(&bench.attempts_within(10).await), [110.0; 3]);
    let event =
        "spec.containers{c} Unhealthy Readiness probe errored and resulted in unknown state: rpc error";
    assert_eq!(*bench.events.0.lock(), [event]);
    assert_eq!(bench.results.readiness(&id), Some(ProbeResult::Success));
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_warning_is_told_and_counts_as_success() {
    let warns = |_: &ProbeTarget, _| ProbeOutcome::Warning {
        output: "moved".to_owned(),
    };
    let mut bench = Bench::start(Duration::ZERO, warns);
    grown_up().await;
    let web = pod("web", json!({"readinessProbe": {}}));
    let id = bench.runs(&web, "1", true);
    bench.handle.add_pod(&web);
    assert_eq!(times(&bench.attempts_within(15).await), [100.0, 110.0]);
    assert_eq!(bench.results.readiness(&id), Some(ProbeResult::Success));
    assert_eq!(
        *bench.events.0.lock(),
        ["spec.containers{c} ProbeWarning Readiness probe warning: moved"; 2]
    );
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_hangs_holds_up_nobody_else_and_ends_with_its_pod() {
    let mut bench = Bench::start(Duration::ZERO, succeeds);
    bench.stop().await;
    bench = Bench::start(Duration::from_secs(1_000_000), succeeds);
    grown_up().await;
    let (stuck, other) = (
        pod("stuck", json!({"readinessProbe": {}, "livenessProbe": {}})),
        pod("other", json!({"readinessProbe": {}})),
    );
    bench.runs(&stuck, "1", true);
    bench.runs(&other, "2", true);
    bench.handle.add_pod(&stuck);
    bench.handle.add_pod(&other);
    assert_eq!(bench.attempts_within(5).await.len(), 3);
    bench.handle.stop_liveness_and_startup(&stuck.uid());
    assert_eq!(bench.handle.worker_count(), 2);
    bench.handle.remove_pod(&stuck.uid());
    assert_eq!(bench.handle.worker_count(), 1);
    bench.handle.cleanup_pods(&HashSet::from([other.uid()]));
    assert_eq!(bench.handle.worker_count(), 1);
    bench.handle.cleanup_pods(&HashSet::new());
    assert_eq!((bench.handle.worker_count(), bench.results.len()), (0, 0));
    assert!(bench.events.0.lock().is_empty());
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_prober_that_panics_is_asked_again() {
    let panics = |_: &ProbeTarget, count| match count {
        1 => panic!("a bug"),
        _ => ProbeOutcome::Success,
    };
    let mut bench = Bench::start(Duration::ZERO, panics);
    grown_up().await;
    let web = pod("web", json!({"readinessProbe": {}}));
    bench.runs(&web, "1", true);
    bench.handle.add_pod(&web);
    assert_eq!(times(&bench.attempts_within(15).await), [100.0, 110.0]);
    assert_eq!(
        bench.statuses.told.lock().last().unwrap(),
        "web fake://1 ready=true"
    );
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_come_back_is_not_probed_again_unless_it_does() {
    let mut bench = Bench::start(Duration::ZERO, succeeds);
    grown_up().await;
    let mut web = (*pod("web", json!({"readinessProbe": {}}))).clone();
    web.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    let web = Arc::new(web);
    let id = bench.runs(&web, "1", true);
    bench.handle.add_pod(&web);
    assert_eq!(bench.attempts_within(15).await.len(), 2);
    let mut ended = (*bench.statuses.pod_status(&web.uid()).unwrap()).clone();
    let state = json!({"terminated": {"exitCode": 0}});
    ended.container_statuses.as_mut().unwrap()[0].state = serde_json::from_value(state).unwrap();
    bench.statuses.set_pod_status(&web, ended);
    bench.attempts_within(10).await;
    assert_eq!(bench.results.readiness(&id), None);
    while tokio::time::timeout(Duration::from_secs(1), bench.updates.next())
        .await
        .is_ok()
    {}
    // A sync that finds it as it was leads to no other: nothing changes any more.
    bench.handle.add_pod(&web);
    let quiet = tokio::time::timeout(Duration::from_secs(100), bench.updates.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    // All containers of the pod were started anew.
    bench.runs(&web, "2", true);
    bench.handle.add_pod(&web);
    assert_eq!(bench.attempts_within(5).await.len(), 1);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn probes_of_sidecars_are_made_and_outlast_the_stop_of_the_others() {
    let bench = Bench::start(Duration::ZERO, succeeds);
    let all = json!({"exec": {}});
    let container = |name: &str, policy: Option<&str>| json!({"name": name, "restartPolicy": policy, "startupProbe": all, "readinessProbe": all, "livenessProbe": all});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "p"},
        "spec": {"containers": [container("c", None)],
            "initContainers": [container("i", None), container("s", Some("Always"))]},
    }))
    .unwrap();
    bench.handle.add_pod(&Arc::new(pod));
    let count = || bench.handle.worker_count();
    assert_eq!(count(), 6);
    bench.handle.stop_liveness_and_startup(&PodUid::from("p"));
    assert_eq!(count(), 4);
    bench.handle.remove_pod(&PodUid::from("p"));
    assert_eq!(count(), 0);
    bench.handle.remove_pod(&PodUid::from("p"));
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_stands_in_the_updates_once() {
    let bench = Bench::start(Duration::ZERO, succeeds);
    let dirty = &bench.handle.0.updates;
    for uid in ["a", "b", "a", "a", "b"] {
        dirty.push(uid.into());
    }
    let mut updates = ProbeUpdates(dirty.clone());
    assert_eq!(
        (updates.next().await, updates.next().await),
        ("a".into(), "b".into())
    );
    dirty.push("a".into());
    assert_eq!(updates.next().await, "a".into());
    bench.stop().await;
}
