//! The room of eviction: pressure of the node, and the pods that must go.

use std::sync::Arc;

use kubelet_core::{PodAdmitHandler, Pressure};

use crate::context::{Built, Context};
use crate::error::Problems;
use crate::stats::StatsRoom;
use crate::tasks::Tasks;
use crate::{Result, Settings};

/// Notes thresholds that are not valid.
pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    let _ = (settings, problems);
}

/// What evicts. It is made before the node and the pods.
#[derive(Default)]
pub(crate) struct EvictionRoom {}

impl EvictionRoom {
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let _ = settings;
        Ok(Self::default())
    }

    /// For the conditions in the node's status.
    pub(crate) fn pressure(&self) -> Option<Arc<dyn Pressure>> {
        None
    }

    /// Rejects pods while the node is under pressure.
    pub(crate) fn admission(&self) -> Option<Arc<dyn PodAdmitHandler>> {
        None
    }

    /// Starts to watch the built agent.
    pub(crate) async fn start(
        self,
        context: &Context,
        built: &Built,
        stats: &StatsRoom,
        tasks: &mut Tasks,
    ) -> Result<()> {
        let _ = (context, built, stats, tasks);
        Ok(())
    }
}
