//! The room of the cluster: the access to its API server, and all that comes from there or goes there.

#[cfg(feature = "certificates")]
pub(crate) mod certificates;

use std::sync::Arc;

pub(crate) use kube_client::Client;
use kubelet_config::{
    ApiServerSource, ApiServerTokens, ClusterTrustBundleInformer, ConfigObjectManager, Informer,
    KubeletConfiguration, PodConfigBuilder,
};
use kubelet_core::{
    ClusterTrustBundles, ConfigObjects, KubeletBuilder, KubeletHandle, NoClusterTrustBundles, NodeGetter,
    PodCertificates, StatusSink,
};
use kubelet_node::{
    HeartbeatClient, LocalNode, NodeHeartbeat, NodeHeartbeatConfig, NodeInformerHandle, NodeStatusHandle,
};
use kubelet_status::{
    ApiServerEvents, ApiServerMirrorClient, ApiServerSink, EventBroadcaster, EventRecorderHandle,
};
use kubelet_volume::{ApiServerVolumeObjects, NodeVolumesBuilder};

#[cfg(not(feature = "certificates"))]
use super::absent::certificates;
use super::objects::Objects;
use crate::configured::{count, time};
use crate::context::Context;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

/// What the builder gathers for the cluster.
#[derive(Default)]
pub(crate) struct Parts {
    /// Instead of the kubeconfig.
    pub(crate) client: Option<Client>,
}

impl Parts {
    /// Whether the node joins a cluster.
    pub(crate) fn joins(&self, settings: &Settings) -> bool {
        self.client.is_some() || !settings.kubeconfig.as_os_str().is_empty()
    }
}

pub(crate) fn check(settings: &Settings, parts: &Parts, problems: &mut Problems) {
    if parts.client.is_none() {
        certificates::check(settings, problems);
    }
    let strategy = &settings
        .configuration
        .config_map_and_secret_change_detection_strategy;
    if parts.joins(settings) && !ConfigObjectManager::STRATEGIES.contains(&strategy.as_str()) {
        let what = format!("unknown configmap and secret manager mode: {strategy}");
        problems.add("configMapAndSecretChangeDetectionStrategy", what);
    }
}

/// Notes files of the access that cannot be used.
pub(crate) async fn inspect(inspection: &Inspection<'_>, problems: &mut Problems) {
    if inspection.by_kubeconfig {
        certificates::inspect(inspection, problems).await;
    }
}

/// The cluster that the node joins, if it joins one.
pub(crate) struct ClusterRoom {
    client: Option<Client>,
    access: Option<certificates::Access>,
    /// The node as the API server has it, when it has joined.
    node: Option<NodeInformerHandle>,
    /// Watches the config maps and secrets of the pods. It runs once the pods are known.
    objects: Option<ConfigObjectManager>,
    certificates: Option<certificates::OfPods>,
}

impl ClusterRoom {
    /// Joins with the client, else with the kubeconfig of the settings.
    pub(crate) async fn open(settings: &Settings, parts: Parts, tasks: &mut Tasks) -> Result<Self> {
        let access = match parts.client {
            Some(_) => None,
            None => certificates::Access::open(settings, tasks).await?,
        };
        Ok(Self {
            client: parts.client.or_else(|| Some(access.as_ref()?.client())),
            access,
            node: None,
            objects: None,
            certificates: None,
        })
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.client.is_some()
    }

    /// The client, for rooms that need a cluster.
    #[cfg(any(feature = "plugins", feature = "server"))]
    pub(crate) fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// A recorder of events, with the limits of the configuration.
    pub(crate) fn events(
        &self,
        settings: &Settings,
        node_name: &str,
        clock: kubelet_core::Clock,
        tasks: &mut Tasks,
    ) -> Option<EventRecorderHandle> {
        let config = &settings.configuration;
        let sink = ApiServerEvents::new(self.client.clone()?);
        let events = EventBroadcaster::new(sink, node_name)
            .with_clock(clock)
            .with_rate(count(config.event_record_qps), count(config.event_burst));
        let handle = events.handle();
        tasks.add("events", |shutdown| events.run(shutdown));
        Some(handle)
    }

    /// The objects that pods use. `own` replaces the config maps and secrets.
    pub(crate) fn objects(
        &mut self,
        context: &Context,
        own: Option<Arc<dyn ConfigObjects>>,
        tasks: &mut Tasks,
    ) -> Result<Objects> {
        let mut objects = Objects::none();
        if let Some(client) = &self.client {
            if own.is_none() {
                let manager = ConfigObjectManager::new(client.clone(), &context.settings.configuration)?;
                objects.config_objects = manager.handle();
                self.objects = Some(manager);
            }
            let tokens = Arc::new(ApiServerTokens::new(client.clone()));
            (objects.tokens, objects.accounts) = (tokens.clone(), tokens);
            let informer = Informer::services(client.clone());
            objects.services = Arc::new(informer.handle());
            tasks.add("services", |shutdown| informer.run(shutdown));
            let informer = Informer::runtime_classes(client.clone());
            objects.runtime_classes = Arc::new(informer.handle());
            tasks.add("runtime classes", |shutdown| informer.run(shutdown));
        }
        if let Some(own) = own {
            objects.config_objects = own;
        }
        Ok(objects)
    }

    /// Registers the node, and keeps its status and its lease. What is returned sends its status at once.
    pub(crate) fn join(
        &mut self,
        context: &Context,
        local: &Arc<LocalNode>,
        tasks: &mut Tasks,
    ) -> Option<NodeStatusHandle> {
        let client = self.client.clone()?;
        let config = heartbeat(&context.settings.configuration);
        // Connections of their own, so that other requests do not delay heartbeats.
        let beats = match &self.access {
            Some(access) => access.heartbeats(config.timeout()),
            None => HeartbeatClient::new(client.clone()).with_timeout(config.timeout()),
        };
        let heartbeat = NodeHeartbeat::new(client, beats, local.clone(), config);
        let status = heartbeat.status();
        self.node = Some(heartbeat.informer());
        tasks.add("heartbeat", |shutdown| heartbeat.run(shutdown));
        Some(status)
    }

    /// The node as the API server has it, when it has joined.
    pub(crate) fn node(&self) -> Option<&NodeInformerHandle> {
        self.node.as_ref()
    }

    /// Where statuses of pods go.
    pub(crate) fn sink(&self) -> Option<Arc<dyn StatusSink>> {
        Some(Arc::new(ApiServerSink::new(self.client.clone()?)))
    }

    /// Adds the pods that are bound to the node, from when the node is known.
    pub(crate) fn pods(&self, pods: PodConfigBuilder, context: &Context) -> PodConfigBuilder {
        let (Some(client), Some(node)) = (&self.client, &self.node) else {
            return pods;
        };
        let source = ApiServerSource::new(client.clone(), &*context.node_name);
        pods.source(source.node_synced(node.synced()))
    }

    /// Mirrors static pods.
    pub(crate) fn mirrors(&self, kubelet: KubeletBuilder) -> KubeletBuilder {
        match &self.client {
            Some(client) => kubelet.mirrors(Arc::new(ApiServerMirrorClient::new(client.clone()))),
            None => kubelet,
        }
    }

    /// Where persistent volumes and claims come from.
    pub(crate) fn volumes(&self, volumes: NodeVolumesBuilder, context: &Context) -> NodeVolumesBuilder {
        let Some(client) = &self.client else {
            return volumes;
        };
        let mut objects = ApiServerVolumeObjects::new(client.clone(), &*context.node_name);
        if let Some(node) = &self.node {
            objects = objects.attached_changes(node.volumes_attached_changes());
        }
        volumes.objects(Arc::new(objects))
    }

    /// The trust bundles, if the feature gate is on.
    pub(crate) fn trust_bundles(&self, context: &Context, tasks: &mut Tasks) -> Arc<dyn ClusterTrustBundles> {
        let gates = &context.settings.feature_gates;
        match &self.client {
            Some(client) if gates.enabled("ClusterTrustBundleProjection") => {
                let informer = ClusterTrustBundleInformer::new(client.clone());
                let bundles = Arc::new(informer.handle());
                tasks.add("trust bundles", |shutdown| informer.run(shutdown));
                bundles
            }
            _ => Arc::new(NoClusterTrustBundles),
        }
    }

    /// The certificates of pods, if the feature gate is on.
    pub(crate) fn pod_certificates(
        &mut self,
        context: &Context,
        node: Arc<dyn NodeGetter>,
    ) -> Option<Arc<dyn PodCertificates>> {
        self.certificates = certificates::OfPods::open(self.client.as_ref()?, context, node);
        Some(self.certificates.as_ref()?.handle())
    }

    /// Adds what follows the objects of the pods.
    pub(crate) fn start(&mut self, kubelet: &KubeletHandle, tasks: &mut Tasks) {
        if let Some(objects) = self.objects.take() {
            let pods = kubelet.pods().clone();
            tasks.add("config objects", |shutdown| {
                objects.run(move || pods.pods(), shutdown)
            });
        }
        if let Some(certificates) = self.certificates.take() {
            certificates.start(kubelet.pods().clone(), tasks);
        }
    }
}

/// How often the node sends its status and renews its lease.
fn heartbeat(config: &KubeletConfiguration) -> NodeHeartbeatConfig {
    let mut heartbeat = NodeHeartbeatConfig::default();
    heartbeat.register_node = config.register_node;
    heartbeat.status.update_frequency = time(config.node_status_update_frequency);
    heartbeat.status.report_frequency = time(config.node_status_report_frequency);
    heartbeat.lease.duration_seconds = count(config.node_lease_duration_seconds);
    heartbeat
}
