//! The last status of each pod on disk, so that a restart of the agent shows nowhere.
//!
//! A source that keeps no statuses, a file or a URL, tells of its pods after a restart as if they were new: without
//! a record, restart counts would fall, what had ended could run once more, and what was lost meanwhile would not be
//! missed. The record is one small file in the pod's folder and goes with it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::{Disk, PodExt, PodUid, RootDir};

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;
const FILE: &str = "checkpoint.json";
/// How long the records may take to be read when the agent starts: a disk that hangs is not waited for.
const LOAD_DEADLINE: Duration = Duration::from_secs(10);

/// Keeps the records. A cheap handle.
///
/// [`KubeletBuilder::checkpoints`](crate::KubeletBuilder::checkpoints) turns them on.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    root_dir: RootDir,
    disk: Disk,
    /// What was written last.
    written: Arc<Mutex<FxHashMap<PodUid, Arc<ApiPodStatus>>>>,
    /// What the agent before this one wrote, of pods that were not told of yet.
    found: Arc<Mutex<FxHashMap<PodUid, ApiPodStatus>>>,
}

impl Checkpoints {
    /// Records in the folders of the pods below `root_dir`.
    pub fn new(root_dir: RootDir, disk: Disk) -> Self {
        Self {
            root_dir,
            disk,
            written: Arc::default(),
            found: Arc::default(),
        }
    }

    /// Reads what the agent before this one wrote. A record that cannot be read is told of and passed over.
    pub(crate) async fn load(&self) {
        let dir = self.root_dir.pods_dir();
        let read = tokio::time::timeout(LOAD_DEADLINE, self.disk.run(move || read_all(&dir))).await;
        match read {
            Ok(Ok(found)) => *self.found.lock() = found,
            Ok(Err(error)) => tracing::warn!(%error, "The records of pods cannot be read"),
            Err(_) => tracing::warn!("The records of pods were not read in time"),
        }
    }

    /// The pod with the status that was recorded of it, if its source has none to tell.
    pub(crate) fn restore(&self, pod: Arc<Pod>) -> Arc<Pod> {
        let Some(recorded) = self.found.lock().remove(pod.uid_str()) else {
            return pod;
        };
        let told = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !told.unwrap_or_default().is_empty() {
            return pod;
        }
        let mut restored = Pod::clone(&pod);
        restored.status = Some(recorded);
        Arc::new(restored)
    }

    /// Forgets the pods that are no more.
    pub(crate) fn retain(&self, known: &std::collections::HashSet<PodUid>) {
        self.written.lock().retain(|uid, _| known.contains(uid));
        self.found.lock().retain(|uid, _| known.contains(uid));
    }

    /// Writes the status unless it is what was written last. That it cannot be written is told of and holds up
    /// nobody; a pod without a folder has no record.
    pub(crate) async fn save(&self, uid: &PodUid, status: &Arc<ApiPodStatus>) {
        let is_written = |written: &Arc<ApiPodStatus>| Arc::ptr_eq(written, status) || written == status;
        if self.written.lock().get(uid).is_some_and(is_written) {
            return;
        }
        let record = json!({"version": VERSION, "uid": uid.as_str(), "status": &**status}).to_string();
        let dir = self.root_dir.pod_dir(uid);
        match self.disk.run(move || write(&dir, record.as_bytes())).await {
            Ok(()) => drop(self.written.lock().insert(uid.clone(), status.clone())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%uid, %error, "The record of a pod cannot be written"),
        }
    }
}

/// Writes beside the old record and puts it in its place: there is always a whole one.
fn write(dir: &Path, record: &[u8]) -> io::Result<()> {
    let (beside, file) = (dir.join(format!(".{FILE}")), dir.join(FILE));
    let mut new = fs::File::create(&beside)?;
    new.write_all(record)?;
    new.sync_data()?;
    fs::rename(beside, file)
}

fn read_all(dir: &Path) -> io::Result<FxHashMap<PodUid, ApiPodStatus>> {
    let pods = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FxHashMap::default()),
        pods => pods?,
    };
    let mut found = FxHashMap::default();
    for pod in pods.flatten() {
        let Some(uid) = pod.file_name().to_str().map(PodUid::new) else {
            continue;
        };
        let file = pod.path().join(FILE);
        match read(&file, &uid) {
            Ok(Some(status)) => drop(found.insert(uid, status)),
            Ok(None) => {}
            Err(problem) => {
                tracing::warn!(%uid, file = %file.display(), problem, "The record of a pod is passed over");
            }
        }
    }
    Ok(found)
}

fn read(file: &Path, uid: &PodUid) -> Result<Option<ApiPodStatus>, String> {
    let text = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| error.to_string())?,
    };
    let mut record: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if record["version"] != VERSION {
        return Err(format!("its version is {}, and not {VERSION}", record["version"]));
    }
    if record["uid"] != uid.as_str() {
        return Err(format!("it is of pod {}", record["uid"]));
    }
    serde_json::from_value(record["status"].take())
        .map(Some)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoints(root: &Path) -> Checkpoints {
        Checkpoints::new(RootDir::new(root), Disk::inline())
    }

    fn status(phase: &str) -> ApiPodStatus {
        ApiPodStatus {
            phase: Some(phase.to_owned()),
            ..ApiPodStatus::default()
        }
    }

    fn recorded(phase: &str) -> Arc<ApiPodStatus> {
        Arc::new(status(phase))
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

    #[tokio::test]
    async fn what_one_agent_wrote_the_next_one_reads_once() {
        let root = tempfile::tempdir().unwrap();
        let before = checkpoints(root.path());
        for uid in ["a", "b"] {
            fs::create_dir_all(root.path().join("pods").join(uid)).unwrap();
            before.save(&uid.into(), &recorded("Running")).await;
            before.save(&uid.into(), &recorded("Failed")).await;
        }
        before.save(&"without-folder".into(), &recorded("Running")).await;

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
    async fn the_same_is_not_written_twice() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("pods/a");
        fs::create_dir_all(&dir).unwrap();
        let checkpoints = checkpoints(root.path());
        let uid = PodUid::from("a");
        checkpoints.save(&uid, &recorded("Running")).await;
        fs::remove_file(dir.join(FILE)).unwrap();
        checkpoints.save(&uid, &recorded("Running")).await;
        assert!(!dir.join(FILE).exists());
        checkpoints.retain(&Default::default());
        checkpoints.save(&uid, &recorded("Running")).await;
        assert!(dir.join(FILE).exists());
        let names = fs::read_dir(&dir).unwrap().count();
        assert_eq!(names, 1, "nothing is left beside it");
    }

    #[tokio::test]
    async fn a_bad_record_is_passed_over_and_the_others_are_not() {
        let root = tempfile::tempdir().unwrap();
        let good = json!({"version": 1, "uid": "good", "status": {"phase": "Running"}}).to_string();
        let records = [
            ("good", good.clone()),
            ("empty", String::new()),
            ("cut", good[..good.len() / 2].to_owned()),
            (
                "newer",
                json!({"version": 2, "uid": "newer", "status": {}}).to_string(),
            ),
            ("moved", good),
            (
                "odd",
                json!({"version": 1, "uid": "odd", "status": {"phase": 7}}).to_string(),
            ),
        ];
        for (uid, record) in &records {
            let dir = root.path().join("pods").join(uid);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(FILE), record).unwrap();
        }
        let checkpoints = checkpoints(root.path());
        checkpoints.load().await;
        let restored = records.map(|(uid, _)| phase(&checkpoints.restore(pod(uid, None))).is_some());
        assert_eq!(restored, [true, false, false, false, false, false]);
    }
}
