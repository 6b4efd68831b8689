//! No API of the node.

use std::sync::Arc;

use kubelet_core::{KubeletHandle, PodManager, PodStatusReporter, StatusSink};

use super::own_api::Connections;
use crate::context::Context;
use crate::dynamic::SetVerbosity;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::rooms::cluster::ClusterRoom;
use crate::rooms::plugins::PluginRoom;
use crate::rooms::runtime::RuntimeRoom;
use crate::rooms::stats::StatsRoom;
use crate::settings::Settings;
use crate::tasks::Tasks;

#[derive(Default)]
pub(crate) struct Parts {}

impl Parts {
    pub(crate) fn set_verbosity(&self) -> Option<SetVerbosity> {
        None
    }
}

#[allow(dead_code, reason = "the room of the node's API uses them")]
pub(crate) struct Uses<'a> {
    pub(crate) kubelet: &'a KubeletHandle,
    pub(crate) runtime: &'a RuntimeRoom,
    pub(crate) stats: &'a StatsRoom,
    pub(crate) plugins: &'a PluginRoom,
    pub(crate) cluster: &'a ClusterRoom,
}

pub(crate) fn check(settings: &Settings, _: bool, problems: &mut Problems) {
    if settings.configuration.enable_server {
        problems.add(
            "enableServer",
            "enableServer needs the feature `server` of kubelet-agent",
        );
    }
}

pub(crate) async fn inspect(_: &Inspection<'_>, _: &mut Problems) {}

pub(crate) async fn start(
    _: &Context,
    _: Parts,
    _: &Uses<'_>,
    _: Option<Connections>,
    _: &mut Tasks,
) -> Result<()> {
    Ok(())
}

pub(crate) struct StatusChanges;

impl StatusChanges {
    pub(crate) fn open(_: &Context) -> Self {
        Self
    }

    pub(crate) fn sink(&self) -> Option<Arc<dyn StatusSink>> {
        None
    }

    pub(crate) fn start(self, _: &Context, _: PodManager, _: Arc<dyn PodStatusReporter>, _: &mut Tasks) {}
}
