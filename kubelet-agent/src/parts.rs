//! What the builder gathers: the settings, and what replaces the parts of the agent.

use std::sync::Arc;

use kubelet_config::PodConfigBuilder;
use kubelet_core::{Clock, ConfigObjects, Disk, Jitter, KubeletBuilder, PodAdmitHandler, Prober, StatusSink};
use kubelet_resources::Machine;

use crate::context::Change;
use crate::rooms::events::Recorders;
use crate::rooms::{cluster, console, node, own_api, runtime, server, stats, volumes};
use crate::settings::Settings;

/// The parts of each room, and those of none.
pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    pub(crate) jitter: Option<Jitter>,
    pub(crate) own_api: own_api::Parts,
    pub(crate) cluster: cluster::Parts,
    pub(crate) recorders: Recorders,
    pub(crate) config_objects: Option<Arc<dyn ConfigObjects>>,
    pub(crate) runtime: runtime::Parts,
    /// The NUMA nodes.
    pub(crate) numa_nodes: Option<Machine>,
    pub(crate) node: node::Parts,
    pub(crate) volumes: volumes::Parts,
    pub(crate) sinks: Vec<Arc<dyn StatusSink>>,
    pub(crate) sources: PodConfigBuilder,
    pub(crate) admission: Vec<Arc<dyn PodAdmitHandler>>,
    pub(crate) prober: Option<Box<dyn Prober>>,
    pub(crate) kubelet: Change<KubeletBuilder>,
    pub(crate) stats: stats::Parts,
    pub(crate) console: console::Parts,
    pub(crate) server: server::Parts,
}

impl Parts {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            clock: Clock::system(),
            disk: Disk::default(),
            jitter: None,
            own_api: own_api::Parts::default(),
            cluster: cluster::Parts::default(),
            recorders: None,
            config_objects: None,
            runtime: runtime::Parts::default(),
            numa_nodes: None,
            node: node::Parts::default(),
            volumes: volumes::Parts::default(),
            sinks: Vec::new(),
            sources: PodConfigBuilder::default(),
            admission: Vec::new(),
            prober: None,
            kubelet: Vec::new(),
            stats: stats::Parts::default(),
            console: console::Parts::default(),
            server: server::Parts::default(),
        }
    }

    /// Whether the node joins a cluster of others.
    pub(crate) fn joins(&self) -> bool {
        self.cluster.joins(&self.settings)
    }

    /// Whether the node's API is served, on a port or in the process.
    pub(crate) fn serves_node_api(&self) -> bool {
        self.own_api.is_wanted() || self.settings.configuration.enable_server
    }
}
