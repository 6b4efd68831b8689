//! The room of eviction: pressure of the node, the pods that must go, and OOM kills.

mod asked;
#[cfg(feature = "eviction")]
mod reclaim;
#[cfg(feature = "eviction")]
mod watch;

use std::sync::Arc;
#[cfg(feature = "eviction")]
use std::time::Duration;

use kubelet_core::PodAdmitHandler;
#[cfg(feature = "apiserver")]
use kubelet_core::Pressure;
#[cfg(feature = "eviction")]
use kubelet_eviction::{
    EvictionConfig, EvictionManager, EvictionParts, EvictionSettings, KubeletPods, NodePressure,
};

use crate::context::{Built, Context};
use crate::error::Problems;
use crate::stats::StatsRoom;
use crate::tasks::Tasks;
use crate::{Result, Settings};

/// Notes thresholds that are not valid, or cannot take effect. `measures` is whether the builder has what measures usage.
pub(crate) fn check(settings: &Settings, measures: bool, problems: &mut Problems) {
    #[cfg(feature = "eviction")]
    problems.note(configured(settings));
    if cfg!(not(feature = "eviction")) {
        problems.note(asked::impossible(
            settings,
            "needs the feature `eviction` of kubelet-agent",
        ));
    } else if cfg!(not(feature = "stats")) && !measures {
        let why = "needs the feature `stats` of kubelet-agent, or pass `summaries`";
        problems.note(asked::impossible(settings, why));
    }
}

/// What evicts. It is made before the node and the pods.
#[cfg(not(feature = "eviction"))]
#[derive(Default)]
pub(crate) struct EvictionRoom {}

#[cfg(not(feature = "eviction"))]
impl EvictionRoom {
    pub(crate) fn new(_: &Settings) -> Result<Self> {
        Ok(Self::default())
    }

    /// No pressure is known.
    #[cfg(feature = "apiserver")]
    pub(crate) fn pressure(&self) -> Option<Arc<dyn Pressure>> {
        None
    }

    /// Rejects nothing.
    pub(crate) fn admission(&self) -> Option<Arc<dyn PodAdmitHandler>> {
        None
    }

    /// Starts nothing.
    pub(crate) async fn start(self, _: &Context, _: &Built, _: &StatsRoom, _: &mut Tasks) -> Result<()> {
        Ok(())
    }
}

/// What evicts. It is made before the node and the pods.
#[cfg(feature = "eviction")]
pub(crate) struct EvictionRoom {
    config: EvictionConfig,
    pressure: NodePressure,
}

#[cfg(feature = "eviction")]
impl EvictionRoom {
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        Ok(Self {
            config: configured(settings)?,
            pressure: NodePressure::new(),
        })
    }

    /// For the conditions in the node's status.
    #[cfg(feature = "apiserver")]
    pub(crate) fn pressure(&self) -> Option<Arc<dyn Pressure>> {
        Some(Arc::new(self.pressure.clone()))
    }

    /// Rejects pods while the node is under pressure.
    pub(crate) fn admission(&self) -> Option<Arc<dyn PodAdmitHandler>> {
        Some(Arc::new(self.pressure.clone()))
    }

    /// Starts to watch the built agent. Without a source of usage nothing is evicted; that is an error if the settings have
    /// thresholds other than the defaults. A runtime that makes no cgroups for pods
    /// shares the memory of this host with others: then only measurements count, not the notifications of the kernel.
    pub(crate) async fn start(
        self,
        context: &Context,
        built: &Built,
        stats: &StatsRoom,
        tasks: &mut Tasks,
    ) -> Result<()> {
        let Self { config, pressure } = self;
        let is_host = built.runtime.cgroups.is_some();
        #[cfg(target_os = "linux")]
        if is_host {
            let recorder = context.node_recorder.clone();
            tasks.add("OOM kills", |shutdown| watch::oom_kills(recorder, shutdown));
        }
        let Some(summaries) = stats.summaries.clone() else {
            return match cfg!(feature = "stats") {
                true => asked::impossible(
                    &context.settings,
                    "needs the usage of this host, which cannot be measured; the log has the cause",
                ),
                // It was checked before.
                false => Ok(()),
            };
        };
        let parts = EvictionParts {
            summaries,
            file_systems: Arc::new(reclaim::OfRuntime::new(context, built)),
            pods: Arc::new(KubeletPods::new(built.kubelet.clone(), context.recorder.clone())),
            image_gc: Arc::new(reclaim::UnusedImages(built.images.clone())),
            container_gc: Arc::new(reclaim::DeadContainers::new(context, built)),
            recorder: context.recorder.clone(),
            node_recorder: context.node_recorder.clone(),
            clock: context.clock,
        };
        let notifiers = match is_host {
            true => watch::notifiers(&config, &context.settings),
            false => Vec::new(),
        };
        #[cfg(feature = "apiserver")]
        if let Some(status) = built.node.status.clone() {
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

/// The thresholds and the rest of the settings.
#[cfg(feature = "eviction")]
fn configured(settings: &Settings) -> Result<EvictionConfig> {
    let config = &settings.configuration;
    let enforced: &[String] = match settings.ignore_eviction_threshold {
        true => &[],
        false => &config.enforce_node_allocatable,
    };
    let mut eviction = EvictionConfig::parse(EvictionSettings {
        hard: &config.eviction_hard,
        soft: &config.eviction_soft,
        soft_grace_period: &config.eviction_soft_grace_period,
        minimum_reclaim: &config.eviction_minimum_reclaim,
        enforce_node_allocatable: enforced,
    })?;
    eviction.pressure_transition_period = crate::configured::time(config.eviction_pressure_transition_period);
    let longest = crate::configured::count(config.eviction_max_pod_grace_period);
    eviction.max_pod_grace_period = Duration::from_secs(longest.into());
    eviction.local_storage_capacity_isolation = config.local_storage_capacity_isolation;
    Ok(eviction)
}
