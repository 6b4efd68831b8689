//! Removes dead containers, sandboxes, log folders and links (`kuberuntime_gc.go`).

pub(crate) mod log_files;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kubelet_core::runtime::GcPolicy;
use kubelet_core::{Error, PodStateProvider, PodUid, Result};

use crate::config::LabeledInfo;
use crate::kill::Kill;
use crate::pod_actions::KillReason;
use crate::read::Listing;
use crate::runtime::CriRuntime;
use kubelet_cri::v1;

/// All dead instances of one container of one pod.
type EvictUnit = (PodUid, String);

struct DeadContainer {
    id: String,
    name: String,
    /// Unix nanoseconds.
    created_at: i64,
    /// Whether it may be running: it must be stopped first.
    unknown: bool,
}

struct OldSandbox {
    id: String,
    /// Unix nanoseconds.
    created_at: i64,
    /// Whether it is ready or has containers: it is kept.
    active: bool,
}

impl CriRuntime {
    /// An object that cannot be removed is logged and tried again the next time. Only a list can fail this call.
    pub(crate) async fn collect_garbage(&self, policy: &GcPolicy, pods: &dyn PodStateProvider) -> Result<()> {
        let containers = self.evict_containers(policy, pods).await;
        let sandboxes = self.evict_sandboxes(policy.evict_terminated_pods, pods).await;
        let logs = match policy.all_sources_ready {
            true => self.evict_pod_logs(pods).await,
            false => Ok(()),
        };
        self.remove_dead_links().await;
        containers.and(sandboxes).and(logs)
    }

    async fn evict_containers(&self, policy: &GcPolicy, pods: &dyn PodStateProvider) -> Result<()> {
        let mut units = self.evictable_containers(policy).await?;
        if policy.all_sources_ready {
            let gone: Vec<EvictUnit> = units
                .keys()
                .filter(|(uid, _)| may_remove(pods, uid, policy.evict_terminated_pods))
                .cloned()
                .collect();
            for unit in gone {
                let mut containers = units.remove(&unit).unwrap_or_default();
                self.keep_newest(&mut containers, 0).await;
            }
        }
        if let Some(max) = policy.max_per_pod_container {
            for containers in units.values_mut() {
                self.keep_newest(containers, max as usize).await;
            }
        }
        let count = |units: &BTreeMap<_, Vec<_>>| units.values().map(Vec::len).sum::<usize>();
        if let Some(max) = policy.max_containers.map(|max| max as usize)
            && count(&units) > max
        {
            // The same number for each container, and at least one.
            let per_unit = (max / units.len()).max(1);
            for containers in units.values_mut() {
                self.keep_newest(containers, per_unit).await;
            }
            if count(&units) > max {
                let mut all = units.into_values().flatten().collect();
                self.keep_newest(&mut all, max).await;
            }
        }
        Ok(())
    }

    /// The containers that are not running and are old enough.
    async fn evictable_containers(
        &self,
        policy: &GcPolicy,
    ) -> Result<BTreeMap<EvictUnit, Vec<DeadContainer>>> {
        let min_age = i128::try_from(policy.min_age.as_nanos()).unwrap_or(i128::MAX);
        let newest = self.clock.now().as_nanosecond().saturating_sub(min_age);
        let mut units: BTreeMap<EvictUnit, Vec<DeadContainer>> = BTreeMap::new();
        for container in self.list_containers(Listing::default()).await? {
            let state = container.state();
            if state == v1::ContainerState::ContainerRunning || i128::from(container.created_at) > newest {
                continue;
            }
            let uid = LabeledInfo::from_labels(&container.labels).uid;
            let name = container
                .metadata
                .map(|metadata| metadata.name)
                .unwrap_or_default();
            units.entry((uid, name.clone())).or_default().push(DeadContainer {
                id: container.id,
                name,
                created_at: container.created_at,
                unknown: state == v1::ContainerState::ContainerUnknown,
            });
        }
        Ok(units)
    }

    /// Removes all but the `keep` newest, the oldest first. A container that could not be removed counts as removed, so
    /// that no newer one is removed instead.
    async fn keep_newest(&self, containers: &mut Vec<DeadContainer>, keep: usize) {
        if containers.len() <= keep {
            return;
        }
        containers.sort_by_key(|container| Reverse(container.created_at));
        for container in containers.drain(keep..).rev() {
            if let Err(error) = self.remove_dead(&container).await {
                tracing::error!(
                    container = container.name,
                    id = container.id,
                    error,
                    "cannot remove a dead container"
                );
            }
        }
    }

    async fn remove_dead(&self, container: &DeadContainer) -> Result<(), String> {
        if container.unknown {
            self.kill_container(Kill {
                pod: None,
                id: &self.container_id(&container.id),
                name: &container.name,
                message: Some("Container is in unknown state, try killing it before removal"),
                reason: KillReason::Unknown,
                grace_period: None,
                order: None,
            })
            .await?;
        }
        self.remove_container(&container.id, false).await
    }

    /// Removes a container and, unless they are kept, its logs. The logs are removed first: if that fails, the
    /// container still exists for the next try.
    pub(crate) async fn remove_container(&self, id: &str, keep_logs: bool) -> Result<(), String> {
        if !keep_logs {
            let status = self.container_status(None, id).await;
            if let Some(status) = status.map_err(|error| error.to_string())? {
                let labeled = LabeledInfo::from_labels(&status.labels);
                let link = self
                    .container_log_links
                    .as_ref()
                    .map(|links| links.join(log_files::link_name(id, &labeled.container_name, &labeled.key)));
                let removed = self.node.disk.run(move || {
                    log_files::remove_logs(Path::new(&status.log_path))?;
                    link.map_or(Ok(()), |link| log_files::remove_file(&link))
                });
                removed.await.map_err(|error| error.to_string())?;
            }
        }
        let request = v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        match self.runtime.remove_container(request).await {
            Err(error) if !error.is_not_found() => Err(error.rpc_text()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Removes sandboxes that are not ready and have no container, except the newest one of an existing pod.
    async fn evict_sandboxes(&self, evict_terminated_pods: bool, pods: &dyn PodStateProvider) -> Result<()> {
        // The order matters: a sandbox that is created in between is ready.
        let containers = self.list_containers(Listing::default()).await?;
        let sandboxes = self.list_sandboxes(Listing::default()).await?;
        let in_use: HashSet<String> = containers
            .into_iter()
            .map(|container| container.pod_sandbox_id)
            .collect();
        let mut by_pod: BTreeMap<PodUid, Vec<OldSandbox>> = BTreeMap::new();
        for sandbox in sandboxes {
            let active = sandbox.state() == v1::PodSandboxState::SandboxReady || in_use.contains(&sandbox.id);
            let uid = PodUid::from(sandbox.metadata.map(|metadata| metadata.uid).unwrap_or_default());
            by_pod.entry(uid).or_default().push(OldSandbox {
                id: sandbox.id,
                created_at: sandbox.created_at,
                active,
            });
        }
        for (uid, mut sandboxes) in by_pod {
            let keep = usize::from(!may_remove(pods, &uid, evict_terminated_pods));
            sandboxes.sort_by_key(|sandbox| Reverse(sandbox.created_at));
            for sandbox in sandboxes
                .iter()
                .skip(keep)
                .rev()
                .filter(|sandbox| !sandbox.active)
            {
                if let Err(error) = self.remove_sandbox(&sandbox.id).await {
                    tracing::error!(%uid, sandbox = sandbox.id, %error, "cannot remove a sandbox");
                }
            }
        }
        Ok(())
    }

    async fn remove_sandbox(&self, id: &str) -> Result<(), kubelet_cri::Error> {
        let gone = |result: Result<(), kubelet_cri::Error>| match result {
            Err(error) if error.is_not_found() => Ok(()),
            result => result,
        };
        // It should have been stopped already. If not, this releases its network.
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        gone(self.runtime.stop_pod_sandbox(request).await.map(drop))?;
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        gone(self.runtime.remove_pod_sandbox(request).await.map(drop))
    }

    async fn evict_pod_logs(&self, pods: &dyn PodStateProvider) -> Result<()> {
        let root = &self.node.pod_logs_dir;
        let io_error = |error| Error::io(root, None, error);
        for dir in self.list(root).await.map_err(io_error)? {
            let name = dir.file_name().unwrap_or_default().to_string_lossy();
            let uid = log_files::uid_of_logs_dir(&name);
            if !pods.should_pod_content_be_removed(&uid) {
                continue;
            }
            let removed = {
                let dir = dir.clone();
                self.node.disk.run(move || std::fs::remove_dir_all(dir))
            };
            if let Err(error) = removed.await {
                tracing::error!(%uid, dir = %dir.display(), %error, "cannot remove a pod's logs");
            }
        }
        Ok(())
    }

    /// Removes links to logs that do not exist, unless the container may still write one: during a rotation there is no
    /// log for a moment.
    async fn remove_dead_links(&self) {
        let Some(root) = &self.container_log_links else {
            return;
        };
        let links = self.list(root).await.unwrap_or_default();
        let dead = self.node.disk.run(move || {
            let is_dead = |path: &PathBuf| {
                path.extension().is_some_and(|extension| extension == "log")
                    && !path.try_exists().unwrap_or(true)
            };
            Ok(links.into_iter().filter(is_dead).collect::<Vec<_>>())
        });
        for path in dead.await.unwrap_or_default() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(id) = log_files::id_of_link(&name)
                && let Ok(Some(status)) = self.container_status(None, id).await
                && status.state() != v1::ContainerState::ContainerExited
            {
                continue;
            }
            let removed = {
                let path = path.clone();
                self.node.disk.run(move || log_files::remove_file(&path))
            };
            if let Err(error) = removed.await {
                tracing::error!(%error, "cannot remove the link to a log");
            }
        }
    }

    /// The sorted entries of a folder; empty if it does not exist.
    async fn list(&self, dir: &Path) -> std::io::Result<Vec<PathBuf>> {
        let dir = dir.to_owned();
        let listed = self.node.disk.run(move || {
            let mut paths = std::fs::read_dir(dir)?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<std::io::Result<Vec<_>>>()?;
            paths.sort_unstable();
            Ok(paths)
        });
        match listed.await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed,
        }
    }
}

fn may_remove(pods: &dyn PodStateProvider, uid: &PodUid, evict_terminated_pods: bool) -> bool {
    pods.should_pod_content_be_removed(uid)
        || (evict_terminated_pods && pods.should_pod_runtime_be_removed(uid))
}
