//! The room of the node's API: who may use it, what it answers, and its ports.

mod access;
#[cfg(feature = "pods-api")]
mod pods_api;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use kubelet_core::HealthChecks;
use kubelet_core::runtime::streaming::StreamingServer;
use kubelet_server::streaming::{StreamServer, StreamServerOptions};
#[cfg(feature = "system-logs")]
use kubelet_server::system_logs::SystemLogs;
use kubelet_server::{
    AgentVersion, Authentication, Authorization, CertificateFiles, Handlers, LogVerbosity, MetricsSource,
    NodeApi, NodeApiBuilder, Profiler, Server,
};

#[cfg(any(feature = "api", feature = "console"))]
pub(crate) use self::access::of_everybody;
#[cfg(feature = "pods-api")]
pub(crate) use self::pods_api::StatusChanges;
use crate::builder::{Change, changed};
use crate::configured::time;
use crate::context::{Built, Context};
use crate::error::{Problems, address, port};
use crate::stats::StatsRoom;
use crate::tasks::Tasks;
use crate::{Error, Result, Settings};

/// What the server reports of this process, and what is replaced in it.
#[derive(Default)]
pub(crate) struct ApiParts {
    pub(crate) metrics: Option<Arc<dyn MetricsSource>>,
    pub(crate) verbosity: Option<Arc<dyn LogVerbosity>>,
    pub(crate) profiler: Option<Arc<dyn Profiler>>,
    pub(crate) changes: Change<NodeApiBuilder>,
}

pub(crate) fn check(settings: &Settings, in_cluster: bool, problems: &mut Problems) {
    let config = &settings.configuration;
    if !config.enable_server {
        return;
    }
    problems.note(address("address", &config.address));
    problems.note(port("port", config.port));
    problems.note(port("readOnlyPort", config.read_only_port));
    access::check(config, in_cluster, problems);
    tls::check(settings, in_cluster, problems);
}

/// The server of the streams of a runtime of your own, on a port of this host.
pub(crate) async fn streams(tasks: &mut Tasks) -> Result<Arc<dyn StreamingServer>> {
    let server = StreamServer::bind(StreamServerOptions::default()).await;
    let server = server.map_err(|source| Error::Io {
        what: "cannot open a port for streams".to_owned(),
        source,
    })?;
    let handle = Arc::new(server.handle());
    tasks.add("streams", |shutdown| server.run(shutdown));
    Ok(handle)
}

/// Adds the server to the tasks, as configured.
pub(crate) async fn start(
    context: &Context,
    built: &Built,
    stats: &StatsRoom,
    parts: ApiParts,
    tasks: &mut Tasks,
) -> Result<()> {
    let settings = &*context.settings;
    let config = &settings.configuration;
    let host = address("address", &config.address)?;
    let files = CertificateFiles::new();
    let (authentication, files) = access::authentication(context, files).await?;
    let access = (authentication, access::authorization(context)?);
    let metrics = parts.metrics.clone();
    let api = node_api(context, built, stats, parts, access)?;

    let (tls, files) = tls::settings(context, built, files, tasks).await?;
    tasks.add("certificate files", |shutdown| files.run(shutdown));
    let at = SocketAddr::new(host, port("port", config.port)?);
    tasks.add_fallible("server", move |shutdown| async move {
        Ok(Server::serve(at, api, Some(&tls), shutdown).await?)
    });
    if config.read_only_port > 0 {
        let api = NodeApi::read_only(Arc::new(built.kubelet.clone())).health(health(built));
        let api = with(api, stats.provider.clone(), NodeApiBuilder::stats);
        let api = with(api, metrics, NodeApiBuilder::metrics).build();
        let at = SocketAddr::new(host, port("readOnlyPort", config.read_only_port)?);
        tasks.add_fallible("read-only server", move |shutdown| async move {
            Ok(Server::serve(at, api, None, shutdown).await?)
        });
    }
    Ok(())
}

/// Serves the connections of the API server in this process. It has authorized its clients.
#[cfg(feature = "api")]
pub(crate) fn start_in_process(
    context: &Context,
    built: &Built,
    stats: &StatsRoom,
    parts: ApiParts,
    connections: crate::api::Connections,
    tasks: &mut Tasks,
) -> Result<()> {
    let api = node_api(context, built, stats, parts, of_everybody(context))?;
    tasks.add("server", |shutdown| api.serve_connections(connections, shutdown));
    Ok(())
}

fn health(built: &Built) -> HealthChecks {
    built.with_plugins(HealthChecks::of(&built.kubelet).check("log", || Ok(())))
}

/// The node's API, for those who have access.
fn node_api(
    context: &Context,
    built: &Built,
    stats: &StatsRoom,
    parts: ApiParts,
    (authentication, authorization): (Authentication, Authorization),
) -> Result<NodeApi> {
    let settings = &*context.settings;
    let config = &settings.configuration;
    let pods = Arc::new(built.kubelet.clone());
    let api = NodeApi::builder(pods, authentication, authorization)
        .handlers(handlers(settings))
        .health(health(built))
        .running_pods(built.runtime.reader())
        .configz(serde_json::to_vec(&config.configz()).map_err(kubelet_configz)?)
        .flags(settings.flags.clone())
        .agent(AgentVersion::new(&*settings.version, context.clock.now()))
        .checkpoint_dir(context.root_dir.path().join("checkpoints"))
        .streaming_idle_timeout(time(config.streaming_connection_idle_timeout));
    #[cfg(feature = "system-logs")]
    let api = {
        let query = config.enable_system_log_query && settings.feature_gates.enabled("NodeLogQuery");
        api.system_logs(SystemLogs::new("/var/log").journal(query))
    };
    let api = with(api, built.runtime.logs.clone(), NodeApiBuilder::logs);
    let api = with(api, built.runtime.streaming.clone(), NodeApiBuilder::runtime);
    let api = with(api, stats.provider.clone(), NodeApiBuilder::stats);
    let api = with(api, parts.metrics, NodeApiBuilder::metrics);
    let api = with(api, parts.verbosity, NodeApiBuilder::verbosity);
    let api = with(api, parts.profiler, NodeApiBuilder::profiler);
    Ok(changed(parts.changes, api).build())
}

/// Sets a part if it is there.
fn with<T>(
    api: NodeApiBuilder,
    part: Option<T>,
    set: impl FnOnce(NodeApiBuilder, T) -> NodeApiBuilder,
) -> NodeApiBuilder {
    match part {
        Some(part) => set(api, part),
        None => api,
    }
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
