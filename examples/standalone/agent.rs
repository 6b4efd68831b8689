//! Builds the agent from the crates.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::{BoxStream, StreamExt};
use kubelet_config::{FileSource, PodConfig};
use kubelet_core::{
    Kubelet, PodCache, PodSource, PodStatusManager as _, ProbeResultCache, SourceUpdate, StatusSink,
};
use kubelet_cri::process::ProcessRuntime;
use kubelet_cri::{CriAdapter, CriClient, ImageService, RuntimeService};
use kubelet_kuberuntime::logs::{ContainerLogManager, LogRotatePolicy};
use kubelet_kuberuntime::{CriRuntime, NodeProber, NodeSettings};
use kubelet_pleg::{EventedPleg, GenericPleg};
use kubelet_status::StatusManager;
use kubelet_volume::{InTreePlugins, NodeVolumes};

use crate::args::{Args, Pleg};

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// An agent that is ready to run.
pub(crate) struct Agent {
    pub(crate) kubelet: Kubelet,
    /// Rotates the containers' logs.
    pub(crate) logs: ContainerLogManager,
    /// Mounts the pods' volumes.
    pub(crate) volumes: NodeVolumes,
    /// The process runtime if the pods are processes; they end with the agent.
    pub(crate) processes: Option<Arc<ProcessRuntime>>,
    /// The problems in the manifests.
    pub(crate) problems: Problems,
}

impl Agent {
    /// An agent for the manifests and the runtime in `args`. Pod statuses go to `sink`.
    pub(crate) async fn new(args: &Args, sink: impl StatusSink) -> Result<Self, Error> {
        let node_name = args.node_name.clone().unwrap_or_else(host_name);
        let root_dir = args.root_dir();
        let manifests = std::path::absolute(args.manifests())?;
        if !manifests.exists() {
            return Err(format!("--manifests {}: no such file or folder", manifests.display()).into());
        }

        let (services, processes) = services(args, &root_dir).await?;
        let logs = ContainerLogManager::new(services.0.clone(), LogRotatePolicy::default())?;
        let probes = ProbeResultCache::new();
        let prober = NodeProber::new(services.0.clone());
        let statuses = StatusManager::new(sink);
        // Without permission to mount, volumes in memory are on disk.
        let plugins = InTreePlugins::new(&root_dir).build();
        let volumes = NodeVolumes::builder(&root_dir).plugins(plugins).build()?;
        let mounted = Arc::new(volumes.handle());
        let builder = CriRuntime::builder(services.0, services.1)
            .volumes(mounted.clone())
            .probes(Arc::new(probes.clone()))
            .statuses(statuses.reporter())
            .node(NodeSettings::of_this_host())
            .root_dir(&root_dir)
            .pod_logs_dir(pod_logs_dir(args, &root_dir));
        let runtime = Arc::new(builder.build().await?);
        let problems = Problems::default();
        let source = Watched(FileSource::new(manifests, node_name), problems.clone());
        let cache = PodCache::new();
        let kubelet = Kubelet::builder().pods(PodConfig::builder().source(source).build()?);
        let kubelet = match args.pleg {
            Pleg::Generic => kubelet.pleg(GenericPleg::new(runtime.clone(), cache.clone()), cache),
            Pleg::Evented => kubelet.pleg(EventedPleg::new(runtime.clone(), cache.clone()), cache),
        };
        let kubelet = kubelet
            .runtime(runtime)
            .statuses(statuses)
            .prober(prober, probes)
            .volumes(mounted)
            .root_dir(root_dir)
            .build()?;
        Ok(Self { kubelet, logs, volumes, processes, problems })
    }
}

/// The problems that a source has reported so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems(Arc<Mutex<Vec<String>>>);

impl Problems {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Records the problems that a source reports.
struct Watched<S>(S, Problems);

impl<S: PodSource> PodSource for Watched<S> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn updates(self: Box<Self>) -> BoxStream<'static, SourceUpdate> {
        let Self(source, problems) = *self;
        let note = move |update: &SourceUpdate| {
            if let SourceUpdate::Problem { item, message } = update {
                problems.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{item}: {message}"));
            }
        };
        Box::new(source).updates().inspect(note).boxed()
    }
}

type Services = (Arc<dyn RuntimeService>, Arc<dyn ImageService>);

/// The CRI services: the process runtime with an adapter, or the CRI runtime at the endpoint.
async fn services(args: &Args, root_dir: &Path) -> Result<(Services, Option<Arc<ProcessRuntime>>), Error> {
    if args.runtime == "process" {
        let processes = Arc::new(ProcessRuntime::builder(root_dir.join("processes")).open().await?);
        let adapter = CriAdapter::builder(processes.clone()).records_dir(root_dir.join("cri"));
        let adapter = Arc::new(adapter.build());
        return Ok(((adapter.clone(), adapter), Some(processes)));
    }
    let client = Arc::new(CriClient::connect(&args.runtime).await?);
    Ok(((client.clone(), client), None))
}

fn pod_logs_dir(args: &Args, root_dir: &Path) -> PathBuf {
    args.pod_logs_dir.clone().unwrap_or_else(|| match args.runtime.as_str() {
        "process" => root_dir.join("logs"),
        _ => PathBuf::from("/var/log/pods"),
    })
}

/// The host name in lower case, as in node names (`nodeutil.GetHostname`).
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase()
}
