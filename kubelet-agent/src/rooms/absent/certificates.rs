//! No certificates: a cluster is joined with a client of the program's own.

use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use kubelet_core::{NodeGetter, PodCertificates, PodManager};
use kubelet_node::HeartbeatClient;

use crate::context::Context;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    if !settings.kubeconfig.as_os_str().is_empty() {
        problems.add(
            "--kubeconfig",
            "kubeconfig needs the feature `certificates` of kubelet-agent, or pass a `client`",
        );
    }
}

pub(crate) async fn inspect(_: &Inspection<'_>, _: &mut Problems) {}

/// There is none.
pub(crate) enum Access {}

impl Access {
    pub(crate) async fn open(_: &Settings, _: &mut Tasks) -> Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn client(&self) -> Client {
        match *self {}
    }

    pub(crate) fn heartbeats(&self, _: Duration) -> HeartbeatClient {
        match *self {}
    }
}

/// There is none.
pub(crate) enum OfPods {}

impl OfPods {
    pub(crate) fn open(_: &Client, _: &Context, _: Arc<dyn NodeGetter>) -> Option<Self> {
        None
    }

    pub(crate) fn handle(&self) -> Arc<dyn PodCertificates> {
        match *self {}
    }

    pub(crate) fn start(self, _: PodManager, _: &mut Tasks) {
        match self {}
    }
}
