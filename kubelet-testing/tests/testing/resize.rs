//! In-place resizes with a whole agent, an API server and a CRI runtime in memory, in virtual time: allocated,
//! deferred until there is room, infeasible, failed; also across a restart of the agent.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::jiff::Timestamp;
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use kubelet_config::{ApiServerSource, PodConfig};
use kubelet_core::{Clock, Disk, InPlaceResize, Jitter, Kubelet, KubeletHandle, PodCache, PodExt};
use kubelet_cri::Code;
use kubelet_kuberuntime::{CriRuntime, NodeSettings};
use kubelet_pleg::GenericPleg;
use kubelet_status::{ApiServerNode, ApiServerSink, StatusManager, StatusManagerConfig};
use kubelet_testing::memory_cri::{Call, MemoryCri};
use kubelet_testing::{ApiServer, FakeRecorder, PodBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What outlives the agent.
struct Host {
    clock: Clock,
    root: TempDir,
    server: ApiServer,
    cri: MemoryCri,
    recorder: FakeRecorder,
}

struct Agent {
    handle: KubeletHandle,
    shutdown: CancellationToken,
    running: JoinHandle<kubelet_core::Result<()>>,
}

impl Host {
    /// A node of 4 CPUs.
    async fn new() -> Self {
        let clock = Clock::starting_at(Timestamp::constant(1_767_225_600, 0));
        let server = ApiServer::builder().clock(clock).seed(7).build();
        let nodes: Api<Node> = Api::all(server.client());
        nodes.create(&PostParams::default(), &node()).await.unwrap();
        Self {
            clock,
            root: TempDir::new().unwrap(),
            server,
            cri: MemoryCri::new(clock),
            recorder: FakeRecorder::new(),
        }
    }

    async fn start(&self, settings: InPlaceResize) -> Agent {
        let (clock, client) = (self.clock, self.server.client());
        let jitter = Jitter::from_seed(7);
        let config = PodConfig::builder()
            .source(ApiServerSource::new(client.clone(), "node-1").jitter(jitter.clone()))
            .clock(clock)
            .build()
            .unwrap();
        let cri = Arc::new(self.cri.clone());
        let runtime = CriRuntime::builder(cri.clone(), cri)
            .node(NodeSettings::default())
            .root_dir(self.root.path().join("kubelet"))
            .pod_logs_dir(self.root.path().join("logs"))
            .disk(Disk::inline())
            .clock(clock)
            .events(Arc::new(self.recorder.clone()))
            .build()
            .await
            .unwrap();
        let (runtime, cache) = (Arc::new(runtime), PodCache::new());
        let mut statuses = StatusManagerConfig::default();
        statuses.clock = clock;
        let node = ApiServerNode::new(client.clone(), "node-1").with_initial_node(Arc::new(node()));
        let kubelet = Kubelet::builder()
            .pods(config)
            .runtime(runtime.clone())
            .pleg(GenericPleg::new(runtime, cache.clone()).with_clock(clock), cache)
            .statuses(StatusManager::with_config(ApiServerSink::new(client), statuses))
            .recorder(Arc::new(self.recorder.clone()))
            .node(Arc::new(node))
            .in_place_resize(settings)
            .root_dir(self.root.path().join("kubelet"))
            .disk(Disk::inline())
            .clock(clock)
            .jitter(jitter)
            .build()
            .unwrap();
        let (handle, shutdown) = (kubelet.handle(), CancellationToken::new());
        let running = tokio::spawn(kubelet.run(shutdown.clone()));
        Agent {
            handle,
            shutdown,
            running,
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.server.client(), "default")
    }

    async fn create(&self, name: &str, resources: Value) -> Arc<Pod> {
        let pod = PodBuilder::new(name)
            .node_name("node-1")
            .termination_grace_period_seconds(1)
            .container("main", "busybox:1.36", |c| {
                c.with(|main| main.resources = Some(serde_json::from_value(resources).unwrap()))
            })
            .spec(|spec| spec.automount_service_account_token = Some(false))
            .build();
        let created = self.pods().create(&PostParams::default(), &pod).await;
        Arc::new(created.unwrap())
    }

    async fn resize(&self, name: &str, resources: Value) {
        let patch = json!({"spec": {"containers": [{"name": "main", "resources": resources}]}});
        let resized = self
            .pods()
            .patch_subresource("resize", name, &PatchParams::default(), &Patch::Strategic(patch))
            .await;
        resized.unwrap();
    }

    /// The pod on the server once it fulfils the condition; checked every virtual second.
    async fn until(&self, name: &str, what: &str, reached: impl Fn(&Shown) -> bool) -> Shown {
        let deadline = Instant::now() + Duration::from_secs(600);
        loop {
            let shown = Shown::of(self.pods().get(name).await.unwrap());
            if reached(&shown) {
                return shown;
            }
            let events = self.recorder.all();
            assert!(
                Instant::now() < deadline,
                "never: {what}; but {shown:#?}; {events:#?}"
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The events about resizes so far: their reasons, and their messages up to the resources.
    fn resizes(&self) -> Vec<String> {
        let events = self.recorder.all();
        let resizes = events.iter().filter(|event| event.reason.starts_with("Resize"));
        let words = |message: &str| message.split(": {").next().unwrap_or_default().to_owned();
        resizes
            .map(|event| format!("{} {} {}", event.pod.name, event.reason, words(&event.message)))
            .collect()
    }

    fn updates(&self) -> usize {
        self.cri.calls().count("UpdateContainerResources")
    }
}

impl Agent {
    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }
}

/// What a test checks of a pod.
#[derive(Debug)]
struct Shown {
    phase: String,
    /// CPU: requested, allocated, and in use.
    cpu: [Option<String>; 3],
    conditions: Vec<PodCondition>,
    restarts: i32,
}

impl Shown {
    fn of(pod: Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let main = status.container_statuses.iter().flatten().next();
        let cpu = |value: &Value| value["cpu"].as_str().map(str::to_owned);
        let spec = json!(pod.all_containers().next().unwrap().resources);
        let conditions = status.conditions.into_iter().flatten();
        Self {
            phase: status.phase.unwrap_or_default(),
            cpu: [
                cpu(&spec["requests"]),
                main.and_then(|main| cpu(&json!(main.allocated_resources))),
                main.and_then(|main| cpu(&json!(main.resources)["requests"])),
            ],
            conditions: conditions
                .filter(|it| it.type_.starts_with("PodResize"))
                .collect(),
            restarts: main.map_or(0, |main| main.restart_count),
        }
    }

    fn has(&self, cpu: [&str; 3]) -> bool {
        self.cpu.iter().flatten().eq(cpu.iter())
    }

    fn says(&self, type_: &str, reason: Option<&str>) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|condition| condition.type_ == type_ && condition.reason.as_deref() == reason)
    }
}

fn node() -> Node {
    let allocatable = json!({"pods": "10", "cpu": "4", "memory": "4Gi"});
    serde_json::from_value(json!({"metadata": {"name": "node-1"}, "status": {"allocatable": allocatable}}))
        .unwrap()
}

fn cpu(cpu: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": "64Mi"}})
}

#[tokio::test(start_paused = true)]
async fn a_resize_is_allocated_deferred_and_allocated_over_restarts_of_the_agent() {
    let host = Host::new().await;
    let mut agent = host.start(InPlaceResize::default()).await;
    let waiting = host.create("a", cpu("1")).await;
    host.create("b", cpu("2")).await;
    host.until("a", "a has 1 CPU", |a| a.has(["1", "1", "1"])).await;
    host.until("b", "b has 2 CPUs", |b| b.has(["2", "2", "2"])).await;
    assert_eq!(host.updates(), 0);

    // There is room.
    host.resize("a", cpu("1500m")).await;
    let done = |cpu: [&'static str; 3]| move |shown: &Shown| shown.has(cpu) && shown.conditions.is_empty();
    host.until("a", "a has 1.5 CPUs", done(["1500m"; 3])).await;
    assert_eq!(host.updates(), 1);
    let granted = [
        "a ResizeStarted Pod resize started",
        "a ResizeCompleted Pod resize completed",
    ];
    assert_eq!(host.resizes(), granted);

    // There is no room, and the request reserves nothing.
    host.resize("a", cpu("3")).await;
    let deferred = |shown: &Shown| shown.says("PodResizePending", Some("Deferred"));
    let told = host.until("a", "the resize is deferred", deferred).await;
    let message = "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000";
    assert_eq!(told.conditions[0].message.as_deref(), Some(message));
    assert!(told.has(["3", "1500m", "1500m"]), "{told:?}");
    let steps = agent.handle.explain(&waiting.uid());
    assert!(
        steps.iter().any(|step| step.deferral() == Some("resize")),
        "{steps:?}"
    );
    host.create("c", cpu("500m")).await;
    host.until("c", "c runs", |c| c.phase == "Running").await;
    let rejected = host.create("d", cpu("500m")).await;
    host.until("d", "d is rejected", |d| d.phase == "Failed").await;

    // The next agent knows the allocation, although the API server's spec differs, and the resize still waits.
    agent.stop().await;
    agent = host.start(InPlaceResize::default()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let still = host.until("a", "the resize is deferred still", deferred).await;
    assert!(still.has(["3", "1500m", "1500m"]), "{still:?}");
    assert_eq!(
        still.conditions[0].last_transition_time,
        told.conditions[0].last_transition_time
    );
    assert_eq!(host.updates(), 1);

    // When the other pod is deleted, its resources go to the waiting pod at once.
    let began = Instant::now();
    host.pods().delete("b", &DeleteParams::default()).await.unwrap();
    let done = host.until("a", "a has 3 CPUs", done(["3"; 3])).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!((host.updates(), done.restarts), (2, 0));
    assert_eq!(
        host.resizes()[2..],
        [
            "a ResizeDeferred Pod resize OutOfcpu",
            "a ResizeStarted Pod resize started",
            "a ResizeCompleted Pod resize completed",
        ]
    );

    // Nothing is kept of deleted pods.
    for name in ["a", "c", "d"] {
        host.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(600);
    for uid in [waiting.uid(), rejected.uid()] {
        while !agent.handle.keepers(&uid).is_empty() {
            assert!(Instant::now() < deadline, "{:?}", agent.handle.keepers(&uid));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    host.cri.assert_consistent();
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_infeasible_until_the_spec_changes() {
    let host = Host::new().await;
    let mut settings = InPlaceResize::default();
    settings.static_cpu_manager = true;
    let mut agent = host.start(settings).await;
    let guaranteed = |cpu: &str| {
        let list = json!({"cpu": cpu, "memory": "64Mi"});
        json!({"requests": list, "limits": list})
    };
    host.create("a", guaranteed("1")).await;
    host.until("a", "a has 1 CPU", |a| a.has(["1", "1", "1"])).await;
    host.resize("a", guaranteed("2")).await;
    for restarts in 0..2 {
        let infeasible = |shown: &Shown| shown.says("PodResizePending", Some("Infeasible"));
        let shown = host.until("a", "the resize is infeasible", infeasible).await;
        assert!(shown.has(["2", "1", "1"]), "after {restarts} restarts: {shown:?}");
        agent.stop().await;
        agent = host.start(settings).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    host.resize("a", guaranteed("1")).await;
    let back = |shown: &Shown| shown.has(["1", "1", "1"]) && shown.conditions.is_empty();
    host.until("a", "nothing waits", back).await;
    assert_eq!(host.resizes(), ["a ResizeInfeasible Pod resize Infeasible"]);
    assert_eq!(host.updates(), 0);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_fails_at_is_told_and_done_by_the_next_agent() {
    let host = Host::new().await;
    let mut agent = host.start(InPlaceResize::default()).await;
    host.create("a", cpu("1")).await;
    host.until("a", "a has 1 CPU", |a| a.has(["1", "1", "1"])).await;
    host.cri
        .faults()
        .on(Call::UpdateContainerResources)
        .fails(Code::Internal, "no such cgroup");
    host.resize("a", cpu("2")).await;
    let failed = |shown: &Shown| shown.says("PodResizeInProgress", Some("Error"));
    let shown = host.until("a", "the resize failed", failed).await;
    assert!(shown.has(["2", "2", "1"]), "{shown:?}");
    let message = shown.conditions[0].message.clone().unwrap_or_default();
    assert!(message.contains("no such cgroup"), "{message}");
    agent.stop().await;

    // It was allocated but not applied.
    host.cri.faults().clear();
    agent = host.start(InPlaceResize::default()).await;
    let done = |shown: &Shown| shown.has(["2", "2", "2"]) && shown.conditions.is_empty();
    host.until("a", "a has 2 CPUs", done).await;
    let events = host.resizes();
    assert_eq!(
        events.first().map(String::as_str),
        Some("a ResizeStarted Pod resize started")
    );
    assert_eq!(
        events.last().map(String::as_str),
        Some("a ResizeCompleted Pod resize completed")
    );
    assert!(
        events.contains(&"a ResizeError Pod resize error".to_owned()),
        "{events:?}"
    );
    agent.stop().await;
}
