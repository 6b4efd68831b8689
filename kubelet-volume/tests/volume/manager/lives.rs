//! Volumes of pods that come and go.

use std::time::Duration;

use kubelet_core::{PodExt, PodUid, VolumeManager};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fake::{Fault, World, claimed, from_config_map, pod, scratch, shared};

#[tokio::test(start_paused = true)]
async fn volumes_are_mounted_and_unmounted_once() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([scratch("tmp"), from_config_map("conf")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(world.calls(), ["set_up uid-a/conf", "set_up uid-a/tmp"]);
    let mounted = agent.volumes.mounted_volumes(&pod.uid());
    let root = world.root.path().display().to_string();
    let dir = format!("{root}/pods/uid-a/volumes/test~files/conf");
    assert_eq!(mounted["conf"].path.display().to_string(), dir);
    assert!(mounted["conf"].read_only && mounted["conf"].selinux_relabel && !mounted["tmp"].read_only);

    // A sync of a pod that has not changed does nothing.
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(world.calls(), [""; 0]);

    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    assert_eq!(world.calls(), ["tear_down uid-a/conf", "tear_down uid-a/tmp"]);
    assert!(agent.volumes.mounted_volumes(&pod.uid()).is_empty());
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    assert_eq!(world.calls(), [""; 0]);
    assert_eq!(world.left(), [""; 0]);
    assert_eq!(*world.events.lock(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_mount_is_retried_with_a_growing_wait_and_an_event_each_time() {
    let world = World::new();
    let agent = world.agent();
    for _ in 0..3 {
        world.fault("set_up", Fault::Fails("no such object"));
    }
    let begun = Instant::now();
    let pod = pod("a", json!([scratch("tmp")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(
        begun.elapsed().as_millis() / 100,
        35,
        "after 0.5, 1 and 2 seconds"
    );
    let event = "a FailedMount: MountVolume.SetUp failed for volume \"tmp\" : no such object";
    assert_eq!(*world.events.lock(), [event; 3]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mount_that_hangs_holds_up_its_own_pod() {
    let world = World::new();
    let agent = world.agent();
    world.fault("set_up uid-a/dead", Fault::Hangs);
    let (hung, other) = (
        pod("a", json!([scratch("dead"), scratch("fine")])),
        pod("b", json!([scratch("fine")])),
    );
    let volumes = agent.volumes.clone();
    let waiting = tokio::spawn(async move { volumes.wait_for_attach_and_mount(&hung).await });
    let begun = Instant::now();
    agent.volumes.wait_for_attach_and_mount(&other).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "pod shop/a (uid-a): unmounted volumes=[dead], unattached volumes=[], failed to process volumes=[]: \
         context deadline exceeded"
    );
    assert_eq!(begun.elapsed().as_secs(), 123);
    // It cannot be unmounted while the plugin hangs, and the others can.
    let error = agent
        .volumes
        .wait_for_unmount(&pod("a", json!([])))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("mounted volumes=[test/files/uid-a-dead]"),
        "{error}"
    );
    agent.volumes.wait_for_unmount(&other_pod()).await.unwrap();
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

fn other_pod() -> std::sync::Arc<k8s_openapi::api::core::v1::Pod> {
    pod("b", json!([scratch("fine")]))
}

#[tokio::test(start_paused = true)]
async fn what_is_mounted_half_way_is_unmounted_when_its_pod_goes() {
    let world = World::new();
    let agent = world.agent();
    for _ in 0..20 {
        world.fault("set_up", Fault::Uncertain("the answer was lost"));
    }
    let pod = pod("a", json!([scratch("tmp")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap_err();
    assert!(agent.volumes.mounted_volumes(&pod.uid()).is_empty());
    assert_eq!(world.left().len(), 1);
    world.fault("tear_down", Fault::Fails("busy"));
    world.calls();
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    assert_eq!(world.calls(), ["tear_down uid-a/tmp", "tear_down uid-a/tmp"]);
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_while_its_volume_is_mounted_leaves_nothing() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([scratch("tmp")]));
    let (mounting, unmounting) = tokio::join!(agent.volumes.wait_for_attach_and_mount(&pod), async {
        // The mount is under way.
        while world.calls_so_far() == 0 {
            tokio::task::yield_now().await;
        }
        agent.volumes.wait_for_unmount(&pod).await
    });
    unmounting.unwrap();
    mounting.unwrap_err();
    assert_eq!(world.calls(), ["set_up uid-a/tmp", "tear_down uid-a/tmp"]);
    assert_eq!(world.left(), [""; 0]);
    // A pod comes back under the same UID.
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(world.left().len(), 1);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_while_its_volume_is_unmounted_gets_it_again() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([scratch("tmp")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    world.fault("tear_down", Fault::Uncertain("the answer was lost"));
    world.calls();
    let volumes = agent.volumes.clone();
    let gone = pod.clone();
    let unmounting = tokio::spawn(async move { volumes.wait_for_unmount(&gone).await });
    while world.calls_so_far() == 0 {
        tokio::task::yield_now().await;
    }
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(world.calls(), ["tear_down uid-a/tmp", "set_up uid-a/tmp"]);
    assert!(unmounting.await.unwrap().is_err());
    assert_eq!(world.left().len(), 1);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_device_is_mounted_before_the_first_pod_and_unmounted_after_the_last() {
    let world = World::new();
    world.bind("data", "pv", shared());
    let agent = world.agent();
    let (a, b) = (
        pod("a", json!([claimed("data")])),
        pod("b", json!([claimed("data")])),
    );
    agent.volumes.wait_for_attach_and_mount(&a).await.unwrap();
    agent.volumes.wait_for_attach_and_mount(&b).await.unwrap();
    assert_eq!(
        world.calls(),
        ["mount_device pv", "set_up uid-a/pv", "set_up uid-b/pv"]
    );
    agent.volumes.wait_for_unmount(&a).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.calls(), ["tear_down uid-a/pv"]);
    world.fault("unmount_device", Fault::Fails("busy"));
    agent.volumes.wait_for_unmount(&b).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        world.calls(),
        ["tear_down uid-b/pv", "unmount_device pv", "unmount_device pv"]
    );
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_unmounted_and_a_pod_that_runs_is_no_orphan() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([scratch("tmp")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    agent.volumes.unmount_orphaned(&pod.uid()).await.unwrap_err();
    assert_eq!(world.calls(), ["set_up uid-a/tmp"]);
    agent.stop().await;

    let agent = world.agent();
    agent
        .volumes
        .unmount_orphaned(&PodUid::from("uid-other"))
        .await
        .unwrap();
    assert_eq!(world.calls(), ["reconstruct uid-a/tmp"]);
    agent.volumes.unmount_orphaned(&pod.uid()).await.unwrap();
    assert_eq!(world.calls(), ["tear_down uid-a/tmp"]);
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_panics_fails_one_operation() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([scratch("tmp")]));
    world.fault("set_up", Fault::Panics);
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    world.fault("tear_down", Fault::Panics);
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    let calls = [
        "set_up uid-a/tmp",
        "set_up uid-a/tmp",
        "tear_down uid-a/tmp",
        "tear_down uid-a/tmp",
    ];
    assert_eq!(world.calls(), calls);
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_pod_gets_a_volume_whose_unmount_has_begun() {
    // The pod comes back at any moment of the unmount.
    for moment in 0..12 {
        let world = World::new();
        let agent = world.agent();
        let pod = pod("a", json!([scratch("tmp")]));
        agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
        world.calls();
        let (volumes, gone) = (agent.volumes.clone(), pod.clone());
        let unmounting = tokio::spawn(async move { volumes.wait_for_unmount(&gone).await });
        for _ in 0..moment {
            tokio::task::yield_now().await;
        }
        agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
        let calls = world.calls();
        assert_ne!(calls.last().map(String::as_str), Some("tear_down uid-a/tmp"));
        sleep(Duration::from_secs(600)).await;
        if !unmounting.is_finished() || unmounting.await.unwrap().is_err() {
            assert_eq!(world.calls(), [""; 0], "unmounted under the pod at {moment}");
        }
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_mounted_half_way_stays_known_when_the_next_attempt_does_not_reach_the_plugin() {
    let world = World::new();
    world.bind("data", "pv", shared());
    let agent = world.agent();
    for _ in 0..20 {
        world.fault("set_up", Fault::Uncertain("the answer was lost"));
    }
    let pod = pod("a", json!([claimed("data")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap_err();
    let mut elsewhere = shared();
    elsewhere["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["other"]}]}]}});
    world.bind("data", "pv", elsewhere);
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap_err();
    sleep(Duration::from_secs(300)).await;
    let events = world.events.lock().join("\n");
    assert!(events.contains("no matching NodeSelectorTerms"), "{events}");
    world.calls();
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.calls(), ["tear_down uid-a/pv", "unmount_device pv"]);
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_only_claims_to_unmount_is_not_asked_all_the_time() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([scratch("tmp")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    for _ in 0..1_000 {
        world.fault("tear_down", Fault::DoesNothing);
    }
    world.calls();
    agent.volumes.wait_for_unmount(&pod).await.unwrap_err();
    let calls = world.calls();
    let unmounts = calls.iter().filter(|call| call.starts_with("tear_down"));
    assert!((2..20).contains(&unmounts.count()), "{calls:?}");
    world.heal();
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}
