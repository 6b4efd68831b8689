//! The local pods API, with the gate `PodsAPI`.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::{PodExt, PodManager, PodStatusReporter, Result, StatusSink};
use kubelet_server::pods_api::{self, PodsApi};
use tokio_util::sync::CancellationToken;

use crate::Error;

/// Reports changed statuses to the watches of the pods API: a sink beside the others.
#[derive(Clone, Default)]
pub(crate) struct StatusChanges(Arc<OnceLock<PodsApi>>);

#[async_trait]
impl StatusSink for StatusChanges {
    async fn patch_status(&self, pod: &Arc<Pod>, _: &PodStatus, _: &PodStatus) -> Result<Option<Arc<Pod>>> {
        if let Some(api) = self.0.get() {
            api.status_changed(&pod.uid());
        }
        Ok(None)
    }
}

/// Serves the pods on the socket below the root folder, until `shutdown`.
pub(crate) async fn serve(
    root_dir: &Path,
    pods: PodManager,
    statuses: Arc<dyn PodStatusReporter>,
    changes: StatusChanges,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let path = root_dir.join(pods_api::SOCKET);
    let (socket, api) = (pods_api::bind(&path)?, PodsApi::new(pods, statuses));
    // It is set once: there is one agent.
    drop(changes.0.set(api.clone()));
    tracing::info!(endpoint = %path.display(), "Starting to serve the pods API");
    api.serve(socket, shutdown).await;
    Ok(())
}
