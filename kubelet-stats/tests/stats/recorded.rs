//! A recording of a real kubelet v1.36.2: the files of its host, and its answers.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::stats::StatsPods;
use kubelet_core::{Clock, Disk, PodUid};
use kubelet_stats::reading::FileSystem;
use kubelet_stats::source::{CgroupsV1, FileSystems, FileUsage, HostMachine, ProcFs};
use kubelet_stats::{Collector, CollectorConfig, Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

/// When the answers were written.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_795_412_521, 0);

/// The recording.
#[derive(Deserialize)]
pub(crate) struct Recording {
    answers: BTreeMap<String, String>,
    cgroups_at_rest: BTreeMap<String, Value>,
    /// Before and after.
    cgroups_that_moved: BTreeMap<String, [Value; 2]>,
    proc: BTreeMap<String, Value>,
    cri: Value,
}

impl Recording {
    pub(crate) fn load() -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stats.json.gz");
        let mut text = String::new();
        GzDecoder::new(fs::File::open(file).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The kubelet's answer to a request.
    pub(crate) fn answer(&self, path: &str) -> &str {
        &self.answers[path]
    }

    fn pods(&self) -> Pods {
        let sandboxes = self.cri["pod_sandboxes"]["items"].as_array().unwrap();
        let pods = sandboxes.iter().map(|sandbox| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {
                "namespace": sandbox["metadata"]["namespace"], "name": sandbox["metadata"]["name"],
                "uid": sandbox["metadata"]["uid"],
            }}))
            .unwrap();
            (PodUid::new(pod.metadata.uid.clone().unwrap()), Arc::new(pod))
        });
        Pods(pods.collect())
    }

    /// Writes all files below a temporary folder. Of files that moved it writes the first state.
    pub(crate) fn host(&self) -> Host {
        let host = Host {
            root: tempfile::tempdir().unwrap(),
            pods: Arc::new(self.pods()),
        };
        let moved = self
            .cgroups_that_moved
            .iter()
            .map(|(path, [before, _])| (path, before));
        for (path, content) in self.cgroups_at_rest.iter().chain(&self.proc).chain(moved) {
            let target = host.path(path);
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            match content {
                Value::String(link) if path.contains("/ns/") => symlink(link, target).unwrap(),
                Value::String(text) => fs::write(target, text).unwrap(),
                Value::Array(names) => {
                    fs::create_dir_all(&target).unwrap();
                    for name in names {
                        fs::write(target.join(name.as_str().unwrap()), "").unwrap();
                    }
                }
                other => panic!("{path}: {other}"),
            }
        }
        for (path, text) in NOT_RECORDED {
            fs::create_dir_all(host.path(path).parent().unwrap()).unwrap();
            fs::write(host.path(path), text).unwrap();
        }
        host
    }
}

/// What was not recorded, but is in the answers.
const NOT_RECORDED: [(&str, &str); 5] = [
    ("/proc/1/net/dev", INTERFACES),
    ("/proc/sys/kernel/osrelease", "6.18.44-fc-v657\n"),
    (
        "/etc/os-release",
        "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
    ),
    (
        "/sys/class/dmi/id/product_uuid",
        "00000000-0000-0000-0000-000000000003\n",
    ),
    (
        "/proc/1/limits",
        "Limit            Soft Limit   Hard Limit   Units\nMax open files   32768        32768        files\n",
    ),
];
/// The interfaces of process 1, which was in another network namespace than the kubelet.
const INTERFACES: &str = "Inter-| Receive | Transmit\n face | bytes … | bytes …\n\
    eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nifb0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nifb1: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

/// The recorded kubelet saw no file system of its host.
struct NoFileSystems;

#[async_trait]
impl FileSystems for NoFileSystems {
    async fn of_path(&self, path: &Path) -> Result<FileSystem> {
        Err(Error::NoFileSystem {
            path: path.to_owned(),
        })
    }

    async fn all(&self) -> Arc<[FileSystem]> {
        Arc::default()
    }

    async fn files(&self, paths: Vec<PathBuf>) -> Vec<Option<FileUsage>> {
        vec![None; paths.len()]
    }
}

/// The files of the recorded host.
pub(crate) struct Host {
    root: TempDir,
    pods: Arc<Pods>,
}

/// The recorded pods.
struct Pods(BTreeMap<PodUid, Arc<Pod>>);

impl StatsPods for Pods {
    fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.0.get(uid).cloned()
    }
}

impl Host {
    /// Where a file of the recorded host is.
    pub(crate) fn path(&self, recorded: &str) -> PathBuf {
        self.root.path().join(recorded.trim_start_matches('/'))
    }

    /// A collector of this host. As the recorded kubelet, it does not know the containers of the runtime.
    pub(crate) fn collector(&self) -> Collector {
        let clock = Clock::starting_at(NOW);
        let proc = self.path("/proc");
        Collector::new(CollectorConfig {
            cgroup_roots: vec!["/kubepods".to_owned()],
            cgroups: Arc::new(CgroupsV1::below(&self.path("/sys/fs/cgroup"), None)),
            processes: Arc::new(ProcFs::new(&proc)),
            machine: Arc::new(HostMachine::new(self.root.path(), clock)),
            file_systems: Arc::new(NoFileSystems),
            runtime: None,
            pods: Some(self.pods.clone()),
            clock,
            disk: Disk::inline(),
        })
    }
}
