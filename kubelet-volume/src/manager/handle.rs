//! What pods, the node and the stats use of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{
    Error, MountedVolume, PodExt, PodUid, Result, VolumeLease, VolumeManager, VolumeUsage, VolumeUsages,
    VolumesInUse,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::back_off::{FIRST, LONGEST};
use super::reconstruct;
use super::resolve::{Resolved, Used, used_volumes};
use super::shared::Shared;

/// How long the volumes of a pod are waited for (`podAttachAndMountTimeout`). The next sync of the pod waits again.
const PATIENCE: Duration = Duration::from_secs(2 * 60 + 3);
/// How long the sync of a pod whose volumes are mounted waits for changed files: a plugin that hangs must not hold up a pod
/// that runs.
const UPDATE_PATIENCE: Duration = Duration::from_secs(2);
/// The kubelet's words for a wait that took too long.
const TOO_LONG: &str = "context deadline exceeded";

/// The volumes of the pods of a node, as the other parts of an agent see them. Cheap to clone.
#[derive(Clone)]
pub struct NodeVolumesHandle {
    pub(crate) shared: Arc<Shared>,
}

#[async_trait]
impl VolumeManager for NodeVolumesHandle {
    async fn wait_for_attach_and_mount(&self, pod: &Arc<Pod>) -> Result<()> {
        let used = used_volumes(pod);
        if used.is_empty() {
            return Ok(());
        }
        let uid = pod.uid();
        let deadline = Instant::now() + PATIENCE;
        let names: Vec<&str> = used.iter().map(|used| used.volume.name.as_str()).collect();
        if timeout_at(deadline, self.is_read()).await.is_err() {
            return Err(self.waits(pod, &names, TOO_LONG).await);
        }
        let problems = match self.is_mounted(&uid, &names) {
            true => {
                self.sync(pod, used.iter().any(Used::has_claim));
                Vec::new()
            }
            false => match timeout_at(deadline, resolve(&self.shared, pod, &used)).await {
                Ok((resolved, mut problems)) => {
                    problems.extend(want(&self.shared, pod, resolved, false));
                    problems
                }
                Err(_) => vec![TOO_LONG.to_owned()],
            },
        };
        if !problems.is_empty() {
            return match self.is_mounted(&uid, &names) {
                true => Ok(()),
                false => Err(self.waits(pod, &names, &problems.join("; ")).await),
            };
        }
        let mounted = self.until(&uid, |uid| self.is_mounted(uid, &names));
        match timeout_at(deadline, mounted).await {
            Ok(true) => {}
            Ok(false) => return Err(Error::Cancelled),
            Err(_) => return Err(self.waits(pod, &names, TOO_LONG).await),
        }
        if self.shared.state.lock().hurry(&uid) {
            self.shared.wake.notify_one();
        }
        let updated = self.until(&uid, |uid| !self.shared.state.lock().is_updating(uid));
        if timeout(UPDATE_PATIENCE, updated).await.is_err() {
            tracing::warn!(pod = %pod.key(), "The files of a volume are not up to date yet");
        }
        Ok(())
    }

    fn mounted_volumes(&self, uid: &PodUid) -> BTreeMap<String, MountedVolume> {
        self.shared.state.lock().mounted(uid)
    }

    fn lease(&self, uid: &PodUid) -> VolumeLease {
        self.shared.leases.lease(uid)
    }

    async fn wait_for_unmount(&self, pod: &Arc<Pod>) -> Result<()> {
        self.shared.leases.ended(&pod.uid()).await;
        self.shared.state.lock().unwant_pod(&pod.uid());
        self.unmount(&pod.uid()).await.map_err(|message| Error::SyncPod {
            pod: pod.key(),
            uid: pod.uid(),
            message,
        })
    }

    async fn unmount_orphaned(&self, uid: &PodUid) -> Result<()> {
        let dir = self.shared.root_dir.pod_volumes_dir(uid);
        self.shared.leases.ended(uid).await;
        {
            let mut state = self.shared.state.lock();
            // Its worker unmounts the volumes of a pod that this agent has started.
            if !state.is_wanted(uid) {
                state.unwant_pod(uid);
            }
        }
        let result = self.unmount(uid).await;
        result.map_err(|message| Error::io(dir, Some(uid), std::io::Error::other(message)))
    }
}

impl NodeVolumesHandle {
    /// Waits until it is known what an earlier agent left.
    async fn is_read(&self) {
        self.shared.is_read.wait().await;
    }

    fn is_mounted(&self, uid: &PodUid, names: &[&str]) -> bool {
        let mounted = self.mounted_volumes(uid);
        names.iter().all(|name| mounted.contains_key(*name))
    }

    /// All volumes are mounted: sets up again what has changed.
    fn sync(&self, pod: &Arc<Pod>, has_claims: bool) {
        let refresh = *self.shared.refresh.lock();
        let mut state = self.shared.state.lock();
        state.sync(pod, refresh);
        if has_claims {
            // The volume of a claim may have grown.
            state.claims_to_read.insert(pod.uid());
        }
        if has_claims || !state.dirty.is_empty() {
            self.shared.wake.notify_one();
        }
    }

    /// Waits until this holds for the pod's volumes. Returns `false` if the pod has ended before.
    async fn until(&self, uid: &PodUid, holds: impl Fn(&PodUid) -> bool) -> bool {
        loop {
            let changed = {
                let state = self.shared.state.lock();
                let entry = state.pods.get(uid).filter(|entry| !entry.names.is_empty());
                entry.map(|entry| entry.changed.subscribe())
            };
            let Some(mut changed) = changed else { return false };
            if holds(uid) {
                return true;
            }
            // The sender is gone when the pod's entry is: then look again.
            let _ = changed.changed().await;
        }
    }

    /// The error of a pod that waits, with the kubelet's text.
    async fn waits(&self, pod: &Arc<Pod>, names: &[&str], why: &str) -> Error {
        let mounted = self.mounted_volumes(&pod.uid());
        let unmounted = names.iter().copied().filter(|name| !mounted.contains_key(*name));
        let unmounted: Vec<&str> = unmounted.collect();
        let (mut unattached, mut unknown, mut to_check) = (Vec::new(), Vec::new(), Vec::new());
        {
            let state = self.shared.state.lock();
            let known = state.pods.get(&pod.uid()).map(|entry| &entry.names);
            for name in names {
                let record = known.and_then(|known| state.records.get(known.get(*name)?));
                match record {
                    None => unknown.push(*name),
                    Some(record) if record.situation.attachable && !record.situation.attached => {
                        unattached.push(*name);
                        to_check.push((record.plugin.clone(), record.spec.clone()));
                    }
                    Some(_) => {}
                }
            }
        }
        let message = format!(
            "unmounted volumes=[{}], unattached volumes=[{}], failed to process volumes=[{}]: {why}",
            unmounted.join(" "),
            unattached.join(" "),
            unknown.join(" "),
        );
        for (plugin, spec) in to_check {
            if let Some(attachable) = plugin.attachable()
                && attachable.is_exhausted(&spec).await
            {
                return Error::VolumeAttachLimitExceeded { message };
            }
        }
        Error::SyncPod {
            pod: pod.key(),
            uid: pod.uid(),
            message,
        }
    }

    /// Waits until all volumes of a pod that has ended are unmounted. The error has the kubelet's text.
    async fn unmount(&self, uid: &PodUid) -> std::result::Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        if timeout_at(deadline, self.is_read()).await.is_err() {
            return Err(format!("mounted volumes=[]: {TOO_LONG}"));
        }
        let mut wait = Duration::ZERO;
        loop {
            let left = || self.shared.state.lock().left_of(uid).join(" ");
            match timeout_at(deadline, self.until_unmounted(uid)).await {
                Ok(true) => {}
                Ok(false) => return Err(format!("mounted volumes=[{}]: the pod uses them", left())),
                Err(_) => return Err(format!("mounted volumes=[{}]: {TOO_LONG}", left())),
            }
            // A plugin that confirms an unmount but leaves the folder is not asked all the time.
            if timeout_at(deadline, sleep(wait)).await.is_err() {
                return Err(format!("mounted volumes=[]: {TOO_LONG}"));
            }
            // An operation that failed may have left something.
            if !reconstruct::read_pod(&self.shared, uid).await {
                self.shared.usages.forget(uid);
                return Ok(());
            }
            wait = (wait * 2).clamp(FIRST, LONGEST);
        }
    }

    /// Waits until nothing of the pod is mounted, or it is wanted again.
    async fn until_unmounted(&self, uid: &PodUid) -> bool {
        self.shared.wake.notify_one();
        loop {
            let mut changed = {
                let mut state = self.shared.state.lock();
                if state.is_wanted(uid) {
                    return false;
                }
                // Found when the pod had ended.
                state.unwant_pod(uid);
                if state.left_of(uid).is_empty() {
                    state.pods.remove(uid);
                    return true;
                }
                state.pod_of(uid).changed.subscribe()
            };
            // The sender is gone when the pod's entry is: then look again.
            let _ = changed.changed().await;
        }
    }
}

/// Finds out what the volumes of a pod are. The problems have the kubelet's text.
async fn resolve(shared: &Shared, pod: &Arc<Pod>, used: &[Used<'_>]) -> (Vec<Resolved>, Vec<String>) {
    let resolving = used.iter().map(|used| shared.resolver.resolve(pod, *used));
    let (mut resolved, mut problems) = (Vec::new(), Vec::new());
    for result in futures::future::join_all(resolving).await {
        match result {
            Ok(volume) => resolved.push(volume),
            Err(problem) => {
                tracing::warn!(pod = %pod.key(), problem, "Cannot process a volume");
                problems.push(problem);
            }
        }
    }
    (resolved, problems)
}

/// The pod wants these volumes. `only_known`: those that it wants already. Returns the problems, in the kubelet's words.
fn want(shared: &Shared, pod: &Arc<Pod>, mut resolved: Vec<Resolved>, only_known: bool) -> Vec<String> {
    let refresh = *shared.refresh.lock();
    let mut state = shared.state.lock();
    if only_known {
        let Some(entry) = state.pods.get(&pod.uid()) else {
            return Vec::new();
        };
        resolved.retain(|volume| entry.names.get(&volume.outer_name) == Some(&volume.key));
    }
    let before = state.pods.get(&pod.uid()).map(|entry| entry.pod.clone());
    let mut problems = Vec::new();
    for volume in resolved {
        if let Err(problem) = state.want(pod, before.as_deref(), volume, refresh) {
            tracing::warn!(pod = %pod.key(), problem, "Cannot process a volume");
            problems.push(problem);
        }
    }
    state.pod(pod);
    shared.wake.notify_one();
    problems
}

/// Reads the claims of a pod again, because their volumes may have grown.
pub(crate) async fn read_claims(shared: Arc<Shared>, uid: PodUid) {
    let Some(pod) = shared.state.lock().pods.get(&uid).map(|entry| entry.pod.clone()) else {
        return;
    };
    let used: Vec<Used<'_>> = used_volumes(&pod).into_iter().filter(Used::has_claim).collect();
    let (resolved, _) = resolve(&shared, &pod, &used).await;
    // The pod may have ended meanwhile.
    // It uses them already: nobody can have another context.
    let _ = want(&shared, &pod, resolved, true);
}

impl VolumesInUse for NodeVolumesHandle {
    fn volumes_in_use(&self) -> Option<Vec<String>> {
        let state = self.shared.state.lock();
        let used = state.records.iter().filter(|(_, record)| record.is_in_use());
        let used = used.map(|(key, _)| key.to_string()).collect();
        (state.is_read && state.attached_is_known).then_some(used)
    }

    fn mark_reported(&self, volumes: &[String]) {
        let reported: BTreeSet<&str> = volumes.iter().map(String::as_str).collect();
        let mut state = self.shared.state.lock();
        let mut changed = Vec::new();
        for (key, record) in &mut state.records {
            let is_reported = reported.contains(&**key);
            if std::mem::replace(&mut record.situation.reported_in_use, is_reported) != is_reported {
                changed.push(key.clone());
            }
        }
        if !changed.is_empty() {
            state.dirty.extend(changed);
            self.shared.wake.notify_one();
        }
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.shared.state.lock().in_use.subscribe())
    }
}

#[async_trait]
impl VolumeUsages for NodeVolumesHandle {
    async fn volume_usages(&self, uid: &PodUid) -> BTreeMap<String, VolumeUsage> {
        self.shared.usages.of_pod(&self.shared, uid)
    }
}
