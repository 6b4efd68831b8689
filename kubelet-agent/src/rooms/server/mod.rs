//! The room of the node's API: who may use it, what it answers, and its ports.

mod access;
mod pods_api;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use kubelet_core::{HealthChecks, KubeletHandle};
use kubelet_server::system_logs::SystemLogs;
use kubelet_server::{
    AgentVersion, Authentication, Authorization, CertificateFiles, Handlers, LogVerbosity, MetricsSource,
    NodeApi, NodeApiBuilder, Profiler, Server,
};

pub(crate) use self::access::of_everybody;
pub(crate) use self::pods_api::StatusChanges;
use super::cluster::ClusterRoom;
use super::own_api::Connections;
use super::plugins::PluginRoom;
use super::runtime::RuntimeRoom;
use super::stats::StatsRoom;
use crate::configured::time;
use crate::context::{Change, Context, changed, with};
use crate::dynamic::SetVerbosity;
use crate::error::{Error, Result, address, port};
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

/// What the builder gathers for the node's API: what it reports of this process, and what is replaced in it.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) metrics: Option<Arc<dyn MetricsSource>>,
    pub(crate) verbosity: Option<Arc<dyn LogVerbosity>>,
    pub(crate) profiler: Option<Arc<dyn Profiler>>,
    pub(crate) changes: Change<NodeApiBuilder>,
}

impl Parts {
    /// What sets how much is logged.
    pub(crate) fn set_verbosity(&self) -> Option<SetVerbosity> {
        let verbosity = self.verbosity.clone()?;
        Some(Box::new(move |value| verbosity.set(value)))
    }
}

/// What the server uses of the built agent.
pub(crate) struct Uses<'a> {
    pub(crate) kubelet: &'a KubeletHandle,
    pub(crate) runtime: &'a RuntimeRoom,
    pub(crate) stats: &'a StatsRoom,
    pub(crate) plugins: &'a PluginRoom,
    pub(crate) cluster: &'a ClusterRoom,
}

pub(crate) fn check(settings: &Settings, in_cluster: bool, problems: &mut Problems) {
    let config = &settings.configuration;
    if !config.enable_server {
        return;
    }
    problems.note("address", address("address", &config.address));
    problems.note("port", port("port", config.port));
    problems.note("readOnlyPort", port("readOnlyPort", config.read_only_port));
    access::check(config, in_cluster, problems);
    tls::check(settings, in_cluster, problems);
}

/// Notes certificates that cannot be read, and an address that this machine does not have.
pub(crate) async fn inspect(inspection: &Inspection<'_>, problems: &mut Problems) {
    let config = &inspection.settings.configuration;
    if !config.enable_server {
        return;
    }
    inspection.has_address("address", &config.address, problems).await;
    access::inspect(config, problems).await;
    tls::inspect(inspection, problems).await;
}

/// Adds the server to the tasks: for the connections of the API server in this process, or on the port of the configuration.
pub(crate) async fn start(
    context: &Context,
    parts: Parts,
    uses: &Uses<'_>,
    connections: Option<Connections>,
    tasks: &mut Tasks,
) -> Result<()> {
    match connections {
        Some(connections) => start_in_process(context, parts, uses, connections, tasks),
        None if context.settings.configuration.enable_server => {
            start_on_port(context, parts, uses, tasks).await
        }
        None => Ok(()),
    }
}

/// The API server in this process has authorized its clients.
fn start_in_process(
    context: &Context,
    parts: Parts,
    uses: &Uses<'_>,
    connections: Connections,
    tasks: &mut Tasks,
) -> Result<()> {
    let api = node_api(context, parts, uses, of_everybody(context))?;
    tasks.add("server", |shutdown| api.serve_connections(connections, shutdown));
    Ok(())
}

async fn start_on_port(context: &Context, parts: Parts, uses: &Uses<'_>, tasks: &mut Tasks) -> Result<()> {
    let config = &context.settings.configuration;
    let host = address("address", &config.address)?;
    let files = CertificateFiles::new();
    let (authentication, files) = access::authentication(context, uses.cluster, files).await?;
    let access = (authentication, access::authorization(context, uses.cluster)?);
    let metrics = parts.metrics.clone();
    let api = node_api(context, parts, uses, access)?;

    let (tls, files) = tls::settings(context, uses.cluster, files, tasks).await?;
    tasks.add("certificate files", |shutdown| files.run(shutdown));
    let at = SocketAddr::new(host, port("port", config.port)?);
    tasks.add_fallible("server", move |shutdown| async move {
        Ok(Server::serve(at, api, Some(&tls), shutdown).await?)
    });
    if config.read_only_port > 0 {
        let api = NodeApi::read_only(Arc::new(uses.kubelet.clone())).health(health(uses));
        let api = with(api, uses.stats.provider.clone(), NodeApiBuilder::stats);
        let api = with(api, metrics, NodeApiBuilder::metrics).build();
        let at = SocketAddr::new(host, port("readOnlyPort", config.read_only_port)?);
        tasks.add_fallible("read-only server", move |shutdown| async move {
            Ok(Server::serve(at, api, None, shutdown).await?)
        });
    }
    Ok(())
}

fn health(uses: &Uses<'_>) -> HealthChecks {
    let checks = HealthChecks::of(uses.kubelet).check("log", || Ok(()));
    uses.plugins.checks(checks)
}

/// The node's API, for those who have access.
fn node_api(
    context: &Context,
    parts: Parts,
    uses: &Uses<'_>,
    (authentication, authorization): (Authentication, Authorization),
) -> Result<NodeApi> {
    let settings = &*context.settings;
    let config = &settings.configuration;
    let pods = Arc::new(uses.kubelet.clone());
    let query = config.enable_system_log_query && settings.feature_gates.enabled("NodeLogQuery");
    let api = NodeApi::builder(pods, authentication, authorization)
        .handlers(handlers(settings))
        .health(health(uses))
        .running_pods(uses.runtime.reader())
        .configz(serde_json::to_vec(&config.configz()).map_err(kubelet_configz)?)
        .flags(settings.flags.clone())
        .agent(AgentVersion::new(&*settings.version, context.clock.now()))
        .checkpoint_dir(context.root_dir.path().join("checkpoints"))
        .streaming_idle_timeout(time(config.streaming_connection_idle_timeout))
        .system_logs(SystemLogs::new("/var/log").journal(query));
    let api = with(api, uses.runtime.logs.clone(), NodeApiBuilder::logs);
    let api = with(api, uses.runtime.streaming.clone(), NodeApiBuilder::runtime);
    let api = with(api, uses.stats.provider.clone(), NodeApiBuilder::stats);
    let api = with(api, parts.metrics, NodeApiBuilder::metrics);
    let api = with(api, parts.verbosity, NodeApiBuilder::verbosity);
    let api = with(api, parts.profiler, NodeApiBuilder::profiler);
    Ok(changed(parts.changes, api).build())
}

fn kubelet_configz(error: serde_json::Error) -> Error {
    Error::Misconfigured {
        problems: vec![format!("the configuration is no JSON: {error}")],
    }
}

fn handlers(settings: &Settings) -> Handlers {
    let Settings {
        configuration: config,
        feature_gates: gates,
        ..
    } = settings;
    let mut handlers = Handlers::default();
    handlers.debugging = config.enable_debugging_handlers;
    handlers.system_logs = config.enable_system_log_handler;
    handlers.profiling = config.enable_profiling_handler;
    handlers.debug_flags = config.enable_debug_flags_handler;
    handlers.checkpoint = gates.enabled("ContainerCheckpoint");
    handlers.flagz = gates.enabled("ComponentFlagz");
    handlers.statusz = gates.enabled("ComponentStatusz");
    handlers.split_log_streams = gates.enabled("PodLogsQuerySplitStreams");
    handlers.websockets = gates.enabled("ExtendWebSocketsToKubelet");
    handlers
}
