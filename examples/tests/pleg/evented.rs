//! The evented PLEG with a periodic relist in an hour: it sees changes by events of the runtime.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::PodLifecycleEventType::{ContainerDied, ContainerStarted};
use kubelet_core::{Clock, ContainerId, PodCache, PodUid};
use kubelet_cri::{CriAdapter, CriServer, CriSocket};
use kubelet_pleg::EventedPleg;
use kubelet_testing::{Containerd, MemoryRuntime};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::observed::Observed;
use super::stage::{Stage, Watching, pids};
use super::{show, within};

/// With one container each.
const PODS: usize = 10;
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(60 * 60);

/// A PLEG without a periodic relist during the test.
fn evented(runtime: Arc<Observed>, cache: PodCache) -> EventedPleg {
    EventedPleg::new(runtime, cache).with_relist_period(NEVER).with_relist_threshold(2 * NEVER)
}

#[tokio::test]
async fn a_runtime_in_memory_behind_a_socket_is_followed_by_its_events() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let (memory, shutdown) = (MemoryRuntime::new(Clock::system()), CancellationToken::new());
    let adapter = Arc::new(CriAdapter::builder(Arc::new(memory.clone())).build());
    let server = CriServer::new(adapter.clone(), adapter.clone());
    let listening = CriSocket::bind(&socket, 0o600).await.unwrap();
    let serving = tokio::spawn(server.serve(listening, shutdown.clone()));

    let stage = Stage::with_images(format!("unix://{}", socket.display()), adapter).await;
    let mut watching = Watching::start(&stage, evented).await;
    let containers = run_pods(&stage, &mut watching).await;
    let lists = watching.observed.lists().len();

    let (mut took, mut took_us) = (Vec::new(), Vec::new());
    for (pod, container) in &containers {
        let ended = Instant::now();
        assert_eq!(memory.end(pod, "c0", 7), 1);
        let told = watching.told(ContainerDied, container).await;
        took.push(told - ended);
        took_us.extend(watching.observed.hinted(pod, ended).map(|hinted| told - hinted));
        assert_eq!(watching.cache.get(pod).unwrap().containers[0].exit_code, 7);
    }
    assert_eq!(watching.observed.lists().len(), lists, "no list brought it");
    show("evented PLEG through a socket of ours, end to event", took);
    show("of which from the runtime's hint", took_us);
    watching.stop().await;
    shutdown.cancel();
    within("the end of the server", serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn containerd_is_followed_by_its_events() {
    let Some(containerd) = Containerd::start_2().await.unwrap() else { return };
    let stage = Stage::on(containerd.endpoint()).await;
    let mut watching = Watching::start(&stage, evented).await;
    let containers = run_pods(&stage, &mut watching).await;
    let lists = watching.observed.lists().len();
    let pids = pids(&containerd).await;

    let (mut took, mut took_us) = (Vec::new(), Vec::new());
    for (pod, container) in &containers {
        let killed = Instant::now();
        kill_process(Pid::from_raw(pids[container.id()]).unwrap(), Signal::KILL).unwrap();
        let told = watching.told(ContainerDied, container).await;
        took.push(told - killed);
        took_us.extend(watching.observed.hinted(pod, killed).map(|hinted| told - hinted));
        assert_eq!(watching.cache.get(pod).unwrap().containers[0].exit_code, 137);
    }
    assert_eq!(watching.observed.lists().len(), lists, "no list brought it");
    show("evented PLEG on containerd, kill to event", took);
    // Before that containerd must reap the process, delete it with runc, and send the event.
    show("of which from containerd's hint", took_us);
    watching.stop().await;
}

#[tokio::test]
async fn a_containerd_that_was_killed_is_followed_again() {
    let Some(mut containerd) = Containerd::start_2().await.unwrap() else { return };
    let stage = Stage::on(containerd.endpoint()).await;
    // Without events there is a periodic relist.
    let mut watching = Watching::start(&stage, |runtime, cache| EventedPleg::new(runtime, cache)).await;
    let pod = stage.run_pod("web", 2).await;
    let containers = watching.running(&pod, 2).await;
    let victim = pids(&containerd).await[containers[0].id()];

    containerd.kill();
    kill_process(Pid::from_raw(victim).unwrap(), Signal::KILL).unwrap();
    containerd.restart().await.unwrap();
    watching.told(ContainerDied, &containers[0]).await;

    let pod = stage.run_pod("later", 1).await;
    let container = watching.running(&pod, 1).await.remove(0);
    watching.told(ContainerStarted, &container).await;
    watching.stop().await;
}

/// Runs the pods, and returns each one's container when the PLEG has seen it run.
async fn run_pods(stage: &Stage, watching: &mut Watching) -> Vec<(PodUid, ContainerId)> {
    let mut containers = Vec::new();
    for number in 0..PODS {
        let pod = stage.run_pod(&format!("web-{number}"), 1).await;
        let container = watching.running(&pod, 1).await.remove(0);
        containers.push((pod, container));
    }
    containers
}
