//! Claims are prepared.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::DynamicResources as _;
use kubelet_resources::dra::{CALL_TIMEOUT, DraGates};
use kubelet_testing::dra_driver::{DraFault, DraMethod, DraTrouble, MemoryDra};
use serde_json::json;
use tokio::time::Instant;
use tonic::Code;

use super::fixture::{DRIVER, World, changed, claim, claim_with, names, pod};

fn prepares(driver: &MemoryDra) -> Vec<Vec<String>> {
    let calls = driver.calls().all().into_iter();
    calls
        .filter(|call| call.method == DraMethod::Prepare)
        .map(|call| call.claims)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn all_claims_of_a_driver_are_prepared_in_one_call_and_once() {
    let world = World::new();
    let manager = world.manager().await;
    let (gpu, net) = (
        world.driver(&manager, DRIVER).await,
        world.driver(&manager, "net.example.com").await,
    );
    world.api.put(claim("a", &[DRIVER], &["p"]));
    world.api.put(claim("b", &[DRIVER, "net.example.com"], &["p"]));
    let (handle, pod) = (manager.handle(), pod("p", &["a", "b"]));
    handle.prepare(&pod).await.unwrap();
    handle.prepare(&pod).await.unwrap();
    assert_eq!(prepares(&gpu), [["a", "b"]]);
    assert_eq!(prepares(&net), [["b"]]);
    let container = &pod.spec.as_ref().unwrap().containers[0];
    assert_eq!(
        handle.cdi_devices(&pod, container).unwrap(),
        [
            "gpu.example.com/device=a",
            "gpu.example.com/device=b",
            "net.example.com/device=b"
        ]
    );
    assert_eq!(world.store.claims(), handle.claims());
    assert!(handle.might_need_unprepare(&kubelet_core::PodUid::new("uid-p")));
    // Once before the calls, once after, and once for the new file.
    assert_eq!(world.store.writes(), 3);
}

/// The texts of `PrepareResources`; the pod can be deleted, because nothing was noted.
#[tokio::test(start_paused = true)]
async fn a_pod_that_must_not_use_a_claim_is_refused_before_anything_is_noted() {
    let owned = |uid: &str| {
        let mut claim = claim("made", &[DRIVER], &["p"]);
        claim.metadata.owner_references = Some(vec![
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid,
                "controller": true}))
            .unwrap(),
        ]);
        claim
    };
    let from_template = |status: serde_json::Value| {
        changed(
            &pod("p", &[]),
            &json!({
                "spec": {"resourceClaims": [{"name": "entry", "resourceClaimTemplateName": "template"}]},
                "status": status,
            }),
        )
    };
    let statuses = json!({"resourceClaimStatuses": [{"name": "entry", "resourceClaimName": "made"}]});
    let unallocated = {
        let mut claim = claim("a", &[], &["p"]);
        claim.status.as_mut().unwrap().allocation = None;
        claim
    };
    let table: Vec<(&str, Pod, _, &str)> = vec![
        (
            "no claim",
            pod("p", &["a"]),
            None,
            "fetch ResourceClaim a: resourceclaims.resource.k8s.io \"a\" not found",
        ),
        (
            "not reserved",
            pod("p", &["a"]),
            Some(claim("a", &[DRIVER], &["q"])),
            "pod p (uid-p) is not allowed to use ResourceClaim a (uid-a)",
        ),
        (
            "not allocated",
            pod("p", &["a"]),
            Some(unallocated),
            "ResourceClaim a: not allocated",
        ),
        (
            "no driver",
            pod("p", &["a"]),
            Some(claim("a", &["other"], &["p"])),
            "DRA driver other is not registered",
        ),
        (
            "empty driver",
            pod("p", &["a"]),
            Some(claim("a", &[""], &["p"])),
            "DRA driver name is empty",
        ),
        (
            "no claim made yet",
            from_template(json!({})),
            None,
            "pod \"default/p\": ResourceClaim not created yet",
        ),
        (
            "made for another",
            from_template(statuses.clone()),
            Some(owned("uid-q")),
            "ResourceClaim default/made was not created for Pod default/p (Pod is not owner)",
        ),
        (
            "neither name nor template",
            changed(
                &pod("p", &[]),
                &json!({"spec": {"resourceClaims": [{"name": "entry"}]}}),
            ),
            None,
            "pod \"default/p\", spec.resourceClaim \"entry\": none of the supported fields are set",
        ),
    ];
    for (case, pod, claim, text) in table {
        let world = World::new();
        let manager = world.manager().await;
        let driver = world.driver(&manager, DRIVER).await;
        claim.into_iter().for_each(|claim| world.api.put(claim));
        let error = manager.handle().prepare(&pod).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("prepare dynamic resources: {text}"),
            "{case}"
        );
        assert!(manager.handle().claims().is_empty(), "{case}");
        assert!(driver.calls().is_empty(), "{case}");
    }

    // The claim of the template is the pod's own; and an entry may need no claim.
    let world = World::new();
    let manager = world.manager().await;
    let driver = world.driver(&manager, DRIVER).await;
    world.api.put(owned("uid-p"));
    manager.handle().prepare(&from_template(statuses)).await.unwrap();
    assert_eq!(driver.prepared(), ["made"]);
    let needs_none = from_template(json!({"resourceClaimStatuses": [{"name": "entry"}]}));
    manager.handle().prepare(&needs_none).await.unwrap();
    assert_eq!(driver.calls().len(), 1);
}

/// With `DRAWorkloadResourceClaims`, the claim may be that of the pod's group.
#[tokio::test(start_paused = true)]
async fn a_claim_of_the_pods_group_needs_the_gate() {
    let mut gates = DraGates::default();
    for is_on in [false, true] {
        gates.workload_claims = is_on;
        let world = World::new();
        let manager = world.manager_with(gates).await;
        world.driver(&manager, DRIVER).await;
        let mut claim = claim("a", &[DRIVER], &[]);
        claim.status.as_mut().unwrap().reserved_for = Some(vec![
            serde_json::from_value(
                json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "x"}),
            )
            .unwrap(),
        ]);
        world.api.put(claim);
        let pod = changed(
            &pod("p", &["a"]),
            &json!({"spec": {"schedulingGroup": {"podGroupName": "g"}}}),
        );
        assert_eq!(manager.handle().prepare(&pod).await.is_ok(), is_on);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_reported_with_the_kubelets_text_and_tried_again() {
    let fails = DraTrouble::Fails(Code::Internal, "boom".to_owned());
    let table = [
        (
            fails,
            "NodePrepareResources: rpc error: code = Internal desc = boom",
        ),
        (
            DraTrouble::ClaimsFail("no such device".to_owned()),
            "NodePrepareResources failed for ResourceClaim a: no such device",
        ),
        (
            DraTrouble::LeavesOut,
            "NodePrepareResources skipped 1 ResourceClaims",
        ),
        (
            DraTrouble::AnswersForAnother,
            "NodePrepareResources returned result for unknown claim UID another",
        ),
        (
            DraTrouble::Hangs,
            "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        ),
    ];
    for (trouble, text) in table {
        let world = World::new();
        let manager = world.manager().await;
        let driver = world.driver(&manager, DRIVER).await;
        world.api.put(claim("a", &[DRIVER], &["p"]));
        driver.fault(DraFault::on(DraMethod::Prepare).times(1).then(trouble));
        let (handle, pod) = (manager.handle(), pod("p", &["a"]));
        let error = handle.prepare(&pod).await.unwrap_err();
        assert_eq!(error.to_string(), format!("prepare dynamic resources: {text}"));
        // The driver may have done it: with the pod, the claim is unprepared.
        assert_eq!(names(&world.store.claims()).len(), 1);
        handle.prepare(&pod).await.unwrap();
        assert_eq!(
            handle.claims()[0].driver_state[DRIVER]
                .devices
                .as_ref()
                .unwrap()
                .len(),
            1
        );
        handle.unprepare(&pod).await.unwrap();
        assert!(driver.prepared().is_empty() && handle.claims().is_empty());
    }
}

/// When the second driver fails, the first is called again. Its devices replace those of its first answer.
#[tokio::test(start_paused = true)]
async fn devices_of_an_earlier_answer_are_replaced() {
    let world = World::new();
    let manager = world.manager().await;
    let first = world.driver(&manager, "a.example.com").await;
    let second = world.driver(&manager, "b.example.com").await;
    second.fault(
        DraFault::on(DraMethod::Prepare)
            .times(1)
            .then(DraTrouble::LeavesOut),
    );
    world
        .api
        .put(claim("a", &["a.example.com", "b.example.com"], &["p"]));
    let (handle, pod) = (manager.handle(), pod("p", &["a"]));
    handle.prepare(&pod).await.unwrap_err();
    handle.prepare(&pod).await.unwrap();
    assert_eq!(prepares(&first).len(), 2);
    let container = &pod.spec.as_ref().unwrap().containers[0];
    assert_eq!(
        handle.cdi_devices(&pod, container).unwrap(),
        ["a.example.com/device=a", "b.example.com/device=a"]
    );
}

#[tokio::test(start_paused = true)]
async fn two_pods_prepare_a_shared_claim_once_and_never_at_once() {
    let world = World::new();
    let manager = world.manager().await;
    let driver = world.driver(&manager, DRIVER).await;
    let slow = DraTrouble::Slow(Duration::from_secs(20));
    driver.fault(DraFault::on(DraMethod::Prepare).then(slow));
    for name in ["x", "shared", "y"] {
        world.api.put(claim(name, &[DRIVER], &["p", "q"]));
    }
    let handle = manager.handle();
    // The claims in opposite order: neither waits for the other for ever.
    let (p, q) = (pod("p", &["x", "shared"]), pod("q", &["shared", "y"]));
    let begun = Instant::now();
    let (first, second) = tokio::join!(handle.prepare(&p), handle.prepare(&q));
    first.unwrap();
    second.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(40));
    assert_eq!(
        prepares(&driver),
        [vec!["shared".to_owned(), "x".to_owned()], vec!["y".to_owned()]]
    );
    assert!(driver.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_holds_up_only_its_own_claims() {
    let world = World::new();
    let manager = world.manager().await;
    let hung = world.driver(&manager, "hung.example.com").await;
    world.driver(&manager, DRIVER).await;
    hung.fault(DraFault::on(DraMethod::Prepare).then(DraTrouble::Hangs));
    world.api.put(claim("a", &["hung.example.com"], &["p"]));
    world.api.put(claim("b", &[DRIVER], &["q"]));
    let handle = manager.handle();
    let begun = Instant::now();
    let other = async {
        handle.prepare(&pod("q", &["b"])).await.unwrap();
        begun.elapsed()
    };
    let p = pod("p", &["a"]);
    let (failed, took) = tokio::join!(handle.prepare(&p), other);
    failed.unwrap_err();
    assert_eq!((took, begun.elapsed()), (Duration::ZERO, CALL_TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_lets_the_next_one_in() {
    let world = World::new();
    let manager = world.manager().await;
    let driver = world.driver(&manager, DRIVER).await;
    driver.fault(
        DraFault::on(DraMethod::Prepare)
            .times(1)
            .then(DraTrouble::HangsAfterWork),
    );
    world.api.put(claim("a", &[DRIVER], &["p"]));
    let (handle, pod) = (manager.handle(), pod("p", &["a"]));
    let cut_short = tokio::time::timeout(Duration::from_secs(1), handle.prepare(&pod)).await;
    cut_short.unwrap_err();
    handle.prepare(&pod).await.unwrap();
    assert!(driver.violations().is_empty());
    handle.unprepare(&pod).await.unwrap();
    assert!(driver.prepared().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_old_claim_of_the_same_name_is_in_the_way() {
    let world = World::new();
    let manager = world.manager().await;
    let driver = world.driver(&manager, DRIVER).await;
    world.api.put(claim_with("a", "old", &[DRIVER], &["p"]));
    let handle = manager.handle();
    handle.prepare(&pod("p", &["a"])).await.unwrap();
    world.api.put(claim_with("a", "new", &[DRIVER], &["q"]));
    let error = handle.prepare(&pod("q", &["a"])).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "prepare dynamic resources: old ResourceClaim with same name a and different UID old still exists (previous pod \
         force-deleted?!)"
    );
    handle.unprepare(&pod("p", &["a"])).await.unwrap();
    handle.prepare(&pod("q", &["a"])).await.unwrap();
    assert_eq!(driver.prepared(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn no_driver_is_called_for_a_claim_that_is_not_noted_on_disk() {
    let world = World::new();
    let manager = world.manager().await;
    let driver = world.driver(&manager, DRIVER).await;
    world.api.put(claim("a", &[DRIVER], &["p"]));
    let (handle, pod) = (manager.handle(), pod("p", &["a"]));
    world.store.fail_after(0, false);
    let error = handle.prepare(&pod).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "prepare dynamic resources: checkpoint ResourceClaim cache: could not save checkpoint dra_manager_state: disk full"
    );
    assert!(driver.calls().is_empty());
    world.store.repair();
    handle.prepare(&pod).await.unwrap();
}
