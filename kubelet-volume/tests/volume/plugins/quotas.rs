//! Project quotas of `emptyDir` volumes.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::VolumeUsage;
use kubelet_volume::{
    Error, MountPoint, PodMount, ProjectId, ProjectQuotas, ProjectUsage, Result, VolumeQuotas,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::fixture::{Fixture, of_pod, on_disk, plugins};
use crate::measured::sources_of;

const FIRST: ProjectId = 1_048_577;
const USED: ProjectUsage = ProjectUsage {
    bytes: 123 << 20,
    inodes: 4711,
};

/// The quotas of a file system in memory.
#[derive(Default)]
struct MemoryQuotas {
    is_off: bool,
    /// What the next calls of this name answer with.
    fails: Mutex<Option<&'static str>>,
    limits: Mutex<HashMap<ProjectId, Option<u64>>>,
    folders: Mutex<HashMap<PathBuf, ProjectId>>,
    used: Mutex<HashMap<ProjectId, ProjectUsage>>,
}

impl MemoryQuotas {
    fn check(&self, call: &str) -> Result<()> {
        match *self.fails.lock() {
            Some(failing) if failing == call => Err(Error::failed(format!("{call} failed"))),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl ProjectQuotas for MemoryQuotas {
    async fn is_counting(&self, file_system: &MountPoint) -> Result<bool> {
        self.check("is_counting")?;
        Ok(!self.is_off && file_system.fs_type == "ext4")
    }

    async fn set_limit(&self, _: &MountPoint, project: ProjectId, limit: Option<u64>) -> Result<()> {
        self.check("set_limit")?;
        self.limits.lock().insert(project, limit);
        Ok(())
    }

    async fn assign(&self, _: &MountPoint, project: ProjectId, dir: &Path) -> Result<()> {
        self.check("assign")?;
        self.folders.lock().insert(dir.to_owned(), project);
        Ok(())
    }

    async fn project(&self, dir: &Path) -> Result<Option<ProjectId>> {
        self.check("project")?;
        Ok(self.folders.lock().get(dir).copied())
    }

    async fn usage(&self, _: &MountPoint, project: ProjectId) -> Result<ProjectUsage> {
        self.check("usage")?;
        Ok(self.used.lock().get(&project).copied().unwrap_or_default())
    }
}

/// An agent on a file system with quotas.
struct Agent {
    fixture: Fixture,
    quotas: Arc<MemoryQuotas>,
}

impl Agent {
    fn new(quotas: MemoryQuotas) -> Self {
        let fixture = Fixture::new();
        fixture.mounter.mounted.lock().push(MountPoint {
            source: "/dev/sdb1".to_owned(),
            path: fixture.root().canonicalize().unwrap(),
            fs_type: "ext4".to_owned(),
            options: Vec::new(),
        });
        let mut agent = Self {
            fixture,
            quotas: Arc::new(quotas),
        };
        agent.restart();
        agent
    }

    /// The next agent on the same folder.
    fn restart(&mut self) {
        let (fixture, quotas) = (&mut self.fixture, self.quotas.clone());
        let [projects, names] = ["projects", "projid"].map(|name| fixture.root().join(name));
        let quotas = VolumeQuotas::new(quotas).files(projects, names);
        let made = plugins(fixture.root(), &fixture.world).quotas(quotas);
        fixture.plugins = made.mounter(fixture.mounter.clone()).build();
    }

    fn mount(&self, pod: Value, volume: Value) -> PodMount {
        self.fixture.mount(&self::pod(pod), of_pod(volume))
    }

    async fn set_up(&self, mount: &PodMount) -> Result<()> {
        self.fixture.of(&mount.spec).set_up(mount).await.map(drop)
    }

    async fn usage(&self, mount: &PodMount) -> VolumeUsage {
        let usage = self
            .fixture
            .of(&mount.spec)
            .usage(&on_disk(mount), &mount.spec)
            .await;
        usage.unwrap().unwrap()
    }

    fn project(&self, mount: &PodMount) -> Option<ProjectId> {
        self.quotas.folders.lock().get(&mount.dir).copied()
    }

    /// `/etc/projects` and `/etc/projid`
    fn files(&self) -> [Option<String>; 2] {
        ["projects", "projid"].map(|name| fs::read_to_string(self.fixture.root().join(name)).ok())
    }
}

/// A pod in a user namespace.
fn pod(other: Value) -> Arc<Pod> {
    let uid = other["uid"].as_str().unwrap_or("u");
    let mut pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": uid},
        "spec": {"hostUsers": false, "containers": [{"name": "main"}]}});
    for (field, value) in other
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(field, _)| *field != "uid")
    {
        pod["spec"][field] = value.clone();
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn plain() -> Value {
    json!({"emptyDir": {"sizeLimit": "1Gi"}})
}

#[tokio::test]
async fn the_file_system_counts_what_a_pod_in_a_user_namespace_uses() {
    let agent = Agent::new(MemoryQuotas::default());
    let mount = agent.mount(json!({}), plain());
    agent.set_up(&mount).await.unwrap();
    let dir = mount.dir.display();
    let expected = [format!("{FIRST}:{dir}\n"), format!("volume{FIRST}:{FIRST}\n")];
    assert_eq!(agent.files(), expected.clone().map(Some));
    assert_eq!(agent.project(&mount), Some(FIRST));
    assert_eq!(agent.quotas.limits.lock()[&FIRST], Some(u64::MAX), "not enforced");
    agent.set_up(&mount).await.unwrap();
    assert_eq!(agent.files(), expected.map(Some));

    agent.quotas.used.lock().insert(FIRST, USED);
    let usage = agent.usage(&mount).await;
    assert_eq!(
        (usage.used_bytes, usage.inodes_used),
        (Some(USED.bytes), Some(USED.inodes))
    );
    assert!(usage.capacity_bytes.is_some() && usage.inodes_free.is_some());

    agent.fixture.tear_down(&mount).await;
    assert_eq!(agent.quotas.limits.lock()[&FIRST], None);
    assert_eq!(agent.files(), [Some(String::new()), Some(String::new())]);
}

#[tokio::test]
async fn only_volumes_on_the_disk_of_pods_in_a_user_namespace_have_quotas() {
    let no_quota = [
        (json!({"hostUsers": true}), plain()),
        (json!({"hostUsers": null}), plain()),
        (json!({}), json!({"emptyDir": {"medium": "Memory"}})),
    ];
    for (pod, volume) in no_quota {
        let agent = Agent::new(MemoryQuotas::default());
        let mount = agent.mount(pod, volume);
        agent.set_up(&mount).await.unwrap();
        agent.usage(&mount).await;
        agent.fixture.tear_down(&mount).await;
        assert_eq!(agent.files(), [None, None], "{mount:?}");
    }
    // The least limit decides whether there is one.
    let container = json!([{"name": "main", "resources": {"limits": {"ephemeral-storage": "1Gi"}}}]);
    for (pod, volume, limit) in [
        (json!({}), json!({"emptyDir": {}}), None),
        (json!({}), json!({"emptyDir": {"sizeLimit": "0"}}), None),
        (
            json!({"containers": container}),
            json!({"emptyDir": {}}),
            Some(u64::MAX),
        ),
    ] {
        let agent = Agent::new(MemoryQuotas::default());
        let mount = agent.mount(pod, volume);
        agent.set_up(&mount).await.unwrap();
        assert_eq!(agent.project(&mount), Some(FIRST));
        assert_eq!(agent.quotas.limits.lock()[&FIRST], limit, "{mount:?}");
    }
}

#[tokio::test]
async fn a_file_system_without_quotas_changes_nothing() {
    let agents = [
        MemoryQuotas {
            is_off: true,
            ..MemoryQuotas::default()
        },
        MemoryQuotas {
            fails: Mutex::new(Some("is_counting")),
            ..MemoryQuotas::default()
        },
    ];
    for agent in agents.map(Agent::new) {
        let mount = agent.mount(json!({}), plain());
        agent.set_up(&mount).await.unwrap();
        assert_eq!(agent.usage(&mount).await.inodes_used, Some(1));
        agent.fixture.tear_down(&mount).await;
        assert_eq!(agent.files(), [None, None]);
    }
}

#[tokio::test]
async fn each_volume_has_a_project_and_a_freed_one_is_used_again() {
    let agent = Agent::new(MemoryQuotas::default());
    let mounts = ["1", "2", "3"].map(|uid| agent.mount(json!({"uid": uid}), plain()));
    for mount in &mounts {
        agent.set_up(mount).await.unwrap();
    }
    assert_eq!(
        mounts.each_ref().map(|mount| agent.project(mount)),
        [0, 1, 2].map(|n| Some(FIRST + n))
    );
    agent.fixture.tear_down(&mounts[1]).await;
    // Its files still exist for a moment, or belong to somebody who wrote nothing down.
    agent.quotas.used.lock().insert(FIRST + 1, USED);
    let [fourth, fifth] = ["4", "5"].map(|uid| agent.mount(json!({"uid": uid}), plain()));
    agent.set_up(&fourth).await.unwrap();
    assert_eq!(agent.project(&fourth), Some(FIRST + 3));
    agent.quotas.used.lock().clear();
    agent.set_up(&fifth).await.unwrap();
    assert_eq!(agent.project(&fifth), Some(FIRST + 1));
}

#[tokio::test]
async fn a_restart_keeps_the_project_of_a_volume() {
    let mut agent = Agent::new(MemoryQuotas::default());
    let mount = agent.mount(json!({}), plain());
    agent.set_up(&mount).await.unwrap();
    let before = agent.files();
    agent.quotas.used.lock().insert(FIRST, USED);

    agent.restart();
    assert_eq!(agent.usage(&mount).await.inodes_used, Some(1), "not known yet");
    // ext4 cannot assign it to files that are there.
    *agent.quotas.fails.lock() = Some("assign");
    agent.set_up(&mount).await.unwrap();
    *agent.quotas.fails.lock() = None;
    assert_eq!(agent.files(), before);
    assert_eq!(agent.usage(&mount).await.inodes_used, Some(USED.inodes));

    // The agent before ended in between.
    agent.quotas.folders.lock().clear();
    agent.restart();
    agent.set_up(&mount).await.unwrap();
    assert_eq!((agent.files(), agent.project(&mount)), (before, Some(FIRST)));

    // The pod was removed meanwhile.
    agent.restart();
    agent.fixture.tear_down(&mount).await;
    assert_eq!(agent.files(), [Some(String::new()), Some(String::new())]);
    assert_eq!(agent.quotas.limits.lock()[&FIRST], None);
}

#[tokio::test]
async fn a_volume_whose_quota_cannot_be_set_is_used_without() {
    for call in ["usage", "set_limit", "assign"] {
        let agent = Agent::new(MemoryQuotas::default());
        let mount = agent.mount(json!({}), plain());
        *agent.quotas.fails.lock() = Some(call);
        agent.set_up(&mount).await.unwrap();
        assert!(
            agent
                .files()
                .into_iter()
                .all(|content| content.unwrap().is_empty())
        );
        *agent.quotas.fails.lock() = None;
        agent.quotas.used.lock().insert(FIRST, USED);
        assert_eq!(agent.usage(&mount).await.inodes_used, Some(1));
        agent.fixture.tear_down(&mount).await;
    }
    // Somebody uses all projects that are looked at.
    let agent = Agent::new(MemoryQuotas::default());
    let used = (FIRST..=FIRST + 128).map(|project| (project, USED));
    agent.quotas.used.lock().extend(used);
    let mount = agent.mount(json!({}), plain());
    agent.set_up(&mount).await.unwrap();
    assert_eq!(agent.project(&mount), None);
    agent.quotas.used.lock().remove(&(FIRST + 128));
    agent.set_up(&mount).await.unwrap();
    assert_eq!(agent.project(&mount), Some(FIRST + 128));
}

#[tokio::test]
async fn a_volume_is_removed_although_its_quota_cannot_be_cleared() {
    let agent = Agent::new(MemoryQuotas::default());
    let mount = agent.mount(json!({}), plain());
    agent.set_up(&mount).await.unwrap();
    *agent.quotas.fails.lock() = Some("set_limit");
    agent.fixture.tear_down(&mount).await;
    assert_eq!(agent.files(), [Some(String::new()), Some(String::new())]);
}

#[test]
fn files_are_counted_while_the_quota_cannot_be_read() {
    let agent = Agent::new(MemoryQuotas::default());
    let mount = agent.mount(json!({}), plain());
    let sources = sources_of(async {
        agent.set_up(&mount).await.unwrap();
        agent.usage(&mount).await;
        *agent.quotas.fails.lock() = Some("usage");
        assert_eq!(agent.usage(&mount).await.inodes_used, Some(1));
    });
    assert_eq!(sources, ["fsquota", "fsquota", "du"]);
}

/// On a real file system: `KUBELET_TESTING_QUOTAS` is a folder of a file system that is mounted with `prjquota`.
#[allow(clippy::print_stdout)]
#[tokio::test]
async fn the_kernel_counts() {
    let Some(dir) = std::env::var_os("KUBELET_TESTING_QUOTAS").map(PathBuf::from) else {
        println!("SKIPPED: KUBELET_TESTING_QUOTAS names no folder with project quotas");
        return;
    };
    let mut fixture = Fixture::new();
    let root = dir.join("kubelet");
    let [projects, names] = ["projects", "projid"].map(|name| dir.join(name));
    let made = |fixture: &Fixture| {
        let quotas = VolumeQuotas::on_host().files(&projects, &names);
        plugins(&root, &fixture.world).quotas(quotas).build()
    };
    let mounted = |uid: &str| {
        let mut mount = fixture.mount(&pod(json!({"uid": uid})), of_pod(plain()));
        mount.dir = root
            .join("pods")
            .join(uid)
            .join("volumes/kubernetes.io~empty-dir/v");
        mount
    };
    let (mount, other) = (mounted("1"), mounted("2"));
    for file in [&projects, &names] {
        let _ = fs::remove_file(file);
    }
    fixture.plugins = made(&fixture);
    let plugin = fixture.of(&mount.spec);
    for mount in [&mount, &other] {
        // Left by a run that failed.
        let _ = fs::remove_dir_all(&mount.dir);
        plugin.set_up(mount).await.unwrap();
    }
    fs::create_dir(mount.dir.join("inner")).unwrap();
    fs::write(mount.dir.join("inner/file"), vec![1; 1 << 20]).unwrap();
    for number in 0..10 {
        fs::write(mount.dir.join(number.to_string()), "x").unwrap();
    }
    rustix::fs::syncfs(fs::File::open(&dir).unwrap()).unwrap();
    let of = async |fixture: &Fixture, mount: &PodMount| {
        let usage = fixture.of(&mount.spec).usage(&on_disk(mount), &mount.spec).await;
        let usage = usage.unwrap().unwrap();
        (usage.used_bytes.unwrap(), usage.inodes_used.unwrap())
    };
    let (bytes, inodes) = of(&fixture, &mount).await;
    println!(
        "{bytes} bytes, {inodes} inodes; {}",
        fs::read_to_string(&projects).unwrap()
    );
    assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
    assert_eq!(inodes, 13);
    assert_eq!(of(&fixture, &other).await.1, 1);
    // A file that is deleted but open still uses space: only the file system knows.
    let open = fs::File::open(mount.dir.join("inner/file")).unwrap();
    fs::remove_file(mount.dir.join("inner/file")).unwrap();
    assert_eq!(of(&fixture, &mount).await, (bytes, 13));
    drop(open);

    // The next agent counts on, and removes.
    fixture.plugins = made(&fixture);
    fixture.of(&mount.spec).set_up(&mount).await.unwrap();
    assert_eq!(of(&fixture, &mount).await.1, 12);
    fixture.plugins = made(&fixture);
    for mount in [&mount, &other] {
        fixture.tear_down(mount).await;
    }
    assert_eq!(fs::read_to_string(&projects).unwrap(), "");
    assert_eq!(fs::read_to_string(&names).unwrap(), "");
}
