//! Persistent volumes: claims, attachment, and growth.

use std::time::Duration;

use kubelet_core::{Error, PodExt, VolumeManager, VolumesInUse};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::fake::{Agent, Fault, World, attached, claimed, pod, scratch, shared};

const ATTACHED: &str = "test/attached/nfs-pv";

#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_used_is_reported_in_the_kubelets_words() {
    let pvc = "error processing PVC shop/data: ";
    for (change, why) in [
        (
            json!({"claim": {"status": {"phase": "Pending"}}}),
            format!("{pvc}PVC is not bound"),
        ),
        (
            json!({"claim": {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}}),
            format!("{pvc}PVC is being deleted"),
        ),
        (
            json!({"claim": {"spec": {"volumeName": ""}}}),
            format!("{pvc}PVC has empty pvc.Spec.VolumeName"),
        ),
        (
            json!({"volume": {"spec": {"claimRef": null}}}),
            format!(
                "{pvc}found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
            ),
        ),
        (
            json!({"volume": {"spec": {"claimRef": {"uid": "other"}}}}),
            format!(
                "{pvc}found PV object pv but its pv.Spec.ClaimRef.UID other does not point to claim.UID uid-data"
            ),
        ),
        (
            json!({"volume": {"spec": {"volumeMode": "Block"}}}),
            "volume data has volumeMode Block, but is specified in volumeMounts".to_owned(),
        ),
        (
            json!({"volume": {"spec": {"hostPath": null}}}),
            "failed to get Plugin from volumeSpec for volume \"pv\" err=no volume plugin matched".to_owned(),
        ),
    ] {
        let world = World::new();
        world.bind("data", "pv", shared());
        for (kind, patch) in change.as_object().unwrap() {
            change_object(&world, kind, patch);
        }
        let agent = world.agent();
        let pod = pod("a", json!([claimed("data"), scratch("tmp")]));
        let error = agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap_err();
        let unmounted = "unattached volumes=[], failed to process volumes=[data]";
        let message = error.to_string();
        assert!(message.ends_with(&format!("{unmounted}: {why}")), "{message}");
        agent.stop().await;
    }
}

fn change_object(world: &World, kind: &str, patch: &Value) {
    match kind {
        "claim" => {
            let mut claims = world.claims.lock();
            let mut claim = serde_json::to_value(&*claims["data"]).unwrap();
            merge(&mut claim, patch);
            claims.insert(
                "data".to_owned(),
                std::sync::Arc::new(serde_json::from_value(claim).unwrap()),
            );
        }
        _ => {
            let mut volumes = world.volumes.lock();
            let (name, volume) = volumes.first_key_value().unwrap();
            let (name, mut volume) = (name.clone(), serde_json::to_value(&**volume).unwrap());
            merge(&mut volume, patch);
            volumes.insert(name, std::sync::Arc::new(serde_json::from_value(volume).unwrap()));
        }
    }
}

fn merge(target: &mut Value, patch: &Value) {
    match patch.as_object() {
        None => *target = patch.clone(),
        Some(patch) => {
            for (key, value) in patch {
                merge(&mut target[key], value);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_survives_a_claim_that_goes() {
    let world = World::new();
    world.bind("data", "pv", shared());
    let agent = world.agent();
    let pod = pod("a", json!([claimed("data")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    world.claims.lock().clear();
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    *world.api_server_is_down.lock() = true;
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(agent.volumes.mounted_volumes(&pod.uid()).len(), 1);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_generic_ephemeral_volume_belongs_to_its_pod() {
    let world = World::new();
    world.bind("a-cache", "pv", shared());
    let agent = world.agent();
    let pod = pod("a", json!([{"name": "cache", "ephemeral": {}}]));
    let error = agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("PVC shop/a-cache was not created for pod shop/a (pod is not owner)"),
        "{error}"
    );
    let mut claim = (*world.claims.lock()["a-cache"]).clone();
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a", "controller": true}]);
    claim.metadata.owner_references = serde_json::from_value(owner).unwrap();
    world.claims.lock().insert("a-cache".to_owned(), claim.into());
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_mounted_after_it_was_reported_in_use_and_attached() {
    let world = World::new();
    world.bind("data", "nfs-pv", attached());
    let agent = world.agent();
    let mut changes = agent.volumes.changes().unwrap();
    let pod = pod("a", json!([claimed("data")]));
    let mounting = {
        let (volumes, pod) = (agent.volumes.clone(), pod.clone());
        tokio::spawn(async move { volumes.wait_for_attach_and_mount(&pod).await })
    };
    changes.changed().await.unwrap();
    while agent.volumes.volumes_in_use() != Some(vec![ATTACHED.to_owned()]) {
        changes.changed().await.unwrap();
    }
    sleep(Duration::from_secs(10)).await;
    agent.volumes.mark_reported(&[ATTACHED.to_owned()]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.calls(), [""; 0]);
    assert!(!mounting.is_finished());
    world
        .attached
        .lock()
        .push((ATTACHED.to_owned(), "/dev/x".to_owned()));
    world.attached_changes.send_modify(|count| *count += 1);
    let begun = tokio::time::Instant::now();
    mounting.await.unwrap().unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(world.calls(), ["mount_device nfs-pv", "set_up uid-a/nfs-pv"]);

    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    while agent.volumes.volumes_in_use() != Some(Vec::new()) {
        changes.changed().await.unwrap();
    }
    assert_eq!(world.left(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_full_rejects_the_pod() {
    let world = World::new();
    world.bind("data", "nfs-pv", attached());
    let agent = world.agent();
    let pod = pod("a", json!([claimed("data"), scratch("tmp")]));
    let message = "unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: \
                   context deadline exceeded";
    let error = agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap_err();
    assert_eq!(error.to_string(), format!("pod shop/a (uid-a): {message}"));
    *world.exhausted.lock() = true;
    let error = agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap_err();
    assert!(
        matches!(&error, Error::VolumeAttachLimitExceeded { message: why } if why == message),
        "{error}"
    );
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_can_attach_and_detach_itself() {
    let world = World::new();
    world.bind("data", "nfs-pv", attached());
    let agent = Agent::of(world.builder().controller_attach_detach(false).build().unwrap());
    world.fault("attach", Fault::Fails("no slot"));
    let pod = pod("a", json!([claimed("data")]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        world.calls(),
        [
            "attach nfs-pv node-1",
            "attach nfs-pv node-1",
            "mount_device nfs-pv",
            "set_up uid-a/nfs-pv",
            "tear_down uid-a/nfs-pv",
            "unmount_device nfs-pv",
            "detach nfs-pv node-1"
        ]
    );
    let events = world.events.lock().join("\n");
    assert_eq!(
        events,
        "a FailedAttachVolume: AttachVolume.Attach failed for volume \"nfs-pv\" : no slot\n\
         a SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume \"nfs-pv\" "
    );
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_for_one_pod_waits_until_the_other_is_gone() {
    let world = World::new();
    let mut source = shared();
    source["accessModes"] = json!(["ReadWriteOncePod"]);
    world.bind("data", "pv", source);
    let agent = world.agent();
    let (a, b) = (
        pod("a", json!([claimed("data")])),
        pod("b", json!([claimed("data")])),
    );
    agent.volumes.wait_for_attach_and_mount(&a).await.unwrap();
    agent.volumes.wait_for_attach_and_mount(&b).await.unwrap_err();
    let event = "b FailedMount: MountVolume.SetUp failed for volume \"pv\" : volume uses the ReadWriteOncePod access \
                 mode and is already in use by another pod";
    assert_eq!(world.events.lock()[0], event);
    agent.volumes.wait_for_unmount(&a).await.unwrap();
    agent.volumes.wait_for_attach_and_mount(&b).await.unwrap();
    agent.stop().await;
}

/// The controller has made the volume larger.
pub(crate) fn grow(world: &World, claim: &str, volume: &str, allocated: Option<&str>) {
    let mut object = (*world.volumes.lock()[volume]).clone();
    let spec = object.spec.as_mut().unwrap();
    spec.capacity = serde_json::from_value(json!({"storage": "2Gi"})).unwrap();
    world.volumes.lock().insert(volume.to_owned(), object.into());
    let mut object = serde_json::to_value(&*world.claims.lock()[claim]).unwrap();
    object["spec"]["resources"] = json!({"requests": {"storage": "2Gi"}});
    if let Some(state) = allocated {
        object["status"]["allocatedResources"] = json!({"storage": "2Gi"});
        object["status"]["allocatedResourceStatuses"] = json!({"storage": state});
    }
    object["status"]["conditions"] =
        json!([{"type": "FileSystemResizePending", "status": "True"}, {"type": "Mine", "status": "True"}]);
    world.claims.lock().insert(
        claim.to_owned(),
        std::sync::Arc::new(serde_json::from_value(object).unwrap()),
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_grows_while_it_is_mounted_and_before() {
    for allocated in [None, Some("NodeResizePending")] {
        for is_online in [true, false] {
            let world = World::new();
            world.bind("data", "pv", shared());
            let agent = world.agent();
            let pod = pod("a", json!([claimed("data")]));
            if is_online {
                agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
            }
            grow(&world, "data", "pv", allocated);
            agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
            sleep(Duration::from_secs(60)).await;
            let calls = world.calls();
            assert_eq!(calls[2..], ["node_expand pv 1 2"], "{calls:?}");
            let event = "a FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \"pv\" node-1";
            assert_eq!(*world.events.lock(), [event]);
            let claim = world.claims.lock()["data"].clone();
            let status = serde_json::to_value(claim.status.as_ref().unwrap()).unwrap();
            assert_eq!(status["capacity"]["storage"], "2Gi");
            assert_eq!(status["conditions"], json!([{"type": "Mine", "status": "True"}]));
            assert_eq!(status["allocatedResourceStatuses"].get("storage"), None);
            agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
            sleep(Duration::from_secs(60)).await;
            assert_eq!(world.calls(), [""; 0]);
            agent.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_cannot_grow_is_reported() {
    for (fault, condition, state) in [
        (Fault::Infeasible("too large"), true, "NodeResizeInfeasible"),
        (Fault::Fails("busy"), true, "NodeResizeInProgress"),
        (Fault::FailedPrecondition("in use"), true, "NodeResizeInProgress"),
        (Fault::Uncertain("lost"), false, "NodeResizeInProgress"),
    ] {
        let world = World::new();
        world.bind("data", "pv", shared());
        let agent = world.agent();
        let pod = pod("a", json!([claimed("data")]));
        agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
        grow(&world, "data", "pv", Some("NodeResizePending"));
        let is_retried = !matches!(fault, Fault::FailedPrecondition(_));
        world.fault("node_expand", fault);
        agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        let claim = world.claims.lock()["data"].clone();
        let status = serde_json::to_value(claim.status.as_ref().unwrap()).unwrap();
        assert_eq!(status["allocatedResourceStatuses"]["storage"], state);
        assert_eq!(
            status["conditions"]
                .to_string()
                .contains("failed to expand pvc with"),
            condition
        );
        let has_event = world
            .events
            .lock()
            .iter()
            .any(|event| event.contains("VolumeResizeFailed"));
        assert_eq!(has_event, is_retried);
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_group_of_a_volume_is_known() {
    for (annotation, group) in [(Some("1234"), Some(1234)), (Some("staff"), None), (None, None)] {
        let world = World::new();
        world.bind("data", "pv", shared());
        let annotations = annotation.map(|gid| json!({"pv.beta.kubernetes.io/gid": gid}));
        change_object(
            &world,
            "volume",
            &json!({"metadata": {"annotations": annotations}}),
        );
        let agent = world.agent();
        let pod = pod("a", json!([claimed("data")]));
        agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
        let volume = &agent.volumes.mounted_volumes(&pod.uid())["data"];
        assert_eq!((volume.group, volume.inner_name.as_str()), (group, "pv"));
        agent.stop().await;
    }
}
