//! Restarts of the agent or of the host do not show in pods whose source keeps no status. A whole agent with a CRI
//! runtime in memory, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus, Probe};
use k8s_openapi::jiff::Timestamp;
use kubelet_config::{PodConfig, StreamSource};
use kubelet_core::{
    Clock, Disk, Jitter, Kubelet, KubeletHandle, PodCache, PodExt, PodUid, ProbeResultCache, Step,
};
use kubelet_kuberuntime::{CriRuntime, NodeProber};
use kubelet_pleg::GenericPleg;
use kubelet_status::{MemorySink, StatusManager, StatusManagerConfig};
use kubelet_testing::memory_cri::{Call, ExecReply, MemoryCri, RemoteImage};
use kubelet_testing::{FakeRecorder, PodBuilder, Run, eventually, probe, wait_until};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What outlives the agent: its disk, the clock, and the watchers of statuses.
struct Host {
    clock: Clock,
    root: TempDir,
    sink: MemorySink,
    pods: Vec<Arc<Pod>>,
}

struct Agent {
    sink: MemorySink,
    recorder: FakeRecorder,
    handle: KubeletHandle,
    shutdown: CancellationToken,
    running: JoinHandle<kubelet_core::Result<()>>,
    _pods: watch::Sender<Vec<Arc<Pod>>>,
}

impl Host {
    fn running(pods: Vec<Arc<Pod>>) -> Self {
        Self {
            clock: Clock::starting_at(Timestamp::from_second(1_700_000_000).unwrap()),
            root: TempDir::new().unwrap(),
            sink: MemorySink::new(),
            pods,
        }
    }

    async fn start(&self, cri: &MemoryCri) -> Agent {
        self.start_with(cri, true).await
    }

    async fn start_with(&self, cri: &MemoryCri, checkpoints: bool) -> Agent {
        let (recorder, results, clock) = (FakeRecorder::new(), ProbeResultCache::new(), self.clock);
        let pods = watch::Sender::new(self.pods.clone());
        let desired = unfold((pods.subscribe(), true), |(mut pods, first)| async move {
            if !first {
                pods.changed().await.ok()?;
            }
            let now = pods.borrow_and_update().clone();
            Some((now, (pods, false)))
        });
        let cri = Arc::new(cri.clone());
        let runtime = CriRuntime::builder(cri.clone(), cri.clone())
            .root_dir(self.root.path().join("kubelet"))
            .pod_logs_dir(self.root.path().join("logs"))
            .clock(clock)
            .disk(Disk::inline())
            .events(Arc::new(recorder.clone()))
            .probes(Arc::new(results.clone()))
            .build()
            .await
            .unwrap();
        let (runtime, cache) = (Arc::new(runtime), PodCache::new());
        let mut statuses = StatusManagerConfig::default();
        statuses.clock = clock;
        let source = StreamSource::new("file", desired);
        let kubelet = Kubelet::builder()
            .pods(PodConfig::builder().source(source).build().unwrap())
            .runtime(runtime.clone())
            .pleg(GenericPleg::new(runtime, cache.clone()).with_clock(clock), cache)
            .statuses(StatusManager::with_config(self.sink.clone(), statuses))
            .recorder(Arc::new(recorder.clone()))
            .prober(NodeProber::new(cri), results)
            .clock(clock)
            .disk(Disk::inline())
            .root_dir(self.root.path().join("kubelet"))
            .checkpoints(checkpoints)
            .jitter(Jitter::from_seed(1))
            .build()
            .unwrap();
        let (handle, shutdown) = (kubelet.handle(), CancellationToken::new());
        let running = tokio::spawn(kubelet.run(shutdown.clone()));
        Agent {
            sink: self.sink.clone(),
            recorder,
            handle,
            shutdown,
            running,
            _pods: pods,
        }
    }
}

impl Agent {
    async fn until(&self, uid: &PodUid, what: &str, reached: impl Fn(&PodStatus) -> bool) -> Arc<PodStatus> {
        let waited = wait_until(self.sink.watch(), what, |pods| {
            pods.get(uid).is_some_and(|pod| reached(&pod.status))
        });
        if let Err(error) = waited.await {
            let events = self.recorder.all();
            panic!("{error}; it is {:#?}; events {events:?}", self.sink.get(uid));
        }
        self.sink.get(uid).unwrap()
    }

    /// Checks that the pod's status does not change in this time.
    async fn shows_nothing_of(&self, uid: &PodUid, before: &PodStatus, time: Duration) {
        let (begun, mut watched) = (Instant::now(), self.sink.watch());
        while begun.elapsed() < time {
            if let Some(pod) = watched.borrow_and_update().get(uid) {
                assert_eq!(*pod.status, *before, "after {:?}", begun.elapsed());
            }
            let left = time.saturating_sub(begun.elapsed());
            let _ = tokio::time::timeout(left, watched.changed()).await;
        }
    }

    /// When the back-off of the pod's container ends, once there is one that lasts.
    async fn back_off(&self, uid: &PodUid, reason: &str, at_least: Duration) -> Instant {
        let deadline = Instant::now() + Duration::from_secs(3600);
        loop {
            let steps = self.handle.explain(uid);
            let ends = steps.iter().find_map(|step| match step {
                Step::Container {
                    reason: why, until, ..
                } if why == reason => *until,
                _ => None,
            });
            if let Some(ends) = ends
                && ends.saturating_duration_since(Instant::now()) > at_least
            {
                return ends;
            }
            assert!(Instant::now() < deadline, "{steps:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }
}

fn container<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    status
        .container_statuses
        .iter()
        .flatten()
        .find(|container| container.name == name)
}

fn end<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStateTerminated> {
    container(status, name)?.state.as_ref()?.terminated.as_ref()
}

fn is_running(status: &PodStatus, name: &str) -> bool {
    let state = container(status, name).and_then(|container| container.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn each(period: i32, command: &str) -> Probe {
    Probe {
        period_seconds: Some(period),
        failure_threshold: Some(1),
        ..probe::exec([command])
    }
}

#[tokio::test(start_paused = true)]
async fn what_probes_found_stands_and_no_condition_moves() {
    // The probe is rare: long after the restart there is only the last agent's result.
    let pod = |name: &str| {
        PodBuilder::new(name)
            .container("main", "busybox:1.36", |c| {
                c.readiness_probe(each(300, "ready"))
                    .startup_probe(each(1, "started"))
                    .liveness_probe(each(1, "alive"))
            })
            .build()
    };
    let (web, sick) = (pod("web"), pod("sick"));
    let host = Host::running(vec![web.clone(), sick.clone()]);
    let cri = MemoryCri::new(host.clock);
    let of_sick = sick.uid();
    cri.script_exec_where(
        move |planned, words| planned.pod_uid() == of_sick && words == ["ready"],
        [ExecReply::exits(1)],
    );
    let agent = host.start(&cri).await;
    let is_ready = |status: &PodStatus| container(status, "main").is_some_and(|main| main.ready);
    let started = |status: &PodStatus| {
        let main = container(status, "main");
        main.is_some_and(|main| main.started == Some(true))
    };
    agent.until(&web.uid(), "ready", is_ready).await;
    agent.until(&sick.uid(), "started", started).await;
    // Until both have a result and it is reported; less than the 10 s for which the kubelet itself keeps the
    // readiness.
    tokio::time::sleep(seconds(3)).await;
    let before = [web.uid(), sick.uid()].map(|uid| host.sink.get(&uid).unwrap());
    assert!(is_ready(&before[0]) && !is_ready(&before[1]));
    agent.stop().await;

    // Ten times in a row.
    for _ in 0..10 {
        let agent = host.start(&cri).await;
        let (web, sick) = (web.uid(), sick.uid());
        tokio::join!(
            agent.shows_nothing_of(&web, &before[0], seconds(25)),
            agent.shows_nothing_of(&sick, &before[1], seconds(25)),
        );
        agent.stop().await;
    }

    // A result belongs to a container: the next container needs its own.
    cri.script_exec_where(|_, words| words == ["ready"], [ExecReply::exits(1)]);
    assert_eq!(cri.end(&web.uid(), "main", 1), 1);
    let agent = host.start(&cri).await;
    let again = |status: &PodStatus| container(status, "main").is_some_and(|main| main.restart_count == 1);
    let restarted = agent.until(&web.uid(), "restarted", again).await;
    assert!(!is_ready(&restarted));
    agent.stop().await;
    cri.assert_consistent();
}

#[tokio::test(start_paused = true)]
async fn no_crash_loop_back_off_is_forgotten() {
    let pod = PodBuilder::new("loop")
        .container("main", "busybox:1.36", |c| c)
        .build();
    let host = Host::running(vec![pod.clone()]);
    let cri = MemoryCri::new(host.clock);
    cri.script("main", [Run::exits(1).after(seconds(1))]);
    let starts = || cri.calls().count("StartContainer");
    let mut agent = host.start(&cri).await;
    let mut until = agent.back_off(&pod.uid(), "CrashLoopBackOff", seconds(150)).await;
    let (before, made) = (host.sink.get(&pod.uid()).unwrap(), starts());
    // The agent restarts while the container waits, and is away for a while.
    for away in [0, 1, 20] {
        agent.stop().await;
        tokio::time::sleep(seconds(away)).await;
        agent = host.start(&cri).await;
        agent.shows_nothing_of(&pod.uid(), &before, seconds(20)).await;
        let still = agent
            .back_off(&pod.uid(), "CrashLoopBackOff", Duration::ZERO)
            .await;
        // On disk times are the wall clock's, to the nanosecond.
        assert!(
            still.max(until) - still.min(until) < Duration::from_millis(1),
            "{still:?} {until:?}"
        );
    }
    assert_eq!(starts(), made);
    tokio::time::sleep_until(until - seconds(1)).await;
    assert_eq!(starts(), made, "it started too soon");
    let again = |status: &PodStatus| {
        let count = container(status, "main").map(|main| main.restart_count);
        count == container(&before, "main").map(|main| main.restart_count + 1)
    };
    agent.until(&pod.uid(), "started again", again).await;
    assert_eq!(starts(), made + 1);
    assert!(Instant::now() >= until && Instant::now() < until + seconds(30));

    // The next back-off is longer, as if there had been no restart.
    until = agent.back_off(&pod.uid(), "CrashLoopBackOff", seconds(290)).await;
    assert!(until > Instant::now() + seconds(290));
    agent.stop().await;

    // An agent without a record starts it at once.
    let agent = host.start_with(&cri, false).await;
    eventually!(starts(), |starts| *starts > made + 1, "it starts");
    assert!(Instant::now() < until - seconds(200));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_back_off_of_an_image_is_forgotten() {
    let pod = PodBuilder::new("web")
        .container("main", "nowhere.example/a:1", |c| c)
        .build();
    let host = Host::running(vec![pod.clone()]);
    let cri = MemoryCri::new(host.clock);
    cri.publish(RemoteImage::new("nowhere.example/a:1").missing());
    let agent = host.start(&cri).await;
    let until = agent.back_off(&pod.uid(), "ImagePullBackOff", seconds(100)).await;
    let (before, pulls) = (host.sink.get(&pod.uid()).unwrap(), cri.calls().count("PullImage"));
    agent.stop().await;
    let agent = host.start(&cri).await;
    agent.shows_nothing_of(&pod.uid(), &before, seconds(60)).await;
    tokio::time::sleep_until(until - seconds(1)).await;
    assert_eq!(cri.calls().count("PullImage"), pulls, "it was pulled too soon");
    eventually!(
        cri.calls().count("PullImage"),
        |count| *count > pulls,
        "it is pulled again"
    );
    assert!(Instant::now() >= until);
    agent.stop().await;
}

/// The agent is killed at the very moment of a start, before or after the runtime did it; then the host restarts, and
/// the runtime loses its state.
#[tokio::test(start_paused = true)]
async fn a_container_that_runs_once_is_not_run_twice_whenever_the_host_goes() {
    for it_ran in [true, false] {
        let once = PodBuilder::new("once")
            .restart_policy("Never")
            .container("main", "busybox:1.36", |c| c)
            .build();
        let host = Host::running(vec![once.clone()]);
        let cri = MemoryCri::new(host.clock);
        let fault = cri.faults().on(Call::StartContainer);
        match it_ran {
            true => fault.reply_hangs(),
            false => fault.hangs(),
        }
        let agent = host.start(&cri).await;
        eventually!(
            cri.faults().injected().len(),
            |faults| *faults > 0,
            "the start hangs"
        );
        let told = host.sink.get(&once.uid());
        assert!(
            told.is_none_or(|told| !is_running(&told, "main")),
            "nobody was told"
        );
        agent.stop().await;

        let cri = MemoryCri::new(host.clock);
        let agent = host.start(&cri).await;
        let failed = |status: &PodStatus| status.phase.as_deref() == Some("Failed");
        let status = agent.until(&once.uid(), "failed", failed).await;
        let end = end(&status, "main").unwrap();
        assert_eq!(
            (end.exit_code, end.reason.as_deref()),
            (137, Some("ContainerStatusUnknown"))
        );
        tokio::time::sleep(seconds(600)).await;
        cri.calls().assert_none("StartContainer");
        agent.stop().await;
        let agent = host.start(&cri).await;
        agent.shows_nothing_of(&once.uid(), &status, seconds(600)).await;
        cri.calls().assert_none("StartContainer");
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_the_runtime_did_not_make_is_made_while_it_remembers() {
    let once = PodBuilder::new("once")
        .restart_policy("Never")
        .container("main", "busybox:1.36", |c| c)
        .build();
    let host = Host::running(vec![once.clone()]);
    let cri = MemoryCri::new(host.clock);
    cri.faults().on(Call::StartContainer).hangs();
    let agent = host.start(&cri).await;
    eventually!(
        cri.faults().injected().len(),
        |faults| *faults > 0,
        "the start hangs"
    );
    agent.stop().await;
    cri.faults().clear();
    // The runtime has a container that was created and never ran.
    let agent = host.start(&cri).await;
    agent
        .until(&once.uid(), "runs", |status| is_running(status, "main"))
        .await;
    assert_eq!(cri.tally(&once.uid(), "main").starts, 1);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_done_stays_done_and_the_rest_of_the_pod_goes_on() {
    let pod = |policy: &str| {
        PodBuilder::new(policy.to_lowercase())
            .restart_policy(policy)
            .init_container("prepare", "busybox:1.36", |c| c)
            .container("quick", "busybox:1.36", |c| c)
            .container("slow", "busybox:1.36", |c| c)
            .build()
    };
    let (on_failure, never, always) = (pod("OnFailure"), pod("Never"), pod("Always"));
    let host = Host::running(vec![on_failure.clone(), never.clone(), always.clone()]);
    let script = |cri: &MemoryCri| {
        cri.script("prepare", [Run::exits(0).after(seconds(2))]);
        cri.script("quick", [Run::exits(0).after(seconds(5))]);
    };
    let cri = MemoryCri::new(host.clock);
    script(&cri);
    let agent = host.start(&cri).await;
    let quick_is_done = |status: &PodStatus| end(status, "quick").is_some() && is_running(status, "slow");
    for pod in [&on_failure, &never] {
        agent.until(&pod.uid(), "quick is done", quick_is_done).await;
    }
    let slow_runs = |status: &PodStatus| is_running(status, "slow");
    agent.until(&always.uid(), "slow runs", slow_runs).await;
    agent.stop().await;

    let cri = MemoryCri::new(host.clock);
    script(&cri);
    let agent = host.start(&cri).await;
    let slow_runs_again = |status: &PodStatus| {
        slow_runs(status) && container(status, "slow").is_some_and(|slow| slow.restart_count == 1)
    };
    let again = agent
        .until(&on_failure.uid(), "slow runs again", slow_runs_again)
        .await;
    assert_eq!(end(&again, "quick").map(|end| end.exit_code), Some(0));
    let failed = |status: &PodStatus| status.phase.as_deref() == Some("Failed");
    let over = agent.until(&never.uid(), "failed", failed).await;
    assert_eq!(end(&over, "quick").map(|end| end.exit_code), Some(0));
    assert_eq!(end(&over, "slow").map(|end| end.exit_code), Some(137));
    agent
        .until(&always.uid(), "slow runs again", slow_runs_again)
        .await;
    tokio::time::sleep(seconds(600)).await;
    let started = |pod: &Pod, name: &str| cri.tally(&pod.uid(), name).starts;
    assert_eq!(
        (started(&on_failure, "prepare"), started(&on_failure, "quick")),
        (1, 0)
    );
    assert_eq!(started(&on_failure, "slow"), 1);
    for name in ["prepare", "quick", "slow"] {
        assert_eq!(started(&never, name), 0, "{name}");
    }
    assert!(started(&always, "quick") > 1);
    agent.stop().await;
    cri.assert_consistent();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_keeps_its_ips() {
    let job = PodBuilder::new("job")
        .restart_policy("Never")
        .container("main", "busybox:1.36", |c| c)
        .build();
    let host = Host::running(vec![job.clone()]);
    let cri = MemoryCri::builder(host.clock)
        .pod_cidr([10, 88, 0, 0], 24)
        .build();
    cri.script("main", [Run::exits(1).after(seconds(5))]);
    let agent = host.start(&cri).await;
    let failed = |status: &PodStatus| status.phase.as_deref() == Some("Failed");
    agent.until(&job.uid(), "failed", failed).await;
    tokio::time::sleep(seconds(30)).await;
    let before = host.sink.get(&job.uid()).unwrap();
    assert!(before.pod_ip.is_some(), "{before:?}");
    agent.stop().await;

    // Its sandbox is not ready any more: the runtime does not report IPs.
    let agent = host.start(&cri).await;
    agent.shows_nothing_of(&job.uid(), &before, seconds(60)).await;
    agent.stop().await;
    cri.assert_consistent();
}
