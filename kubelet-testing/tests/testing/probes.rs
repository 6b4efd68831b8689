//! Probes of a whole agent in virtual time: commands in containers of a runtime in memory, and their effects.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use k8s_openapi::api::core::v1::{Pod, PodStatus, Probe};
use k8s_openapi::jiff::Timestamp;
use kubelet_config::{PodConfig, StreamSource};
use kubelet_core::{
    Clock, ContainerId, Jitter, Kubelet, PodCache, PodExt, PodUid, ProbeKind, ProbeOutcome, ProbeResult,
    ProbeResultCache, ProbeTarget, Prober,
};
use kubelet_kuberuntime::{CriRuntime, NodeProber};
use kubelet_pleg::GenericPleg;
use kubelet_status::{MemorySink, StatusManager, StatusManagerConfig};
use kubelet_testing::memory_cri::{ExecReply, MemoryCri};
use kubelet_testing::{FakeRecorder, PodBuilder, probe, wait_until};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct Agent {
    pods: watch::Sender<Vec<Arc<Pod>>>,
    sink: MemorySink,
    recorder: FakeRecorder,
    results: ProbeResultCache,
    shutdown: CancellationToken,
    running: JoinHandle<kubelet_core::Result<()>>,
}

impl Agent {
    async fn start(cri: &MemoryCri, clock: Clock, root: &TempDir) -> Self {
        let (pods, sink, recorder, results) = (
            watch::Sender::new(Vec::new()),
            MemorySink::new(),
            FakeRecorder::new(),
            ProbeResultCache::new(),
        );
        let desired = unfold((pods.subscribe(), true), |(mut pods, first)| async move {
            if !first {
                pods.changed().await.ok()?;
            }
            let now = pods.borrow_and_update().clone();
            Some((now, (pods, false)))
        });
        let cri = Arc::new(cri.clone());
        let runtime = CriRuntime::builder(cri.clone(), cri.clone())
            .root_dir(root.path().join("kubelet"))
            .pod_logs_dir(root.path().join("pods"))
            .clock(clock)
            .events(Arc::new(recorder.clone()))
            .probes(Arc::new(results.clone()))
            .build()
            .await
            .unwrap();
        let (runtime, cache) = (Arc::new(runtime), PodCache::new());
        let mut statuses = StatusManagerConfig::default();
        statuses.clock = clock;
        let source = StreamSource::new("test", desired);
        let kubelet = Kubelet::builder()
            .pods(PodConfig::builder().source(source).build().unwrap())
            .runtime(runtime.clone())
            .pleg(GenericPleg::new(runtime, cache.clone()).with_clock(clock), cache)
            .statuses(StatusManager::with_config(sink.clone(), statuses))
            .recorder(Arc::new(recorder.clone()))
            .prober(NodeProber::new(cri), results.clone())
            .clock(clock)
            .root_dir(root.path().join("kubelet"))
            .jitter(Jitter::from_seed(1))
            .build()
            .unwrap();
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(kubelet.run(shutdown.clone()));
        Self {
            pods,
            sink,
            recorder,
            results,
            shutdown,
            running,
        }
    }

    async fn until(&self, uid: &PodUid, what: &str, reached: impl Fn(&PodStatus) -> bool) {
        let reached = wait_until(self.sink.watch(), what, |pods| {
            pods.get(uid).is_some_and(|pod| reached(&pod.status))
        });
        if let Err(error) = reached.await {
            panic!(
                "{error}; it is {:#?}; events {:?}",
                self.sink.get(uid),
                self.recorder.all()
            );
        }
    }

    /// The messages of all events with this reason.
    fn events(&self, reason: &str) -> Vec<String> {
        let all = self.recorder.all();
        let of_reason = all.into_iter().filter(|event| event.reason == reason);
        of_reason.map(|event| event.message).collect()
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }
}

fn clock() -> Clock {
    Clock::starting_at(Timestamp::from_second(1_700_000_000).unwrap())
}

/// Each second, and once counts.
fn each_second(command: &str) -> Probe {
    Probe {
        period_seconds: Some(1),
        failure_threshold: Some(1),
        ..probe::exec([command])
    }
}

/// Scripts the commands with this name.
fn script(cri: &MemoryCri, command: &'static str, replies: impl IntoIterator<Item = ExecReply>) {
    cri.script_exec_where(move |_, words| words == [command], replies);
}

fn main_container(status: &PodStatus) -> Option<(bool, Option<bool>, i32)> {
    let container = status.container_statuses.as_ref()?.first()?;
    container.state.as_ref()?.running.as_ref()?;
    Some((container.ready, container.started, container.restart_count))
}

fn is_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[tokio::test(start_paused = true)]
async fn a_container_that_fails_its_liveness_probe_is_started_again() {
    let (clock, root) = (clock(), TempDir::new().unwrap());
    let cri = MemoryCri::new(clock);
    script(
        &cri,
        "live",
        [
            ExecReply::exits(0),
            ExecReply::exits(0),
            ExecReply::exits(1),
            ExecReply::exits(0),
        ],
    );
    let agent = Agent::start(&cri, clock, &root).await;
    let web = PodBuilder::new("web")
        .container("main", "busybox:1.36", |c| {
            c.liveness_probe(Probe {
                termination_grace_period_seconds: Some(7),
                ..each_second("live")
            })
        })
        .build();
    agent.pods.send_replace(vec![web.clone()]);
    agent
        .until(&web.uid(), "main runs again", |status| {
            main_container(status) == Some((true, Some(true), 1))
        })
        .await;
    assert_eq!(agent.events("Unhealthy"), ["Liveness probe failed: "]);
    assert_eq!(
        agent.events("Killing"),
        ["Container main failed liveness probe, will be restarted"]
    );
    // The pod continues, and nothing is left of the first container.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(agent.events("Killing").len(), 1);
    assert_eq!(agent.results.len(), 1);
    agent.pods.send_replace(vec![]);
    wait_until(agent.sink.watch(), "the pod is gone", |pods| pods.is_empty())
        .await
        .unwrap();
    assert!(agent.results.is_empty());
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn readiness_flips_the_condition() {
    let (clock, root) = (clock(), TempDir::new().unwrap());
    let cri = MemoryCri::new(clock);
    let sick = ExecReply::exits(1).stdout("no ").stderr("database");
    let replies = (0..60).map(move |n| {
        if (10..20).contains(&n) {
            sick.clone()
        } else {
            ExecReply::exits(0)
        }
    });
    script(&cri, "ready", replies);
    let agent = Agent::start(&cri, clock, &root).await;
    let web = PodBuilder::new("web")
        .container("main", "busybox:1.36", |c| {
            c.readiness_probe(each_second("ready"))
        })
        .build();
    agent.pods.send_replace(vec![web.clone()]);
    let uid = web.uid();
    agent.until(&uid, "ready", is_ready).await;
    agent.until(&uid, "not ready", |status| !is_ready(status)).await;
    assert_eq!(
        agent.events("Unhealthy")[0],
        "Readiness probe failed: no database"
    );
    agent.until(&uid, "ready again", is_ready).await;
    assert!(agent.events("Killing").is_empty());
    assert_eq!(cri.tally(&uid, "main").starts, 1);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn startup_gates_the_other_probes_and_the_regular_containers() {
    let (clock, root) = (clock(), TempDir::new().unwrap());
    let cri = MemoryCri::new(clock);
    let slow = (0..6).map(|n| ExecReply::exits(if n < 5 { 1 } else { 0 }));
    script(&cri, "started", slow);
    // A probe before the start would kill the container.
    let live = ExecReply::exits(0);
    script(&cri, "live", [live]);
    let agent = Agent::start(&cri, clock, &root).await;
    let web = PodBuilder::new("web")
        .sidecar("proxy", "busybox:1.36", |c| {
            c.startup_probe(Probe {
                failure_threshold: Some(30),
                ..each_second("started")
            })
            .liveness_probe(each_second("live"))
        })
        .container("main", "busybox:1.36", |c| c)
        .build();
    let begun = Instant::now();
    agent.pods.send_replace(vec![web.clone()]);
    let uid = web.uid();
    agent
        .until(&uid, "main runs", |status| main_container(status).is_some())
        .await;
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(agent.events("Unhealthy"), vec!["Startup probe failed: "; 5]);
    agent.until(&uid, "all ready", is_ready).await;
    assert_eq!(cri.tally(&uid, "proxy").starts, 1);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_never_starts_up_is_killed() {
    let (clock, root) = (clock(), TempDir::new().unwrap());
    let cri = MemoryCri::new(clock);
    script(&cri, "started", [ExecReply::exits(1)]);
    let agent = Agent::start(&cri, clock, &root).await;
    let web = PodBuilder::new("web")
        .container("main", "busybox:1.36", |c| {
            c.startup_probe(Probe {
                failure_threshold: Some(3),
                ..each_second("started")
            })
        })
        .build();
    agent.pods.send_replace(vec![web.clone()]);
    agent
        .until(&web.uid(), "main runs again", |status| {
            matches!(main_container(status), Some((_, _, 1)))
        })
        .await;
    assert_eq!(
        agent.events("Killing"),
        ["Container main failed startup probe, will be restarted"]
    );
    assert!(!is_ready(&agent.sink.get(&web.uid()).unwrap()));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_agent_flips_no_readiness() {
    let (clock, root) = (clock(), TempDir::new().unwrap());
    let cri = MemoryCri::new(clock);
    let agent = Agent::start(&cri, clock, &root).await;
    let mut web = PodBuilder::new("web")
        .container("main", "busybox:1.36", |c| {
            c.readiness_probe(Probe {
                period_seconds: Some(30),
                ..each_second("ready")
            })
            .startup_probe(each_second("started"))
        })
        .build();
    agent.pods.send_replace(vec![web.clone()]);
    agent.until(&web.uid(), "ready", is_ready).await;
    let status = agent.sink.get(&web.uid()).unwrap();
    agent.stop().await;
    tokio::time::sleep(Duration::from_secs(60)).await;

    // The API server has kept the pod's status.
    Arc::make_mut(&mut web).status = Some((*status).clone());
    let agent = Agent::start(&cri, clock, &root).await;
    agent.pods.send_replace(vec![web.clone()]);
    let begun = Instant::now();
    let (uid, mut watched) = (web.uid(), agent.sink.watch());
    while begun.elapsed() < Duration::from_secs(120) {
        if let Some(pod) = watched.borrow_and_update().get(&uid) {
            assert!(
                is_ready(&pod.status),
                "after {:?}: {:#?}",
                begun.elapsed(),
                pod.status
            );
        }
        let _ = tokio::time::timeout(Duration::from_secs(5), watched.changed()).await;
    }
    // The startup probe does not run again for a started container: the last agent's result counts.
    assert_eq!(agent.results.len(), 2);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn commands_answer_as_the_kubelet_tells() {
    let clock = clock();
    let cri = MemoryCri::new(clock);
    let root = TempDir::new().unwrap();
    let agent = Agent::start(&cri, clock, &root).await;
    let web = PodBuilder::new("web")
        .container("main", "busybox:1.36", |c| {
            c.liveness_probe(Probe {
                initial_delay_seconds: Some(1_000_000),
                ..each_second("check")
            })
        })
        .build();
    agent.pods.send_replace(vec![web.clone()]);
    agent
        .until(&web.uid(), "main runs", |status| main_container(status).is_some())
        .await;
    let status = agent.sink.get(&web.uid()).unwrap();
    let id: ContainerId = status.container_statuses.as_ref().unwrap()[0]
        .container_id
        .as_deref()
        .unwrap()
        .parse()
        .unwrap();
    let target = ProbeTarget::new(ProbeKind::Liveness, web.clone(), status, "main", id).unwrap();
    let long = "x".repeat(20_000);
    let table = [
        (ExecReply::exits(0).stdout("fine"), ProbeOutcome::Success),
        (
            ExecReply::exits(3).stdout("a").stderr("b"),
            ProbeOutcome::failure("ab"),
        ),
        (
            ExecReply::exits(1).stdout(long.clone()),
            ProbeOutcome::failure(&long[..10 << 10]),
        ),
        (
            ExecReply::hangs(),
            ProbeOutcome::failure("command timed out: \"check\" timed out after 1s"),
        ),
    ];
    let prober = NodeProber::new(Arc::new(cri.clone()));
    for (reply, expected) in table {
        script(&cri, "check", [reply]);
        assert_eq!(prober.probe(&target).await, expected);
    }
    script(&cri, "check", [ExecReply::no_such_program()]);
    let outcome = prober.probe(&target).await;
    let unknown = matches!(&outcome, ProbeOutcome::Errored { result: ProbeResult::Unknown, error }
        if error.starts_with("rpc error: code = "));
    assert!(unknown, "{outcome:?}");
    agent.stop().await;
}
