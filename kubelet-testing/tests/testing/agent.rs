//! A whole agent in virtual time: a source, the merger, the engine, the runtime manager, the PLEG, the statuses, on a
//! runtime in memory.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_config::{PodConfig, StreamSource};
use kubelet_core::{Clock, Jitter, Kubelet, PodCache, PodExt, PodStatusManager as _, PodUid};
use kubelet_cri::CriAdapter;
use kubelet_kuberuntime::CriRuntime;
use kubelet_pleg::GenericPleg;
use kubelet_status::{MemorySink, StatusManager};
use kubelet_testing::{FakeRecorder, MemoryRuntime, PodBuilder, Run, wait_until};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// An agent and all its parts.
struct Agent {
    pods: watch::Sender<Vec<Arc<Pod>>>,
    sink: MemorySink,
    recorder: FakeRecorder,
    shutdown: CancellationToken,
    running: JoinHandle<kubelet_core::Result<()>>,
    _root: TempDir,
}

impl Agent {
    async fn start(runtime: &MemoryRuntime, clock: Clock) -> Self {
        let root = TempDir::new().unwrap();
        let (pods, sink, recorder) = (
            watch::Sender::new(Vec::new()),
            MemorySink::new(),
            FakeRecorder::new(),
        );
        let desired = unfold((pods.subscribe(), true), |(mut pods, first)| async move {
            if !first {
                pods.changed().await.ok()?;
            }
            let now = pods.borrow_and_update().clone();
            Some((now, (pods, false)))
        });
        let config = PodConfig::builder()
            .source(StreamSource::new("test", desired))
            .build()
            .unwrap();
        let adapter = CriAdapter::builder(Arc::new(runtime.clone()))
            .clock(clock)
            .records_dir(root.path().join("records"))
            .build();
        let statuses = StatusManager::new(sink.clone());
        let runtime = CriRuntime::builder(Arc::new(adapter.clone()), Arc::new(adapter))
            .statuses(statuses.reporter())
            .root_dir(root.path().join("kubelet"))
            .pod_logs_dir(root.path().join("pods"))
            .clock(clock)
            .events(Arc::new(recorder.clone()))
            .build()
            .await
            .unwrap();
        let (runtime, cache) = (Arc::new(runtime), PodCache::new());
        let kubelet = Kubelet::builder()
            .pods(config)
            .runtime(runtime.clone())
            .pleg(GenericPleg::new(runtime, cache.clone()).with_clock(clock), cache)
            .statuses(statuses)
            .recorder(Arc::new(recorder.clone()))
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
            shutdown,
            running,
            _root: root,
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

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }
}

fn clock() -> Clock {
    Clock::starting_at(Timestamp::from_second(1_700_000_000).unwrap())
}

fn is(phase: &'static str) -> impl Fn(&PodStatus) -> bool {
    move |status| status.phase.as_deref() == Some(phase)
}

fn restarts(status: &PodStatus) -> i32 {
    status
        .container_statuses
        .iter()
        .flatten()
        .map(|container| container.restart_count)
        .sum()
}

#[tokio::test(start_paused = true)]
async fn pods_run_crash_end_and_go() {
    let clock = clock();
    let runtime = MemoryRuntime::new(clock);
    runtime.script("setup", [Run::exits(0).after(Duration::from_secs(3))]);
    runtime.script("crash", [Run::exits(1).after(Duration::from_secs(2))]);
    runtime.script("job", [Run::exits(0).after(Duration::from_secs(60))]);
    let agent = Agent::start(&runtime, clock).await;
    let web = PodBuilder::new("web")
        .init_container("setup", "busybox:1.36", |c| c)
        .container("main", "busybox:1.36", |c| c.command(["sleep", "infinity"]))
        .container("side", "busybox:1.36", |c| c)
        .build();
    let crash = PodBuilder::new("crash")
        .container("crash", "busybox:1.36", |c| c)
        .build();
    let job = PodBuilder::new("job")
        .restart_policy("Never")
        .container("job", "busybox:1.36", |c| c)
        .build();
    agent
        .pods
        .send_replace(vec![web.clone(), crash.clone(), job.clone()]);

    agent.until(&web.uid(), "web runs", is("Running")).await;
    agent
        .until(&job.uid(), "the job succeeded", is("Succeeded"))
        .await;
    agent
        .until(&crash.uid(), "four restarts", |status| restarts(status) == 4)
        .await;
    assert!(agent.recorder.count("BackOff") > 0);
    for (pod, container, tally) in runtime.tallies() {
        assert!(tally.most_at_once <= 1, "{container} of {pod}: {tally:?}");
    }
    assert_eq!(runtime.tally(&job.uid(), "job").starts, 1);

    // A killed container is started again.
    assert_eq!(runtime.end(&web.uid(), "main", 137), 1);
    agent
        .until(&web.uid(), "main runs again", |status| restarts(status) == 1)
        .await;

    agent.pods.send_replace(vec![]);
    runtime
        .wait_until("nothing runs", |runtime| {
            runtime
                .containers()
                .iter()
                .all(|container| !container.is_running())
        })
        .await
        .unwrap();
    wait_until(agent.sink.watch(), "all pods gone", |pods| pods.is_empty())
        .await
        .unwrap();
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_start_of_one_pod_holds_up_no_other() {
    let clock = clock();
    let runtime = MemoryRuntime::new(clock);
    runtime.script("stuck", [Run::forever().start_hangs(), Run::forever()]);
    let agent = Agent::start(&runtime, clock).await;
    let stuck = PodBuilder::new("stuck")
        .container("stuck", "busybox:1.36", |c| c)
        .build();
    let web = PodBuilder::new("web")
        .container("main", "busybox:1.36", |c| c)
        .build();
    let begun = Instant::now();
    agent.pods.send_replace(vec![stuck.clone(), web.clone()]);
    agent.until(&web.uid(), "web runs", is("Running")).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // Its sync continues, and the status already shows the sandbox.
    let has_sandbox = |status: &PodStatus| {
        let mut conditions = status.conditions.iter().flatten();
        conditions
            .any(|condition| condition.type_ == "PodReadyToStartContainers" && condition.status == "True")
    };
    agent
        .until(&stuck.uid(), "the sandbox of the stuck one", has_sandbox)
        .await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    agent
        .until(&stuck.uid(), "the stuck one runs at last", is("Running"))
        .await;
    assert!(
        begun.elapsed() > Duration::from_secs(100),
        "{:?}",
        begun.elapsed()
    );
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_outlive_a_runtime_that_goes_away() {
    let clock = clock();
    let runtime = MemoryRuntime::new(clock);
    let agent = Agent::start(&runtime, clock).await;
    let web = PodBuilder::new("web")
        .container("main", "busybox:1.36", |c| c)
        .build();
    agent.pods.send_replace(vec![web.clone()]);
    agent.until(&web.uid(), "web runs", is("Running")).await;
    runtime.go_away();
    let late = PodBuilder::new("late")
        .container("main", "busybox:1.36", |c| c)
        .build();
    agent.pods.send_replace(vec![web.clone(), late.clone()]);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(runtime.tally(&late.uid(), "main").starts, 0);
    runtime.come_back();
    agent.until(&late.uid(), "late runs", is("Running")).await;
    assert_eq!(runtime.tally(&web.uid(), "main").starts, 1);
    assert_eq!(restarts(&agent.sink.get(&web.uid()).unwrap()), 0);
    agent.stop().await;
}
