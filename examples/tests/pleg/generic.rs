//! The generic PLEG on the host's containerd.

use kubelet_core::PodLifecycleEventType::ContainerDied;
use kubelet_pleg::GenericPleg;
use kubelet_testing::Containerd;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use super::show;
use super::stage::{Stage, Watching, pids};

#[tokio::test]
async fn a_killed_container_is_seen_within_one_period() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let stage = Stage::on(containerd.endpoint()).await;
    let pod = stage.run_pod("web", 5).await;
    let mut watching = Watching::start(&stage, |runtime, cache| GenericPleg::new(runtime, cache)).await;
    let containers = watching.running(&pod, 5).await;
    let pids = pids(&containerd).await;

    let mut took = Vec::new();
    for container in &containers {
        kill_process(Pid::from_raw(pids[container.id()]).unwrap(), Signal::KILL).unwrap();
        let killed = Instant::now();
        let (told, ended) = tokio::join!(watching.told(ContainerDied, container), async {
            stage.ended(&pod, container).await;
            Instant::now()
        });
        took.push(told - killed);

        let status = watching.cache.get(&pod).unwrap();
        let died = status.containers.iter().find(|it| it.id == *container).unwrap();
        assert_eq!(died.exit_code, 137);
        // The cache is stamped with the list that brought it: at the latest the first one since the end was a fact.
        let since = |list: &Instant| *list > ended && *list <= status.timestamp;
        let lists = watching.observed.lists();
        assert!(lists.iter().filter(|list| since(list)).count() <= 1, "{ended:?} {lists:?} {status:?}");
    }
    show("generic PLEG on containerd, kill to event", took);
    watching.stop().await;
}
