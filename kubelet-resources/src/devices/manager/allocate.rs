//! Allocates devices to containers, and calls their plugins for it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::admission::is_backed_by_claim;
use kubelet_core::{ContainerAdditions, PodExt};
use prost::Message;
use tokio::time::Instant;

use super::metrics;
use super::{DeviceManagerHandle, Inner, Shared};
use crate::devices::{Choice, PreferenceRequest};
use crate::manager::PluginAllocator;
use crate::topology::{HintSource, ResourceHints, TopologyHint};
use crate::{BoxError, Result, Share};

impl HintSource for DeviceManagerHandle {
    fn container_hints(&self, pod: &Arc<Pod>, container: &Container) -> ResourceHints {
        self.shared.inner.lock().state.container_hints(pod, container)
    }

    fn pod_hints(&self, pod: &Arc<Pod>) -> ResourceHints {
        self.shared.inner.lock().state.pod_hints(pod)
    }
}

#[async_trait]
impl PluginAllocator for DeviceManagerHandle {
    async fn allocate(&self, share: &Share) -> Result<(), BoxError> {
        // Devices are not allocated to pods as a whole.
        let Some(container) = share.container() else {
            return Ok(());
        };
        {
            let mut inner = self.shared.inner.lock();
            inner.admitting = Some(Arc::clone(&share.pod));
            inner.set_hint(&share.pod, container, share.hint);
        }
        Ok(self.shared.allocate(&share.pod, container, share.hint).await?)
    }

    async fn additions(&self, pod: &Pod, container: &Container) -> Result<ContainerAdditions, BoxError> {
        Ok(DeviceManagerHandle::additions(self, pod, container).await?)
    }

    fn admission_ended(&self) {
        self.shared.inner.lock().admitting = None;
    }

    fn remove_stale(&self, admitting: &Arc<Pod>, active: &[Arc<Pod>]) {
        let mut active = active.to_vec();
        active.push(Arc::clone(admitting));
        self.shared.inner.lock().remove_stale(&active);
    }
}

impl Inner {
    /// Frees what other pods have. The pod that is being admitted keeps what it has got so far.
    pub(super) fn remove_stale(&mut self, active: &[Arc<Pod>]) {
        let mut active = active.to_vec();
        active.extend(self.admitting.clone());
        self.state.remove_stale(&active);
        let active: HashSet<&str> = active.iter().map(|pod| pod.uid_str()).collect();
        self.hints.retain(|uid, _| active.contains(uid.as_str()));
    }

    fn set_hint(&mut self, pod: &Pod, container: &Container, hint: TopologyHint) {
        let of_pod = self.hints.entry(pod.uid_str().to_owned()).or_default();
        of_pod.insert(container.name.clone(), hint);
    }

    pub(super) fn hint(&self, pod: &Pod, container: &Container) -> TopologyHint {
        let of_pod = self.hints.get(pod.uid_str());
        let hint = of_pod.and_then(|of_pod| of_pod.get(&container.name));
        hint.copied().unwrap_or_default()
    }
}

impl Shared {
    /// Allocates the devices that the container does not have yet (`ManagerImpl.Allocate`). If a plugin fails, the container keeps
    /// those of other resources until its pod is gone.
    pub(super) async fn allocate(&self, pod: &Pod, container: &Container, hint: TopologyHint) -> Result<()> {
        let _turn = self.turn.lock().await;
        let requests = self.requests(pod, container);
        let mut allocated = false;
        for (resource, required) in requests {
            let ids = self.choose(pod, container, &resource, required, hint).await?;
            if ids.is_empty() {
                continue;
            }
            allocated = true;
            let response = self.call_allocate(&resource, &ids).await?;
            let (uid, name) = (pod.uid_str(), &container.name);
            tracing::debug!(pod = %pod.key(), container = name, resource, ?ids, "allocated devices");
            self.inner
                .lock()
                .state
                .allocate(uid, name, &resource, &ids, response);
        }
        self.inner.lock().state.container_done(pod, container);
        match allocated {
            true => self.file.write(&self.inner).await,
            false => Ok(()),
        }
    }

    /// The devices that the container needs, by resource. A claim serves the resources that the scheduler made it for.
    pub(super) fn requests(&self, pod: &Pod, container: &Container) -> BTreeMap<String, usize> {
        let mut requests = self.inner.lock().state.requests(container);
        if self.extended_resource_claims {
            requests.retain(|resource, _| !is_backed_by_claim(pod, &container.name, resource));
        }
        requests
    }

    async fn choose(
        &self,
        pod: &Pod,
        container: &Container,
        resource: &str,
        required: usize,
        hint: TopologyHint,
    ) -> Result<BTreeSet<String>> {
        let (uid, name) = (pod.uid_str(), container.name.as_str());
        let runs = || self.running.contains(&(uid.to_owned(), name.to_owned()));
        let is_running = !self.sources_ready() && runs();
        let choice = self
            .inner
            .lock()
            .state
            .choose(uid, name, resource, required, hint, is_running)?;
        match choice {
            Choice::Nothing => Ok(BTreeSet::new()),
            Choice::Devices(ids) => Ok(ids),
            Choice::Ask(request) => {
                let preferred = self.call_preferred(resource, &request).await?;
                request.answer(&preferred)
            }
        }
    }

    /// `callGetPreferredAllocationIfAvailable`
    async fn call_preferred(&self, resource: &str, request: &PreferenceRequest) -> Result<BTreeSet<String>> {
        let endpoint = self.inner.lock().endpoints.get(resource).cloned();
        let Some(endpoint) = endpoint else {
            let text = format!("endpoint not found in cache for a registered resource: {resource}");
            return Err(Self::failed(text));
        };
        if !endpoint.options.get_preferred_allocation_available {
            return Ok(BTreeSet::new());
        }
        let preferred = endpoint.preferred(resource, request, self.call_timeout).await;
        preferred.map_err(|error| {
            Self::failed(format!(
                "device plugin GetPreferredAllocation rpc failed with err: {error}"
            ))
        })
    }

    async fn call_allocate(&self, resource: &str, ids: &BTreeSet<String>) -> Result<Vec<u8>> {
        let started = Instant::now();
        let endpoint = self.inner.lock().endpoints.get(resource).cloned();
        let endpoint = endpoint.ok_or_else(|| Self::failed(format!("unknown Device Plugin {resource}")))?;
        let response = endpoint.allocate(resource, ids, self.call_timeout).await;
        metrics::record_device_allocation(resource, started.elapsed());
        Ok(response.map_err(Self::failed)?.encode_to_vec())
    }
}
