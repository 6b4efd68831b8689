//! Who may have what: admission with what was allocated, and what comes of resizes in place.
use std::sync::Arc;
use std::time::Duration;

use super::rig::recorded::Recorded;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::admission::{Operation, PredicateAdmitHandler};
use kubelet_core::runtime::{PodStatus, PodSyncResult, ResizeRefusal, RuntimePod, RuntimeStatus};
use kubelet_core::{
    Admission, AllocationManager, AllocationState, Clock, Event, EventRecorder, FixedNode, InPlaceResize,
    PodAdmitAttributes, PodAdmitHandler, PodExt, PodManager, PodStatusReporter, PodUid, Rejection, Result,
    RetryTrigger, Runtime, RuntimeReader,
};
use kubelet_status::{MemorySink, StatusManager, StatusManagerConfig, StatusManagerHandle};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// A runtime that resizes all but what is called `swaps`.
struct Resizes;

#[async_trait]
impl RuntimeReader for Resizes {
    async fn pods(&self, _: bool) -> Result<Vec<Arc<RuntimePod>>> {
        Ok(Vec::new())
    }
    async fn pod_status(&self, _: &RuntimePod) -> Result<Arc<PodStatus>> {
        unreachable!("it lists no pod")
    }
}

#[async_trait]
impl Runtime for Resizes {
    fn runtime_type(&self) -> &str {
        "resizes"
    }
    async fn status(&self) -> Result<RuntimeStatus> {
        Ok(RuntimeStatus::default())
    }
    async fn sync_pod(&self, _: &Arc<Pod>, _: &PodStatus) -> PodSyncResult {
        PodSyncResult::default()
    }
    async fn kill_pod(&self, _: Option<&Arc<Pod>>, _: &RuntimePod, _: Option<Duration>) -> Result<()> {
        Ok(())
    }
    fn refuses_resize(&self, desired: &Pod, _: &Pod) -> Option<ResizeRefusal> {
        let swaps = desired
            .all_containers()
            .any(|container| container.name == "swaps");
        swaps.then(|| {
            let message = "In-place resize of containers with swap is not supported.";
            ResizeRefusal::new(message, "swap_limitation")
        })
    }
}

/// The events: type, reason, message.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl EventRecorder for Events {
    fn record(&self, event: Event<'_>) {
        let told = format!("{:?} {} {}", event.event_type, event.reason, event.message);
        self.0.lock().push(told);
    }
}

/// Notes who asks for a resize.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl PodAdmitHandler for Asked {
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> std::result::Result<(), Rejection> {
        if attributes.operation == Operation::Resize {
            self.0.lock().push(attributes.pod.uid_str().to_owned());
        }
        Ok(())
    }
}

struct Node {
    allocations: AllocationManager,
    state: AllocationState,
    statuses: StatusManagerHandle,
    events: Events,
    asked: Asked,
    pods: PodManager,
}

/// 4 CPUs and 4 GiB.
fn node(settings: InPlaceResize) -> Node {
    let allocatable = json!({"cpu": "4", "memory": "4Gi", "pods": "40"});
    let api_node = json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}});
    let api_node = FixedNode::new(Arc::new(serde_json::from_value(api_node).unwrap()));
    let (asked, events, pods) = (Asked::default(), Events::default(), PodManager::new());
    let admission = Admission::new()
        .with(Arc::new(asked.clone()))
        .with(Arc::new(PredicateAdmitHandler::new(Arc::new(api_node))));
    let mut config = StatusManagerConfig::default();
    config.clock = Clock::starting_at(Timestamp::constant(1_767_225_600, 0));
    let statuses = StatusManager::with_config(MemorySink::new(), config).handle();
    let state = AllocationState::new(settings);
    let allocations = AllocationManager::new(
        state.clone(),
        Arc::new(Resizes),
        admission,
        Arc::new(statuses.clone()),
        Arc::new(events.clone()),
        pods.clone(),
    );
    Node {
        allocations,
        state,
        statuses,
        events,
        asked,
        pods,
    }
}

impl Node {
    /// The pod runs with what it asks for.
    fn run(&self, pod: Value) -> Arc<Pod> {
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
        self.state.set_allocated_resources(&pod);
        self.pods.set_pod(pod.clone());
        pod
    }

    /// Its spec changes, and what comes of it is decided. Returns whether it is to be synced.
    async fn resize(&self, pod: Value, trigger: RetryTrigger) -> bool {
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
        self.pods.set_pod(pod.clone());
        self.allocations.push_pending_resize(&pod.uid());
        let to_sync = self.retry(trigger).await;
        to_sync.contains(&pod.uid())
    }

    async fn retry(&self, trigger: RetryTrigger) -> Vec<PodUid> {
        let active = || -> Vec<Arc<Pod>> {
            let mut all = self.pods.pods();
            all.sort_by_cached_key(|pod| pod.uid());
            all.iter()
                .map(|pod| self.state.update_pod_from_allocation(pod))
                .collect()
        };
        let to_sync = self.allocations.retry_pending_resizes(trigger, active).await;
        to_sync.iter().map(|pod| pod.uid()).collect()
    }

    /// What the pod was allocated: its spec's resources, and those of its first container.
    fn allocated(&self, uid: &str) -> Value {
        let pod = self.pods.pod(&uid.into()).unwrap();
        let pod = self.state.update_pod_from_allocation(&pod);
        let container = pod.all_containers().next().unwrap();
        let of_pod = &pod.spec.as_ref().unwrap().resources;
        match of_pod {
            Some(of_pod) => json!(of_pod),
            None => json!(container.resources),
        }
    }

    /// Type, reason, message and generation of each condition.
    fn conditions(&self, uid: &str) -> Value {
        let all = self.statuses.pod_resize_conditions(&uid.into());
        let shown = |condition: &PodCondition| {
            json!([
                condition.type_,
                condition.reason,
                condition.message,
                condition.observed_generation
            ])
        };
        all.iter().map(shown).collect()
    }
}

/// Of one container, of this kind.
fn pod_with(uid: &str, kind: &str, name: &str, resources: Value) -> Value {
    let mut container = json!({"name": name, "image": "i", "resources": resources});
    if kind == "sidecar" {
        container["restartPolicy"] = "Always".into();
    }
    let list = if kind == "regular" {
        "containers"
    } else {
        "initContainers"
    };
    let mut spec = json!({"containers": []});
    spec[list] = json!([container]);
    json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": spec})
}

fn pod(uid: &str, resources: Value) -> Value {
    pod_with(uid, "regular", "c1", resources)
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}})
}

fn limited(cpu: &str, memory: &str) -> Value {
    let list = json!({"cpu": cpu, "memory": memory});
    json!({"requests": list, "limits": list})
}

const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";

#[test]
fn a_pod_is_worked_on_with_what_it_was_allocated() {
    let of = |c1: &str, side: &str, init: &str, of_pod: Option<&str>| -> Arc<Pod> {
        let container =
            |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut side = container("side", side);
        side["restartPolicy"] = "Always".into();
        let mut spec =
            json!({"containers": [container("c1", c1)], "initContainers": [side, container("init", init)]});
        if let Some(cpu) = of_pod {
            spec["resources"] = json!({"requests": {"cpu": cpu}});
        }
        Arc::new(serde_json::from_value(json!({"metadata": {"uid": "a"}, "spec": spec})).unwrap())
    };
    let all = InPlaceResize::default();
    let mut no_pod_level = all;
    no_pod_level.pod_level_resources = false;
    let mut no_init = all;
    no_init.init_containers = false;
    let table = [
        // settings, allocated, desired, expected; `None`: the pod itself
        (all, of("1", "1", "1", None), of("1", "1", "1", None), None),
        (all, of("1", "1", "1", None), of("1000m", "1", "1", None), None),
        (
            all,
            of("1", "1", "1", None),
            of("2", "3", "4", None),
            Some(of("1", "1", "1", None)),
        ),
        (
            all,
            of("1", "1", "1", Some("3")),
            of("1", "1", "1", Some("4")),
            Some(of("1", "1", "1", Some("3"))),
        ),
        (
            all,
            of("1", "1", "1", Some("3")),
            of("2", "1", "1", None),
            Some(of("1", "1", "1", Some("3"))),
        ),
        (
            all,
            of("1", "1", "1", None),
            of("1", "1", "1", Some("4")),
            Some(of("1", "1", "1", None)),
        ),
        (
            no_pod_level,
            of("1", "1", "1", Some("3")),
            of("1", "1", "1", Some("4")),
            None,
        ),
        (no_init, of("1", "1", "1", None), of("1", "1", "4", None), None),
        (
            no_init,
            of("1", "1", "1", None),
            of("1", "3", "4", None),
            Some(of("1", "1", "4", None)),
        ),
    ];
    for (index, (settings, allocated, desired, expected)) in table.into_iter().enumerate() {
        let state = AllocationState::new(settings);
        let nothing = state.update_pod_from_allocation(&desired);
        assert!(Arc::ptr_eq(&nothing, &desired), "{index}: nothing is allocated");
        state.set_allocated_resources(&allocated);
        let got = state.update_pod_from_allocation(&desired);
        assert_eq!(state.differs(&desired), expected.is_some(), "{index}");
        match expected {
            None => assert!(Arc::ptr_eq(&got, &desired), "{index}"),
            Some(expected) => {
                assert_eq!(got, expected, "{index}");
                let again = state.update_pod_from_allocation(&desired);
                assert!(Arc::ptr_eq(&got, &again), "{index}: it is copied once");
            }
        }
        state.remove_pod(&"a".into());
        assert!(!state.differs(&desired), "{index}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resize_is_allocated_where_there_is_room_and_waits_where_there_is_not() {
    const CPU: &str = "Node didn't have enough resource: cpu, requested: 2500, used: 2000, capacity: 4000";
    const MEMORY: &str = "Node didn't have enough resource: memory, requested: 4718592000, used: 2147483648, capacity: 4294967296";
    let in_progress = || json!([[IN_PROGRESS, null, null, null]]);
    let deferred = |message: &str| json!([[PENDING, "Deferred", message, null]]);
    let one = || requests("1", "1Gi");
    let table = [
        // before, after, allocated then, conditions then, whether it is synced
        (
            one(),
            requests("500m", "500Mi"),
            requests("500m", "500Mi"),
            in_progress(),
            true,
        ),
        (
            one(),
            requests("1500m", "500Mi"),
            requests("1500m", "500Mi"),
            in_progress(),
            true,
        ),
        (
            one(),
            requests("500m", "1500Mi"),
            requests("500m", "1500Mi"),
            in_progress(),
            true,
        ),
        (one(), requests("2500m", "2500Mi"), one(), deferred(CPU), true),
        (one(), requests("1", "4500Mi"), one(), deferred(MEMORY), true),
        (one(), one(), one(), json!([]), false),
        (
            json!({"requests": {"cpu": "2m"}}),
            json!({"requests": {"cpu": "1"}}),
            json!({"requests": {"cpu": "1"}}),
            in_progress(),
            true,
        ),
        (
            json!({"requests": {"cpu": "1"}}),
            json!({"requests": {"cpu": "2m"}}),
            json!({"requests": {"cpu": "2m"}}),
            in_progress(),
            true,
        ),
        (
            json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "10m"}}),
            json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "20m"}}),
            json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "20m"}}),
            in_progress(),
            true,
        ),
    ];
    for kind in ["regular", "init", "sidecar"] {
        for (before, after, allocated, conditions, synced) in &table {
            let node = node(InPlaceResize::default());
            for other in ["other-1", "other-2"] {
                node.run(pod(other, one()));
            }
            node.run(pod_with("a", kind, "c1", before.clone()));
            let got = node
                .resize(pod_with("a", kind, "c1", after.clone()), RetryTrigger::PodUpdated)
                .await;
            let case = format!("{kind}: {before} → {after}");
            assert_eq!(node.allocated("a"), *allocated, "{case}");
            assert_eq!(node.conditions("a"), *conditions, "{case}");
            assert_eq!(got, *synced, "{case}");
            let waits = conditions[0][0] == PENDING;
            assert_eq!(node.allocations.has_pending_resizes(), waits, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_as_a_whole_asks_for_is_decided_alike() {
    let pod = |of_pod: Value| {
        let mut pod = pod("a", requests("1", "1Gi"));
        pod["spec"]["resources"] = of_pod;
        pod
    };
    let original = || requests("1500m", "1500Mi");
    for (after, fits) in [
        (requests("2", "2Gi"), true),
        (requests("1200m", "1200Mi"), true),
        (requests("2500m", "1500Mi"), false),
        (requests("1500m", "4500Mi"), false),
    ] {
        let node = node(InPlaceResize::default());
        for other in ["other-1", "other-2"] {
            node.run(self::pod(other, requests("1", "1Gi")));
        }
        node.run(pod(original()));
        assert!(node.resize(pod(after.clone()), RetryTrigger::PodUpdated).await);
        let (allocated, condition) = match fits {
            true => (after.clone(), IN_PROGRESS),
            false => (original(), PENDING),
        };
        assert_eq!(node.allocated("a"), allocated, "{after}");
        assert_eq!(node.conditions("a")[0][0], condition, "{after}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_said_of_earlier_resizes_is_put_right() {
    let told = |node: &Node| {
        let uid = "a".into();
        node.statuses
            .set_pod_resize_in_progress_condition(&uid, "", "original", 0);
        node.statuses
            .set_pod_resize_pending_condition(&uid, "Deferred", "original", 0);
    };
    // What was allocated already is not allocated anew, and no resize waits any more.
    let node_1 = node(InPlaceResize::default());
    node_1.run(pod("a", requests("1500m", "1Gi")));
    told(&node_1);
    assert!(
        node_1
            .resize(pod("a", requests("1500m", "1Gi")), RetryTrigger::PodUpdated)
            .await
    );
    assert_eq!(
        node_1.conditions("a"),
        json!([[IN_PROGRESS, null, "original", null]])
    );
    // A new one begins anew.
    let node_2 = node(InPlaceResize::default());
    node_2.run(pod("a", requests("1", "1Gi")));
    told(&node_2);
    assert!(
        node_2
            .resize(pod("a", requests("1500m", "1Gi")), RetryTrigger::PodUpdated)
            .await
    );
    assert_eq!(node_2.conditions("a"), json!([[IN_PROGRESS, null, null, null]]));
    // One that waits leaves alone what is being done.
    let node_3 = node(InPlaceResize::default());
    node_3.run(pod("a", requests("1", "1Gi")));
    told(&node_3);
    assert!(
        node_3
            .resize(pod("a", requests("5", "1Gi")), RetryTrigger::PodUpdated)
            .await
    );
    let message = "Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000";
    let both = json!([
        [PENDING, "Deferred", message, null],
        [IN_PROGRESS, null, "original", null]
    ]);
    assert_eq!(node_3.conditions("a"), both);
}

#[tokio::test(start_paused = true)]
async fn each_version_of_the_spec_is_answered_once_in_conditions_and_events() {
    const MESSAGE: &str = "Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000";
    let node = node(InPlaceResize::default());
    let version = |generation: i64, resources: Value| {
        let mut pod = pod("a", resources);
        pod["metadata"]["generation"] = generation.into();
        pod
    };
    node.run(version(1, requests("500m", "500Mi")));
    let in_progress = |generation: i64| json!([[IN_PROGRESS, null, null, generation]]);
    let both = json!([[PENDING, "Deferred", MESSAGE, 2], [IN_PROGRESS, null, null, 1]]);
    let table = [
        (
            1,
            requests("1", "1Gi"),
            in_progress(1),
            r#"Normal ResizeStarted Pod resize started: {"containers":[{"name":"c1","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}],"generation":1}"#.to_owned(),
        ),
        (
            2,
            requests("5000m", "4500Mi"),
            both.clone(),
            format!(r#"Warning ResizeDeferred Pod resize OutOfcpu: {{"containers":[{{"name":"c1","resources":{{"requests":{{"cpu":"5","memory":"4500Mi"}}}}}}],"generation":2,"error":"{MESSAGE}"}}"#),
        ),
        (2, requests("5000m", "4500Mi"), both, String::new()),
        // It is taken back.
        (3, requests("1", "1Gi"), in_progress(1), String::new()),
        (4, requests("1", "1Gi"), in_progress(1), String::new()),
        (
            5,
            requests("500m", "500Mi"),
            in_progress(5),
            r#"Normal ResizeStarted Pod resize started: {"containers":[{"name":"c1","resources":{"requests":{"cpu":"500m","memory":"500Mi"}}}],"generation":5}"#.to_owned(),
        ),
    ];
    for (generation, resources, conditions, event) in table {
        node.resize(version(generation, resources), RetryTrigger::PodUpdated)
            .await;
        assert_eq!(node.conditions("a"), conditions, "generation {generation}");
        let events = std::mem::take(&mut *node.events.0.lock()).join("\n");
        assert_eq!(events, event, "generation {generation}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_is_infeasible_and_not_tried_again() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let mut no_cpu = InPlaceResize::default();
    no_cpu.static_cpu_manager = true;
    let mut no_memory = InPlaceResize::default();
    no_memory.static_memory_manager = true;
    let mut neither = no_cpu;
    neither.static_memory_manager = true;
    let mut nothing = InPlaceResize::default();
    nothing.supported = false;
    const CPU: &str = "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"";
    const MEMORY: &str =
        "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"";
    const SWAP: &str = "In-place resize of containers with swap is not supported.";
    const PLATFORM: &str = "In-place pod resize is not supported on this node";
    let [one, burstable] = [limited("1", "1Gi"), requests("1", "1Gi")];
    let table = [
        (no_cpu, "c1", one.clone(), limited("2", "1Gi"), Some(CPU)),
        (no_cpu, "c1", one.clone(), limited("1", "2Gi"), None),
        (no_cpu, "c1", burstable.clone(), requests("2", "1Gi"), None),
        (no_memory, "c1", one.clone(), limited("1", "2Gi"), Some(MEMORY)),
        (no_memory, "c1", one.clone(), limited("2", "1Gi"), None),
        (neither, "c1", one.clone(), limited("2", "2Gi"), Some(CPU)),
        (neither, "c1", burstable.clone(), requests("2", "2Gi"), None),
        (
            InPlaceResize::default(),
            "swaps",
            burstable,
            requests("1", "2Gi"),
            Some(SWAP),
        ),
        (nothing, "c1", one.clone(), limited("500m", "1Gi"), Some(PLATFORM)),
    ];
    for kind in ["regular", "sidecar"] {
        for (settings, name, before, after, message) in &table {
            let node = node(*settings);
            node.run(pod_with("a", kind, name, before.clone()));
            let after_pod = pod_with("a", kind, name, after.clone());
            assert!(node.resize(after_pod, RetryTrigger::PodUpdated).await);
            assert!(!node.allocations.has_pending_resizes());
            let (allocated, conditions, event) = match message {
                Some(message) => (
                    before,
                    json!([[PENDING, "Infeasible", message, null]]),
                    "Warning ResizeInfeasible Pod resize Infeasible: ",
                ),
                None => (
                    after,
                    json!([[IN_PROGRESS, null, null, null]]),
                    "Normal ResizeStarted ",
                ),
            };
            assert_eq!(node.allocated("a"), *allocated, "{before} → {after}");
            assert_eq!(node.conditions("a"), conditions, "{before} → {after}");
            let events = node.events.0.lock();
            assert!(events.len() == 1 && events[0].starts_with(event), "{events:?}");
        }
    }
    for (detail, times) in [
        ("guaranteed_pod_cpu_manager_static_policy", 4.0),
        ("guaranteed_pod_memory_manager_static_policy", 2.0),
        ("swap_limitation", 2.0),
        ("unsupported_platform", 2.0),
    ] {
        let metric = format!("kubelet_pod_infeasible_resizes_total{{reason_detail={detail}}}");
        assert_eq!(recorded.value(&metric), times, "{metric}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_admitted_with_what_it_was_allocated_before() {
    let asking =
        |cpu: &str| -> Arc<Pod> { Arc::new(serde_json::from_value(pod("a", requests(cpu, "1Gi"))).unwrap()) };
    // allocated before, asked for, allocated then; `None`: not admitted
    let table = [
        (None, "2", Some("2")),
        (None, "5", None),
        (Some("2"), "2", Some("2")),
        (Some("2"), "3", Some("2")),
        (Some("2"), "5", Some("2")),
    ];
    for (before, asked, expected) in table {
        let node = node(InPlaceResize::default());
        if let Some(before) = before {
            node.state.set_allocated_resources(&asking(before));
        }
        let admitted = node.allocations.add_pod(&asking(asked), &[]).await;
        match expected {
            Some(expected) => {
                assert_eq!(admitted.unwrap(), asking(expected), "{before:?} {asked}");
                let kept = node.state.update_pod_from_allocation(&asking(asked));
                assert_eq!(kept, asking(expected), "{before:?} {asked}");
            }
            None => {
                assert_eq!(admitted.unwrap_err().reason, "OutOfcpu");
                assert!(!node.state.differs(&asking("7")), "nothing is kept of it");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_takes_least_then_matters_most_then_waits_longest_is_decided_first() {
    let node = node(InPlaceResize::default());
    let uids: Vec<String> = (0..7).map(|number| format!("p{number}")).collect();
    for uid in &uids {
        node.run(pod(uid, requests("100m", "100Mi")));
    }
    // None of them fits, but for those that ask for less.
    let asking = |number: usize| {
        let mut pod = match number {
            0 => {
                let mut pod = pod(&uids[0], requests("100m", "100Mi"));
                pod["spec"]["resources"] = requests("50m", "50Mi");
                pod
            }
            1 => pod(&uids[1], requests("50m", "50Mi")),
            _ => pod(&uids[number], requests("5", "5Gi")),
        };
        match number {
            2 => pod["spec"]["priority"] = 100.into(),
            3 => pod["status"] = json!({"qosClass": "Guaranteed"}),
            _ => {}
        }
        pod
    };
    for number in 0..7 {
        node.pods
            .set_pod(Arc::new(serde_json::from_value(asking(number)).unwrap()));
    }
    for waits in ["p4", "p5"] {
        tokio::time::advance(Duration::from_secs(5)).await;
        node.statuses
            .set_pod_resize_pending_condition(&waits.into(), "Deferred", "", 1);
    }
    for number in [3, 6, 0, 5, 2, 1, 4] {
        node.allocations
            .push_pending_resize(&uids[number].as_str().into());
    }
    node.retry(RetryTrigger::Periodic).await;
    let asked = std::mem::take(&mut *node.asked.0.lock());
    let (less, more) = asked.split_at(2);
    assert!(less.contains(&uids[0]) && less.contains(&uids[1]), "{asked:?}");
    assert_eq!(more, &uids[2..]);
    // The others wait on, and are asked for in the same order.
    node.retry(RetryTrigger::Periodic).await;
    assert_eq!(*node.asked.0.lock(), &uids[2..]);
}

#[tokio::test(start_paused = true)]
async fn a_deferred_resize_is_allocated_when_there_is_room_and_counted_by_what_made_it() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let node = node(InPlaceResize::default());
    let began = tokio::time::Instant::now();
    assert_eq!(node.allocations.next_retry(), None);
    for (trigger, word) in [
        (RetryTrigger::PodResized, "pod_resized"),
        (RetryTrigger::PodsRemoved, "pods_removed"),
        (RetryTrigger::PodTerminated, "pod_terminated"),
        (RetryTrigger::Periodic, "periodic_retry"),
        (RetryTrigger::PodsAdded, "pods_added"),
        (RetryTrigger::PodUpdated, "pod_updated"),
    ] {
        let other = node.run(pod("other", requests("3", "1Gi")));
        node.run(pod("a", requests("1", "1Gi")));
        assert!(
            node.resize(pod("a", requests("2", "1Gi")), RetryTrigger::PodUpdated)
                .await
        );
        assert_eq!(node.conditions("a")[0][1], "Deferred");
        assert_eq!(
            node.allocations.next_retry(),
            Some(began + Duration::from_secs(180))
        );
        node.pods.remove_pod(&other);
        assert_eq!(node.retry(trigger).await, [PodUid::from("a")]);
        assert_eq!(node.allocated("a"), requests("2", "1Gi"));
        let metric = format!("kubelet_pod_deferred_accepted_resizes_total{{retry_trigger={word}}}");
        assert_eq!(recorded.value(&metric), 1.0, "{metric}");
        // One that was not deferred is not counted.
        assert!(node.resize(pod("a", requests("1", "1Gi")), trigger).await);
        assert_eq!(recorded.value(&metric), 1.0, "{metric}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resize_is_over_with_its_pod() {
    for end in [
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"status": {"phase": "Failed"}}),
        json!(null),
    ] {
        let node = node(InPlaceResize::default());
        let other = node.run(pod("other", requests("3", "1Gi")));
        let before = node.run(pod("a", requests("1", "1Gi")));
        node.resize(pod("a", requests("2", "1Gi")), RetryTrigger::PodUpdated)
            .await;
        assert!(node.allocations.has_pending_resizes());
        let mut ends = pod("a", requests("2", "1Gi"));
        if let Some(status) = end.get("status") {
            ends["status"] = status.clone();
        }
        if let Some(metadata) = end.get("metadata") {
            ends["metadata"]["deletionTimestamp"] = metadata["deletionTimestamp"].clone();
        }
        node.pods.set_pod(Arc::new(serde_json::from_value(ends).unwrap()));
        if end.is_null() {
            node.pods.remove_pod(&before);
        }
        node.pods.remove_pod(&other);
        assert!(node.retry(RetryTrigger::PodsRemoved).await.is_empty(), "{end}");
        assert!(!node.allocations.has_pending_resizes(), "{end}");
    }
}
