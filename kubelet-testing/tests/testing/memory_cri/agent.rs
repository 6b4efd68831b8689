//! A whole agent in virtual time, directly on CRI: it survives crash loops, lost replies and outages without losing a
//! pod or running a container twice.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_config::{PodConfig, StreamSource};
use kubelet_core::{Clock, Jitter, Kubelet, PodCache, PodExt, PodUid};
use kubelet_kuberuntime::CriRuntime;
use kubelet_pleg::{EventedPleg, GenericPleg};
use kubelet_status::{MemorySink, StatusManager};
use kubelet_testing::memory_cri::{Call, MemoryCri};
use kubelet_testing::{FakeRecorder, PodBuilder, Run, wait_until};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

/// An agent and all its parts.
pub(crate) struct Agent {
    pub(crate) pods: watch::Sender<Vec<Arc<Pod>>>,
    pub(crate) sink: MemorySink,
    recorder: FakeRecorder,
    runtime: MemoryCri,
    shutdown: CancellationToken,
    running: JoinHandle<kubelet_core::Result<()>>,
    root: TempDir,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pleg {
    Generic,
    Evented,
    /// Its lists are an hour apart.
    EventedAlone,
}

impl Agent {
    pub(crate) async fn start(runtime: MemoryCri, clock: Clock, pleg: Pleg) -> Self {
        Self::start_in(TempDir::new().unwrap(), MemorySink::new(), runtime, clock, pleg).await
    }

    /// The folder and the sink outlive the agent.
    async fn start_in(root: TempDir, sink: MemorySink, runtime: MemoryCri, clock: Clock, pleg: Pleg) -> Self {
        let pods = watch::Sender::new(Vec::new());
        let recorder = FakeRecorder::new();
        let desired = unfold((pods.subscribe(), true), |(mut pods, first)| async move {
            if !first {
                pods.changed().await.ok()?;
            }
            let now: Vec<Arc<Pod>> = pods.borrow_and_update().clone();
            Some((now, (pods, false)))
        });
        let config = PodConfig::builder()
            .source(StreamSource::new("test", desired))
            .build()
            .unwrap();
        let cri = CriRuntime::builder(Arc::new(runtime.clone()), Arc::new(runtime.clone()))
            .root_dir(root.path().join("kubelet"))
            .pod_logs_dir(root.path().join("pods"))
            .clock(clock)
            .events(Arc::new(recorder.clone()))
            .build()
            .await
            .unwrap();
        let (cri, cache) = (Arc::new(cri), PodCache::new());
        let kubelet = Kubelet::builder()
            .pods(config)
            .runtime(cri.clone())
            .statuses(StatusManager::new(sink.clone()))
            .recorder(Arc::new(recorder.clone()))
            .root_dir(root.path().join("kubelet"))
            .jitter(Jitter::from_seed(1));
        let shutdown = CancellationToken::new();
        let running = match pleg {
            Pleg::Generic => {
                let pleg = GenericPleg::new(cri, cache.clone()).with_clock(clock);
                tokio::spawn(kubelet.pleg(pleg, cache).build().unwrap().run(shutdown.clone()))
            }
            Pleg::Evented | Pleg::EventedAlone => {
                let period = if pleg == Pleg::Evented {
                    SECOND
                } else {
                    3600 * SECOND
                };
                let pleg = EventedPleg::new(cri, cache.clone())
                    .with_clock(clock)
                    .with_relist_period(period)
                    .with_relist_threshold(3 * period.max(60 * SECOND));
                tokio::spawn(kubelet.pleg(pleg, cache).build().unwrap().run(shutdown.clone()))
            }
        };
        Self {
            pods,
            sink,
            recorder,
            runtime,
            shutdown,
            running,
            root,
        }
    }

    pub(crate) async fn until(&self, pod: &PodUid, what: &str, reached: impl Fn(&PodStatus) -> bool) {
        let reached = wait_until(self.sink.watch(), what, |pods| {
            pods.get(pod).is_some_and(|pod| reached(&pod.status))
        });
        if let Err(error) = reached.await {
            panic!(
                "{error}; it is {:#?}; events {:?}; {}",
                self.sink.get(pod),
                self.recorder.all(),
                self.runtime.calls()
            );
        }
    }

    /// Checks that nothing ran twice and nothing is left, and ends.
    pub(crate) async fn stop(self) -> TempDir {
        self.runtime.assert_consistent();
        for (pod, container, tally) in self.runtime.tallies() {
            assert!(
                tally.most_at_once <= 1,
                "{container} of {pod}: {tally:?}; {}",
                self.runtime.calls()
            );
        }
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
        self.root
    }
}

pub(crate) fn clock() -> Clock {
    Clock::starting_at(k8s_openapi::jiff::Timestamp::from_second(1_700_000_000).unwrap())
}

fn pod(name: &str) -> Arc<Pod> {
    PodBuilder::new(name)
        .container("main", "busybox:1.36", |c| c)
        .build()
}

pub(crate) fn is(phase: &'static str) -> impl Fn(&PodStatus) -> bool {
    move |status| status.phase.as_deref() == Some(phase)
}

fn restarts(status: &PodStatus) -> i32 {
    let statuses = status.container_statuses.iter().flatten();
    statuses.map(|container| container.restart_count).sum()
}

#[tokio::test(start_paused = true)]
async fn a_pod_from_its_manifest_to_its_end() {
    let clock = clock();
    let runtime = MemoryCri::builder(clock).name("memory", "1.0").build();
    runtime.script("setup", [Run::exits(0).after(3 * SECOND)]);
    runtime.script("main", [Run::forever().stop_takes(2 * SECOND, 0)]);
    let agent = Agent::start(runtime.clone(), clock, Pleg::Generic).await;
    let web = PodBuilder::new("web")
        .init_container("setup", "busybox:1.36", |c| c)
        .container("main", "busybox:1.36", |c| c)
        .container("side", "alpine:3", |c| c)
        .build();
    agent.pods.send_replace(vec![web.clone()]);
    agent.until(&web.uid(), "web runs", is("Running")).await;
    let status = agent.sink.get(&web.uid()).unwrap();
    assert_eq!(status.pod_ip.as_deref(), Some("10.88.0.2"));
    let main = &status.container_statuses.as_ref().unwrap()[0];
    assert!(
        main.container_id.as_ref().unwrap().starts_with("memory://"),
        "{main:?}"
    );
    assert!(main.image_id.contains("sha256:"), "{main:?}");
    assert_eq!(main.image, "docker.io/library/busybox:1.36");

    agent.pods.send_replace(vec![]);
    runtime
        .wait_until("nothing runs", |runtime| runtime.running().is_empty())
        .await
        .unwrap();
    wait_until(agent.sink.watch(), "web is gone", |pods| pods.is_empty())
        .await
        .unwrap();
    runtime.calls().assert_order([
        "RunPodSandbox web#0",
        "PullImage busybox:1.36",
        "CreateContainer web/setup#0",
        "StartContainer web/setup#0",
        "CreateContainer web/main#0",
        "StartContainer web/main#0",
        "PullImage alpine:3",
        "StartContainer web/side#0",
        "StopContainer web/main#0",
        "StopPodSandbox web#0",
    ]);
    runtime.calls().assert_count("PullImage busybox:1.36", 1);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn mounts_are_shown_as_the_runtime_makes_them() {
    let clock = clock();
    let runtime = MemoryCri::new(clock);
    let agent = Agent::start(runtime.clone(), clock, Pleg::Generic).await;
    let mount = serde_json::json!({"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": "IfPossible"});
    let web = PodBuilder::new("web")
        .container("main", "busybox:1.36", |c| {
            c.with(|main| main.volume_mounts = Some(vec![serde_json::from_value(mount).unwrap()]))
        })
        .build();
    agent.pods.send_replace(vec![web.clone()]);
    // The runtime's default handler can.
    let is_enabled = |status: &PodStatus| {
        let mounts = status.container_statuses.as_ref()?[0].volume_mounts.as_ref()?;
        Some(mounts[0].recursive_read_only.as_deref() == Some("Enabled"))
    };
    agent
        .until(&web.uid(), "its mount is shown", |status| {
            is_enabled(status).is_some()
        })
        .await;
    let status = agent.sink.get(&web.uid()).unwrap();
    assert_eq!(is_enabled(&status), Some(true), "{status:?}");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_backs_off() {
    let clock = clock();
    let runtime = MemoryCri::new(clock);
    runtime.script(
        "main",
        [Run::exits(1).after(2 * SECOND).leaves_message("no database")],
    );
    let agent = Agent::start(runtime.clone(), clock, Pleg::Generic).await;
    let crash = pod("crash");
    let begun = Instant::now();
    agent.pods.send_replace(vec![crash.clone()]);
    agent
        .until(&crash.uid(), "five restarts", |status| restarts(status) == 5)
        .await;
    // 10 + 20 + 40 + 80 s of back-off in between.
    assert!(begun.elapsed() > 150 * SECOND, "{:?}", begun.elapsed());
    assert!(agent.recorder.count("BackOff") > 0);
    let starts = runtime.calls().matching("StartContainer crash");
    let attempts: Vec<_> = starts.iter().map(|call| call.about.attempt).collect();
    assert_eq!(attempts, [0, 1, 2, 3, 4, 5]);
    agent
        .until(&crash.uid(), "its last words", |status| {
            let main = &status.container_statuses.as_ref().unwrap()[0];
            let last = main
                .last_state
                .as_ref()
                .and_then(|state| state.terminated.as_ref());
            last.is_some_and(|last| last.message.as_deref() == Some("no database") && last.exit_code == 1)
        })
        .await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_replies_make_no_second_container() {
    for call in [
        Call::RunPodSandbox,
        Call::CreateContainer,
        Call::StartContainer,
        Call::PullImage,
    ] {
        let clock = clock();
        let runtime = MemoryCri::new(clock);
        runtime.faults().on(call).first(2).reply_lost();
        let agent = Agent::start(runtime.clone(), clock, Pleg::Generic).await;
        let web = pod("web");
        agent.pods.send_replace(vec![web.clone()]);
        agent.until(&web.uid(), "web runs", is("Running")).await;
        sleep(600 * SECOND).await;
        assert_eq!(runtime.running().len(), 1, "{}", runtime.calls());
        runtime.faults().injected().assert_order([call.name()]);
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_minute_loses_no_pod() {
    for pleg in [Pleg::Generic, Pleg::Evented] {
        let clock = clock();
        let runtime = MemoryCri::new(clock);
        runtime.script("job", [Run::exits(0).after(30 * SECOND)]);
        let agent = Agent::start(runtime.clone(), clock, pleg).await;
        let job = PodBuilder::new("job")
            .restart_policy("Never")
            .container("job", "busybox:1.36", |c| c)
            .build();
        let mut pods: Vec<_> = (0..10)
            .map(|n| pod(&format!("web-{n}")))
            .chain([job.clone()])
            .collect();
        agent.pods.send_replace(pods.clone());
        for pod in &pods {
            agent.until(&pod.uid(), "all run", is("Running")).await;
        }
        runtime.crash_for(60 * SECOND);
        let late = pod("late");
        pods.push(late.clone());
        agent.pods.send_replace(pods.clone());
        sleep(59 * SECOND).await;
        assert_eq!(runtime.running().len(), 10, "they live on, and the job has ended");
        agent.until(&late.uid(), "late runs", is("Running")).await;
        agent
            .until(&job.uid(), "the job's end was seen", is("Succeeded"))
            .await;
        sleep(300 * SECOND).await;
        for pod in &pods {
            assert_eq!(restarts(&agent.sink.get(&pod.uid()).unwrap()), 0);
            assert_eq!(
                runtime
                    .tallies()
                    .iter()
                    .filter(|(uid, _, tally)| *uid == pod.uid() && tally.starts == 1)
                    .count(),
                1
            );
        }
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reboot_starts_all_anew() {
    let clock = clock();
    let runtime = MemoryCri::new(clock);
    let agent = Agent::start(runtime.clone(), clock, Pleg::Generic).await;
    let web = pod("web");
    agent.pods.send_replace(vec![web.clone()]);
    agent.until(&web.uid(), "web runs", is("Running")).await;
    runtime.reboot(20 * SECOND);
    runtime
        .wait_until("web runs in another sandbox", |runtime| {
            runtime.running() == ["web/main#1"]
        })
        .await
        .unwrap();
    runtime.calls().assert_order([
        "RunPodSandbox web#0",
        "StopPodSandbox web#0",
        "RunPodSandbox web#1",
    ]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn everything_goes_wrong_now_and_then() {
    for seed in 0..5 {
        let clock = clock();
        let runtime = MemoryCri::builder(clock).seed(seed).build();
        runtime.script("crash", [Run::exits(1).after(20 * SECOND)]);
        let faults = runtime.faults();
        let changes = [
            Call::RunPodSandbox,
            Call::CreateContainer,
            Call::StartContainer,
            Call::StopContainer,
            Call::StopPodSandbox,
            Call::RemoveContainer,
            Call::RemovePodSandbox,
        ];
        faults.on_each(changes).rate(0.1).reply_lost();
        faults
            .on_each(changes)
            .rate(0.1)
            .fails(kubelet_cri::Code::Unknown, "chance");
        faults.on_any_call().rate(0.02).slow(5 * SECOND);
        faults
            .on_each([Call::ListContainers, Call::ContainerStatus])
            .rate(0.05)
            .fails(kubelet_cri::Code::Unavailable, "chance");
        faults.on_any_event().rate(0.3).lost();
        faults.on_any_event().rate(0.2).reordered();
        let agent = Agent::start(runtime.clone(), clock, Pleg::Evented).await;
        let pods: Vec<_> = (0..5).map(|n| pod(&format!("web-{n}"))).collect();
        agent.pods.send_replace(pods.clone());
        for pod in &pods {
            agent.until(&pod.uid(), "all run", is("Running")).await;
        }
        sleep(600 * SECOND).await;
        assert!(!faults.injected().is_empty());
        agent.pods.send_replace(vec![]);
        wait_until(agent.sink.watch(), "all are gone", |pods| pods.is_empty())
            .await
            .unwrap();
        assert_eq!(runtime.running(), [""; 0]);
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_takes_over() {
    let clock = clock();
    let runtime = MemoryCri::new(clock);
    let agent = Agent::start(runtime.clone(), clock, Pleg::Generic).await;
    let web = pod("web");
    agent.pods.send_replace(vec![web.clone()]);
    agent.until(&web.uid(), "web runs", is("Running")).await;
    let sink = agent.sink.clone();
    let shown = sink.get(&web.uid());
    let root = agent.stop().await;
    runtime.calls().clear();
    let agent = Agent::start_in(root, sink.clone(), runtime.clone(), clock, Pleg::Generic).await;
    agent.pods.send_replace(vec![web.clone()]);
    sleep(60 * SECOND).await;
    assert!(runtime.calls().is_empty(), "{}", runtime.calls());
    assert_eq!(sink.get(&web.uid()), shown, "the change of agents shows nowhere");
    // The pod belongs to this agent now.
    agent.pods.send_replace(Vec::new());
    let gone = wait_until(agent.sink.watch(), "web is gone", |pods| pods.is_empty());
    gone.await.unwrap();
    agent.stop().await;
}
