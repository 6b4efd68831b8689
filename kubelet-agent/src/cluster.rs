//! The access to the cluster: a client of your own, or the kubeconfig and the certificates of a node.

use std::time::Duration;

use kube_client::Client;
use kubelet_node::HeartbeatClient;
#[cfg(feature = "certificates")]
use kubelet_node::certificate::{ApiServerAccess, ApiServerAccessBuilder};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "api")]
use crate::api::Served;
use crate::error::Problems;
use crate::{Result, Settings};

/// The cluster that the node joins.
pub(crate) struct Cluster {
    client: Client,
    #[cfg(feature = "certificates")]
    access: Option<ApiServerAccess>,
    #[cfg(feature = "api")]
    served: Option<Served>,
}

pub(crate) fn check(settings: &Settings, own: Option<&Client>, problems: &mut Problems) {
    let is_read = !settings.kubeconfig.as_os_str().is_empty() && own.is_none();
    if is_read && cfg!(not(feature = "certificates")) {
        problems.add("kubeconfig needs the feature `certificates` of kubelet-agent, or pass a `client`");
    }
}

/// The access of the settings; `None` without a kubeconfig.
#[cfg(feature = "certificates")]
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

impl Cluster {
    fn new(client: Client) -> Self {
        Self {
            client,
            #[cfg(feature = "certificates")]
            access: None,
            #[cfg(feature = "api")]
            served: None,
        }
    }

    /// The cluster of this node alone.
    #[cfg(feature = "api")]
    pub(crate) fn of_own(served: Served) -> Self {
        let mut cluster = Self::new(served.node_client());
        cluster.served = Some(served);
        cluster
    }

    /// Opens the access; `None` if the node joins no cluster. With a bootstrap kubeconfig it waits until a certificate is signed.
    pub(crate) async fn open(settings: &Settings, own: Option<Client>) -> Result<Option<Self>> {
        if let Some(client) = own {
            return Ok(Some(Self::new(client)));
        }
        #[cfg(feature = "certificates")]
        if let Some(access) = access(settings)? {
            let access = access.open().await?;
            let mut cluster = Self::new(access.client());
            cluster.access = Some(access);
            return Ok(Some(cluster));
        }
        #[cfg(not(feature = "certificates"))]
        let _ = settings;
        Ok(None)
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Connections of their own for heartbeats, so that other requests do not delay them.
    pub(crate) fn heartbeats(&self, timeout: Duration) -> HeartbeatClient {
        #[cfg(feature = "certificates")]
        if let Some(access) = &self.access {
            return access.connections().heartbeats(timeout);
        }
        HeartbeatClient::new(self.client()).with_timeout(timeout)
    }

    /// Rotates the certificates, or is the API server, until `shutdown`. Clients work only while this runs, so it must end last. A
    /// failure cancels `failed`.
    pub(crate) async fn run(self, shutdown: CancellationToken, failed: CancellationToken) -> Result<()> {
        #[cfg(feature = "api")]
        if let Some(served) = self.served {
            return served.run(shutdown, failed).await;
        }
        #[cfg(feature = "certificates")]
        if let Some(access) = self.access {
            let ended = access.run(shutdown).await.inspect_err(|_| failed.cancel());
            return Ok(ended?);
        }
        let _ = failed;
        shutdown.cancelled().await;
        Ok(())
    }
}
