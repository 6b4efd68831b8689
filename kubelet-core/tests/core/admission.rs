//! Who may run on a node that has little to give, in virtual time.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::rig::recorded::Recorded;
use super::rig::{Node, Pods, pod};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::admission::DeclaredFeatures;
use kubelet_core::{
    Error, FixedNode, KubeletBuilder, PodAdmitAttributes, PodAdmitHandler, PodExt, PodStatusFn, PodUid,
    Rejection, Result, VolumeManager,
};
use serde_json::json;
use tokio::sync::{Semaphore, watch};

/// A node with room for two pods, one CPU and a label.
fn small(builder: KubeletBuilder) -> KubeletBuilder {
    let node = json!({
        "metadata": {"name": "node-1", "labels": {"zone": "a"}},
        "status": {"allocatable": {"pods": "2", "cpu": "1"}},
    });
    builder.node(Arc::new(FixedNode::new(Arc::new(
        serde_json::from_value(node).unwrap(),
    ))))
}

fn created(uid: &str, second: i64) -> Pod {
    let mut pod = pod(uid);
    pod.metadata.creation_timestamp = Some(kubelet_core::clock::api_time(Timestamp::constant(second, 0)));
    pod
}

fn asking(mut pod: Pod, cpu: &str, priority: i32) -> Arc<Pod> {
    let spec = pod.spec.as_mut().unwrap();
    let requests = json!({"requests": {"cpu": cpu}});
    spec.containers[0].resources = Some(serde_json::from_value(requests).unwrap());
    spec.priority = Some(priority);
    Arc::new(pod)
}

#[tokio::test(start_paused = true)]
async fn older_pods_are_admitted_first_and_who_is_rejected_has_failed_for_good() {
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], small);
    let pods = [created("c", 3), created("a", 1), created("b", 2)];
    api.send(pods.into_iter().map(Arc::new).collect()).unwrap();
    node.wait_for_phase("a", "Running").await;
    node.wait_for_phase("b", "Running").await;
    node.wait_for_phase("c", "Failed").await;
    let status = node.status("c");
    assert_eq!(status.reason.as_deref(), Some("OutOfpods"));
    let message =
        "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2";
    assert_eq!(status.message.as_deref(), Some(message));
    assert!(status.container_statuses.is_none());
    node.events.wait_for("OutOfpods").await;

    // Room is made: that is too late for it, whatever its source says of it again.
    let mut told = created("c", 3);
    told.status = Some(status);
    api.send(vec![Arc::new(created("b", 2)), Arc::new(told)]).unwrap();
    node.runtime.wait_for("forgot a").await;
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert!(!node.runtime.did("started c"));
    let status = node.status("c");
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert!(status.container_statuses.is_none());
    assert!(status.conditions.unwrap_or_default().is_empty());

    // Another one of its kind fits now.
    api.send(vec![Arc::new(created("b", 2)), Arc::new(created("d", 4))])
        .unwrap();
    node.wait_for_phase("d", "Running").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_pod_that_is_deleted_is_finished() {
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], small);
    let mut far = pod("far");
    far.spec.as_mut().unwrap().node_selector = Some([("zone".into(), "b".into())].into());
    api.send(vec![Arc::new(far.clone())]).unwrap();
    node.wait_for_phase("far", "Failed").await;
    assert_eq!(node.status("far").reason.as_deref(), Some("NodeAffinity"));
    far.status = Some(node.status("far"));
    far.metadata.deletion_timestamp = Some(kubelet_core::clock::api_time(Timestamp::UNIX_EPOCH));
    far.metadata.deletion_grace_period_seconds = Some(0);
    api.send(vec![Arc::new(far)]).unwrap();
    let finished = async {
        while !node.handle.workers().is_pod_known_terminated(&"far".into()) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), finished)
        .await
        .unwrap();
    assert!(!node.runtime.did("started far"));
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_gets_the_room_of_one_that_matters_less() {
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], small);
    let low = asking(created("low", 1), "800m", 0);
    api.send(vec![low.clone()]).unwrap();
    node.wait_for_phase("low", "Running").await;

    // Not for one that matters no more.
    let same = asking(created("same", 2), "500m", 0);
    api.send(vec![low.clone(), same.clone()]).unwrap();
    node.wait_for_phase("same", "Failed").await;
    assert_eq!(node.status("same").reason.as_deref(), Some("OutOfcpu"));

    let critical = asking(created("critical", 3), "500m", 2_000_000_000);
    api.send(vec![low, same, critical]).unwrap();
    node.runtime.wait_for("killed low in 7").await;
    node.wait_for_phase("critical", "Running").await;
    node.wait_for_phase("low", "Failed").await;
    let status = node.status("low");
    assert_eq!(status.reason.as_deref(), Some("Preempting"));
    assert_eq!(
        status.message.as_deref(),
        Some("Preempted in order to admit critical pod")
    );
    let condition = status
        .conditions
        .unwrap()
        .into_iter()
        .find(|it| it.type_ == "DisruptionTarget");
    assert_eq!(condition.unwrap().reason.as_deref(), Some("TerminationByKubelet"));
    node.events.wait_for("Preempting").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_will_not_end_does_not_hold_the_node() {
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], small);
    let low = asking(created("low", 1), "800m", 0);
    api.send(vec![low.clone()]).unwrap();
    node.wait_for_phase("low", "Running").await;
    node.runtime.kill_hangs.send_replace(true);
    let critical = asking(created("critical", 3), "500m", 2_000_000_000);
    api.send(vec![low, critical]).unwrap();
    node.events.wait_for("ExceededGracePeriod").await;
    node.wait_for_phase("critical", "Running").await;
    node.runtime.kill_hangs.send_replace(false);
    node.runtime.wait_for("killed low in 7").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_needs_a_feature_that_the_node_does_not_declare_is_told_of() {
    let features = DeclaredFeatures::new(["InPlacePodVerticalScalingInitContainers"]);
    let more = |builder| small(builder).declared_features(features);
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], more);
    let spec = |resources: &serde_json::Value, init: &serde_json::Value| {
        let init = json!([{"name": "i", "resources": init}]);
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "initContainers": init, "resources": resources});
        let mut pod = created("a", 1);
        pod.spec = Some(serde_json::from_value(spec).unwrap());
        Arc::new(pod)
    };
    let (less, more) = (
        json!({"limits": {"cpu": "100m"}}),
        json!({"limits": {"cpu": "200m"}}),
    );
    let told = || node.events.count("FailedNodeDeclaredFeaturesCheck");
    api.send(vec![spec(&less, &less)]).unwrap();
    node.runtime.wait_for("started a").await;
    // This the node declares.
    api.send(vec![spec(&less, &more)]).unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(told(), 0);
    api.send(vec![spec(&more, &more)]).unwrap();
    node.events.wait_for("FailedNodeDeclaredFeaturesCheck").await;
    assert!(!node.runtime.did("killed a in 7"));

    let mut restarts = created("b", 2);
    let rule = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
    let container = &mut restarts.spec.as_mut().unwrap().containers[0];
    container.restart_policy_rules = Some(serde_json::from_value(rule).unwrap());
    // The node has no such label either, and that is found first.
    let mut far = restarts.clone();
    (far.metadata.uid, far.metadata.name) = (Some("far".into()), Some("far".into()));
    far.spec.as_mut().unwrap().node_selector = Some([("zone".into(), "b".into())].into());
    api.send(vec![spec(&more, &more), Arc::new(restarts), Arc::new(far)])
        .unwrap();
    node.wait_for_phase("b", "Failed").await;
    node.wait_for_phase("far", "Failed").await;
    let status = node.status("b");
    assert_eq!(status.reason.as_deref(), Some("PodFeatureUnsupported"));
    let message = "Pod was rejected: Pod requires node features that are not available: \
                   RestartAllContainersOnContainerExits";
    assert_eq!(status.message.as_deref(), Some(message));
    assert_eq!(node.status("far").reason.as_deref(), Some("NodeAffinity"));
    assert_eq!(told(), 1);
    node.stop().await;
}

/// The node has all the volumes that it can have.
struct Full;

#[async_trait]
impl VolumeManager for Full {
    async fn wait_for_attach_and_mount(&self, pod: &Arc<Pod>) -> Result<()> {
        let spec = pod.spec.as_ref().unwrap();
        match &spec.volumes {
            Some(_) => Err(Error::VolumeAttachLimitExceeded {
                message: "unmounted volumes=[data]".to_owned(),
            }),
            None => Ok(()),
        }
    }
    fn mounted_volumes(&self, _: &PodUid) -> BTreeMap<String, kubelet_core::MountedVolume> {
        BTreeMap::new()
    }
    async fn wait_for_unmount(&self, _: &Arc<Pod>) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_volumes_are_too_many_for_the_node_has_failed_and_leaves_its_room() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let more = |builder| small(builder).volumes(Arc::new(Full));
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], more);
    let mut full = Pod::clone(&asking(created("full", 1), "800m", 0));
    let volume = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    full.spec.as_mut().unwrap().volumes = Some(serde_json::from_value(volume).unwrap());
    let full = Arc::new(full);
    api.send(vec![full.clone()]).unwrap();
    node.wait_for_phase("full", "Failed").await;
    let finished = async {
        while !node.handle.workers().should_pod_be_finished(&"full".into()) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), finished)
        .await
        .unwrap();
    let status = node.status("full");
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("VolumeAttachmentLimitExceeded"));
    let message = "Pod was rejected: Node has reached its volume attachment limit, rejecting pod. \
                   unmounted volumes=[data]";
    assert_eq!(status.message.as_deref(), Some(message));
    assert_eq!(node.events.count("VolumeAttachmentLimitExceeded"), 1);
    assert_eq!(node.events.count("FailedMount"), 0);
    let counted = "kubelet_admission_rejections_total{reason=VolumeAttachmentLimitExceeded}";
    assert_eq!(recorded.value(counted), 1.0);
    assert!(!node.runtime.did("started full"));

    let next = asking(created("next", 2), "800m", 0);
    api.send(vec![full, next]).unwrap();
    node.wait_for_phase("next", "Running").await;
    node.stop().await;
}

/// Allocates something slowly: the state file takes long to write.
struct SlowToAdmit {
    asked: watch::Sender<Option<PodUid>>,
    written: Semaphore,
}

#[async_trait]
impl PodAdmitHandler for SlowToAdmit {
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> std::result::Result<(), Rejection> {
        assert!(attributes.other_pods.is_empty(), "it is not beside itself");
        self.asked.send_replace(Some(attributes.pod.uid()));
        self.written.acquire().await.unwrap().forget();
        Ok(())
    }
}

impl SlowToAdmit {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            asked: watch::Sender::new(None),
            written: Semaphore::new(0),
        })
    }

    async fn asked(&self) {
        self.asked.subscribe().wait_for(Option::is_some).await.unwrap();
    }
}

/// Whoever frees the resources of pods that are gone must not free those of a pod that has just got them.
#[tokio::test(start_paused = true)]
async fn a_pod_is_active_from_the_begin_of_its_admission() {
    let slow = SlowToAdmit::new();
    let handler = slow.clone();
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], |builder| builder.admission(handler));
    api.send(vec![Arc::new(pod("a"))]).unwrap();
    slow.asked().await;
    let active: Vec<_> = node.handle.active_pods().iter().map(|pod| pod.uid()).collect();
    assert_eq!(active, ["a".into()]);
    assert!(!node.runtime.did("started a"));

    slow.written.add_permits(1);
    node.wait_for_phase("a", "Running").await;
    node.stop().await;
}

/// The eviction manager sees a pod from the begin of its admission.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_evicted_during_its_admission_never_starts() {
    let slow = SlowToAdmit::new();
    let handler = slow.clone();
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], |builder| builder.admission(handler));
    let a = Arc::new(pod("a"));
    api.send(vec![a.clone()]).unwrap();
    slow.asked().await;
    let evicted: PodStatusFn = Arc::new(|status| {
        status.phase = Some("Failed".into());
        status.reason = Some("Evicted".into());
    });
    let workers = node.handle.workers();
    let killed = workers.kill_pod_now(&a, true, Some(Duration::ZERO), Some(evicted), &node.events);
    killed.await.unwrap();

    slow.written.add_permits(1);
    node.wait_for_phase("a", "Failed").await;
    assert_eq!(node.status("a").reason.as_deref(), Some("Evicted"));
    // Longer than the housekeeping needs to start what may start again.
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert!(!node.runtime.did("started a"));
    assert_eq!(node.status("a").phase.as_deref(), Some("Failed"));
    // The room of the pod is free once its source removes it.
    api.send(vec![Arc::new(pod("b"))]).unwrap();
    slow.written.add_permits(1);
    node.wait_for_phase("b", "Running").await;
    assert!(node.handle.workers().should_pod_be_finished(&"a".into()));
    node.stop().await;
}
