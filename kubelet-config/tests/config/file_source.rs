//! The file source over real folders and real inotify.
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kubelet_config::{FileSource, PodSource, SourceUpdate};
use kubelet_core::PodExt;
use tempfile::TempDir;

/// Far longer than anything here takes.
const GUARD: Duration = Duration::from_secs(60);
/// So long that no test gets anything from the periodic read.
const NEVER: Duration = Duration::from_secs(100_000);

struct Source {
    folder: TempDir,
    updates: BoxStream<'static, SourceUpdate>,
}

impl Source {
    /// A source over a folder that holds these files at the start.
    fn over(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let updates = open(folder.path());
        Self { folder, updates }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes as editors do: beside, then over.
    fn write(&self, name: &str, text: &str) {
        let beside = self.path(".beside");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.path(name)).unwrap();
    }

    async fn next(&mut self) -> SourceUpdate {
        next(&mut self.updates).await
    }

    /// The next update, which must be a snapshot.
    async fn snapshot(&mut self) -> Vec<Arc<Pod>> {
        match self.next().await {
            SourceUpdate::Snapshot(pods) => pods,
            other => panic!("not a snapshot: {other:?}"),
        }
    }

    /// The next update, which must be a problem with this file.
    async fn problem(&mut self, name: &str) -> String {
        match self.next().await {
            SourceUpdate::Problem { item, message } => {
                assert_eq!(Path::new(&item), self.path(name), "{message}");
                message
            }
            other => panic!("not a problem: {other:?}"),
        }
    }
}

fn open(path: &Path) -> BoxStream<'static, SourceUpdate> {
    Box::new(FileSource::new(path, "node-1").check_frequency(NEVER)).updates()
}

async fn next(updates: &mut BoxStream<'static, SourceUpdate>) -> SourceUpdate {
    let update = tokio::time::timeout(GUARD, updates.next()).await;
    update.expect("an update").expect("no end")
}

fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: c, image: {image}}}]\n"
    )
}

fn names(pods: &[Arc<Pod>]) -> Vec<String> {
    pods.iter().map(|pod| pod.key().to_string()).collect()
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

#[tokio::test]
async fn pods_come_change_and_go() {
    let mut source = Source::over(&[("web.yaml", &manifest("web", "i:1"))]);
    let pods = source.snapshot().await;
    assert_eq!(names(&pods), ["default/web-node-1"]);
    let spec = pods[0].spec.as_ref().unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("node-1"));
    assert_eq!(
        pods[0].annotation("kubernetes.io/config.hash"),
        Some(pods[0].uid_str())
    );
    assert_eq!(pods[0].status.as_ref().unwrap().phase.as_deref(), Some("Pending"));

    source.write(
        "db.json",
        &serde_json::to_string(&serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db", "namespace": "other"},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        }))
        .unwrap(),
    );
    let more = source.snapshot().await;
    assert_eq!(names(&more), ["other/db-node-1", "default/web-node-1"]);
    assert!(
        Arc::ptr_eq(&more[1], &pods[0]),
        "a pod that did not change is the same"
    );

    source.write("db.json", "{}");
    assert!(source.problem("db.json").await.contains("Kind"));
    fs::remove_file(source.path("db.json")).unwrap();
    assert_eq!(names(&source.snapshot().await), ["default/web-node-1"]);

    source.write("web.yaml", &manifest("web", "i:2"));
    let changed = source.snapshot().await;
    assert_eq!(image(&changed[0]), "i:2");
    assert_ne!(changed[0].uid_str(), pods[0].uid_str());
}

#[tokio::test]
async fn a_file_renamed_over_another_counts_once() {
    let mut source = Source::over(&[("web.yaml", &manifest("web", "i:1"))]);
    source.snapshot().await;
    source.write("web.yaml", &manifest("web", "i:2"));
    assert_eq!(image(&source.snapshot().await[0]), "i:2");
    // The same again, in another layout, hidden or not: no change. The next thing told is the next change.
    source.write("web.yaml", &manifest("web", "i:2"));
    source.write("web.yaml", &format!("# a comment\n{}", manifest("web", "i:2")));
    source.write(".hidden.yaml", &manifest("hidden", "i:1"));
    source.write("z.yaml", &manifest("z", "i:1"));
    assert_eq!(
        names(&source.snapshot().await),
        ["default/web-node-1", "default/z-node-1"]
    );
}

/// As a mounted config map is replaced: the files are links through a folder that is itself a link.
#[tokio::test]
async fn links_are_followed_and_all_replaced_at_once() {
    fn point(source: &Source, version: &str) {
        symlink(format!("..v{version}"), source.path("..new")).unwrap();
        fs::rename(source.path("..new"), source.path("..data")).unwrap();
    }
    let mut source = Source::over(&[]);
    assert!(source.snapshot().await.is_empty());
    for version in ["1", "2"] {
        let folder = source.path(&format!("..v{version}"));
        fs::create_dir(&folder).unwrap();
        for name in ["a", "b"] {
            let text = manifest(name, &format!("i:{version}"));
            fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
        }
    }
    point(&source, "1");
    for name in ["a.yaml", "b.yaml"] {
        symlink(format!("..data/{name}"), source.path(name)).unwrap();
    }
    let images = |pods: &[Arc<Pod>]| pods.iter().map(|pod| image(pod).to_owned()).collect::<Vec<_>>();
    let mut first = Vec::new();
    while first.len() < 2 {
        first = images(&source.snapshot().await);
    }
    assert_eq!(first, ["i:1", "i:1"]);
    point(&source, "2");
    assert_eq!(
        images(&source.snapshot().await),
        ["i:2", "i:2"],
        "both in one snapshot"
    );
}

#[tokio::test]
async fn files_that_come_and_vanish_harm_no_other() {
    let mut source = Source::over(&[("web.yaml", &manifest("web", "i:1"))]);
    assert_eq!(source.snapshot().await.len(), 1);
    let folder = source.folder.path().to_owned();
    let flurry = std::thread::spawn(move || {
        for turn in 0..2_000 {
            let file = folder.join(format!("{}.yaml", turn % 7));
            fs::write(&file, manifest(&format!("brief-{}", turn % 7), "i:1")).unwrap();
            fs::remove_file(&file).unwrap();
        }
        fs::write(folder.join("zz.yaml"), manifest("zz", "i:1")).unwrap();
    });
    loop {
        match source.next().await {
            SourceUpdate::Snapshot(pods) => {
                let names = names(&pods);
                assert!(names.contains(&"default/web-node-1".to_owned()), "{names:?}");
                if names == ["default/web-node-1", "default/zz-node-1"] {
                    break;
                }
            }
            // One may be caught while it is written.
            SourceUpdate::Problem { item, .. } => assert!(!item.ends_with("web.yaml"), "{item}"),
            other => panic!("{other:?}"),
        }
    }
    flurry.join().unwrap();
}

#[tokio::test]
async fn a_broken_file_is_reported_by_name_and_affects_no_other() {
    let mut source = Source::over(&[("web.yaml", &manifest("web", "i:1"))]);
    let web = source.snapshot().await.remove(0);

    let large = format!("{}#{}", manifest("large", "i:1"), "x".repeat(10 << 20));
    let cases: [(&str, &str, &str); 7] = [
        ("broken.yaml", "a: [", "couldn't parse"),
        (
            "deployment.yaml",
            "apiVersion: apps/v1\nkind: Deployment\n",
            "Deployment",
        ),
        (
            "list.yaml",
            "apiVersion: v1\nkind: PodList\nitems: []\n",
            "PodList",
        ),
        ("binary.yaml", "\u{0}\u{1}", "control character"),
        ("large.yaml", &large, "too large"),
        (
            "secret.yaml",
            &manifest("s", "i, envFrom: [{secretRef: {name: s}}]"),
            "secrets",
        ),
        ("zz-second.yaml", &manifest("web", "i:9"), "web.yaml"),
    ];
    for (name, text, expected) in cases {
        source.write(name, text);
        let message = source.problem(name).await;
        assert!(message.contains(expected), "{name}: {message}");
    }
    fs::create_dir(source.path("folder")).unwrap();
    assert!(source.problem("folder").await.contains("folder"));
    symlink("nowhere", source.path("link.yaml")).unwrap();
    assert!(source.problem("link.yaml").await.contains("link"));
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        source.path("fifo.yaml"),
        rustix::fs::Mode::from_raw_mode(0o644),
    )
    .unwrap();
    assert!(source.problem("fifo.yaml").await.contains("FIFO"));
    let _socket = std::os::unix::net::UnixListener::bind(source.path("socket.yaml")).unwrap();
    assert!(source.problem("socket.yaml").await.contains("socket"));
    symlink("/proc/self/mem", source.path("unreadable.yaml")).unwrap();
    assert!(source.problem("unreadable.yaml").await.contains("cannot be read"));
    symlink("/dev/zero", source.path("device.yaml")).unwrap();
    assert!(source.problem("device.yaml").await.contains("device"));

    // All of it was told, none of it again, and the pod is the one it was.
    source.write("other.yaml", &manifest("other", "i:1"));
    let pods = source.snapshot().await;
    assert_eq!(names(&pods), ["default/other-node-1", "default/web-node-1"]);
    assert!(Arc::ptr_eq(&pods[1], &web));
}

#[tokio::test]
async fn of_two_files_with_one_name_the_second_is_told_what_to_do() {
    let mut source = Source::over(&[
        ("a.yaml", &manifest("web", "i:1")),
        ("b.yaml", &manifest("web", "i:2")),
    ]);
    let said = source.problem("b.yaml").await;
    let taken_by = format!(
        "its name default/web-node-1 is already taken by the pod in {}",
        source.path("a.yaml").display()
    );
    for words in ["does not run", &taken_by, "remove one of the two files"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(names(&source.snapshot().await), ["default/web-node-1"]);
}

#[tokio::test]
async fn a_file_that_breaks_keeps_its_pod_until_it_goes() {
    let mut source = Source::over(&[("web.yaml", &manifest("web", "i:1"))]);
    source.snapshot().await;
    source.write("web.yaml", "broken: [");
    source.problem("web.yaml").await;
    source.write("db.yaml", &manifest("db", "i:1"));
    assert_eq!(
        names(&source.snapshot().await),
        ["default/db-node-1", "default/web-node-1"]
    );
    // A pod that moved to a file in order counts there, and the broken file stands back.
    source.write("www.yaml", &manifest("web", "i:1"));
    let pods = source.snapshot().await;
    assert_eq!(names(&pods), ["default/db-node-1", "default/web-node-1"]);
    fs::remove_file(source.path("www.yaml")).unwrap();
    source.snapshot().await;
    fs::remove_file(source.path("web.yaml")).unwrap();
    assert_eq!(names(&source.snapshot().await), ["default/db-node-1"]);
}

#[tokio::test]
async fn the_second_document_is_reported_and_ignored() {
    let two = format!("{}---\n{}", manifest("one", "i:1"), manifest("two", "i:1"));
    let mut source = Source::over(&[("two.yaml", &two)]);
    assert!(
        source
            .problem("two.yaml")
            .await
            .contains("more than one document")
    );
    assert_eq!(names(&source.snapshot().await), ["default/one-node-1"]);
}

#[tokio::test]
async fn an_empty_folder_is_seen_and_one_that_is_not_there_is_awaited() {
    let mut source = Source::over(&[]);
    assert!(source.snapshot().await.is_empty());

    let path = source.path("later");
    let mut later = open(&path);
    assert!(matches!(next(&mut later).await, SourceUpdate::Snapshot(pods) if pods.is_empty()));
    assert!(matches!(next(&mut later).await, SourceUpdate::Problem { item, .. } if Path::new(&item) == path));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("web.yaml"), manifest("web", "i:1")).unwrap();
    assert!(matches!(next(&mut later).await, SourceUpdate::Snapshot(pods) if pods.len() == 1));
}

#[tokio::test]
async fn a_single_file() {
    let source = Source::over(&[
        ("web.yaml", &manifest("web", "i:1")),
        ("other.yaml", &manifest("other", "i:1")),
    ]);
    let mut single = open(&source.path("web.yaml"));
    let SourceUpdate::Snapshot(pods) = next(&mut single).await else {
        panic!()
    };
    assert_eq!(names(&pods), ["default/web-node-1"]);
    source.write("other.yaml", &manifest("other", "i:2"));
    source.write("web.yaml", &manifest("web", "i:2"));
    let SourceUpdate::Snapshot(pods) = next(&mut single).await else {
        panic!()
    };
    assert_eq!(image(&pods[0]), "i:2");
    fs::remove_file(source.path("web.yaml")).unwrap();
    assert!(matches!(next(&mut single).await, SourceUpdate::Snapshot(pods) if pods.is_empty()));
}

#[tokio::test]
async fn the_periodic_read_finds_changes_without_an_event() {
    let mut source = Source::over(&[]);
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("web.yaml");
    fs::write(&target, manifest("web", "i:1")).unwrap();
    symlink(&target, source.path("web.yaml")).unwrap();
    let period = Duration::from_millis(20);
    source.updates = Box::new(FileSource::new(source.folder.path(), "n").check_frequency(period)).updates();
    assert_eq!(image(&source.snapshot().await[0]), "i:1");
    fs::write(&target, manifest("web", "i:2")).unwrap();
    assert_eq!(image(&source.snapshot().await[0]), "i:2");
}

#[tokio::test]
async fn uids_stay_over_a_restart_and_differ_by_node_and_place() {
    let mut source = Source::over(&[("web.yaml", &manifest("web", "i:1"))]);
    let first = source.snapshot().await[0].uid();
    source.updates = open(source.folder.path());
    assert_eq!(source.snapshot().await[0].uid(), first);
    source.updates = Box::new(FileSource::new(source.folder.path().join(""), "node-1")).updates();
    assert_eq!(
        source.snapshot().await[0].uid(),
        first,
        "whether or not the path ends with a slash"
    );
    source.updates = Box::new(FileSource::new(source.folder.path(), "node-2")).updates();
    assert_ne!(source.snapshot().await[0].uid(), first);
    fs::rename(source.path("web.yaml"), source.path("www.yaml")).unwrap();
    source.updates = open(source.folder.path());
    assert_ne!(source.snapshot().await[0].uid(), first);
}
