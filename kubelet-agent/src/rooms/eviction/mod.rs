//! The room of eviction: pressure of the node, the pods that must go, and OOM kills.

mod asked;
mod reclaim;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{KubeletHandle, PodAdmitHandler};
use kubelet_eviction::{
    EvictionConfig, EvictionManager, EvictionParts, EvictionSettings, KubeletPods, NodePressure,
};
use kubelet_kuberuntime::ImageGcManager;
use kubelet_node::{LocalNodeBuilder, NodeStatusHandle};

use super::runtime::RuntimeRoom;
use super::stats::StatsRoom;
use crate::configured::{count, time};
use crate::context::Context;
use crate::error::Result;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    for problem in EvictionConfig::problems(thresholds(settings)) {
        problems.note_named(&problem);
    }
}

/// What the eviction of pods uses of the built agent.
pub(crate) struct Uses<'a> {
    pub(crate) kubelet: &'a KubeletHandle,
    pub(crate) runtime: &'a RuntimeRoom,
    pub(crate) stats: &'a StatsRoom,
    /// Collects images, for a runtime of containers.
    pub(crate) images: Option<ImageGcManager>,
    /// Sends the status of the node at once.
    pub(crate) status: Option<NodeStatusHandle>,
}

/// What evicts. It is made before the node and the pods.
pub(crate) struct EvictionRoom {
    config: EvictionConfig,
    pressure: NodePressure,
}

impl EvictionRoom {
    pub(crate) fn open(settings: &Settings) -> Result<Self> {
        Ok(Self {
            config: configured(settings)?,
            pressure: NodePressure::new(),
        })
    }

    /// The conditions in the node's status.
    pub(crate) fn report(&self, node: LocalNodeBuilder) -> LocalNodeBuilder {
        node.pressure(Arc::new(self.pressure.clone()))
    }

    /// Rejects pods while the node is under pressure.
    pub(crate) fn admission(&self) -> Arc<dyn PodAdmitHandler> {
        Arc::new(self.pressure.clone())
    }

    /// Starts to watch the built agent. Without a source of usage nothing is evicted; that is an error if the settings have
    /// thresholds other than the defaults. A runtime that makes no cgroups for pods
    /// shares the memory of this host with others: then only measurements count, not the notifications of the kernel.
    pub(crate) fn start(self, context: &Context, uses: Uses<'_>, tasks: &mut Tasks) -> Result<()> {
        let Self { config, pressure } = self;
        let is_host = uses.runtime.cgroups.is_some();
        #[cfg(target_os = "linux")]
        if is_host {
            let recorder = context.node_recorder.clone();
            tasks.add("OOM kills", |shutdown| watch::oom_kills(recorder, shutdown));
        }
        let Some(summaries) = uses.stats.summaries.clone() else {
            let why = "needs the usage of this host, which cannot be measured; the log has the cause";
            return asked::impossible(&context.settings, why);
        };
        let parts = EvictionParts {
            summaries,
            file_systems: Arc::new(reclaim::OfRuntime::new(context, uses.runtime)),
            pods: Arc::new(KubeletPods::new(uses.kubelet.clone(), context.recorder.clone())),
            image_gc: Arc::new(reclaim::UnusedImages(uses.images)),
            container_gc: Arc::new(reclaim::DeadContainers::new(context, uses.kubelet, uses.runtime)),
            recorder: context.recorder.clone(),
            node_recorder: context.node_recorder.clone(),
            clock: context.clock,
        };
        let notifiers = match is_host {
            true => watch::notifiers(&config, &context.settings),
            false => Vec::new(),
        };
        if let Some(status) = uses.status {
            let pressure = pressure.clone();
            tasks.add("pressure", |shutdown| {
                watch::send_changes(pressure, status, shutdown)
            });
        }
        let manager = EvictionManager::new(config, parts, pressure);
        let manager = notifiers.into_iter().fold(manager, EvictionManager::notifier);
        tasks.add("eviction", |shutdown| manager.run(shutdown));
        Ok(())
    }
}

/// The thresholds of the settings.
fn thresholds(settings: &Settings) -> EvictionSettings<'_> {
    let config = &settings.configuration;
    let enforced: &[String] = match settings.ignore_eviction_threshold {
        true => &[],
        false => &config.enforce_node_allocatable,
    };
    EvictionSettings {
        hard: &config.eviction_hard,
        soft: &config.eviction_soft,
        soft_grace_period: &config.eviction_soft_grace_period,
        minimum_reclaim: &config.eviction_minimum_reclaim,
        enforce_node_allocatable: enforced,
    }
}

/// The thresholds and the rest of the settings.
fn configured(settings: &Settings) -> Result<EvictionConfig> {
    let config = &settings.configuration;
    let mut eviction = EvictionConfig::parse(thresholds(settings))?;
    eviction.pressure_transition_period = time(config.eviction_pressure_transition_period);
    let longest = count(config.eviction_max_pod_grace_period);
    eviction.max_pod_grace_period = Duration::from_secs(longest.into());
    eviction.local_storage_capacity_isolation = config.local_storage_capacity_isolation;
    Ok(eviction)
}
