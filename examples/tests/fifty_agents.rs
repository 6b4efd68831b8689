//! There is no global state: fifty agents run in one process and one thread, in virtual time, and leave nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::unfold;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_config::{PodConfig, StreamSource};
use kubelet_core::{Clock, Error, Jitter, Kubelet, KubeletHandle, PodCache, PodExt, PodSource};
use kubelet_cri::CriAdapter;
use kubelet_kuberuntime::CriRuntime;
use kubelet_pleg::GenericPleg;
use kubelet_status::{MemorySink, StatusManager};
use kubelet_testing::{MemoryRuntime, PodBuilder, Run, wait_until};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::{Barrier, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const AGENTS: u64 = 50;

/// An agent with its own source, runtime and sink.
struct Agent {
    number: u64,
    pods: watch::Sender<Vec<Arc<Pod>>>,
    runtime: MemoryRuntime,
    sink: MemorySink,
    handle: KubeletHandle,
    shutdown: CancellationToken,
    running: JoinHandle<kubelet_core::Result<()>>,
    _root: TempDir,
}

impl Agent {
    async fn start(number: u64) -> Self {
        // Each in a time of its own.
        let clock = Clock::starting_at(Timestamp::from_second(1_700_000_000 + number.cast_signed()).unwrap());
        let root = tempfile::tempdir().unwrap();
        let (pods, runtime, sink) =
            (watch::Sender::new(Vec::new()), MemoryRuntime::new(clock), MemorySink::new());
        runtime.script("setup", [Run::exits(0).after(Duration::from_secs(3))]);
        runtime.script("crash", [Run::exits(1).after(Duration::from_secs(1 + number % 7))]);
        runtime.script("job", [Run::exits(0).after(Duration::from_secs(60))]);
        runtime.script("slow", [Run::forever().stop_takes(Duration::from_secs(5), 0)]);

        let adapter = Arc::new(CriAdapter::builder(Arc::new(runtime.clone())).clock(clock).build());
        let cri = CriRuntime::builder(adapter.clone(), adapter)
            .root_dir(root.path())
            .pod_logs_dir(root.path().join("logs"))
            .clock(clock);
        let (cri, cache) = (Arc::new(cri.build().await.unwrap()), PodCache::new());
        let kubelet = Kubelet::builder()
            .pods(PodConfig::builder().source(source(&pods)).clock(clock).build().unwrap())
            .pleg(GenericPleg::new(cri.clone(), cache.clone()).with_clock(clock), cache)
            .runtime(cri)
            .statuses(StatusManager::new(sink.clone()))
            .root_dir(root.path())
            .jitter(Jitter::from_seed(number))
            .build()
            .unwrap();
        let (handle, shutdown) = (kubelet.handle(), CancellationToken::new());
        let running = tokio::spawn(kubelet.run(shutdown.clone()));
        Self { number, pods, runtime, sink, handle, shutdown, running, _root: root }
    }

    async fn until(&self, pod: &Pod, what: &str, reached: impl Fn(&PodStatus) -> bool) {
        let uid = pod.uid();
        let reached = wait_until(self.sink.watch(), what, |pods| {
            pods.get(&uid).is_some_and(|reported| reached(&reported.status))
        });
        if let Err(error) = reached.await {
            panic!("agent {}: {error}; it is {:#?}", self.number, self.sink.get(&uid));
        }
    }

    async fn nothing_runs(&self) {
        let nothing_runs =
            |runtime: &MemoryRuntime| runtime.containers().iter().all(|container| !container.is_running());
        self.runtime.wait_until("nothing runs", nothing_runs).await.unwrap();
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }
}

/// What is in the channel, now and whenever it changes.
fn source(pods: &watch::Sender<Vec<Arc<Pod>>>) -> impl PodSource {
    let desired = unfold((pods.subscribe(), true), |(mut pods, first)| async move {
        if !first {
            pods.changed().await.ok()?;
        }
        let now = pods.borrow_and_update().clone();
        Some((now, (pods, false)))
    });
    StreamSource::new("test", desired)
}

/// The same in every agent, down to the UIDs.
fn pods() -> [Arc<Pod>; 3] {
    let image = "busybox:1.36";
    let web = PodBuilder::new("web")
        .init_container("setup", image, |c| c)
        .container("main", image, |c| c)
        .container("slow", image, |c| c);
    let crash = PodBuilder::new("crash").container("crash", image, |c| c);
    let job = PodBuilder::new("job").restart_policy("Never").container("job", image, |c| c);
    [web.build(), crash.build(), job.build()]
}

fn is(phase: &'static str) -> impl Fn(&PodStatus) -> bool {
    move |status| status.phase.as_deref() == Some(phase)
}

fn restarts(status: &PodStatus) -> i32 {
    status.container_statuses.iter().flatten().map(|container| container.restart_count).sum()
}

/// The life of an agent.
async fn live(number: u64, all_at_work: &Barrier) {
    let agent = Agent::start(number).await;
    let [web, crash, job] = pods();
    agent.pods.send_replace(vec![web.clone(), crash.clone(), job.clone()]);
    agent.until(&web, "web runs", is("Running")).await;
    agent.until(&job, "the job succeeded", is("Succeeded")).await;
    agent.until(&crash, "restarts", |status| restarts(status) >= 3).await;
    all_at_work.wait().await;

    if number.is_multiple_of(2) {
        agent.pods.send_replace(vec![]);
        agent.nothing_runs().await;
        wait_until(agent.sink.watch(), "all pods are gone", |pods| pods.is_empty()).await.unwrap();
    } else {
        agent.handle.end_pods(None).await;
        assert!(agent.runtime.containers().iter().all(|container| !container.is_running()));
    }

    // It worked for its own pods only, and once.
    let mut tallies = agent.runtime.tallies();
    tallies.sort_by(|a, b| a.1.cmp(&b.1));
    let names: Vec<_> = tallies.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["crash", "job", "main", "setup", "slow"], "agent {number}");
    for (_, name, tally) in &tallies {
        assert_eq!(tally.most_at_once, 1, "agent {number}: {name}");
        assert!(
            tally.starts == 1 || name == "crash" && tally.starts >= 4,
            "agent {number}: {name} {tally:?}"
        );
    }
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn fifty_agents_live_in_one_process_and_leave_nothing() {
    let alive = || Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let all_at_work = Barrier::new(AGENTS.try_into().unwrap());
    join_all((0..AGENTS).map(|number| live(number, &all_at_work))).await;
    assert_eq!(alive(), before);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_dropped_takes_its_tasks_with_it_and_no_other() {
    let alive = || Handle::current().metrics().num_alive_tasks();
    let none = alive();
    let stays = Agent::start(1).await;
    let [web, ..] = pods();
    stays.pods.send_replace(vec![web.clone()]);
    stays.until(&web, "web runs", is("Running")).await;
    let one = alive();
    assert!(one > none);

    let goes = Agent::start(2).await;
    goes.pods.send_replace(vec![web.clone()]);
    goes.until(&web, "web runs", is("Running")).await;
    assert!(alive() > one);
    goes.running.abort();
    assert!(goes.running.await.unwrap_err().is_cancelled());
    // An aborted task needs one more turn to end.
    let gone = async {
        while alive() > one {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(3600), gone).await.expect("its tasks are gone");
    // Its containers continue unchanged, and the other agent has not noticed anything.
    assert!(goes.runtime.containers().iter().any(|container| container.is_running()));
    assert_eq!(stays.runtime.end(&web.uid(), "main", 1), 1);
    stays.until(&web, "main runs again", |status| restarts(status) == 1).await;
    stays.stop().await;
    assert_eq!(alive(), none);
}

#[test]
fn an_agent_of_nothing_is_told_all_that_is_missing() {
    let error = Kubelet::builder().root_dir("not/absolute").build().unwrap_err();
    let Error::Misconfigured { problems } = &error else { panic!("{error}") };
    let told = error.to_string();
    for part in ["pods", "runtime", "PLEG", "status manager", "root dir"] {
        let about: Vec<_> = problems.iter().filter(|problem| problem.contains(part)).collect();
        assert!(!about.is_empty(), "{part} is not in {problems:?}");
        assert!(about.iter().all(|problem| told.contains(problem.as_str())), "{told}");
    }
    assert_eq!(problems.len(), 5, "{problems:?}");
}
