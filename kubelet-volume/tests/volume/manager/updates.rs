//! Volumes are set up again when what they are made from changes, and only then.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use kubelet_core::{PodExt, VolumeManager, VolumeUsages};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::fake::{Fault, World, from_config_map, pod, scratch};

/// Long enough for whatever was to happen at once, on a clock that only sleepers advance.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

/// Longer than a volume rests after an update.
async fn rest() {
    sleep(Duration::from_secs(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_object_updates_the_mounts_that_use_it_at_once() {
    let world = World::new();
    let agent = world.agent();
    for (name, object) in [("a", "red"), ("b", "red"), ("c", "blue")] {
        let pod = pod(name, json!([from_config_map(object), scratch("tmp")]));
        agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    }
    world.calls();
    world.change("red");
    settle().await;
    assert_eq!(world.calls(), ["set_up uid-a/red", "set_up uid-b/red"]);
    world.change("green");
    rest().await;
    assert_eq!(world.calls(), [""; 0]);
    // A pod that is gone is left alone.
    agent
        .volumes
        .wait_for_unmount(&pod("a", json!([])))
        .await
        .unwrap();
    world.calls();
    world.change("red");
    settle().await;
    assert_eq!(world.calls(), ["set_up uid-b/red"]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_changes_is_one_update_and_a_lost_change_is_made_up_for() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([from_config_map("red")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    world.calls();
    for _ in 0..40 {
        world.change("red");
    }
    settle().await;
    assert_eq!(world.calls(), ["set_up uid-a/red"]);
    rest().await;
    // More than the subscription can hold.
    for _ in 0..1000 {
        world.change("blue");
    }
    settle().await;
    assert_eq!(world.calls(), ["set_up uid-a/red"]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_during_an_update_is_followed_by_another() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([from_config_map("red")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    world.calls();
    world.change("red");
    while world.calls_so_far() == 0 {
        tokio::task::yield_now().await;
    }
    world.change("red");
    rest().await;
    assert_eq!(world.calls(), ["set_up uid-a/red", "set_up uid-a/red"]);
    agent.stop().await;
}

/// How many updates of a volume follow each other before it rests.
const AT_ONCE: usize = 4;

#[tokio::test(start_paused = true)]
async fn a_few_changes_are_there_at_once_and_further_ones_once_a_second() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([from_config_map("red")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    world.calls();
    for number in 0..90 {
        world.change("red");
        sleep(Duration::from_millis(20)).await;
        if number < AT_ONCE {
            assert_eq!(world.calls_so_far(), number + 1);
        }
    }
    assert_eq!(world.calls().len(), AT_ONCE + 1, "the last one after 1 second");
    rest().await;
    assert_eq!(world.calls().len(), 1, "the last change");
    // It rests no longer than it must.
    sleep(Duration::from_secs(60)).await;
    for _ in 0..AT_ONCE {
        world.change("red");
        settle().await;
    }
    assert_eq!(world.calls().len(), AT_ONCE);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_synced_gets_the_last_change_at_once() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([from_config_map("red")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    world.calls();
    for _ in 0..=AT_ONCE {
        world.change("red");
        settle().await;
    }
    assert_eq!(world.calls().len(), AT_ONCE, "the last change waits");
    let begun = tokio::time::Instant::now();
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_millis(10),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(world.calls(), ["set_up uid-a/red"]);
    rest().await;
    assert_eq!(world.calls(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_update_that_fails_leaves_the_pod_its_volume() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([from_config_map("red")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    for _ in 0..100 {
        world.fault("set_up", Fault::Fails("configmap \"red\" not found"));
    }
    world.change("red");
    settle().await;
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(agent.volumes.mounted_volumes(&pod.uid()).len(), 1);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        world.calls().len(),
        8,
        "the first, and after 0, 0.5, 1.5, 3.5, 7.5, 15.5 and 31.5 seconds"
    );
    // The object is back: no wait.
    world.heal();
    world.change("red");
    settle().await;
    assert_eq!(world.calls(), ["set_up uid-a/red"]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_subscription_each_sync_updates() {
    let world = World::new();
    *world.changes.lock() = None;
    let agent = world.agent();
    let pod = pod("a", json!([from_config_map("red"), scratch("tmp")]));
    for _ in 0..3 {
        agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    }
    let calls = world.calls();
    assert_eq!(
        calls.iter().filter(|call| call.ends_with("red")).count(),
        3,
        "{calls:?}"
    );
    assert_eq!(
        calls.iter().filter(|call| call.ends_with("tmp")).count(),
        1,
        "{calls:?}"
    );
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_pod_updates_what_is_made_from_it() {
    let world = World::new();
    let agent = world.agent();
    let before = pod("a", json!([{"name": "info", "downwardAPI": {}}, scratch("tmp")]));
    agent.volumes.wait_for_attach_and_mount(&before).await.unwrap();
    world.calls();
    let mut after = (*before).clone();
    after.metadata.resource_version = Some("2".to_owned());
    agent
        .volumes
        .wait_for_attach_and_mount(&Arc::new(after.clone()))
        .await
        .unwrap();
    assert_eq!(world.calls(), [""; 0]);
    after.metadata.labels = Some([("color".to_owned(), "red".to_owned())].into());
    agent
        .volumes
        .wait_for_attach_and_mount(&Arc::new(after))
        .await
        .unwrap();
    assert_eq!(world.calls(), ["set_up uid-a/info"]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_expires_is_set_up_again_in_time() {
    let world = World::new();
    let agent = world.agent();
    *world.again_after.lock() = Some(Duration::from_secs(3600));
    agent
        .volumes
        .wait_for_attach_and_mount(&pod("a", json!([scratch("tmp")])))
        .await
        .unwrap();
    sleep(Duration::from_secs(3599)).await;
    assert_eq!(world.calls().len(), 1);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(world.calls().len(), 1);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.calls().len(), 1);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_update_that_hangs_does_not_hold_up_its_pod() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([from_config_map("red")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    world.fault("set_up", Fault::Hangs);
    world.change("red");
    settle().await;
    let begun = tokio::time::Instant::now();
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_secs(2));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn four_hundred_idle_volumes_do_nothing() {
    let world = World::new();
    let engine = world.builder().build().unwrap();
    let volumes = engine.handle();
    let shutdown = CancellationToken::new();
    let polls = Arc::new(AtomicUsize::new(0));
    let (counted, stop) = (polls.clone(), shutdown.clone());
    let running = tokio::spawn(async move {
        let mut running = pin!(engine.run(stop));
        std::future::poll_fn(|context| {
            counted.fetch_add(1, Ordering::Relaxed);
            running.poll_unpin(context)
        })
        .await;
    });
    for pod_number in 0..110 {
        let name = format!("pod-{pod_number}");
        let of_pod = json!([
            scratch("a"),
            scratch("b"),
            from_config_map("c"),
            from_config_map("d")
        ]);
        volumes
            .wait_for_attach_and_mount(&pod(&name, of_pod))
            .await
            .unwrap();
    }
    settle().await;
    assert_eq!(world.calls().len(), 440);
    polls.store(0, Ordering::Relaxed);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((world.calls().len(), polls.load(Ordering::Relaxed)), (0, 0));
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn usages_are_measured_in_the_background_and_kept_for_a_while() {
    let world = World::new();
    let agent = world.agent();
    let pod = pod("a", json!([scratch("dead"), scratch("tmp")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    world.calls();
    world.fault("usage uid-a/dead", Fault::Hangs);
    assert!(agent.volumes.volume_usages(&pod.uid()).await.is_empty());
    for _ in 0..10 {
        settle().await;
        let usages = agent.volumes.volume_usages(&pod.uid()).await;
        assert_eq!(usages.keys().collect::<Vec<_>>(), ["tmp"]);
        assert_eq!(usages["tmp"].used_bytes, Some(7));
        assert!(usages["tmp"].time.is_some());
    }
    assert_eq!(world.calls(), ["usage uid-a/dead", "usage uid-a/tmp"]);
    sleep(Duration::from_secs(121)).await;
    agent.volumes.volume_usages(&pod.uid()).await;
    settle().await;
    assert_eq!(world.calls(), ["usage uid-a/tmp"]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_due_all_the_time_is_set_up_again_once_a_minute() {
    let world = World::new();
    let agent = world.agent();
    *world.again_after.lock() = Some(Duration::ZERO);
    let pod = pod("a", json!([scratch("tmp")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    let calls = world.calls();
    assert!((7..=11).contains(&calls.len()), "{calls:?}");
    agent.stop().await;
}
