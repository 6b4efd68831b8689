//! The node's API on its ports.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeAddress;
use kube_client::Client;
use kubelet_config::flags::KubeletServer;
use kubelet_core::{Clock, Disk, HealthChecks, KubeletHandle};
use kubelet_kuberuntime::CriRuntime;
use kubelet_node::certificate::{CertificateManager, CertificateStore, self_signed_serving_certificate};
use kubelet_node::hostname;
use kubelet_server::authentication::TokenCache;
use kubelet_server::authorization::{AlwaysAllow, Authorizer, WebhookAuthorizer};
use kubelet_server::prometheus::Metrics;
use kubelet_server::system_logs::SystemLogs;
use kubelet_server::{
    AgentVersion, ApiServerReviews, Authentication, Authorization, CertificateFiles, Handlers, LogVerbosity,
    NodeApi, Profiler, Server, ServingCertificate, TlsSettings,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::settings::time;

/// What the server reports of this process.
pub(crate) struct Process {
    /// The version of the kubelet whose behaviour it has.
    pub(crate) version: String,
    /// The flags and their values.
    pub(crate) flags: BTreeMap<String, String>,
    /// All metrics.
    pub(crate) metrics: Metrics,
    /// Sets how much is logged.
    pub(crate) verbosity: Option<Arc<dyn LogVerbosity>>,
    /// Makes profiles of the process.
    pub(crate) profiler: Option<Arc<dyn Profiler>>,
}

/// What the server needs of the agent.
pub(crate) struct Parts {
    pub(crate) client: Option<Client>,
    pub(crate) kubelet: KubeletHandle,
    pub(crate) runtime: Arc<CriRuntime>,
    pub(crate) health: HealthChecks,
    pub(crate) node_name: String,
    /// The addresses of the node, for its serving certificate.
    pub(crate) addresses: Option<watch::Receiver<Vec<NodeAddress>>>,
    pub(crate) root_dir: PathBuf,
}

/// Starts to serve, as configured.
pub(crate) async fn start(
    server: &KubeletServer,
    process: &Process,
    parts: Parts,
    tasks: &mut JoinSet<Result<(), Error>>,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let KubeletServer { flags, configuration: config, feature_gates: gates, .. } = server;
    let address: IpAddr = config.address.parse()?;
    let files = CertificateFiles::new();
    let mut authentication = Authentication::none().allow_anonymous(config.authentication.anonymous.enabled);
    let ca_file = &config.authentication.x509.client_ca_file;
    let mut files = match ca_file.as_str() {
        "" => files,
        path => {
            let (files, ca) = files.client_ca(PathBuf::from(path)).await?;
            authentication = authentication.client_ca(ca);
            files
        }
    };
    let reviews = parts.client.clone().map(|client| Arc::new(ApiServerReviews::new(client)));
    let webhook = &config.authentication.webhook;
    if webhook.enabled {
        let reviews = reviews.clone().ok_or("no client provided, cannot use webhook authentication")?;
        authentication = authentication.tokens(TokenCache::new(reviews, time(webhook.cache_ttl)));
    }
    let authorizer: Arc<dyn Authorizer> = match config.authorization.mode.as_str() {
        "AlwaysAllow" => Arc::new(AlwaysAllow),
        "Webhook" => {
            let reviews = reviews.ok_or("no client provided, cannot use webhook authorization")?;
            let webhook = &config.authorization.webhook;
            let (yes, no) = (time(webhook.cache_authorized_ttl), time(webhook.cache_unauthorized_ttl));
            Arc::new(WebhookAuthorizer::new(reviews, yes, no))
        }
        mode => return Err(format!("unknown authorization mode {mode}").into()),
    };
    let authorization = Authorization::new(&*parts.node_name, authorizer);

    let pods = Arc::new(parts.kubelet.clone());
    let metrics = Arc::new(process.metrics.clone());
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
    let query = config.enable_system_log_query && gates.enabled("NodeLogQuery");
    let api = NodeApi::builder(pods.clone(), authentication, authorization)
        .handlers(handlers)
        .health(parts.health.clone())
        .logs(parts.runtime.clone())
        .runtime(parts.runtime.clone())
        .running_pods(parts.runtime.clone())
        .metrics(metrics.clone())
        .configz(serde_json::to_vec(&config.configz())?)
        .flags(process.flags.clone())
        .agent(AgentVersion::new(&*process.version, Clock::system().now()))
        .system_logs(SystemLogs::new("/var/log").journal(query))
        .checkpoint_dir(parts.root_dir.join("checkpoints"))
        .streaming_idle_timeout(time(config.streaming_connection_idle_timeout));
    let api = match &process.verbosity {
        Some(verbosity) => api.verbosity(verbosity.clone()),
        None => api,
    };
    let api = match &process.profiler {
        Some(profiler) => api.profiler(profiler.clone()),
        None => api,
    };
    let api = api.build();

    let tls = if config.server_tls_bootstrap {
        let mut store = CertificateStore::new(CertificateStore::SERVER, &flags.cert_directory);
        if !config.tls_cert_file.is_empty() {
            store = store.or_files(&config.tls_cert_file, &config.tls_private_key_file);
        }
        let addresses = parts.addresses.ok_or("serverTLSBootstrap needs --kubeconfig")?;
        let manager = CertificateManager::serving(&parts.node_name, store, addresses).open().await?;
        let manager = match parts.client {
            Some(client) => manager.request_by(client),
            None => manager,
        };
        let tls = TlsSettings::new(Arc::new(manager.handle()));
        let shutdown = shutdown.clone();
        tasks.spawn(async move { Ok(manager.run(shutdown).await?) });
        tls
    } else if config.tls_cert_file.is_empty() {
        let host = hostname(&flags.hostname_override)?;
        let dir = Path::new(&flags.cert_directory);
        let pair = self_signed_serving_certificate(dir, &host, Clock::system(), Disk::default()).await?;
        let certificate = ServingCertificate::new();
        certificate.set(pair.certified_key());
        TlsSettings::new(Arc::new(certificate))
    } else {
        let pair = (PathBuf::from(&config.tls_cert_file), PathBuf::from(&config.tls_private_key_file));
        let (with_pair, certificate) = files.serving(pair.0, pair.1).await?;
        files = with_pair;
        TlsSettings::new(Arc::new(certificate))
    };
    let tls = tls.min_version(&config.tls_min_version)?.cipher_suites(&config.tls_cipher_suites)?;
    let ends = shutdown.clone();
    tasks.spawn(async move {
        files.run(ends).await;
        Ok(())
    });
    let (port, ends) = (SocketAddr::new(address, config.port.try_into()?), shutdown.clone());
    tasks.spawn(async move { Ok(Server::serve(port, api, Some(&tls), ends).await?) });
    if config.read_only_port > 0 {
        let api = NodeApi::read_only(pods).health(parts.health).metrics(metrics).build();
        let (port, ends) = (SocketAddr::new(address, config.read_only_port.try_into()?), shutdown.clone());
        tasks.spawn(async move { Ok(Server::serve(port, api, None, ends).await?) });
    }
    Ok(())
}
