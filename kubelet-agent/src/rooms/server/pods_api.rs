//! The local pods API, with the gate `PodsAPI`.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::{PodExt, PodManager, PodStatusReporter, StatusSink};
use kubelet_server::pods_api::{self, PodsApi};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::tasks::Tasks;

/// The pods API, if its gate is on.
pub(crate) struct StatusChanges(Option<Watches>);

/// Reports changed statuses to the watches of the pods API: a sink beside the others.
#[derive(Clone, Default)]
struct Watches(Arc<OnceLock<PodsApi>>);

#[async_trait]
impl StatusSink for Watches {
    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        _: &PodStatus,
        _: &PodStatus,
    ) -> kubelet_core::Result<Option<Arc<Pod>>> {
        if let Some(api) = self.0.get() {
            api.status_changed(&pod.uid());
        }
        Ok(None)
    }
}

impl StatusChanges {
    pub(crate) fn open(context: &Context) -> Self {
        let is_on = context.settings.feature_gates.enabled("PodsAPI");
        Self(is_on.then(Watches::default))
    }

    /// The sink of statuses that notifies the watches.
    pub(crate) fn sink(&self) -> Option<Arc<dyn StatusSink>> {
        Some(Arc::new(self.0.clone()?))
    }

    /// Serves the pods on the socket below the root folder.
    pub(crate) fn start(
        self,
        context: &Context,
        pods: PodManager,
        statuses: Arc<dyn PodStatusReporter>,
        tasks: &mut Tasks,
    ) {
        let Some(Watches(watches)) = self.0 else {
            return;
        };
        let path = context.root_dir.path().join(pods_api::SOCKET);
        tasks.add_fallible("pods API", move |shutdown| async move {
            let socket = pods_api::bind(&path);
            let socket = socket.map_err(|source| Error::Io {
                what: format!("cannot open {}", path.display()),
                source,
            });
            let (socket, api) = (socket?, PodsApi::new(pods, statuses));
            // It is set once: an agent runs once.
            drop(watches.set(api.clone()));
            tracing::info!(endpoint = %path.display(), "Starting to serve the pods API");
            api.serve(socket, shutdown).await;
            Result::Ok(())
        });
    }
}
