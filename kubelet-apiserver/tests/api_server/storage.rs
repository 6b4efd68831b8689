//! Volumes, claims and their controllers; what a node may do with them.
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment};
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_client::core::Status;
use kube_client::{Api, Error};
use kubelet_apiserver::{ApiServer, User};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn of<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn claim(name: &str, class: &str) -> PersistentVolumeClaim {
    of(
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"storageClassName": class,
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
    )
}

fn volume(name: &str, size: &str) -> PersistentVolume {
    of(
        json!({"metadata": {"name": name}, "spec": {"storageClassName": "manual", "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": format!("/mnt/{name}")}}}),
    )
}

/// A pod on the node with these volumes.
fn pod_with(name: &str, node: &str, volumes: Value) -> Pod {
    of(
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": node, "volumes": volumes,
        "containers": [{"name": "main", "image": "busybox"}]}}),
    )
}

fn get_claim(server: &ApiServer, name: &str) -> PersistentVolumeClaim {
    server.get("default", name).unwrap().unwrap()
}

fn phase(claim: &PersistentVolumeClaim) -> String {
    claim.status.as_ref().unwrap().phase.clone().unwrap()
}

/// The API server's answer to a request that it refused.
fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> Status {
    match result {
        Err(Error::Api(status)) => *status,
        other => panic!("{other:?}"),
    }
}

fn with_class(attach: bool) -> ApiServer {
    let server = ApiServer::builder().storage_controllers().build();
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "csi.example.com", "allowVolumeExpansion": true,
        "volumeBindingMode": "WaitForFirstConsumer"});
    server.create(&of::<StorageClass>(class)).unwrap();
    let driver = json!({"metadata": {"name": "csi.example.com"}, "spec": {"attachRequired": attach}});
    server.create(&of::<CSIDriver>(driver)).unwrap();
    server
        .create(&of::<Node>(json!({"metadata": {"name": "one"}})))
        .unwrap();
    server
}

#[tokio::test]
async fn objects_get_their_defaults_and_are_validated() {
    let server = ApiServer::new();
    let created = server.create(&volume("small", "1Gi")).unwrap();
    let spec = created.spec.unwrap();
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    assert_eq!(spec.volume_mode.as_deref(), Some("Filesystem"));
    assert_eq!(spec.host_path.unwrap().type_.as_deref(), Some(""));

    let driver: CSIDriver = server
        .create(&of(json!({"metadata": {"name": "d"}, "spec": {}})))
        .unwrap();
    assert_eq!(driver.spec.attach_required, Some(true));
    assert_eq!(
        driver.spec.fs_group_policy.as_deref(),
        Some("ReadWriteOnceWithFSType")
    );
    assert_eq!(
        driver.spec.volume_lifecycle_modes,
        Some(vec!["Persistent".to_owned()])
    );

    let volumes: Api<PersistentVolume> = Api::all(server.client());
    let nothing = of(
        json!({"metadata": {"name": "nothing"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"]}}),
    );
    let status = refused(volumes.create(&PostParams::default(), &nothing).await);
    assert_eq!(
        status.message,
        "PersistentVolume \"nothing\" is invalid: spec: Required value: must specify a volume type"
    );
    let moved = json!({"spec": {"hostPath": {"path": "/elsewhere"}}});
    let status = refused(
        volumes
            .patch("small", &PatchParams::default(), &Patch::Merge(moved))
            .await,
    );
    assert!(
        status.message.contains("is immutable after creation"),
        "{}",
        status.message
    );

    // A claim without a class gets the default class.
    let class = json!({"metadata": {"name": "usual",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "csi.example.com"});
    server.create(&of::<StorageClass>(class)).unwrap();
    let mut bare = claim("bare", "");
    bare.spec.as_mut().unwrap().storage_class_name = None;
    let bare = server.create(&bare).unwrap();
    assert_eq!(bare.spec.unwrap().storage_class_name.as_deref(), Some("usual"));
}

#[tokio::test]
async fn a_claim_is_bound_to_the_smallest_volume_that_fits() {
    let server = ApiServer::builder().storage_controllers().build();
    for (name, size) in [("large", "10Gi"), ("medium", "2Gi"), ("tiny", "1Mi")] {
        server.create(&volume(name, size)).unwrap();
    }
    server.create(&claim("data", "manual")).unwrap();
    let bound = get_claim(&server, "data");
    assert_eq!(phase(&bound), "Bound");
    assert_eq!(
        bound.spec.as_ref().unwrap().volume_name.as_deref(),
        Some("medium")
    );
    assert_eq!(bound.status.unwrap().capacity.unwrap()["storage"].0, "2Gi");
    let medium: PersistentVolume = server.get("", "medium").unwrap().unwrap();
    assert_eq!(medium.spec.unwrap().claim_ref.unwrap().uid, bound.metadata.uid);

    // A volume that comes later is found too.
    server.create(&claim("later", "other")).unwrap();
    assert_eq!(phase(&get_claim(&server, "later")), "Pending");
    let mut other = volume("other", "1Gi");
    other.spec.as_mut().unwrap().storage_class_name = Some("other".to_owned());
    server.create(&other).unwrap();
    assert_eq!(phase(&get_claim(&server, "later")), "Bound");

    server.delete::<PersistentVolumeClaim>("default", "data").unwrap();
    let medium: PersistentVolume = server.get("", "medium").unwrap().unwrap();
    assert_eq!(medium.status.unwrap().phase.as_deref(), Some("Released"));
}

#[tokio::test]
async fn a_volume_is_attached_while_it_is_used() {
    let server = with_class(true);
    server.create(&claim("data", "fast")).unwrap();
    assert_eq!(
        phase(&get_claim(&server, "data")),
        "Pending",
        "no pod needs it yet"
    );
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}]);
    server.create(&pod_with("web", "one", volumes)).unwrap();
    for name in ["data", "web-scratch"] {
        assert_eq!(phase(&get_claim(&server, name)), "Bound", "{name}");
    }
    let attached = || {
        let node: Node = server.get("", "one").unwrap().unwrap();
        let attached = node.status.and_then(|status| status.volumes_attached);
        let names = attached.unwrap_or_default().into_iter().map(|it| it.name);
        names.collect::<Vec<_>>()
    };
    let attachments = || server.list::<VolumeAttachment>().unwrap().len();
    assert_eq!((attached().len(), attachments()), (2, 2));
    assert!(attached()[0].starts_with("kubernetes.io/csi/csi.example.com^pvc-"));

    // The node still uses one when the pod is gone.
    let nodes: Api<Node> = Api::all(server.client());
    let used = attached()[0].clone();
    let in_use = json!({"status": {"volumesInUse": [used]}});
    let params = PatchParams::default();
    nodes
        .patch_status("one", &params, &Patch::Merge(in_use))
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(server.client(), "default");
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("web", &at_once).await.unwrap();
    assert_eq!(attached(), [used]);
    let unused = json!({"status": {"volumesInUse": []}});
    nodes
        .patch_status("one", &params, &Patch::Merge(unused))
        .await
        .unwrap();
    assert_eq!((attached().len(), attachments()), (0, 0));
    // The claim of the ephemeral volume went with the pod, and its volume with the claim.
    let claims = server.list::<PersistentVolumeClaim>().unwrap();
    assert_eq!(claims.len(), 1);
    assert_eq!(server.list::<PersistentVolume>().unwrap().len(), 1);
}

#[tokio::test]
async fn a_larger_claim_waits_for_the_node() {
    let server = with_class(false);
    server.create(&claim("data", "fast")).unwrap();
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    server.create(&pod_with("web", "one", volumes)).unwrap();
    assert!(server.list::<VolumeAttachment>().unwrap().is_empty());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(server.client(), "default");
    let larger = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
    let params = PatchParams::default();
    claims
        .patch("data", &params, &Patch::Merge(larger))
        .await
        .unwrap();
    let status = get_claim(&server, "data").status.unwrap();
    assert_eq!(status.capacity.unwrap()["storage"].0, "1Gi");
    assert_eq!(status.conditions.unwrap()[0].type_, "FileSystemResizePending");
    assert_eq!(
        status.allocated_resource_statuses.unwrap()["storage"],
        "NodeResizePending"
    );
}

#[tokio::test]
async fn a_node_reads_the_volumes_of_its_pods_and_writes_its_own_csi_node() {
    let server = with_class(true);
    server.create(&claim("data", "fast")).unwrap();
    server.create(&claim("foreign", "fast")).unwrap();
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    server.create(&pod_with("web", "one", volumes)).unwrap();
    let bound = get_claim(&server, "data");
    let volume = bound.spec.unwrap().volume_name.unwrap();

    let one = server.client_as(User::node("one"));
    let two = server.client_as(User::node("two"));
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(one.clone(), "default");
    claims.get("data").await.unwrap();
    refused(claims.get("foreign").await);
    refused(claims.list(&kube_client::api::ListParams::default()).await);
    Api::<PersistentVolume>::all(one.clone())
        .get(&volume)
        .await
        .unwrap();
    let status = refused(Api::<PersistentVolume>::all(two.clone()).get(&volume).await);
    assert!(
        status
            .message
            .ends_with("no relationship found between node 'two' and this object"),
        "{}",
        status.message
    );
    let attachment = server.list::<VolumeAttachment>().unwrap()[0].clone();
    let name = attachment.metadata.name.unwrap();
    Api::<VolumeAttachment>::all(one.clone())
        .get(&name)
        .await
        .unwrap();
    refused(Api::<VolumeAttachment>::all(two.clone()).get(&name).await);

    // It reports the size, and nothing else.
    let params = PatchParams::default();
    let grown = json!({"status": {"capacity": {"storage": "2Gi"}}});
    claims
        .patch_status("data", &params, &Patch::Merge(grown))
        .await
        .unwrap();
    let lost = json!({"status": {"phase": "Lost"}});
    let status = refused(claims.patch_status("data", &params, &Patch::Merge(lost)).await);
    assert!(
        status
            .message
            .contains("is not allowed to update fields other than"),
        "{}",
        status.message
    );

    let csi_node: CSINode = of(json!({"metadata": {"name": "one"}, "spec": {"drivers": [
        {"name": "csi.example.com", "nodeID": "one", "topologyKeys": []}]}}));
    let create = PostParams::default();
    refused(Api::<CSINode>::all(two).create(&create, &csi_node).await);
    let csi_nodes = Api::<CSINode>::all(one);
    csi_nodes.create(&create, &csi_node).await.unwrap();
    csi_nodes.get("one").await.unwrap();
}
