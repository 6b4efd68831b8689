//! What the cluster signs: the certificates of the node, and those of pods.

use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use kubelet_config::PodCertificateManager;
use kubelet_core::{NodeGetter, PodCertificates, PodManager};
use kubelet_node::HeartbeatClient;
use kubelet_node::certificate::{ApiServerAccess, ApiServerAccessBuilder, Connections};

use crate::context::Context;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) fn check(_: &Settings, _: &mut Problems) {}

/// Notes a kubeconfig or a certificate that cannot be used, and a folder in which no certificate can be kept.
pub(crate) async fn inspect(inspection: &Inspection<'_>, problems: &mut Problems) {
    let settings = inspection.settings;
    let Ok(Some(access)) = access(settings) else {
        return;
    };
    let bootstrap = &settings.bootstrap_kubeconfig;
    if let Err(error) = access.clock(inspection.clock).disk(inspection.disk).look().await {
        let of_bootstrap =
            matches!(&error, kubelet_node::Error::Kubeconfig { file, .. } if file == bootstrap);
        let field = if of_bootstrap {
            "--bootstrap-kubeconfig"
        } else {
            "--kubeconfig"
        };
        problems.add(field, error.to_string());
    }
    if !bootstrap.as_os_str().is_empty() {
        inspection
            .writes("--cert-dir", &settings.cert_dir, problems)
            .await;
    }
}

/// The access of the settings; `None` without a kubeconfig.
pub(crate) fn access(settings: &Settings) -> Result<Option<ApiServerAccessBuilder>> {
    if settings.kubeconfig.as_os_str().is_empty() {
        return Ok(None);
    }
    let mut access = ApiServerAccess::builder(settings.hostname()?, &settings.kubeconfig, &settings.cert_dir)
        .rotate_certificates(settings.configuration.rotate_certificates);
    if !settings.bootstrap_kubeconfig.as_os_str().is_empty() {
        access = access.bootstrap_kubeconfig(&settings.bootstrap_kubeconfig);
    }
    Ok(Some(access))
}

/// The access by a kubeconfig, with certificates that are rotated.
pub(crate) struct Access(Connections);

impl Access {
    /// Opens the access of the settings, and adds what rotates its certificates. With a bootstrap kubeconfig it waits until a
    /// certificate is signed.
    pub(crate) async fn open(settings: &Settings, tasks: &mut Tasks) -> Result<Option<Self>> {
        let Some(access) = access(settings)? else {
            return Ok(None);
        };
        let access = access.open().await?;
        let connections = access.connections().clone();
        tasks.add_last(
            "certificates",
            |ends, _| async move { Ok(access.run(ends).await?) },
        );
        Ok(Some(Self(connections)))
    }

    pub(crate) fn client(&self) -> Client {
        self.0.client()
    }

    /// Connections of their own for heartbeats, so that other requests do not delay them.
    pub(crate) fn heartbeats(&self, timeout: Duration) -> HeartbeatClient {
        self.0.heartbeats(timeout)
    }
}

/// The manager of the certificates of pods.
pub(crate) struct OfPods(PodCertificateManager);

impl OfPods {
    /// `None` if the feature gate is off.
    pub(crate) fn open(client: &Client, context: &Context, node: Arc<dyn NodeGetter>) -> Option<Self> {
        let is_on = context.settings.feature_gates.enabled("PodCertificateRequest");
        let manager = || PodCertificateManager::builder(client.clone(), &*context.node_name, node);
        is_on.then(|| Self(manager().recorder(context.recorder.clone()).build()))
    }

    pub(crate) fn handle(&self) -> Arc<dyn PodCertificates> {
        Arc::new(self.0.handle())
    }

    pub(crate) fn start(self, pods: PodManager, tasks: &mut Tasks) {
        tasks.add("pod certificates", |shutdown| {
            self.0.run(move || pods.pods(), shutdown)
        });
    }
}
