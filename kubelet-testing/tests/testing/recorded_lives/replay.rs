//! Replays the life of a recorded pod in virtual time.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use flate2::read::GzDecoder;
use futures::stream::unfold;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_config::{PodConfig, StreamSource};
use kubelet_core::admission::{SysctlAllowlist, safe_sysctls};
use kubelet_core::{
    Clock, ConfigObjects, Jitter, Kubelet, PodCache, PodExt, PodStatusManager as _, PodUid, ProbeOutcome,
    ProbeResultCache, ProbeTarget, Prober, VolumeManager, annotations,
};
use kubelet_cri::Code;
use kubelet_cri::v1::{ExecSyncRequest, RemoveContainerRequest, StopContainerRequest};
use kubelet_cri::verbs::ErrorClass;
use kubelet_kuberuntime::{CriRuntime, NodeProber, NodeSettings};
use kubelet_pleg::GenericPleg;
use kubelet_status::{MemorySink, StatusManager, StatusManagerConfig};
use kubelet_testing::memory_cri::{Call, ExecReply, Latency, MemoryCri};
use kubelet_testing::{FakeRecorder, RecordedEvent, Run, wait_until};
use parking_lot::Mutex;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) static LIVES: LazyLock<BTreeMap<String, Life>> = LazyLock::new(|| {
    let mut text = String::new();
    GzDecoder::new(include_bytes!("../../data/lives.jsonl.gz").as_slice())
        .read_to_string(&mut text)
        .unwrap();
    let lives = text
        .lines()
        .map(|line| serde_json::from_str::<Life>(line).unwrap());
    lives.map(|life| (life.name.clone(), life)).collect()
});

/// A recorded life. Times are in seconds since the kubelet got the pod.
#[derive(Deserialize)]
pub(crate) struct Life {
    name: String,
    object: Pod,
    deleted_after: f64,
    grace: i64,
    /// By `CONTAINER/ATTEMPT`.
    runs: BTreeMap<String, RecordedRun>,
    pub(crate) calls: Vec<RecordedCall>,
    pub(crate) events: Vec<RecordedEvents>,
}

#[derive(Deserialize)]
struct RecordedRun {
    code: i32,
    /// It exited by itself after this time.
    after: Option<f64>,
    /// It exited this long after SIGTERM.
    after_stop: Option<f64>,
}

#[derive(Deserialize)]
pub(crate) struct RecordedCall {
    pub(crate) call: String,
    pub(crate) container: Option<String>,
    pub(crate) timeout: Option<i64>,
    #[serde(default)]
    pub(crate) cmd: Vec<String>,
    pub(crate) error: Option<RecordedError>,
    code: Option<i32>,
}

#[derive(Deserialize)]
pub(crate) struct RecordedError {
    code: Option<String>,
    details: String,
}

/// An event and its count.
#[derive(Deserialize)]
pub(crate) struct RecordedEvents {
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) field: Option<String>,
    pub(crate) count: usize,
}

/// What the agent did.
pub(crate) struct Lived {
    pub(crate) calls: Vec<LivedCall>,
    pub(crate) events: Vec<RecordedEvent>,
}

pub(crate) struct LivedCall {
    pub(crate) call: &'static str,
    /// `CONTAINER/ATTEMPT`.
    pub(crate) container: Option<String>,
    pub(crate) timeout: i64,
    pub(crate) cmd: Vec<String>,
    pub(crate) failed: bool,
}

pub(crate) async fn live(life: &Life) -> Lived {
    let seen = life.object.metadata.creation_timestamp.clone().unwrap().0;
    let clock = Clock::starting_at(seen);
    let runtime = MemoryCri::builder(clock)
        .latency(Latency::containerd())
        .without_user_namespaces()
        .build();
    runtime.add_image("docker.io/library/busybox:1.36");
    script(&runtime, life);

    let pods = watch::Sender::new(Vec::new());
    let desired = unfold((pods.subscribe(), true), |(mut pods, first)| async move {
        if !first {
            pods.changed().await.ok()?;
        }
        let now: Vec<Arc<Pod>> = pods.borrow_and_update().clone();
        Some((now, (pods, false)))
    });
    let (root, sink, recorder) = (TempDir::new().unwrap(), MemorySink::new(), FakeRecorder::new());
    let (results, volumes) = (
        ProbeResultCache::new(),
        Arc::new(Folders::new(root.path().join("volumes"))),
    );
    let mut statuses = StatusManagerConfig::default();
    statuses.clock = clock;
    let statuses = StatusManager::with_config(sink.clone(), statuses);
    let cri = Arc::new(runtime.clone());
    let mut node = NodeSettings::default();
    node.cluster_dns = vec!["10.0.0.10".parse().unwrap()];
    let manager = CriRuntime::builder(cri.clone(), cri.clone())
        .node(node)
        .root_dir(root.path().join("kubelet"))
        .pod_logs_dir(root.path().join("pods"))
        .clock(clock)
        .events(Arc::new(recorder.clone()))
        .probes(Arc::new(results.clone()))
        .statuses(statuses.reporter())
        .volumes(volumes.clone())
        .config_objects(Arc::new(Objects))
        .build()
        .await
        .unwrap();
    let (manager, cache) = (Arc::new(manager), PodCache::new());
    let kubelet = Kubelet::builder()
        .pods(
            PodConfig::builder()
                .source(StreamSource::new(annotations::API_SOURCE, desired))
                .build()
                .unwrap(),
        )
        .pleg(
            GenericPleg::new(manager.clone(), cache.clone()).with_clock(clock),
            cache,
        )
        .runtime(manager)
        .statuses(statuses)
        .recorder(Arc::new(recorder.clone()))
        .prober(NodeProber::new(cri).network(Refused), results)
        .admission(Arc::new(SysctlAllowlist::new(safe_sysctls(None)).unwrap()))
        .volumes(volumes)
        .clock(clock)
        .root_dir(root.path().join("kubelet"))
        .jitter(Jitter::from_seed(1))
        .build()
        .unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(kubelet.run(shutdown.clone()));

    let mut pod = life.object.clone();
    let uid = pod.uid();
    pods.send_replace(vec![Arc::new(pod.clone())]);
    tokio::time::sleep(Duration::from_secs_f64(life.deleted_after)).await;
    pod.metadata.deletion_timestamp =
        Some(Time(clock.now() + Duration::from_secs(life.grace.unsigned_abs())));
    pod.metadata.deletion_grace_period_seconds = Some(life.grace);
    pods.send_replace(vec![Arc::new(pod)]);
    // As from an API server once the agent has reported that the pod has ended.
    wait_until(sink.watch(), "the pod is deleted", |pods| {
        !pods.contains_key(&uid)
    })
    .await
    .unwrap();
    pods.send_replace(Vec::new());
    // The garbage collector runs once a minute.
    for _ in 0..180 {
        if runtime.sandboxes().is_empty() && runtime.containers().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    shutdown.cancel();
    running.await.unwrap().unwrap();

    let (calls, mut removed) = (runtime.calls().all(), BTreeMap::new());
    Lived {
        calls: calls.iter().map(|call| lived(call, &mut removed)).collect(),
        events: recorder.all(),
    }
}

/// `removed` has the name of each container that was removed, by its id: the runtime no longer knows it at a second removal.
fn lived(
    call: &kubelet_testing::memory_cri::CriCall,
    removed: &mut BTreeMap<String, Option<String>>,
) -> LivedCall {
    let about = call.about.to_string();
    let mut container = about
        .split_once('/')
        .map(|(_, container)| container.replace('#', "/"));
    if let Some(removal) = call.request::<RemoveContainerRequest>() {
        let known = removed.entry(removal.container_id.clone()).or_default();
        container = container.or_else(|| known.clone());
        known.clone_from(&container);
    }
    let exec = call.request::<ExecSyncRequest>();
    let stop = call.request::<StopContainerRequest>();
    LivedCall {
        call: call.call.name(),
        container,
        timeout: exec.map_or(0, |it| it.timeout) + stop.map_or(0, |it| it.timeout),
        cmd: exec.map(|it| it.cmd.clone()).unwrap_or_default(),
        failed: !call.succeeded(),
    }
}

/// Scripts the runtime to behave like the recorded one.
fn script(runtime: &MemoryCri, life: &Life) {
    let mut names: Vec<&str> = life
        .runs
        .keys()
        .filter_map(|key| Some(key.split_once('/')?.0))
        .collect();
    names.dedup();
    for name in names {
        let key = |attempt: u32| format!("{name}/{attempt}");
        let runs = (0..).map_while(|attempt| {
            life.runs
                .get(&key(attempt))
                .map(|it| run(it, life.start_error(&key(attempt))))
        });
        runtime.script(name, runs);
    }
    let mut tries: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut replies: BTreeMap<&str, Vec<ExecReply>> = BTreeMap::new();
    for call in &life.calls {
        let name = call
            .container
            .as_deref()
            .and_then(|it| Some(it.split_once('/')?.0));
        let Some(name) = name else { continue };
        let nth = tries.entry((call.call.as_str(), name)).or_default();
        *nth += 1;
        let kind = match call.call.as_str() {
            "CreateContainer" => Call::CreateContainer,
            "ExecSync" => Call::ExecSync,
            _ => continue,
        };
        if let Some(error) = &call.error {
            let code = match error.code.as_deref() {
                Some("DEADLINE_EXCEEDED") => Code::DeadlineExceeded,
                _ => Code::Unknown,
            };
            let fault = runtime.faults().on(kind).container(name);
            // What never succeeded keeps failing, however often it is retried.
            let fault = if life.ever_succeeded(&call.call, name) {
                fault.nth(*nth)
            } else {
                fault
            };
            fault.fails(code, &error.details);
        }
        if let Some(code) = call.code {
            replies.entry(name).or_default().push(ExecReply::exits(code));
        }
    }
    for (name, replies) in replies {
        runtime.script_exec(name, replies);
    }
}

impl Life {
    fn ever_succeeded(&self, call: &str, container: &str) -> bool {
        let named = |it: &&RecordedCall| {
            it.container
                .as_deref()
                .is_some_and(|it| it.starts_with(&format!("{container}/")))
        };
        self.calls
            .iter()
            .filter(named)
            .any(|it| it.call == call && it.error.is_none())
    }

    /// The error of this container's start.
    fn start_error(&self, container: &str) -> Option<&str> {
        let of_container = |call: &&RecordedCall| call.container.as_deref() == Some(container);
        let start = self
            .calls
            .iter()
            .filter(of_container)
            .find(|call| call.call == "StartContainer")?;
        let details = start.error.as_ref()?.details.as_str();
        // The runtime in memory sets this itself.
        details.strip_prefix("failed to create containerd task: ")
    }
}

fn run(recorded: &RecordedRun, start_error: Option<&str>) -> Run {
    if let Some(error) = start_error {
        return Run::fails_to_start(ErrorClass::Transient, error);
    }
    match (recorded.after, recorded.after_stop) {
        (Some(after), _) => Run::exits(recorded.code).after(Duration::from_secs_f64(after)),
        // It was killed at the end of its grace period.
        (None, Some(_)) if recorded.code == 137 => Run::forever().ignores_stop(),
        (None, Some(after)) => Run::forever().stop_takes(Duration::from_secs_f64(after), recorded.code),
        (None, None) => Run::forever(),
    }
}

/// There is no network here; in the recording nothing listened.
struct Refused;

#[async_trait]
impl Prober for Refused {
    async fn probe(&self, _: &ProbeTarget) -> ProbeOutcome {
        ProbeOutcome::Failure {
            output: "dial tcp ADDRESS: connect: connection refused".to_owned(),
        }
    }
}

/// The objects of the recorded cluster.
struct Objects;

#[async_trait]
impl ConfigObjects for Objects {
    async fn config_map(&self, _: &str, name: &str) -> kubelet_core::Result<Option<Arc<ConfigMap>>> {
        let data = [("alpha", "one"), ("beta", "two")];
        let object = ConfigMap {
            data: Some(data.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..Default::default()
        };
        Ok((name == "cm").then(|| Arc::new(object)))
    }

    async fn secret(&self, _: &str, name: &str) -> kubelet_core::Result<Option<Arc<Secret>>> {
        let data = [("user", "admin"), ("pass", "s3cret")];
        let object = Secret {
            data: Some(
                data.map(|(key, value)| (key.to_owned(), ByteString(value.into())))
                    .into(),
            ),
            ..Default::default()
        };
        Ok((name == "sec").then(|| Arc::new(object)))
    }
}

/// Volumes are folders; their contents are tested elsewhere.
struct Folders {
    dir: PathBuf,
    mounted: Mutex<BTreeMap<String, kubelet_core::MountedVolume>>,
}

impl Folders {
    fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            mounted: Mutex::default(),
        }
    }
}

#[async_trait]
impl VolumeManager for Folders {
    async fn wait_for_attach_and_mount(&self, pod: &Arc<Pod>) -> kubelet_core::Result<()> {
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let path = self.dir.join(&volume.name);
            std::fs::create_dir_all(&path)
                .map_err(|error| kubelet_core::Error::io(&path, Some(&pod.uid()), error))?;
            let mut mounted = kubelet_core::MountedVolume::new(path);
            mounted.read_only = volume.config_map.is_some()
                || volume.downward_api.is_some()
                || volume.projected.is_some()
                || volume.secret.is_some();
            self.mounted.lock().insert(volume.name.clone(), mounted);
        }
        Ok(())
    }

    fn mounted_volumes(&self, _: &PodUid) -> BTreeMap<String, kubelet_core::MountedVolume> {
        self.mounted.lock().clone()
    }

    async fn wait_for_unmount(&self, _: &Arc<Pod>) -> kubelet_core::Result<()> {
        Ok(())
    }
}
