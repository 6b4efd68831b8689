//! The node: what it is to be, and who tells the API server of it.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kubelet_config::flags::KubeletServer;
use kubelet_core::quantity::Amount;
use kubelet_core::{NodeEventRecorder, RuntimeState};
use kubelet_cri::{CriClient, ImageGcManager, NodeSettings, RuntimeService, v1};
use kubelet_node::certificate::ApiServerAccess;
use kubelet_node::{
    BoxError, HeartbeatClient, LeaseConfig, LeaseController, LocalNode, MachineInfo, NodeConfig,
    NodeInformer, NodeRegistration, NodeRuntime, NodeStatusConfig, NodeStatusUpdater, Reservation,
    RuntimeFeatures, RuntimeHandler, RuntimeImage, node_host_ips, parse_node_ip,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::settings::{count, time};

/// What a kubelet's flags and configuration say of its node, on this machine.
pub(crate) fn local(
    server: &KubeletServer,
    node_name: &str,
    version: &str,
    (runtime, state): (Arc<Runtime>, RuntimeState),
    events: Arc<dyn NodeEventRecorder>,
) -> Result<LocalNode, Error> {
    let KubeletServer { flags, configuration: config, .. } = server;
    let (node_ips, ignored) = parse_node_ip(&flags.node_ip, &flags.cloud_provider)?;
    for ignored in ignored {
        tracing::warn!(ignored, "--node-ip: not an IP address");
    }
    let mut node = NodeConfig::new(node_name);
    node.node_ips = node_ips;
    node.external_cloud_provider = flags.cloud_provider == "external";
    node.node_labels.clone_from(&flags.node_labels);
    node.register_with_taints.clone_from(&config.register_with_taints);
    node.provider_id = Some(config.provider_id.clone()).filter(|id| !id.is_empty());
    node.enable_controller_attach_detach = config.enable_controller_attach_detach;
    let plugins = Path::new(&flags.root_directory).join("device-plugins/kubelet_internal_checkpoint");
    node.reset_extended_resources = !plugins.exists();
    node.max_pods = count(config.max_pods);
    node.pods_per_core = count(config.pods_per_core);
    node.reservation =
        Reservation::new(&config.system_reserved, &config.kube_reserved, &config.eviction_hard)?;
    node.local_storage_capacity_isolation = config.local_storage_capacity_isolation;
    node.node_status_max_images = usize::try_from(config.node_status_max_images).ok();
    node.kubelet_version = version.to_owned();
    node.kubelet_port = config.port.try_into()?;
    let machine = MachineInfo::read(flags.root_directory.as_ref())?;
    Ok(LocalNode::builder(node, machine).runtime(runtime).ready_check(state).events(events).build())
}

/// What containers may know of their node: its addresses, and what of its resources is for pods.
pub(crate) fn tell_containers(settings: &mut NodeSettings, node: &Node) {
    settings.node_ips = node_host_ips(node);
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amount = |resource: &str| Amount::try_from(allocatable?.get(resource)?).ok();
    let whole = |resource| amount(resource).and_then(|amount| u64::try_from(amount.value()).ok());
    if let Some(cpu) = amount("cpu").and_then(|cpu| u64::try_from(cpu.milli_value()).ok()) {
        settings.allocatable_cpu_millis = cpu;
    }
    settings.allocatable_memory = whole("memory").unwrap_or(settings.allocatable_memory);
    settings.allocatable_ephemeral_storage = whole("ephemeral-storage").unwrap_or_default();
}

/// The heartbeat: registration, status and lease, on connections of their own.
pub(crate) struct Heartbeat {
    informer: NodeInformer,
    status: NodeStatusUpdater,
    lease: LeaseController,
}

impl Heartbeat {
    pub(crate) fn new(
        server: &KubeletServer,
        access: &ApiServerAccess,
        local: &Arc<LocalNode>,
        informer: NodeInformer,
    ) -> Self {
        let config = &server.configuration;
        let lasts = count(config.node_lease_duration_seconds);
        let every = time(config.node_status_update_frequency);
        let (all, own) = (access.connections().clone(), access.connections().apart(|_| {}));
        let client = HeartbeatClient::new(own.client())
            .with_timeout(every.min(Duration::from_secs(lasts.into())))
            // Connections that heartbeats fail on may be dead without saying so, and the others with them.
            .renewed_by(move || {
                all.close_idle();
                own.close_all();
                Ok(own.client())
            });
        let mut frequencies = NodeStatusConfig::default();
        frequencies.update_frequency = every;
        frequencies.report_frequency = time(config.node_status_report_frequency);
        let mut status =
            NodeStatusUpdater::new(local.clone(), informer.handle(), client.clone()).with_config(frequencies);
        if config.register_node {
            status = status.with_registration(NodeRegistration::new(access.client(), local.clone()));
        }
        let mut lease = LeaseConfig::default();
        lease.duration_seconds = lasts;
        let lease = LeaseController::with_config(client, local.name(), lease);
        Self { informer, status, lease }
    }

    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self { informer, status, lease } = self;
        tokio::join!(
            informer.run(shutdown.clone()),
            status.run(shutdown.clone()),
            lease.run(shutdown.clone())
        );
    }
}

/// The container runtime, as the node's status tells of it.
pub(crate) struct Runtime {
    services: Arc<CriClient>,
    name: String,
    images: OnceLock<ImageGcManager>,
    handlers: Mutex<(Vec<RuntimeHandler>, Option<RuntimeFeatures>)>,
}

impl Runtime {
    /// Waits until it says what it is called.
    pub(crate) async fn of(services: Arc<CriClient>) -> Result<Self, Error> {
        if let Err(error) = services.handshake().await {
            tracing::warn!(%error, "the runtime does not answer yet");
        }
        let name = services.wait_ready().await?.runtime_name.clone();
        Ok(Self { services, name, images: OnceLock::new(), handlers: Mutex::default() })
    }

    /// Who knows its images.
    pub(crate) fn set_images(&self, images: ImageGcManager) {
        let _ = self.images.set(images);
    }
}

#[async_trait]
impl NodeRuntime for Runtime {
    fn runtime_type(&self) -> &str {
        &self.name
    }

    async fn version(&self) -> Result<String, BoxError> {
        let version = self.services.version(v1::VersionRequest { version: "0.1.0".to_owned() }).await?;
        let status = self.services.status(v1::StatusRequest { verbose: false }).await?;
        let of = |handler: v1::RuntimeHandler| {
            let features = handler.features.unwrap_or_default();
            RuntimeHandler {
                name: handler.name,
                recursive_read_only_mounts: features.recursive_read_only_mounts,
                user_namespaces: features.user_namespaces,
            }
        };
        let features = status.features.map(|features| RuntimeFeatures {
            supplemental_groups_policy: features.supplemental_groups_policy,
        });
        *self.handlers.lock() = (status.runtime_handlers.into_iter().map(of).collect(), features);
        Ok(version.runtime_version)
    }

    async fn images(&self) -> Result<Vec<RuntimeImage>, BoxError> {
        let images = self.images.get().map(ImageGcManager::images).unwrap_or_default();
        let of = |image: &v1::Image| RuntimeImage {
            id: image.id.clone(),
            repo_digests: image.repo_digests.clone(),
            repo_tags: image.repo_tags.clone(),
            size: image.size,
        };
        Ok(images.iter().map(of).collect())
    }

    fn handlers(&self) -> Vec<RuntimeHandler> {
        self.handlers.lock().0.clone()
    }

    fn features(&self) -> Option<RuntimeFeatures> {
        self.handlers.lock().1
    }
}
