//! What other parts of the agent ask of the claims' manager.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{DynamicResources, DynamicResourcesError, PodUid};
use tokio::time::Instant;

use super::claim::ClaimState;
use super::claims::Claims;
use super::health_watch::HealthWatch;
use super::names::requests_of;
use super::plugins::Plugins;
use super::state_file::StateFile;
use super::{ClaimObjects, DraGates, metrics};
use crate::{Error, Result};

/// Prepares and unprepares the claims of pods. Clones share the claims.
#[derive(Clone)]
pub struct DraManagerHandle {
    pub(super) shared: Arc<Shared>,
}

/// What the engine and its handles share.
pub(super) struct Shared {
    pub(super) claims: Claims,
    pub(super) file: StateFile,
    pub(super) plugins: Arc<Plugins>,
    pub(super) objects: Arc<dyn ClaimObjects>,
    pub(super) gates: DraGates,
    /// `None` if the health of devices is not wanted.
    pub(super) health: Option<Arc<HealthWatch>>,
}

impl DraManagerHandle {
    /// The claims that a container uses, in the order of the pod's (`GetContainerClaimInfos`): for the pod-resources API.
    ///
    /// # Errors
    ///
    /// If one is not known, e.g. because the pod was not prepared.
    pub fn claims_of(&self, pod: &Pod, container: &Container) -> Result<Vec<ClaimState>> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let claims = self.shared.claims.lock();
        let requests = requests_of(pod, container, self.shared.gates)?;
        let states = requests.into_iter().map(|(name, _)| {
            let info = claims.by_key.get(&(namespace.to_owned(), name.to_owned()));
            info.map(|info| info.state.clone())
                .ok_or_else(|| Error::Claims(format!("unable to get information for ResourceClaim {name}")))
        });
        states.collect()
    }

    /// All claims that pods of this node use, as the state file has them.
    pub fn claims(&self) -> Vec<ClaimState> {
        self.shared.claims.lock().to_keep()
    }
}

#[async_trait]
impl DynamicResources for DraManagerHandle {
    async fn prepare(&self, pod: &Pod) -> Result<(), DynamicResourcesError> {
        let begun = Instant::now();
        let result = self.shared.prepare(pod, &uid_of(pod)).await;
        metrics::observe_operation("PrepareResources", result.is_err(), begun.elapsed());
        result.map_err(|error| DynamicResourcesError(format!("prepare dynamic resources: {error}")))
    }

    async fn unprepare(&self, pod: &Pod) -> Result<(), DynamicResourcesError> {
        let begun = Instant::now();
        let result = self.shared.unprepare(&uid_of(pod)).await;
        metrics::observe_operation("UnprepareResources", result.is_err(), begun.elapsed());
        result.map_err(|error| DynamicResourcesError(format!("unprepare dynamic resources: {error}")))
    }

    fn might_need_unprepare(&self, uid: &PodUid) -> bool {
        let claims = self.shared.claims.lock();
        claims.by_key.values().any(|info| info.state.is_used_by(uid))
    }

    /// `Manager.GetResources`
    fn cdi_devices(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, DynamicResourcesError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let requests = requests_of(pod, container, self.shared.gates)
            .map_err(|error| DynamicResourcesError(error.to_string()))?;
        let claims = self.shared.claims.lock();
        let mut devices: Vec<String> = Vec::new();
        for (name, requests) in requests {
            let info = claims.by_key.get(&(namespace.to_owned(), name.to_owned()));
            let info = info.ok_or_else(|| {
                DynamicResourcesError(format!(
                    "internal error: unable to get claim info for ResourceClaim {name} in namespace {namespace}"
                ))
            })?;
            for id in requests
                .iter()
                .flat_map(|request| info.state.cdi_devices(request))
            {
                // A device for two requests of one container is injected once.
                if !devices.contains(id) {
                    devices.push(id.clone());
                }
            }
        }
        Ok(devices)
    }
}

fn uid_of(pod: &Pod) -> PodUid {
    PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default())
}
