//! Reads back the pods of the runtime, and the full status of one (`getPods`, `GetPodStatus`, `toKubeContainerStatus`).

pub(crate) mod known_pods;
pub(crate) mod lists;
mod termination_message;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::try_join;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::cgroups::CgroupLimits;
use kubelet_core::runtime::{
    AppliedResources, ContainerState, ContainerStatus, ContainerUser, PodStatus, RuntimePod, SandboxState,
    SandboxStatus, VolumeMountStatus,
};
use kubelet_core::{ContainerId, Error, PodKey, PodUid, Result, labels};
use tokio::time::Instant;

use crate::config::{AnnotatedContainerInfo, LabeledInfo, signal_name};
use crate::read::known_pods::KnownPods;
use crate::read::termination_message::termination_message;
use crate::runtime::CriRuntime;
use kubelet_cri::{ListedContainer, ListedSandbox, v1};

/// How many status calls of one pod are made in parallel.
const PARALLEL_STATUS_CALLS: usize = 8;

/// Which sandboxes and containers to list.
#[derive(Clone, Copy, Default)]
pub(crate) struct Listing<'a> {
    /// Of this pod only.
    pub(crate) uid: Option<&'a PodUid>,
    /// Of pods with this name only. A runtime may ignore this and the next one.
    pub(crate) pod: Option<&'a PodKey>,
    /// Containers with this name only.
    pub(crate) container: Option<&'a str>,
    /// Only ready sandboxes and running containers.
    pub(crate) running_only: bool,
}

impl Listing<'_> {
    fn is_of_all(&self) -> bool {
        self.uid.is_none() && self.pod.is_none() && self.container.is_none() && !self.running_only
    }

    /// The labels of sandboxes.
    fn pod_labels(&self) -> BTreeMap<String, String> {
        let uid = self.uid.map(|uid| (labels::POD_UID, uid.as_str()));
        let name = self.pod.map(|pod| (labels::POD_NAME, &*pod.name));
        let namespace = self.pod.map(|pod| (labels::POD_NAMESPACE, &*pod.namespace));
        let all = [uid, name, namespace].into_iter().flatten();
        all.map(|(label, value)| (label.to_owned(), value.to_owned()))
            .collect()
    }

    /// The labels of containers.
    fn container_labels(&self) -> BTreeMap<String, String> {
        let name = self.container;
        let name = name.map(|name| (labels::CONTAINER_NAME.to_owned(), name.to_owned()));
        self.pod_labels().into_iter().chain(name).collect()
    }
}

impl CriRuntime {
    /// Pods newest first; see [`KnownPods::take_in`].
    pub(crate) async fn list_pods(&self, listing: Listing<'_>) -> Result<Vec<Arc<RuntimePod>>> {
        if listing.is_of_all() {
            return self.list_all_pods().await;
        }
        let (sandboxes, containers) =
            try_join(self.list_sandboxes(listing), self.list_containers(listing)).await?;
        let sandboxes: Vec<_> = sandboxes.into_iter().map(Into::into).collect();
        let containers: Vec<_> = containers.into_iter().map(Into::into).collect();
        Ok(KnownPods::default().take_in(&self.runtime_type, &sandboxes, &containers))
    }

    /// Called every second: pods that did not change since the last call are the same `Arc`s.
    async fn list_all_pods(&self) -> Result<Vec<Arc<RuntimePod>>> {
        let (sandboxes, containers) = self.list_all().await?;
        Ok(self
            .known_pods
            .lock()
            .take_in(&self.runtime_type, &sandboxes, &containers))
    }

    /// All sandboxes and containers, also those that no kubelet created.
    pub(crate) async fn list_all(&self) -> Result<(Vec<ListedSandbox>, Vec<ListedContainer>)> {
        let sandboxes = async {
            let listed = self.lists.listed_sandboxes().await;
            listed.map_err(|error| about("ListPodSandbox", None, error))
        };
        let containers = async {
            let listed = self.lists.listed_containers().await;
            listed.map_err(|error| about("ListContainers", None, error))
        };
        try_join(sandboxes, containers).await
    }

    /// The sandboxes that a kubelet created.
    pub(crate) async fn list_sandboxes(&self, listing: Listing<'_>) -> Result<Vec<v1::PodSandbox>> {
        let filter = v1::PodSandboxFilter {
            state: listing.running_only.then_some(v1::PodSandboxStateValue {
                state: v1::PodSandboxState::SandboxReady as i32,
            }),
            label_selector: listing.pod_labels(),
            ..Default::default()
        };
        let listed = self.lists.sandboxes(filter).await;
        let mut sandboxes = listed.map_err(|error| about("ListPodSandbox", listing.uid, error))?;
        sandboxes.retain(|sandbox| sandbox.labels.contains_key(labels::POD_UID));
        Ok(sandboxes)
    }

    /// The containers that a kubelet created.
    pub(crate) async fn list_containers(&self, listing: Listing<'_>) -> Result<Vec<v1::Container>> {
        let filter = v1::ContainerFilter {
            state: listing.running_only.then_some(v1::ContainerStateValue {
                state: v1::ContainerState::ContainerRunning as i32,
            }),
            label_selector: listing.container_labels(),
            ..Default::default()
        };
        let listed = self.lists.containers(filter).await;
        let mut containers = listed.map_err(|error| about("ListContainers", listing.uid, error))?;
        containers.retain(|container| container.labels.contains_key(labels::POD_UID));
        Ok(containers)
    }

    /// Skips objects that were removed since the list.
    pub(crate) async fn read_pod_status(&self, pod: &RuntimePod) -> Result<PodStatus> {
        let mut status = PodStatus::empty(pod.uid.clone(), pod.key.clone(), Instant::now());
        let sandboxes = pod
            .sandboxes
            .iter()
            .map(|sandbox| self.sandbox_status(&pod.uid, sandbox.id.id()));
        let containers = pod
            .containers
            .iter()
            .map(|container| self.container_status(Some(&pod.uid), container.id.id()));
        let (sandboxes, containers) =
            try_join(in_order(sandboxes.collect()), in_order(containers.collect())).await?;
        if let Some(Some(newest)) = sandboxes.first()
            && newest.state() == v1::PodSandboxState::SandboxReady
        {
            status.ips = sandbox_ips(newest);
        }
        status.sandboxes = sandboxes.into_iter().flatten().map(to_sandbox_status).collect();
        // The status is stored until the next one, so it must not have spare capacity.
        status.sandboxes.shrink_to_fit();
        status.containers.reserve_exact(pod.containers.len());

        for (container, listed) in containers.into_iter().zip(&pod.containers) {
            let Some(container) = container else {
                continue;
            };
            let mut converted = self.to_container_status(container).await;
            converted.sandbox_id.clone_from(&listed.sandbox_id);
            // Statuses show the resources of running containers only.
            if converted.state == ContainerState::Running
                && let Some(actuated) = self.actuated.of_container(&pod.uid, &converted.name)
            {
                converted.resources = actuated.complete(converted.resources.take());
            }
            status.containers.push(converted);
        }
        // With a coarse clock, two instances may have the same time.
        status
            .containers
            .sort_by_key(|container| Reverse((container.created_at, container.restart_count)));
        Ok(status)
    }

    /// `None` where there is none of this id.
    pub(crate) async fn sandbox_status(
        &self,
        uid: &PodUid,
        id: &str,
    ) -> Result<Option<v1::PodSandboxStatus>> {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        found("PodSandboxStatus", Some(uid), id, async {
            Ok(self.runtime.pod_sandbox_status(request).await?.status)
        })
        .await
    }

    /// `None` where there is none of this id.
    pub(crate) async fn container_status(
        &self,
        uid: Option<&PodUid>,
        id: &str,
    ) -> Result<Option<v1::ContainerStatus>> {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        found("ContainerStatus", uid, id, async {
            Ok(self.runtime.container_status(request).await?.status)
        })
        .await
    }

    async fn to_container_status(&self, status: v1::ContainerStatus) -> ContainerStatus {
        let labeled = LabeledInfo::from_labels(&status.labels);
        let annotated = AnnotatedContainerInfo::from_annotations(&status.annotations);
        let state = container_state(status.state());
        let id = self.container_id(&status.id);
        let mut converted = ContainerStatus::new(id, labeled.container_name, state);
        converted.created_at = timestamp(status.created_at);
        // These times are always set here, even if they are those of 1970: a container that could not be started has
        // ended nevertheless.
        if state != ContainerState::Created {
            converted.started_at = moment(status.started_at);
        }
        if state == ContainerState::Exited {
            converted.finished_at = moment(status.finished_at);
            converted.exit_code = status.exit_code;
            converted.reason.clone_from(&status.reason);
            converted.message.clone_from(&status.message);
            let last_words = termination_message(&status, &annotated, self.node.disk).await;
            if !last_words.is_empty() {
                if !converted.message.is_empty() {
                    converted.message.push_str(": ");
                }
                converted.message.push_str(&last_words);
            }
        }
        converted.stop_signal = signal_name(status.stop_signal());
        converted.hash = annotated.hash;
        converted.restart_count = annotated.restart_count;
        converted.image_id = image_id(status.image_id, &status.image_ref);
        converted.image_ref = status.image_ref;
        if let Some(image) = status.image {
            converted.image = image.image;
            converted.image_runtime_handler = image.runtime_handler;
        }
        converted.resources = status
            .resources
            .and_then(|resources| resources.linux)
            .and_then(to_resources);
        converted.user = status.user.and_then(|user| user.linux).map(|user| ContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: user.supplemental_groups,
        });
        converted.mounts = status
            .mounts
            .into_iter()
            .map(|mount| VolumeMountStatus {
                container_path: mount.container_path,
                host_path: mount.host_path,
                read_only: mount.readonly,
                recursive_read_only: mount.recursive_read_only,
            })
            .collect();
        converted.mounts.shrink_to_fit();
        converted
    }

    pub(crate) fn container_id(&self, id: &str) -> ContainerId {
        ContainerId::new(&*self.runtime_type, id)
    }
}

/// The addresses of a sandbox; none if one of them is invalid (`determinePodSandboxIPs`).
pub(crate) fn sandbox_ips(status: &v1::PodSandboxStatus) -> Vec<String> {
    let Some(network) = &status.network else {
        return Vec::new();
    };
    let all = [&network.ip]
        .into_iter()
        .filter(|ip| !ip.is_empty())
        .chain(network.additional_ips.iter().map(|ip| &ip.ip));
    let mut ips = Vec::new();
    for ip in all {
        if ip.parse::<IpAddr>().is_err() {
            tracing::warn!(
                sandbox = status.id,
                ip,
                "the runtime reports an invalid IP address"
            );
            return Vec::new();
        }
        ips.push(ip.clone());
    }
    ips
}

fn to_sandbox_status(status: v1::PodSandboxStatus) -> SandboxStatus {
    let network_mode = status
        .linux
        .as_ref()
        .and_then(|linux| linux.namespaces.as_ref()?.options.as_ref())
        .map(v1::NamespaceOption::network)
        .unwrap_or_default();
    SandboxStatus {
        state: sandbox_state(status.state()),
        attempt: status.metadata.as_ref().map_or(0, |metadata| metadata.attempt),
        created_at: timestamp(status.created_at),
        ips: sandbox_ips(&status),
        network_reported: status.network.is_some(),
        host_network: network_mode == v1::NamespaceMode::Node,
        id: status.id,
        runtime_handler: status.runtime_handler,
    }
}

pub(crate) fn sandbox_state(state: v1::PodSandboxState) -> SandboxState {
    match state {
        v1::PodSandboxState::SandboxReady => SandboxState::Ready,
        v1::PodSandboxState::SandboxNotready => SandboxState::NotReady,
    }
}

pub(crate) fn container_state(state: v1::ContainerState) -> ContainerState {
    match state {
        v1::ContainerState::ContainerCreated => ContainerState::Created,
        v1::ContainerState::ContainerRunning => ContainerState::Running,
        v1::ContainerState::ContainerExited => ContainerState::Exited,
        v1::ContainerState::ContainerUnknown => ContainerState::Unknown,
    }
}

/// Runtimes before v1.30 of CRI give no id.
fn image_id(id: String, image_ref: &str) -> String {
    if id.is_empty() { image_ref.to_owned() } else { id }
}

/// From Unix nanoseconds.
fn moment(nanoseconds: i64) -> Option<Timestamp> {
    Timestamp::from_nanosecond(nanoseconds.into()).ok()
}

/// From Unix nanoseconds; `None` for 0, which means unknown.
pub(crate) fn timestamp(nanoseconds: i64) -> Option<Timestamp> {
    moment(nanoseconds).filter(|at| *at != Timestamp::UNIX_EPOCH)
}

fn about(call: &'static str, uid: Option<&PodUid>, error: kubelet_cri::Error) -> Error {
    match uid {
        Some(uid) => Error::runtime_pod(call, uid, error),
        None => Error::runtime(call, error),
    }
}

async fn in_order<T>(calls: Vec<impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    let calls = stream::iter(calls).buffered(PARALLEL_STATUS_CALLS);
    calls.try_collect().await
}

async fn found<T>(
    call: &'static str,
    uid: Option<&PodUid>,
    id: &str,
    status: impl Future<Output = Result<Option<T>, kubelet_cri::Error>>,
) -> Result<Option<T>> {
    match status.await {
        Ok(Some(status)) => Ok(Some(status)),
        Ok(None) => {
            let error = kubelet_cri::Error::InvalidResponse {
                call,
                id: id.to_owned(),
                message: "no status".to_owned(),
            };
            Err(about(call, uid, error))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(about(call, uid, error)),
    }
}

/// `toKubeContainerResources`
pub(crate) fn to_resources(linux: v1::LinuxContainerResources) -> Option<AppliedResources> {
    let mut limits = CgroupLimits::default();
    limits.cpu_quota = Some(linux.cpu_quota);
    limits.cpu_period = Some(linux.cpu_period);
    limits.cpu_shares = Some(linux.cpu_shares);
    limits.memory = Some(linux.memory_limit_in_bytes);
    limits.resources()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    #[test]
    fn a_moment_may_be_that_of_1970() {
        for (nanoseconds, is, is_known) in [
            (0, "1970-01-01T00:00:00Z", false),
            (1_500_000_000, "1970-01-01T00:00:01.5Z", true),
            (1_795_000_000_000_000_000, "2026-11-18T11:06:40Z", true),
        ] {
            assert_eq!(moment(nanoseconds).map(|at| at.to_string()).as_deref(), Some(is));
            assert_eq!(timestamp(nanoseconds), moment(nanoseconds).filter(|_| is_known));
        }
    }

    #[test]
    fn signals_bear_the_apis_names() {
        for (signal, name) in [
            (v1::Signal::RuntimeDefault, None),
            (v1::Signal::Sigterm, Some("SIGTERM")),
            (v1::Signal::Sigrtminplus1, Some("SIGRTMIN+1")),
            (v1::Signal::Sigrtmaxminus14, Some("SIGRTMAX-14")),
        ] {
            assert_eq!(signal_name(signal).as_deref(), name);
        }
    }

    #[test]
    fn resources_in_force_as_quantities() {
        let resources = to_resources(v1::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 20_000,
            cpu_shares: 102,
            memory_limit_in_bytes: 64 << 20,
            ..Default::default()
        })
        .unwrap();
        let text = |quantity: Option<Quantity>| quantity.unwrap().0;
        assert_eq!(text(resources.cpu_limit), "200m");
        assert_eq!(text(resources.cpu_request), "100m");
        assert_eq!(text(resources.memory_limit), "64Mi");
        let whole = to_resources(v1::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 200_000,
            ..Default::default()
        });
        assert_eq!(text(whole.unwrap().cpu_limit), "2");
        let unlimited = v1::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: -1,
            ..Default::default()
        };
        assert_eq!(to_resources(unlimited), None);
    }
}
