//! The agent ends, or is killed, and the next one goes on from what lies on disk.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, VolumeManager, VolumesInUse};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::fake::{Fault, World, attached, claimed, from_config_map, pod, scratch, shared};

#[tokio::test(start_paused = true)]
async fn pods_that_still_run_keep_their_volumes_and_those_of_others_go() {
    let world = World::new();
    world.bind("data", "pv", shared());
    let pods = [
        pod("a", json!([claimed("data"), scratch("tmp")])),
        pod("b", json!([claimed("data"), scratch("tmp")])),
    ];
    let agent = world.agent();
    for pod in &pods {
        agent.volumes.wait_for_attach_and_mount(pod).await.unwrap();
    }
    agent.stop().await;
    world.calls();

    let agent = world.agent();
    sleep(Duration::from_secs(600)).await;
    let mut calls = world.calls();
    calls.sort();
    let found = ["uid-a/pv", "uid-a/tmp", "uid-b/pv", "uid-b/tmp"].map(|it| format!("reconstruct {it}"));
    assert_eq!(
        calls, found,
        "nothing else happens until it is known whether the pods run"
    );
    assert!(agent.volumes.mounted_volumes(&pods[0].uid()).is_empty());

    agent.volumes.wait_for_attach_and_mount(&pods[0]).await.unwrap();
    let mut calls = world.calls();
    calls.sort();
    assert_eq!(calls, ["mount_device pv", "set_up uid-a/pv", "set_up uid-a/tmp"]);
    assert_eq!(agent.volumes.mounted_volumes(&pods[0].uid()).len(), 2);

    agent.volumes.unmount_orphaned(&pods[1].uid()).await.unwrap();
    let mut calls = world.calls();
    calls.sort();
    assert_eq!(calls, ["tear_down uid-b/pv", "tear_down uid-b/tmp"]);
    agent.volumes.wait_for_unmount(&pods[0]).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_reconstructed_is_used_by_its_pod_and_removed_when_the_pod_is_gone() {
    let world = World::new();
    world.bind("data", "pv", shared());
    let pods = [
        pod("a", json!([claimed("data")])),
        pod("b", json!([scratch("tmp")])),
    ];
    let agent = world.agent();
    for pod in &pods {
        agent.volumes.wait_for_attach_and_mount(pod).await.unwrap();
    }
    agent.stop().await;
    for _ in 0..2 {
        world.fault("reconstruct", Fault::Fails("no file"));
    }
    world.calls();
    let agent = world.agent();
    agent.volumes.wait_for_attach_and_mount(&pods[0]).await.unwrap();
    agent.volumes.unmount_orphaned(&pods[1].uid()).await.unwrap();
    let calls = world.calls();
    assert_eq!(
        calls[2..],
        ["mount_device pv", "set_up uid-a/pv", "tear_down uid-b/tmp"]
    );
    agent.volumes.wait_for_unmount(&pods[0]).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_at_the_start_holds_up_the_others_only_for_a_while() {
    let world = World::new();
    let agent = world.agent();
    let (a, b) = (
        pod("a", json!([scratch("dead")])),
        pod("b", json!([scratch("tmp")])),
    );
    agent.volumes.wait_for_attach_and_mount(&a).await.unwrap();
    agent.stop().await;
    world.fault("reconstruct", Fault::Hangs);
    let agent = world.agent();
    agent.volumes.wait_for_attach_and_mount(&b).await.unwrap();
    agent.volumes.unmount_orphaned(&a.uid()).await.unwrap();
    assert_eq!(world.left().len(), 1);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_device_that_no_pod_uses_is_unmounted_after_a_restart() {
    let world = World::new();
    world.devices.lock().insert("pv".to_owned());
    let agent = world.agent();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.calls(), ["unmount_device pv"]);
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_an_api_server_volumes_are_found_and_removed_and_none_is_reported_as_free() {
    let world = World::new();
    world.bind("data", "nfs-pv", attached());
    let pod = pod("a", json!([claimed("data")]));
    world
        .attached
        .lock()
        .push(("test/attached/nfs-pv".to_owned(), "/dev/x".to_owned()));
    let agent = world.agent();
    let mounting = {
        let (volumes, pod) = (agent.volumes.clone(), pod.clone());
        tokio::spawn(async move { volumes.wait_for_attach_and_mount(&pod).await })
    };
    sleep(Duration::from_secs(1)).await;
    agent.volumes.mark_reported(&["test/attached/nfs-pv".to_owned()]);
    mounting.await.unwrap().unwrap();
    agent.stop().await;

    *world.api_server_is_down.lock() = true;
    let agent = world.agent();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(agent.volumes.volumes_in_use(), None);
    *world.api_server_is_down.lock() = false;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(agent.volumes.volumes_in_use().unwrap(), ["test/attached/nfs-pv"]);
    agent.volumes.unmount_orphaned(&pod.uid()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(agent.volumes.volumes_in_use().unwrap(), [""; 0]);
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_waits_until_its_folder_is_removed() {
    let world = World::new();
    world.bind("data", "pv", shared());
    let pod = pod("a", json!([claimed("data")]));
    let agent = world.agent();
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    agent.stop().await;

    for comes_to_stay in [true, false] {
        world.calls();
        world.fault("reconstruct", Fault::Fails("unreadable"));
        let may_end = Arc::new(Notify::new());
        world.fault("tear_down", Fault::Waits(may_end.clone()));
        let agent = world.agent();
        let (volumes, uid) = (agent.volumes.clone(), pod.uid());
        let removing = tokio::spawn(async move { volumes.unmount_orphaned(&uid).await });
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.calls(), ["reconstruct uid-a/pv", "tear_down uid-a/pv"]);

        let (volumes, of) = (agent.volumes.clone(), pod.clone());
        let mounting = tokio::spawn(async move { volumes.wait_for_attach_and_mount(&of).await });
        sleep(Duration::from_secs(60)).await;
        let ending = (!comes_to_stay).then(|| {
            let (volumes, of) = (agent.volumes.clone(), pod.clone());
            tokio::spawn(async move { volumes.wait_for_unmount(&of).await })
        });
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.calls(), [""; 0], "the folder is being removed");
        may_end.notify_one();
        match ending {
            None => {
                mounting.await.unwrap().unwrap();
                let dir = world.root.path().join("pods/uid-a/volumes/test~shared/pv");
                assert!(dir.exists());
            }
            Some(ending) => {
                ending.await.unwrap().unwrap();
                mounting.await.unwrap().unwrap_err();
                sleep(Duration::from_secs(1)).await;
                assert_eq!(world.left(), [""; 0]);
            }
        }
        _ = removing.await.unwrap();
        agent.stop().await;
    }
}

/// Runs an agent until it has ended or is killed after so many calls of plugins. Returns whether it was killed.
async fn run_until_killed(world: &Arc<World>, pods: &[Arc<Pod>], calls: usize) -> bool {
    *world.dies_after.lock() = Some(calls);
    let agent = world.agent();
    let life = async {
        for pod in pods {
            agent.volumes.wait_for_attach_and_mount(pod).await.unwrap();
        }
        world.change("conf");
        sleep(Duration::from_millis(1)).await;
        agent.volumes.wait_for_unmount(&pods[0]).await.unwrap();
        agent.volumes.wait_for_unmount(&pods[1]).await.unwrap();
        sleep(Duration::from_secs(1)).await;
    };
    let is_killed = tokio::select! {
        () = life => false,
        () = world.died.notified() => true,
    };
    *world.dies_after.lock() = None;
    agent.stop().await;
    is_killed
}

#[tokio::test(start_paused = true)]
async fn an_agent_killed_after_any_call_recovers() {
    let mut calls = 1;
    loop {
        let world = World::new();
        world.bind("data", "pv", shared());
        let pods = [
            pod("a", json!([claimed("data"), from_config_map("conf")])),
            pod("b", json!([claimed("data"), scratch("tmp")])),
        ];
        let is_killed = run_until_killed(&world, &pods, calls).await;

        // One pod still runs, the other is gone.
        let agent = world.agent();
        agent.volumes.wait_for_attach_and_mount(&pods[1]).await.unwrap();
        agent.volumes.unmount_orphaned(&pods[0].uid()).await.unwrap();
        assert_eq!(agent.volumes.mounted_volumes(&pods[1].uid()).len(), 2);
        assert_eq!(world.left().len(), 3, "after {calls} calls: {:?}", world.left());
        agent.stop().await;

        // Both are gone.
        let agent = world.agent();
        agent.volumes.unmount_orphaned(&pods[1].uid()).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.left(), [""; 0], "after {calls} calls");
        agent.stop().await;
        if !is_killed {
            assert!(calls > 10);
            return;
        }
        calls += 1;
    }
}
