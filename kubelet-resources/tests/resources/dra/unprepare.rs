//! Claims are unprepared: with their last pod, also if nobody asks.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{DynamicResources as _, PodUid};
use kubelet_resources::dra::RECONCILE_PERIOD;
use kubelet_testing::dra_driver::{DraFault, DraMethod, DraTrouble};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fixture::{DRIVER, World, claim, plugin, pod};
use kubelet_plugins::PluginHandler as _;

#[tokio::test(start_paused = true)]
async fn a_shared_claim_is_unprepared_with_its_last_pod() {
    let world = World::new();
    let manager = world.manager().await;
    let driver = world.driver(&manager, DRIVER).await;
    world.api.put(claim("a", &[DRIVER], &["p", "q"]));
    let (handle, p, q) = (manager.handle(), pod("p", &["a"]), pod("q", &["a"]));
    handle.prepare(&p).await.unwrap();
    handle.prepare(&q).await.unwrap();
    handle.unprepare(&p).await.unwrap();
    assert_eq!(driver.prepared(), ["a"]);
    assert!(!handle.might_need_unprepare(&PodUid::new("uid-p")));
    // A pod that does not use the claim, any more or at all, does not take it from another.
    handle.unprepare(&p).await.unwrap();
    handle.unprepare(&pod("stranger", &["a"])).await.unwrap();
    assert_eq!(driver.prepared(), ["a"]);
    handle.unprepare(&q).await.unwrap();
    assert!(driver.prepared().is_empty());
    assert!(world.store.claims().is_empty());
    let calls = driver.calls().len();
    handle.unprepare(&q).await.unwrap();
    assert_eq!(driver.calls().len(), calls);
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_reported_with_the_kubelets_text_and_tried_again() {
    let fails = DraTrouble::Fails(tonic::Code::Unknown, "boom".to_owned());
    let table = [
        (
            fails,
            "NodeUnprepareResources: rpc error: code = Unknown desc = boom",
        ),
        (
            DraTrouble::ClaimsFail("in use".to_owned()),
            "NodeUnprepareResources failed for ResourceClaim a: in use",
        ),
        (
            DraTrouble::LeavesOut,
            "NodeUnprepareResources skipped 1 ResourceClaims",
        ),
        (
            DraTrouble::AnswersForAnother,
            "NodeUnprepareResources returned result for unknown claim UID another",
        ),
        (
            DraTrouble::HangsAfterWork,
            "NodeUnprepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        ),
    ];
    for (trouble, text) in table {
        let world = World::new();
        let manager = world.manager().await;
        let driver = world.driver(&manager, DRIVER).await;
        world.api.put(claim("a", &[DRIVER], &["p"]));
        driver.fault(DraFault::on(DraMethod::Unprepare).times(1).then(trouble));
        let (handle, pod) = (manager.handle(), pod("p", &["a"]));
        handle.prepare(&pod).await.unwrap();
        let error = handle.unprepare(&pod).await.unwrap_err();
        assert_eq!(error.to_string(), format!("unprepare dynamic resources: {text}"));
        assert!(handle.might_need_unprepare(&PodUid::new("uid-p")));
        handle.unprepare(&pod).await.unwrap();
        assert!(driver.prepared().is_empty() && handle.claims().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_driver_is_gone_stays() {
    let world = World::new();
    let manager = world.manager().await;
    world.driver(&manager, DRIVER).await;
    world.api.put(claim("a", &[DRIVER], &["p"]));
    let (handle, pod) = (manager.handle(), pod("p", &["a"]));
    handle.prepare(&pod).await.unwrap();
    manager.plugins().deregister(&plugin(DRIVER, "1")).await;
    let error = handle.unprepare(&pod).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "unprepare dynamic resources: DRA driver gpu.example.com is not registered"
    );
    assert_eq!(world.store.claims().len(), 1);
}

/// What is still on disk is not forgotten in memory.
#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_reported_and_tried_again() {
    let world = World::new();
    let manager = world.manager().await;
    let driver = world.driver(&manager, DRIVER).await;
    world.api.put(claim("a", &[DRIVER], &["p"]));
    let (handle, pod) = (manager.handle(), pod("p", &["a"]));
    handle.prepare(&pod).await.unwrap();
    world.store.fail_after(0, false);
    let error = handle.unprepare(&pod).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "unprepare dynamic resources: checkpoint ResourceClaim state: could not save checkpoint dra_manager_state: disk full"
    );
    assert!(handle.might_need_unprepare(&PodUid::new("uid-p")));
    world.store.repair();
    handle.unprepare(&pod).await.unwrap();
    assert!(world.store.claims().is_empty() && driver.prepared().is_empty());
}

#[tokio::test(start_paused = true)]
async fn claims_of_pods_that_are_gone_are_unprepared_by_the_loop() {
    let world = World::new();
    let manager = world.manager().await;
    let driver = world.driver(&manager, DRIVER).await;
    for name in ["a", "b"] {
        world.api.put(claim(name, &[DRIVER], &["p", "q"]));
    }
    let (handle, p, q) = (manager.handle(), pod("p", &["a"]), pod("q", &["b"]));
    handle.prepare(&p).await.unwrap();
    handle.prepare(&q).await.unwrap();
    world.pods.set(&[&q]);
    *world.pods.sources_ready.lock().unwrap() = false;
    driver.fault(
        DraFault::on(DraMethod::Unprepare)
            .times(1)
            .then(DraTrouble::LeavesOut),
    );

    let shutdown = CancellationToken::new();
    let run = tokio::spawn(manager.run(world.pods.clone(), shutdown.clone()));
    let begun = Instant::now();
    tokio::time::sleep_until(begun + RECONCILE_PERIOD + Duration::from_secs(1)).await;
    // Before the sources have reported, nobody knows which pods are gone.
    assert_eq!(driver.prepared(), ["a", "b"]);
    *world.pods.sources_ready.lock().unwrap() = true;
    // The first try fails, the next one does not.
    tokio::time::sleep_until(begun + 2 * RECONCILE_PERIOD + Duration::from_secs(1)).await;
    assert_eq!(handle.claims().len(), 2);
    tokio::time::sleep_until(begun + 3 * RECONCILE_PERIOD + Duration::from_secs(1)).await;
    assert_eq!(driver.prepared(), ["b"]);
    assert_eq!(handle.claims().len(), 1);
    shutdown.cancel();
    run.await.unwrap();
}

/// The agent before prepared a claim; this one unprepares it, without its pod ever having been seen.
#[tokio::test(start_paused = true)]
async fn an_agent_takes_over_the_claims_of_the_one_before() {
    let world = World::new();
    world.api.put(claim("a", &[DRIVER], &["p"]));
    let pod = pod("p", &["a"]);
    let before = world.manager().await;
    let driver = world.driver(&before, DRIVER).await;
    before.handle().prepare(&pod).await.unwrap();
    let devices = before.handle().claims();
    drop(before);

    let manager = world.manager().await;
    let handle = manager.handle();
    assert_eq!(handle.claims(), devices);
    let container = &pod.spec.as_ref().unwrap().containers[0];
    assert_eq!(
        handle.cdi_devices(&pod, container).unwrap(),
        ["gpu.example.com/device=a"]
    );
    world.register(&manager, &driver, "1").await;
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(manager.run(Arc::clone(&world.pods) as _, shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(driver.prepared().is_empty() && handle.claims().is_empty());
    shutdown.cancel();
    run.await.unwrap();
}
