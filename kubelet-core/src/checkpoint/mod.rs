//! Per-pod state on disk, so that a restart of the agent is not visible in pod statuses.
//!
//! Without it, a restart would lose results of probes (readiness would flip until the next probe), back-offs (failed
//! containers would be retried at once) and the starts of containers that must run only once (they would run again if
//! the runtime lost them). Pods from a file or URL, whose source keeps no status, would look new. Each pod has one
//! small file in its folder; it is removed with the folder.
//!
//! What a kubelet keeps of the resources of pods, the agent also writes for it, and takes from it
//! ([`resources_state`]).

mod file;
mod lost;
mod record;
mod resources_state;

use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use self::lost::{Lost, lost_containers, runs_once};
pub(crate) use self::record::Record;
use self::resources_state::ResourcesState;
use crate::allocation::Allocation;
use crate::deadline::within;
use crate::runtime::{ContainerStart, PodStatus, StartRecord};
use crate::{AllocationState, Clock, Disk, Error, PodExt, PodUid, Result, RootDir};

/// The time limit for reading the records at start. A disk that hangs does not block the agent.
const LOAD_DEADLINE: Duration = Duration::from_secs(10);
/// How long after a change the resources of all pods are written: many pods change together.
const RESOURCES_DELAY: Duration = Duration::from_secs(2);
/// The time limit for writing a pod's record.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);

/// Stores the records. A cheap handle.
///
/// Turn it off with [`KubeletBuilder::checkpoints`](crate::KubeletBuilder::checkpoints).
#[derive(Clone, Debug)]
pub struct Checkpoints {
    root_dir: RootDir,
    disk: Disk,
    clock: Clock,
    /// Boxed: a hash map has spare capacity for entries.
    pods: Arc<Mutex<FxHashMap<PodUid, Box<Kept>>>>,
    /// Records of the previous run of the agent, for pods that have not been synced yet.
    found: Arc<Mutex<FxHashMap<PodUid, Found>>>,
    /// The allocation or the resources of a pod.
    resources_changed: Arc<Notify>,
}

/// The state of one pod.
#[derive(Debug, Default)]
struct Kept {
    record: Record,
    /// How often the record changed, and the last version that is certainly on disk.
    version: u64,
    written: u64,
    /// The version on disk, shared with the writers: a write that timed out may finish after the next one.
    on_disk: Arc<Mutex<u64>>,
    lost: Vec<Lost>,
}

#[derive(Debug)]
struct Found {
    record: Record,
    /// Its status was handed out by [`restore`](Checkpoints::restore).
    restored: bool,
}

impl Checkpoints {
    /// Stores records in the pods' folders below `root_dir`. `clock` gives the times that are written.
    pub fn new(root_dir: RootDir, disk: Disk, clock: Clock) -> Self {
        Self {
            root_dir,
            disk,
            clock,
            pods: Arc::default(),
            found: Arc::default(),
            resources_changed: Arc::default(),
        }
    }

    /// Reads the records of the previous run, and the resources that a kubelet left since. An unreadable record is logged and renamed.
    pub(crate) async fn load(&self) {
        let (root, clock, durably) = (self.root_dir.clone(), self.clock, !self.disk.is_inline());
        let read = self.disk.run(move || {
            let mut records = file::read_all(&root.pods_dir(), &clock).unwrap_or_else(|error| {
                tracing::warn!(%error, "Cannot read the records of pods");
                FxHashMap::default()
            });
            let changed = ResourcesState::of_kubelet(root.path()).take_over(&mut records);
            // From now on, the records are newer than what the kubelet wrote.
            for uid in changed {
                let json = records[&uid].to_json(&uid, &clock)?;
                match file::write(&root.pod_dir(&uid), &json, durably) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::warn!(%uid, %error, "Cannot write the record of a pod");
                    }
                    _ => {}
                }
            }
            Ok(records)
        });
        match tokio::time::timeout(LOAD_DEADLINE, read).await {
            Ok(Ok(records)) => {
                let found = records.into_iter().map(|(uid, record)| {
                    let restored = false;
                    (uid, Found { record, restored })
                });
                *self.found.lock() = found.collect();
            }
            Ok(Err(error)) => tracing::warn!(%error, "Cannot read the records of pods"),
            Err(_) => tracing::warn!("Reading the records of pods timed out"),
        }
    }

    /// What the previous run of the agent had allocated.
    pub(crate) fn allocations(&self) -> Vec<(PodUid, Arc<Allocation>)> {
        let found = self.found.lock();
        let allocated =
            |(uid, found): (&PodUid, &Found)| Some((uid.clone(), found.record.allocation.clone()?));
        found.iter().filter_map(allocated).collect()
    }

    /// Adds the recorded status to a pod whose source has no status for it. A static pod gets the recorded conditions.
    pub(crate) fn restore(&self, pod: Arc<Pod>) -> Arc<Pod> {
        let mut found = self.found.lock();
        let Some(found) = found.get_mut(pod.uid_str()).filter(|found| !found.restored) else {
            return pod;
        };
        found.restored = true;
        let told = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let Some(recorded) = &found.record.status else {
            return pod;
        };
        let is_told = !told.unwrap_or_default().is_empty();
        if is_told && !pod.is_static() {
            return pod;
        }
        let recorded = (**recorded).clone();
        let mut restored = Pod::clone(&pod);
        match &mut restored.status {
            // A manifest has no status of its own; `Pending` is only its default. The new status replaces it, but the
            // times of the conditions are kept.
            Some(status) if is_told => status.conditions = recorded.conditions,
            status => *status = Some(recorded),
        }
        Arc::new(restored)
    }

    /// Returns the record of the previous run, once, before anything is done for the pod. `status` is the first status
    /// from the runtime.
    pub(crate) fn take_up(&self, pod: &Pod, status: &PodStatus) -> Option<Record> {
        let Found { record, .. } = self.found.lock().remove(pod.uid_str())?;
        let lost = lost_containers(pod, &record, status);
        for Lost { status, .. } in &lost {
            tracing::warn!(pod = %pod.key(), uid = pod.uid_str(), container = status.name, id = %status.id,
                "The runtime has lost a container that must not run twice; it is not restarted");
        }
        let mut pods = self.pods.lock();
        let kept = pods.entry(pod.uid()).or_default();
        kept.lost = lost;
        kept.record.starts.clone_from(&record.starts);
        Some(record)
    }

    /// The runtime's status, with the lost containers added.
    pub(crate) fn with_lost<'a>(&self, status: &'a PodStatus) -> Cow<'a, PodStatus> {
        self.with(status, |_| true)
    }

    /// The same, with only those lost containers whose exit was not reported yet.
    pub(crate) fn with_unreported<'a>(&self, status: &'a PodStatus) -> Cow<'a, PodStatus> {
        self.with(status, |lost| !lost.is_reported)
    }

    fn with<'a>(&self, status: &'a PodStatus, which: impl Fn(&Lost) -> bool) -> Cow<'a, PodStatus> {
        let pods = self.pods.lock();
        let lost = pods.get(&status.uid).map_or(&[][..], |kept| &kept.lost);
        let mut missing = lost
            .iter()
            .filter(|lost| which(lost) && status.container(&lost.status.name).is_none())
            .peekable();
        if missing.peek().is_none() {
            return Cow::Borrowed(status);
        }
        let mut status = status.clone();
        status.containers.extend(missing.map(|lost| lost.status.clone()));
        Cow::Owned(status)
    }

    /// Writes the record with the known starts, unless it equals the last one written. A failed write is logged and
    /// blocks nothing. A pod without a folder has no record.
    pub(crate) async fn save(&self, uid: &PodUid, mut record: Record) {
        let version = {
            let mut pods = self.pods.lock();
            let kept = pods.entry(uid.clone()).or_default();
            record.starts.clone_from(&kept.record.starts);
            if kept.written == kept.version && kept.version > 0 && kept.record == record {
                return;
            }
            if kept.record.allocation != record.allocation || kept.record.actuated != record.actuated {
                self.resources_changed.notify_one();
            }
            kept.change(record)
        };
        match self.write(uid, version).await {
            Ok(()) => {}
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%uid, %error, "Cannot write the record of a pod"),
        }
    }

    /// Writes the resources of all pods for a kubelet that takes over the node, soon after they changed. It runs until it is dropped.
    pub(crate) async fn write_resources(&self, allocations: AllocationState) {
        loop {
            self.resources_changed.notified().await;
            tokio::time::sleep(RESOURCES_DELAY).await;
            self.write_resources_now(&allocations).await;
        }
    }

    /// The same, at once. A failed write is logged.
    pub(crate) async fn write_resources_now(&self, allocations: &AllocationState) {
        let mut resources = ResourcesState {
            allocated: allocations.all(),
            ..ResourcesState::default()
        };
        {
            let (found, pods) = (self.found.lock(), self.pods.lock());
            let found = found.iter().map(|(uid, found)| (uid, &found.record));
            for (uid, record) in found.chain(pods.iter().map(|(uid, kept)| (uid, &kept.record))) {
                if !record.actuated.is_empty() {
                    resources.actuated.insert(uid.clone(), record.actuated.clone());
                }
            }
        }
        let (root, durably) = (self.root_dir.clone(), !self.disk.is_inline());
        let write = self.disk.run(move || resources.write(root.path(), durably));
        match tokio::time::timeout(WRITE_DEADLINE, write).await {
            Ok(Ok(())) => {}
            // An agent without a root folder keeps nothing.
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(Err(error)) => tracing::warn!(%error, "Cannot write the resources of pods for a kubelet"),
            Err(_) => tracing::warn!("Writing the resources of pods timed out"),
        }
    }

    /// Whether the latest record is on disk.
    pub(crate) fn is_written(&self, uid: &PodUid) -> bool {
        let pods = self.pods.lock();
        pods.get(uid)
            .is_some_and(|kept| kept.version > 0 && kept.written == kept.version)
    }

    /// Whether this run of the agent has a record of the pod.
    pub(crate) fn keeps(&self, uid: &str) -> bool {
        self.pods.lock().contains_key(uid)
    }

    /// Once a pod has ended, only its status is kept.
    pub(crate) fn ended(&self, uid: &PodUid) {
        if let Some(kept) = self.pods.lock().get_mut(uid) {
            kept.lost = Vec::new();
            kept.record = Record {
                status: kept.record.status.take(),
                ..Record::default()
            };
        }
    }

    /// Forgets all other pods.
    pub(crate) fn retain(&self, known: &HashSet<PodUid>) {
        self.pods.lock().retain(|uid, _| known.contains(uid));
        self.found.lock().retain(|uid, _| known.contains(uid));
    }

    async fn write(&self, uid: &PodUid, version: u64) -> Result<()> {
        let dir = self.root_dir.pod_dir(uid);
        let (json, on_disk) = {
            let pods = self.pods.lock();
            let Some(kept) = pods.get(uid) else {
                return Ok(());
            };
            let json = kept.record.to_json(uid, &self.clock);
            let json = json.map_err(|error| Error::io(&dir, Some(uid), error.into()))?;
            (json, kept.on_disk.clone())
        };
        let (at, durably) = (dir.clone(), !self.disk.is_inline());
        let written = self.disk.run(move || {
            let mut on_disk = on_disk.lock();
            if *on_disk < version {
                file::write(&at, &json, durably)?;
                *on_disk = version;
            }
            Ok(())
        });
        let written = async { written.await.map_err(|error| Error::io(&dir, Some(uid), error)) };
        within("write the record", Some(uid), WRITE_DEADLINE, written).await?;
        if let Some(kept) = self.pods.lock().get_mut(uid) {
            kept.written = kept.written.max(version);
        }
        Ok(())
    }
}

impl Kept {
    /// Replaces the record; returns its version.
    fn change(&mut self, record: Record) -> u64 {
        self.record = record;
        self.version += 1;
        self.version
    }
}

#[async_trait]
impl StartRecord for Checkpoints {
    /// Writes only for containers that must not run twice.
    async fn about_to_start(&self, pod: &Pod, start: &ContainerStart) -> Result<()> {
        if !runs_once(pod, &start.name) {
            return Ok(());
        }
        let uid = pod.uid();
        let version = {
            let mut pods = self.pods.lock();
            let kept = pods.entry(uid.clone()).or_default();
            let mut record = kept.record.clone();
            record.starts.retain(|before| before.name != start.name);
            record.starts.push(start.clone());
            kept.change(record)
        };
        self.write(&uid, version).await
    }

    async fn about_to_start_over(&self, pod: &Pod, container: &str) -> Result<()> {
        let uid = pod.uid();
        let version = {
            let mut pods = self.pods.lock();
            let Some(kept) = pods.get_mut(&uid) else {
                return Ok(());
            };
            kept.lost.retain(|lost| lost.status.name != container);
            if kept.record.starts.iter().all(|start| start.name != container) {
                return Ok(());
            }
            let mut record = kept.record.clone();
            record.starts.retain(|start| start.name != container);
            kept.change(record)
        };
        self.write(&uid, version).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use k8s_openapi::api::core::v1::PodStatus as ApiPodStatus;
    use serde_json::json;
    use tokio::time::Instant;

    use super::file::FILE;
    use super::resources_state::tests::write_as_kubelet;
    use super::*;
    use crate::runtime::ActuatedResources;
    use crate::{ContainerId, annotations};

    fn checkpoints(root: &Path) -> Checkpoints {
        Checkpoints::new(RootDir::new(root), Disk::inline(), Clock::system())
    }

    fn status(phase: &str) -> ApiPodStatus {
        ApiPodStatus {
            phase: Some(phase.to_owned()),
            ..ApiPodStatus::default()
        }
    }

    fn recorded(phase: &str) -> Record {
        Record {
            status: Some(Arc::new(status(phase))),
            ..Record::default()
        }
    }

    fn pod(uid: &str, told: Option<&str>) -> Arc<Pod> {
        let mut pod = Pod {
            status: told.map(status),
            ..Pod::default()
        };
        pod.metadata.uid = Some(uid.to_owned());
        Arc::new(pod)
    }

    fn phase(pod: &Pod) -> Option<&str> {
        pod.status.as_ref()?.phase.as_deref()
    }

    #[tokio::test(start_paused = true)]
    async fn resources_are_written_for_a_kubelet_and_taken_from_it() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("pods/a")).unwrap();
        let allocation = |cpu: &str| -> Arc<Allocation> {
            let containers = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
            Arc::new(serde_json::from_value(containers).unwrap())
        };
        let record = |cpu: &str, cpu_request| Record {
            allocation: Some(allocation(cpu)),
            actuated: vec![ActuatedResources {
                container: "c".to_owned(),
                cpu_request,
                cpu_limit: 0,
                memory_request: 0,
                memory_limit: 0,
            }],
            ..Record::default()
        };
        let written = root.path().join("allocated_pods_state");
        let before = checkpoints(root.path());
        let allocations = AllocationState::default();
        allocations.restore([("a".into(), allocation("100m"))]);
        let writing = tokio::spawn({
            let (before, allocations) = (before.clone(), allocations.clone());
            async move { before.write_resources(allocations).await }
        });
        before.save(&"a".into(), record("100m", 100)).await;
        tokio::time::sleep(RESOURCES_DELAY + Duration::from_millis(1)).await;
        assert!(std::fs::read_to_string(&written).unwrap().contains("100m"));
        // Nothing is written as long as they do not change.
        std::fs::remove_file(&written).unwrap();
        before
            .save(
                &"a".into(),
                Record {
                    status: Some(Arc::default()),
                    ..record("100m", 100)
                },
            )
            .await;
        tokio::time::sleep(10 * RESOURCES_DELAY).await;
        assert!(!written.exists());
        writing.abort();

        // A kubelet resizes the pod, and starts one without a folder so far.
        let state = ResourcesState {
            allocated: [("a".into(), allocation("200m")), ("b".into(), allocation("1"))].into(),
            actuated: [("a".into(), record("", 200).actuated)].into(),
        };
        write_as_kubelet(root.path(), &state);
        let sorted = |mut allocations: Vec<(PodUid, Arc<Allocation>)>| {
            allocations.sort_by(|(a, _), (b, _)| a.cmp(b));
            allocations
        };
        let of_kubelet = [("a".into(), allocation("200m")), ("b".into(), allocation("1"))];
        let after = checkpoints(root.path());
        after.load().await;
        assert_eq!(sorted(after.allocations()), of_kubelet);

        // The agent takes over the node, and dies at once: the record on disk is the kubelet's.
        let allocations = AllocationState::default();
        allocations.restore(after.allocations());
        after.write_resources_now(&allocations).await;
        let again = checkpoints(root.path());
        again.load().await;
        assert_eq!(sorted(again.allocations()), [("a".into(), allocation("200m"))]);
        let found = again.found.lock();
        assert_eq!(found.get("a").unwrap().record.actuated, record("", 200).actuated);
    }

    #[tokio::test]
    async fn what_one_agent_wrote_the_next_one_reads_once() {
        let root = tempfile::tempdir().unwrap();
        let before = checkpoints(root.path());
        for uid in ["a", "b"] {
            fs::create_dir_all(root.path().join("pods").join(uid)).unwrap();
            before.save(&uid.into(), recorded("Running")).await;
            before.save(&uid.into(), recorded("Failed")).await;
        }
        before.save(&"without-folder".into(), recorded("Running")).await;

        let after = checkpoints(root.path());
        after.load().await;
        assert_eq!(phase(&after.restore(pod("a", None))), Some("Failed"));
        assert_eq!(
            phase(&after.restore(pod("a", None))),
            None,
            "the next of that UID is another"
        );
        assert_eq!(
            phase(&after.restore(pod("b", Some("Pending")))),
            Some("Pending"),
            "its source knows better"
        );
        assert_eq!(phase(&after.restore(pod("without-folder", None))), None);
    }

    #[tokio::test]
    async fn a_static_pod_is_told_anew_but_not_since_when() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("pods/a")).unwrap();
        let ready =
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let mut record = recorded("Running");
        let running = ApiPodStatus {
            conditions: serde_json::from_value(ready).unwrap(),
            ..status("Running")
        };
        record.status = Some(Arc::new(running.clone()));
        checkpoints(root.path()).save(&"a".into(), record).await;

        let after = checkpoints(root.path());
        after.load().await;
        let mut of_file = Pod::clone(&pod("a", Some("Pending")));
        let source = (
            annotations::CONFIG_SOURCE.to_owned(),
            annotations::FILE_SOURCE.to_owned(),
        );
        of_file.metadata.annotations = Some([source].into());
        let restored = after.restore(Arc::new(of_file));
        assert_eq!(phase(&restored), Some("Pending"));
        assert_eq!(restored.status.as_ref().unwrap().conditions, running.conditions);
    }

    #[tokio::test]
    async fn the_same_is_not_written_twice() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("pods/a");
        fs::create_dir_all(&dir).unwrap();
        let checkpoints = checkpoints(root.path());
        let uid = PodUid::from("a");
        checkpoints.save(&uid, recorded("Running")).await;
        fs::remove_file(dir.join(FILE)).unwrap();
        checkpoints.save(&uid, recorded("Running")).await;
        assert!(!dir.join(FILE).exists());
        checkpoints.retain(&Default::default());
        checkpoints.save(&uid, recorded("Running")).await;
        assert!(dir.join(FILE).exists());
        let names = fs::read_dir(&dir).unwrap().count();
        assert_eq!(names, 1, "nothing is left beside it");
    }

    #[tokio::test]
    async fn a_bad_record_is_set_aside_and_the_others_are_read() {
        let root = tempfile::tempdir().unwrap();
        let good = json!({"version": 1, "uid": "good", "status": {"phase": "Running"}}).to_string();
        let newer = json!({"version": 2, "uid": "newer", "status": {}}).to_string();
        let records = [
            ("good", good.clone()),
            ("empty", String::new()),
            ("cut", good[..good.len() / 2].to_owned()),
            ("newer", newer),
            ("moved", good),
        ];
        let dir = |uid: &str| root.path().join("pods").join(uid);
        for (uid, record) in &records {
            fs::create_dir_all(dir(uid)).unwrap();
            fs::write(dir(uid).join(FILE), record).unwrap();
        }
        let checkpoints = checkpoints(root.path());
        checkpoints.load().await;
        for (uid, record) in &records {
            let is_good = *uid == "good";
            let restored = checkpoints.restore(pod(uid, None));
            assert_eq!(phase(&restored).is_some(), is_good, "{uid}");
            assert_eq!(dir(uid).join(FILE).exists(), is_good, "{uid}");
            if !is_good {
                let aside = fs::read_to_string(dir(uid).join("checkpoint.json.unreadable"));
                assert_eq!(&aside.unwrap(), record, "{uid}");
            }
        }
    }

    /// A pod whose one container runs once.
    fn once(uid: &str) -> Arc<Pod> {
        let mut pod = Pod::clone(&pod(uid, None));
        pod.spec = Some(
            serde_json::from_value(json!({
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            }))
            .unwrap(),
        );
        Arc::new(pod)
    }

    fn start(id: &str) -> ContainerStart {
        ContainerStart {
            name: "c".to_owned(),
            id: ContainerId::new("fake", id),
            attempt: 0,
        }
    }

    #[tokio::test]
    async fn a_start_is_on_disk_before_it_is_made_and_outlasts_what_is_written_after() {
        let root = tempfile::tempdir().unwrap();
        let before = checkpoints(root.path());
        let error = before.about_to_start(&once("a"), &start("1")).await.unwrap_err();
        assert!(
            error.to_string().contains("pods/a"),
            "without a folder it cannot be: {error}"
        );
        fs::create_dir_all(root.path().join("pods/a")).unwrap();
        before.about_to_start(&once("a"), &start("1")).await.unwrap();
        before.save(&"a".into(), recorded("Pending")).await;

        // Twice, as two restarts have it.
        for _ in 0..2 {
            let after = checkpoints(root.path());
            after.load().await;
            let pod = after.restore(once("a"));
            let nothing = PodStatus::empty(pod.uid(), pod.key(), Instant::now());
            assert!(after.take_up(&pod, &nothing).is_some() && after.take_up(&pod, &nothing).is_none());
            let status = after.with_lost(&nothing);
            assert_eq!(
                (&*status.containers[0].name, status.containers[0].exit_code),
                ("c", 137)
            );
            assert_eq!(after.with_unreported(&nothing), status);
            after.save(&"a".into(), recorded("Failed")).await;
        }
        // It was removed to start over, and the agent stopped before it did.
        let restarting = checkpoints(root.path());
        restarting.load().await;
        let pod = once("a");
        let nothing = PodStatus::empty(pod.uid(), pod.key(), Instant::now());
        restarting.take_up(&pod, &nothing);
        restarting.about_to_start_over(&pod, "c").await.unwrap();
        assert!(restarting.with_lost(&nothing).containers.is_empty());
        let after = checkpoints(root.path());
        after.load().await;
        after.take_up(&pod, &nothing);
        assert!(after.with_lost(&nothing).containers.is_empty());
        after.about_to_start(&pod, &start("2")).await.unwrap();

        let after = checkpoints(root.path());
        after.load().await;
        after.ended(&"a".into());
        let nothing = PodStatus::empty("a".into(), once("a").key(), Instant::now());
        assert!(after.with_lost(&nothing).containers.is_empty());
    }
}
