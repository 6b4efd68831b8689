//! The room of stats: the usage of the node, its pods, containers and volumes.
//!
//! The node's API reports it, and eviction decides by it. Until this room is filled, there is no usage.

use std::sync::Arc;

use kubelet_core::{StatsProvider, SummaryProvider};

use crate::Result;
use crate::context::{Built, Context};
use crate::tasks::Tasks;

/// What measures usage.
#[derive(Clone, Default)]
#[allow(dead_code, reason = "each room uses what it needs, and rooms have features")]
pub(crate) struct StatsRoom {
    /// For `/stats/summary` and the metrics of the node's API.
    pub(crate) provider: Option<Arc<dyn StatsProvider>>,
    /// For eviction.
    pub(crate) summaries: Option<Arc<dyn SummaryProvider>>,
}

impl StatsRoom {
    /// Starts to measure the built agent.
    pub(crate) async fn start(context: &Context, built: &Built, tasks: &mut Tasks) -> Result<Self> {
        let _ = (context, built, tasks);
        Ok(Self::default())
    }
}
