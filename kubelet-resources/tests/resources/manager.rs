//! The engine: admission, state files, updates of running containers, crashes.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::{Disk, PodAdmitAttributes, PodAdmitHandler, PodExt, PodUid, Rejection};
use kubelet_resources::checkpoint::{StateFolder, StateStore};
use kubelet_resources::cpu::{CPU_MANAGER_STATE, CpuPolicy};
use kubelet_resources::devices::DeviceManagerHandle;
use kubelet_resources::memory::{MEMORY_MANAGER_STATE, MemoryPolicy};
use kubelet_resources::topology::{TopologyPolicy, TopologyScope};
use kubelet_resources::{
    BoxError, ContainerUpdates, CpuSet, NodePods, ResourceManager, ResourceManagerHandle, ResourcesConfig,
    Result,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::pods::{config, container, machine, pod, simple_pod};

/// Files in memory. A write can fail, before or after it took effect.
#[derive(Default)]
pub(crate) struct MemoryStore {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    writes: Mutex<usize>,
    /// The number of the write at which the agent crashes, and whether the file has been replaced by then.
    crash: Mutex<Option<(usize, bool)>>,
    written: tokio::sync::Notify,
}

impl MemoryStore {
    pub(crate) fn text(&self, name: &str) -> String {
        let files = self.files.lock().unwrap();
        String::from_utf8(files.get(name).cloned().unwrap_or_default()).unwrap()
    }

    pub(crate) fn put(&self, name: &str, contents: &Value) {
        let contents = contents.to_string().into_bytes();
        self.files.lock().unwrap().insert(name.to_owned(), contents);
    }
}

impl MemoryStore {
    /// From this write on, the agent cannot write.
    pub(crate) fn crash_at(&self, write: usize) {
        *self.crash.lock().unwrap() = Some((write, false));
    }
}

impl StateStore for MemoryStore {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.files.lock().unwrap().get(name).cloned())
    }

    fn write(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        let mut writes = self.writes.lock().unwrap();
        *writes += 1;
        let crash = *self.crash.lock().unwrap();
        let crashed = crash.filter(|(at, _)| *writes >= *at);
        if crashed.is_none_or(|(at, replaced)| replaced && *writes == at) {
            self.files
                .lock()
                .unwrap()
                .insert(name.to_owned(), contents.to_vec());
            self.written.notify_one();
        }
        match crashed {
            Some(_) => Err(io::Error::other("crashed")),
            None => Ok(()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/var/lib/kubelet").join(name)
    }
}

#[derive(Default)]
pub(crate) struct Runtime {
    calls: Mutex<Vec<(String, String)>>,
    broken: AtomicBool,
    called: tokio::sync::Notify,
}

impl Runtime {
    fn calls(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

#[async_trait]
impl ContainerUpdates for Runtime {
    async fn update_cpus(&self, container_id: &str, cpus: &CpuSet) -> Result<(), BoxError> {
        let call = (container_id.to_owned(), cpus.to_string());
        self.calls.lock().unwrap().push(call);
        self.called.notify_one();
        match self.broken.load(Ordering::Relaxed) {
            true => Err("the runtime does not answer".into()),
            false => Ok(()),
        }
    }
}

#[derive(Default)]
pub(crate) struct Pods {
    ready: AtomicBool,
    active: Mutex<Vec<Arc<Pod>>>,
    statuses: Mutex<BTreeMap<PodUid, Arc<PodStatus>>>,
    /// What these pods keep alive, as those of an agent keep its managers.
    pub(crate) kept: Mutex<Option<(DeviceManagerHandle, ResourceManagerHandle)>>,
}

impl Pods {
    pub(crate) fn ready(pods: &[Arc<Pod>]) -> Arc<Self> {
        Arc::new(Self {
            ready: AtomicBool::new(true),
            active: Mutex::new(pods.to_vec()),
            statuses: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    pub(crate) fn set(&self, pods: &[Arc<Pod>]) {
        *self.active.lock().unwrap() = pods.to_vec();
    }

    pub(crate) fn add(&self, pod: &Arc<Pod>) {
        self.active.lock().unwrap().push(Arc::clone(pod));
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// The state of container `c`: `running`, `waiting` or `terminated`.
    fn report(&self, pod: &Pod, state: &str) {
        let id = format!("containerd://{}-c", pod.metadata.name.as_deref().unwrap());
        let state = match state {
            "terminated" => json!({"terminated": {"exitCode": 0}}),
            state => json!({state: {}}),
        };
        let status = json!({"containerStatuses": [{"name": "c", "containerID": id, "image": "", "imageID": "",
            "ready": true, "restartCount": 0, "state": state}]});
        let status = Arc::new(serde_json::from_value(status).unwrap());
        self.statuses.lock().unwrap().insert(pod.uid(), status);
    }
}

impl NodePods for Pods {
    fn sources_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.active.lock().unwrap().clone()
    }

    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.statuses.lock().unwrap().get(uid).cloned()
    }
}

pub(crate) fn none() -> ResourcesConfig {
    config(TopologyPolicy::None, TopologyScope::Container)
}

async fn start(store: &Arc<MemoryStore>, config: &ResourcesConfig) -> Result<ResourceManager> {
    start_with(store, config, Arc::default()).await
}

async fn start_with(
    store: &Arc<MemoryStore>,
    config: &ResourcesConfig,
    runtime: Arc<Runtime>,
) -> Result<ResourceManager> {
    let store: Arc<dyn StateStore> = store.clone();
    ResourceManager::builder(store, runtime)
        .disk(Disk::inline())
        .start(&machine(2, 4, 1, 1), config)
        .await
}

pub(crate) async fn admit(handle: &ResourceManagerHandle, pod: &Arc<Pod>) -> Result<(), Rejection> {
    handle.admit(&PodAdmitAttributes::new(pod, &[])).await
}

#[tokio::test]
async fn what_is_admitted_is_on_disk_and_taken_over() {
    let store = Arc::new(MemoryStore::default());
    let manager = start(&store, &none()).await.unwrap();
    let pod = simple_pod("a", "2", "1Gi");
    admit(&manager.handle(), &pod).await.unwrap();

    let cpu: Value = serde_json::from_str(&store.text(CPU_MANAGER_STATE)).unwrap();
    assert_eq!(cpu["policyName"], "static");
    assert_eq!(cpu["defaultCpuSet"], "0,3-7");
    assert_eq!(cpu["entries"], json!({"a-uid": {"c": "1-2"}}));
    let memory: Value = serde_json::from_str(&store.text(MEMORY_MANAGER_STATE)).unwrap();
    assert_eq!(
        memory["entries"],
        json!({"a-uid": {"c": [{"numaAffinity": [0], "type": "memory", "size": 1 << 30}]}})
    );

    let placement = manager.handle().placement("a-uid", "c");
    assert_eq!(
        (placement.cpus.as_str(), placement.memory_nodes.as_str()),
        ("1-2", "0")
    );
    let other = manager.handle().placement("b-uid", "c");
    assert_eq!((other.cpus.as_str(), other.memory_nodes.as_str()), ("0,3-7", ""));

    let before = (manager.handle().cpu_state(), manager.handle().memory_state());
    drop(manager);
    let manager = start(&store, &none()).await.unwrap();
    let handle = manager.handle();
    assert_eq!((handle.cpu_state(), handle.memory_state()), before);
    admit(&handle, &pod).await.unwrap();
    assert_eq!((handle.cpu_state(), handle.memory_state()), before);
}

/// What a kubelet v1.36 with its default policies writes.
#[tokio::test]
async fn without_policies_the_files_are_those_of_the_kubelet() {
    let store = Arc::new(MemoryStore::default());
    start(&store, &ResourcesConfig::default()).await.unwrap();
    assert_eq!(
        store.text(CPU_MANAGER_STATE),
        r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#
    );
    let memory: Value = serde_json::from_str(&store.text(MEMORY_MANAGER_STATE)).unwrap();
    assert_eq!(
        (&memory["policyName"], &memory["machineState"]),
        (&json!("None"), &json!({}))
    );
}

#[tokio::test]
async fn rejections_have_the_reasons_of_the_kubelet() {
    let mut whole_cores = config(TopologyPolicy::None, TopologyScope::Container);
    whole_cores.cpu.options = [("full-pcpus-only".to_owned(), "true".to_owned())].into();
    let single = config(TopologyPolicy::SingleNumaNode, TopologyScope::Container);
    for (config, cpu, memory, reason, message) in [
        (
            single,
            "5",
            "1Gi",
            "TopologyAffinityError",
            "Resources cannot be allocated with Topology locality",
        ),
        (
            none(),
            "8",
            "1Gi",
            "UnexpectedAdmissionError",
            "Allocate failed due to not enough cpus available to satisfy request: requested=8, available=7, which is \
             unexpected",
        ),
        (
            none(),
            "1",
            "64Gi",
            "UnexpectedAdmissionError",
            "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough \
             memory is available, which is unexpected",
        ),
        (
            whole_cores,
            "8",
            "1Gi",
            "SMTAlignmentError",
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 7, requested CPUs = 8, CPUs per \
             core = 1",
        ),
    ] {
        let manager = start(&Arc::default(), &config).await.unwrap();
        let rejection = admit(&manager.handle(), &simple_pod("a", cpu, memory))
            .await
            .unwrap_err();
        assert_eq!(
            (rejection.reason.as_str(), rejection.message.as_str()),
            (reason, message)
        );
    }
}

#[tokio::test]
async fn a_state_that_does_not_suit_is_refused() {
    let store = Arc::new(MemoryStore::default());
    let manager = start(&store, &none()).await.unwrap();
    admit(&manager.handle(), &simple_pod("a", "2", "1Gi"))
        .await
        .unwrap();

    let mut other_policy = none();
    other_policy.cpu.policy = CpuPolicy::None;
    let mut other_memory_policy = none();
    other_memory_policy.memory.policy = MemoryPolicy::None;
    let mut other_reserved = none();
    other_reserved.cpu.reserved_cpus = "1".parse().unwrap();
    let mut other_memory = none();
    other_memory.memory.reserved[0].numa_node = 1;
    for (config, expected) in [
        (
            other_policy,
            "start cpu manager error: could not restore state from checkpoint: configured policy \"none\" differs from state \
             checkpoint policy \"static\", please drain this node and delete the CPU manager checkpoint file \
             \"/var/lib/kubelet/cpu_manager_state\" before restarting Kubelet",
        ),
        (
            other_memory_policy,
            "start memory manager error: could not restore state from checkpoint: [memorymanager] configured policy \"None\" \
             differs from state checkpoint policy \"Static\", please drain this node and delete the memory manager checkpoint \
             file \"/var/lib/kubelet/memory_manager_state\" before restarting Kubelet",
        ),
        (
            other_reserved,
            "start cpu manager error: not all reserved cpus: \"1\" are present in defaultCpuSet: \"0,3-7\"",
        ),
        (
            other_memory,
            "start memory manager error: [memorymanager] the expected machine state is different from the real one",
        ),
    ] {
        let error = start(&store, &config).await.err().unwrap().to_string();
        assert_eq!(error, expected);
    }
}

/// `TestStaticPolicyStart` of the CPU manager, as far as it is about the state.
#[tokio::test]
async fn damaged_cpu_states_are_refused() {
    for (shared, cpus, expected) in [
        ("", "0-2", "default cpuset cannot be empty"),
        (
            "1-7",
            "0",
            "not all reserved cpus: \"0\" are present in defaultCpuSet: \"1-7\"",
        ),
        (
            "0,2-7",
            "1-2",
            "pod: pod, container: c cpuset: \"1-2\" overlaps with default cpuset \"0,2-7\"",
        ),
        (
            "0,3-7,12",
            "1-2",
            "current set of available CPUs \"0-7\" doesn't match with CPUs in state \"0-7,12\"",
        ),
        (
            "0,3-6",
            "1-2",
            "current set of available CPUs \"0-7\" doesn't match with CPUs in state \"0-6\"",
        ),
    ] {
        let store = Arc::new(MemoryStore::default());
        let state = json!({"policyName": "static", "defaultCpuSet": shared, "entries": {"pod": {"c": cpus}}});
        store.put(CPU_MANAGER_STATE, &state);
        let error = start(&store, &none()).await.err().unwrap().to_string();
        assert_eq!(error, format!("start cpu manager error: {expected}"));
    }
    let mut strict = none();
    strict.cpu.options = [("strict-cpu-reservation".to_owned(), "true".to_owned())].into();
    let store = Arc::new(MemoryStore::default());
    store.put(
        CPU_MANAGER_STATE,
        &json!({"policyName": "static", "defaultCpuSet": "0-7"}),
    );
    let error = start(&store, &strict).await.err().unwrap().to_string();
    let expected = "start cpu manager error: some of strictly reserved cpus: \"0\" are present in defaultCpuSet: \"0-7\"";
    assert_eq!(error, expected);
}

#[tokio::test(start_paused = true)]
async fn containers_in_the_shared_pool_follow_it() {
    let (store, runtime) = (Arc::new(MemoryStore::default()), Arc::new(Runtime::default()));
    let manager = start_with(&store, &none(), Arc::clone(&runtime)).await.unwrap();
    let handle = manager.handle();
    let [shared, waits, exclusive] = [
        simple_pod("shared", "500m", "1Gi"),
        simple_pod("waits", "500m", "1Gi"),
        simple_pod("exclusive", "2", "1Gi"),
    ];
    let pods = Pods::ready(&[shared.clone(), waits.clone()]);
    pods.report(&shared, "running");
    pods.report(&waits, "waiting");
    admit(&handle, &shared).await.unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(manager.run(Arc::clone(&pods) as _, shutdown.clone()));

    let call = |id: &str, cpus: &str| (id.to_owned(), cpus.to_owned());
    runtime.called.notified().await;
    assert_eq!(runtime.calls(), [call("shared-c", "0-7")]);

    // A pod takes CPUs out of the pool. The runtime fails once.
    runtime.broken.store(true, Ordering::Relaxed);
    pods.set(&[shared.clone(), waits.clone(), exclusive.clone()]);
    admit(&handle, &exclusive).await.unwrap();
    handle.container_starts(&exclusive, "c").await;
    pods.report(&exclusive, "running");
    runtime.called.notified().await;
    assert_eq!(runtime.calls(), [call("shared-c", "0,3-7")]);
    runtime.broken.store(false, Ordering::Relaxed);
    runtime.called.notified().await;
    assert_eq!(runtime.calls(), [call("shared-c", "0,3-7")]);

    // It ends: its CPUs come back. One that has ended itself is not updated.
    pods.report(&waits, "terminated");
    pods.set(&[shared.clone(), waits]);
    runtime.called.notified().await;
    assert_eq!(runtime.calls(), [call("shared-c", "0-7")]);
    assert!(!store.text(CPU_MANAGER_STATE).contains("exclusive"));

    // Nothing changes any more.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(runtime.calls(), []);
    // The pool may have changed while it restarted.
    handle.container_starts(&shared, "c").await;
    runtime.called.notified().await;
    assert_eq!(runtime.calls(), [call("shared-c", "0-7")]);
    shutdown.cancel();
    running.await.unwrap();
}

/// The runtime may have done it: then the container runs on other CPUs than before, also when those are wanted again.
#[tokio::test(start_paused = true)]
async fn a_container_whose_update_failed_is_updated_to_its_former_cpus() {
    let (store, runtime) = (Arc::new(MemoryStore::default()), Arc::new(Runtime::default()));
    let manager = start_with(&store, &none(), Arc::clone(&runtime)).await.unwrap();
    let handle = manager.handle();
    let [shared, exclusive] = [
        simple_pod("shared", "500m", "1Gi"),
        simple_pod("exclusive", "2", "1Gi"),
    ];
    let pods = Pods::ready(std::slice::from_ref(&shared));
    pods.report(&shared, "running");
    admit(&handle, &shared).await.unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(manager.run(Arc::clone(&pods) as _, shutdown.clone()));
    runtime.called.notified().await;
    let to = |cpus: &str| ("shared-c".to_owned(), cpus.to_owned());
    assert_eq!(runtime.calls(), [to("0-7")]);

    runtime.broken.store(true, Ordering::Relaxed);
    pods.add(&exclusive);
    admit(&handle, &exclusive).await.unwrap();
    runtime.called.notified().await;
    assert_eq!(runtime.calls(), [to("0,3-7")]);
    runtime.broken.store(false, Ordering::Relaxed);
    pods.set(&[shared]);
    runtime.called.notified().await;
    assert_eq!(runtime.calls(), [to("0-7")]);
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_freed_until_all_sources_are_ready() {
    let store = Arc::new(MemoryStore::default());
    let manager = start(&store, &none()).await.unwrap();
    let handle = manager.handle();
    admit(&handle, &simple_pod("a", "2", "1Gi")).await.unwrap();
    let pods = Pods::ready(&[]);
    pods.ready.store(false, Ordering::Relaxed);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(manager.run(Arc::clone(&pods) as _, shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    admit(&handle, &simple_pod("b", "2", "1Gi")).await.unwrap();
    assert_eq!(handle.cpu_state().containers.len(), 2);
    pods.ready.store(true, Ordering::Relaxed);
    // The admission frees what is not active.
    admit(&handle, &simple_pod("d", "2", "1Gi")).await.unwrap();
    let state = handle.cpu_state();
    assert_eq!(state.containers.keys().collect::<Vec<_>>(), ["d-uid"]);
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn the_memory_of_init_containers_is_free_when_the_next_one_starts() {
    let store = Arc::new(MemoryStore::default());
    let manager = start(&store, &none()).await.unwrap();
    let handle = manager.handle();
    let resources = |memory| json!({"cpu": "1", "memory": memory});
    let pod = pod(
        "a",
        &[container("i", &resources("2Gi"))],
        &[container("c", &resources("1Gi"))],
    );
    admit(&handle, &pod).await.unwrap();
    let reserved = || handle.memory_state().nodes[&0].memory["memory"].reserved;
    assert_eq!(reserved(), 2 << 30);
    handle.container_starts(&pod, "i").await;
    assert_eq!(reserved(), 2 << 30);
    handle.container_starts(&pod, "c").await;
    assert_eq!(reserved(), 1 << 30);
    assert!(!store.text(MEMORY_MANAGER_STATE).contains("\"i\""));
}

/// The agent crashes at each write in turn, before or after the file was replaced. The pods that were admitted before keep what
/// they have, and the node starts again.
#[tokio::test]
async fn a_crash_at_any_write_loses_nothing() {
    let pods: Vec<_> = ["a", "b", "d"].map(|name| simple_pod(name, "2", "3Gi")).into();
    for replaced in [false, true] {
        for crash_at in 1.. {
            let store = Arc::new(MemoryStore::default());
            *store.crash.lock().unwrap() = Some((crash_at, replaced));
            let crashed = || *store.writes.lock().unwrap() >= crash_at;
            let mut kept = Vec::new();
            if let Ok(manager) = start(&store, &none()).await {
                for pod in &pods {
                    admit(&manager.handle(), pod).await.unwrap();
                    if crashed() {
                        break;
                    }
                    kept.push((pod.uid(), manager.handle().placement(pod.uid_str(), "c")));
                }
            }
            let finished = !crashed();
            *store.crash.lock().unwrap() = None;
            let manager = start(&store, &none()).await.unwrap();
            for (uid, placement) in &kept {
                assert_eq!(
                    manager.handle().placement(uid.as_str(), "c"),
                    *placement,
                    "{crash_at}"
                );
            }
            // All fit, also the one that was being admitted.
            for pod in &pods {
                admit(&manager.handle(), pod).await.unwrap();
            }
            assert_eq!(manager.handle().cpu_state().containers.len(), pods.len());
            if finished {
                assert!(crash_at > 2 * pods.len());
                break;
            }
        }
    }
}

/// A failed write is made up for in the next round.
#[tokio::test(start_paused = true)]
async fn a_failed_write_is_repeated() {
    let store = Arc::new(MemoryStore::default());
    let manager = start(&store, &none()).await.unwrap();
    let handle = manager.handle();
    *store.crash.lock().unwrap() = Some((0, false));
    let a = simple_pod("a", "2", "1Gi");
    admit(&handle, &a).await.unwrap();
    assert!(!store.text(CPU_MANAGER_STATE).contains("a-uid"));
    *store.crash.lock().unwrap() = None;
    let shutdown = CancellationToken::new();
    let pods = Pods::ready(std::slice::from_ref(&a));
    let running = tokio::spawn(manager.run(pods as _, shutdown.clone()));
    while !store.text(CPU_MANAGER_STATE).contains("a-uid") {
        store.written.notified().await;
    }
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn files_are_written_on_another_thread_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(StateFolder::new(folder.path()));
    let builder = ResourceManager::builder(store.clone(), Arc::new(Runtime::default()));
    let manager = builder.start(&machine(1, 2, 1, 1), &none()).await.unwrap();
    admit(&manager.handle(), &simple_pod("a", "1", "1Gi"))
        .await
        .unwrap();
    let contents = store.read(CPU_MANAGER_STATE).unwrap().unwrap();
    assert!(String::from_utf8(contents).unwrap().contains("a-uid"));
}
