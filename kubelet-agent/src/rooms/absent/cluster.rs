//! No cluster: static pods, and those of your own sources.

use std::sync::Arc;

use kubelet_config::PodConfigBuilder;
use kubelet_core::{
    Clock, ClusterTrustBundles, ConfigObjects, KubeletBuilder, KubeletHandle, NoClusterTrustBundles,
    NodeGetter, PodCertificates, StatusSink,
};
use kubelet_node::{LocalNode, NodeInformerHandle, NodeStatusHandle};
use kubelet_status::EventRecorderHandle;
use kubelet_volume::NodeVolumesBuilder;

use crate::context::Context;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::rooms::objects::Objects;
use crate::settings::Settings;
use crate::tasks::Tasks;

/// There is none.
pub(crate) enum Client {}

#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) client: Option<Client>,
}

impl Parts {
    pub(crate) fn joins(&self, _: &Settings) -> bool {
        self.client.is_some()
    }
}

pub(crate) fn check(settings: &Settings, _: &Parts, problems: &mut Problems) {
    if !settings.kubeconfig.as_os_str().is_empty() {
        problems.add(
            "--kubeconfig",
            "kubeconfig needs the feature `certificates` of kubelet-agent",
        );
    }
}

pub(crate) async fn inspect(_: &Inspection<'_>, _: &mut Problems) {}

pub(crate) struct ClusterRoom;

impl ClusterRoom {
    pub(crate) async fn open(_: &Settings, _: Parts, _: &mut Tasks) -> Result<Self> {
        Ok(Self)
    }

    pub(crate) fn is_joined(&self) -> bool {
        false
    }

    pub(crate) fn events(
        &self,
        _: &Settings,
        _: &str,
        _: Clock,
        _: &mut Tasks,
    ) -> Option<EventRecorderHandle> {
        None
    }

    pub(crate) fn objects(
        &mut self,
        _: &Context,
        own: Option<Arc<dyn ConfigObjects>>,
        _: &mut Tasks,
    ) -> Result<Objects> {
        let mut objects = Objects::none();
        if let Some(own) = own {
            objects.config_objects = own;
        }
        Ok(objects)
    }

    pub(crate) fn join(
        &mut self,
        _: &Context,
        _: &Arc<LocalNode>,
        _: &mut Tasks,
    ) -> Option<NodeStatusHandle> {
        None
    }

    pub(crate) fn node(&self) -> Option<&NodeInformerHandle> {
        None
    }

    pub(crate) fn sink(&self) -> Option<Arc<dyn StatusSink>> {
        None
    }

    pub(crate) fn pods(&self, pods: PodConfigBuilder, _: &Context) -> PodConfigBuilder {
        pods
    }

    pub(crate) fn mirrors(&self, kubelet: KubeletBuilder) -> KubeletBuilder {
        kubelet
    }

    pub(crate) fn volumes(&self, volumes: NodeVolumesBuilder, _: &Context) -> NodeVolumesBuilder {
        volumes
    }

    pub(crate) fn trust_bundles(&self, _: &Context, _: &mut Tasks) -> Arc<dyn ClusterTrustBundles> {
        Arc::new(NoClusterTrustBundles)
    }

    pub(crate) fn pod_certificates(
        &mut self,
        _: &Context,
        _: Arc<dyn NodeGetter>,
    ) -> Option<Arc<dyn PodCertificates>> {
        None
    }

    pub(crate) fn start(&mut self, _: &KubeletHandle, _: &mut Tasks) {}
}
