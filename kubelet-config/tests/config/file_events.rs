//! What becomes of a folder of manifests when files in it are changed in one way or another, beside what a kubelet v1.36 makes of it.
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use futures::{StreamExt, stream};
use kubelet_config::{FileSource, PodConfig, PodOperation, PodUpdate};
use kubelet_core::PodExt;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Far longer than anything here takes.
const GUARD: Duration = Duration::from_secs(60);
/// So long that no test gets anything from the periodic read.
const NEVER: Duration = Duration::from_secs(100_000);
/// How many rows run at a time: each needs an inotify instance.
const AT_A_TIME: usize = 8;

/// Files are changed by these shell commands. The folder holds `web.yaml` with the pod A at first. `$SRC/A` has the same text, `$SRC/B` another
/// image, `$SRC/C` another pod. `$OUT` is a folder on the same file system.
struct Row {
    at: At,
    /// Each with the operations that follow, or all that may follow. The next commands run after them.
    steps: &'static [(&'static str, &'static [&'static str])],
    /// Everything that a kubelet was seen to do, without a periodic read. A pod with another UID than the first has a `'`.
    kubelet: &'static [&'static str],
    /// Why we do otherwise, if we do.
    because: &'static str,
}

/// What the source reads.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Folder,
    /// Like a mounted config map: `web.yaml` → `..data/web.yaml`, `..data` → `..v1`.
    ConfigMap,
    File,
}

const NOTHING: &str = "";
const AGAIN: &str = "REMOVE A, ADD A";
const OTHER: &str = "REMOVE A, ADD B";
/// A temporary file beside it was taken for a manifest.
const BY_WAY_OF_ANOTHER: &str = "REMOVE A, ADD A', REMOVE A', ADD A";

const EVENTS: &str = "a new manifest counts, and a file that was read last may be a temporary one";
const FIRST: &str = "of two files with one pod the first in the order of paths counts";
const LOST: &str =
    "its watch follows the file or folder that was removed: until the next periodic read it sees nothing";
const LINKS: &str = "it ignores what begins with a dot: until the next periodic read it sees nothing";

const ROWS: &[Row] = &[
    // Removed and made again.
    row(
        At::Folder,
        &[("rm web.yaml; cp $SRC/A web.yaml", &[AGAIN])],
        &[AGAIN],
    ),
    row(
        At::Folder,
        &[("rm web.yaml", &["REMOVE A"]), ("cp $SRC/A web.yaml", &["ADD A"])],
        &[AGAIN],
    ),
    row(
        At::Folder,
        &[("rm web.yaml; cp $SRC/B web.yaml", &[OTHER])],
        &[OTHER],
    ),
    row(
        At::Folder,
        &[("cp --remove-destination $SRC/A web.yaml", &[AGAIN])],
        &[AGAIN],
    ),
    row(
        At::Folder,
        &[("install -m 644 $SRC/A web.yaml", &[AGAIN])],
        &[AGAIN],
    ),
    row(At::Folder, &[("tar xf $SRC/web.tar", &[AGAIN])], &[AGAIN]),
    row(
        At::Folder,
        &[(
            "rm web.yaml; { head -c 30 $SRC/A; tail -c +31 $SRC/A; } > web.yaml",
            &[AGAIN],
        )],
        &[AGAIN],
    ),
    row(At::Folder, &[("rm web.yaml", &["REMOVE A"])], &["REMOVE A"]),
    // Renamed away and back.
    row(
        At::Folder,
        &[("mv web.yaml $OUT/w; mv $OUT/w web.yaml", &[AGAIN])],
        &[AGAIN],
    ),
    row(
        At::Folder,
        &[
            ("mv web.yaml $OUT/w", &["REMOVE A"]),
            ("mv $OUT/w web.yaml", &["ADD A"]),
        ],
        &[AGAIN],
    ),
    row(
        At::Folder,
        &[("mv web.yaml .w; mv .w web.yaml", &[AGAIN])],
        &[AGAIN],
    ),
    row(At::Folder, &[("mv web.yaml .w", &["REMOVE A"])], &["REMOVE A"]),
    row(
        At::Folder,
        &[("mv web.yaml x.yaml", &["REMOVE A, ADD A'"])],
        &["REMOVE A, ADD A'"],
    ),
    row(
        At::Folder,
        &[(
            "mv web.yaml x.yaml; mv x.yaml web.yaml",
            &[AGAIN, BY_WAY_OF_ANOTHER],
        )],
        &[AGAIN, BY_WAY_OF_ANOTHER],
    ),
    // Replaced by a rename.
    row(At::Folder, &[("mv $OUT/A web.yaml", &[NOTHING])], &[NOTHING]),
    row(At::Folder, &[("mv $OUT/B web.yaml", &[OTHER])], &[OTHER]),
    row(
        At::Folder,
        &[("cp $SRC/A .t; mv .t web.yaml", &[NOTHING])],
        &[NOTHING],
    ),
    row(
        At::Folder,
        &[("cp $SRC/B .t; mv .t web.yaml", &[OTHER])],
        &[OTHER],
    ),
    // Each of these writes a file beside it, without a dot.
    row(
        At::Folder,
        &[("cp $SRC/A web.yaml.tmp; mv web.yaml.tmp web.yaml", &[NOTHING])],
        &[NOTHING, BY_WAY_OF_ANOTHER],
    ),
    row(
        At::Folder,
        &[("sed -i s/nothing/x/ web.yaml", &[NOTHING, BY_WAY_OF_ANOTHER])],
        &[NOTHING, BY_WAY_OF_ANOTHER],
    ),
    row(
        At::Folder,
        &[(
            "sed -i s/i:1/i:2/ web.yaml",
            &[OTHER, "REMOVE A, ADD B, REMOVE B, ADD B'"],
        )],
        &[OTHER, "REMOVE A, ADD B, REMOVE B, ADD B'"],
    ),
    row(
        At::Folder,
        &[("ln -f $OUT/A web.yaml", &[NOTHING, BY_WAY_OF_ANOTHER])],
        &[NOTHING, BY_WAY_OF_ANOTHER],
    ),
    row(
        At::Folder,
        &[("ln -sfn $SRC/A web.yaml", &[NOTHING, BY_WAY_OF_ANOTHER])],
        &[NOTHING, BY_WAY_OF_ANOTHER],
    ),
    // As vim writes, with `backupcopy=no`.
    other(
        At::Folder,
        &[(
            "mv web.yaml web.yaml~; cat $SRC/A > web.yaml; rm web.yaml~",
            &[AGAIN, BY_WAY_OF_ANOTHER],
        )],
        &[AGAIN, "REMOVE A, ADD A', REMOVE A', ADD A, REMOVE A"],
        EVENTS,
    ),
    // As vim writes, with `backupcopy=yes`.
    other(
        At::Folder,
        &[(
            "cp web.yaml web.yaml~; cat $SRC/A > web.yaml; rm web.yaml~",
            &[NOTHING],
        )],
        &[NOTHING, "REMOVE A, ADD A', REMOVE A', ADD A, REMOVE A"],
        "",
    ),
    other(
        At::Folder,
        &[
            ("cp web.yaml web.yaml~", &[NOTHING]),
            ("rm web.yaml~", &[NOTHING]),
        ],
        &["REMOVE A, ADD A', REMOVE A'"],
        FIRST,
    ),
    // Written in place.
    row(At::Folder, &[("cat $SRC/A > web.yaml", &[NOTHING])], &[NOTHING]),
    row(
        At::Folder,
        &[
            (": > web.yaml", &[NOTHING]),
            ("cat $SRC/A > web.yaml", &[NOTHING]),
        ],
        &[NOTHING],
    ),
    row(At::Folder, &[("cp $SRC/A web.yaml", &[NOTHING])], &[NOTHING]),
    row(At::Folder, &[("cp $SRC/B web.yaml", &[OTHER])], &[OTHER]),
    row(
        At::Folder,
        &[("touch web.yaml; chmod 600 web.yaml", &[NOTHING])],
        &[NOTHING],
    ),
    // Broken.
    row(
        At::Folder,
        &[
            ("echo 'a: [' > web.yaml", &[NOTHING]),
            ("cp $SRC/A web.yaml", &[NOTHING]),
        ],
        &[NOTHING],
    ),
    row(
        At::Folder,
        &[
            ("echo 'a: [' > web.yaml", &[NOTHING]),
            ("rm web.yaml", &["REMOVE A"]),
        ],
        &["REMOVE A"],
    ),
    row(
        At::Folder,
        &[
            ("rm web.yaml", &["REMOVE A"]),
            ("echo 'a: [' > web.yaml", &[NOTHING]),
            ("cp $SRC/A web.yaml", &["ADD A"]),
        ],
        &[AGAIN],
    ),
    // Other files.
    row(
        At::Folder,
        &[("cp $SRC/C .x.yaml; rm .x.yaml", &[NOTHING])],
        &[NOTHING],
    ),
    row(
        At::Folder,
        &[("cp $SRC/C x.yaml", &["ADD C"]), ("rm x.yaml", &["REMOVE C"])],
        &["ADD C, REMOVE C"],
    ),
    // Links, as of a mounted config map.
    row(
        At::ConfigMap,
        &[(
            "mkdir ..v2; cp $SRC/A ..v2/web.yaml; ln -s ..v2 ..t; mv -T ..t ..data; rm -r ..v1",
            &[NOTHING],
        )],
        &[NOTHING],
    ),
    other(
        At::ConfigMap,
        &[(
            "mkdir ..v2; cp $SRC/B ..v2/web.yaml; ln -s ..v2 ..t; mv -T ..t ..data; rm -r ..v1",
            &[OTHER],
        )],
        &[NOTHING],
        LINKS,
    ),
    row(
        At::ConfigMap,
        &[("rm web.yaml; ln -s ..data/web.yaml web.yaml", &[AGAIN])],
        &[AGAIN],
    ),
    // The folder itself.
    other(
        At::Folder,
        &[(
            "cd ..; rm -r manifests; mkdir manifests; cp $SRC/A manifests/web.yaml",
            &[AGAIN],
        )],
        &["REMOVE A"],
        LOST,
    ),
    other(
        At::Folder,
        &[
            ("cd ..; rm -r manifests", &["REMOVE A"]),
            ("mkdir manifests; cp $SRC/A manifests/web.yaml", &["ADD A"]),
        ],
        &["REMOVE A"],
        LOST,
    ),
    row(
        At::Folder,
        &[("cd ..; mv manifests m; mv m manifests", &[NOTHING])],
        &[NOTHING],
    ),
    row(
        At::Folder,
        &[(
            "cd ..; mkdir m; cp $SRC/A m/web.yaml; mv manifests m2; mv m manifests",
            &[NOTHING],
        )],
        &[NOTHING],
    ),
    // A single file.
    other(
        At::File,
        &[("rm web.yaml; cp $SRC/A web.yaml", &[AGAIN])],
        &["REMOVE A"],
        LOST,
    ),
    other(
        At::File,
        &[("mv web.yaml $OUT/w; mv $OUT/w web.yaml", &[AGAIN])],
        &["REMOVE A"],
        LOST,
    ),
    other(
        At::File,
        &[("mv $OUT/A web.yaml", &[NOTHING])],
        &["REMOVE A"],
        LOST,
    ),
    other(
        At::File,
        &[("mv $OUT/B web.yaml", &[OTHER])],
        &["REMOVE A, ADD B, REMOVE B"],
        LOST,
    ),
    row(At::File, &[("cat $SRC/A > web.yaml", &[NOTHING])], &[NOTHING]),
    row(At::File, &[("cat $SRC/B > web.yaml", &[OTHER])], &[OTHER]),
];

const fn row(
    at: At,
    steps: &'static [(&'static str, &'static [&'static str])],
    kubelet: &'static [&'static str],
) -> Row {
    other(at, steps, kubelet, "")
}

const fn other(
    at: At,
    steps: &'static [(&'static str, &'static [&'static str])],
    kubelet: &'static [&'static str],
    because: &'static str,
) -> Row {
    Row {
        at,
        steps,
        kubelet,
        because,
    }
}

#[tokio::test]
async fn each_way_to_change_a_file_has_its_operations() {
    let rows = ROWS.iter().map(|row| async move {
        let mut watched = Watched::start(row.at).await;
        let mut outcomes = vec![String::new()];
        for (commands, allowed) in row.steps {
            let seen = watched.after(commands, allowed).await;
            assert!(allowed.contains(&&*seen), "{commands}: {seen:?}, not {allowed:?}");
            outcomes = (outcomes
                .iter()
                .flat_map(|before| allowed.iter().map(move |then| joined(before, then))))
            .collect();
        }
        watched.end().await;
        let is_as_kubelet = outcomes.iter().all(|ours| row.kubelet.contains(&&**ours));
        assert_eq!(
            is_as_kubelet,
            row.because.is_empty(),
            "{:?}: {outcomes:?}, {:?}",
            row.steps,
            row.kubelet
        );
    });
    stream::iter(rows)
        .buffer_unordered(AT_A_TIME)
        .collect::<()>()
        .await;
}

/// Also if the source reads all of it at once.
#[tokio::test]
async fn a_manifest_that_is_replaced_again_and_again_ends_as_an_added_one() {
    let mut watched = Watched::start(At::Folder).await;
    let (web, text) = (watched.path("web.yaml"), manifest("web", "i:1"));
    let flurry = tokio::task::spawn_blocking(move || {
        for _ in 0..300 {
            fs::remove_file(&web).unwrap();
            fs::write(&web, &text).unwrap();
        }
    });
    flurry.await.unwrap();
    let seen = watched.until_mark().await;
    let pairs = seen.split(", ").count() / 2;
    assert_eq!(seen, vec![AGAIN; pairs.max(1)].join(", "));
    watched.end().await;
}

/// A config that runs over a folder, or a file.
struct Watched {
    root: TempDir,
    at: At,
    updates: mpsc::Receiver<PodUpdate>,
    labels: Vec<(String, String)>,
    marks: u32,
    commands: String,
    shutdown: CancellationToken,
    running: JoinHandle<kubelet_core::Result<()>>,
}

impl Watched {
    async fn start(at: At) -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["manifests", "src", "out"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        for (name, text) in [
            ("A", manifest("web", "i:1")),
            ("B", manifest("web", "i:2")),
            ("C", manifest("other", "i:3")),
        ] {
            for folder in ["src", "out"] {
                fs::write(root.path().join(folder).join(name), &text).unwrap();
            }
        }
        let (updates, shutdown) = (mpsc::channel(50), CancellationToken::new());
        let setup = match at {
            At::Folder | At::File => "cp $SRC/A web.yaml; cd $SRC; cp A web.yaml; tar cf web.tar web.yaml",
            At::ConfigMap => {
                "mkdir ..v1; cp $SRC/A ..v1/web.yaml; ln -s ..v1 ..data; ln -s ..data/web.yaml web.yaml"
            }
        };
        sh(&root, setup).await;
        let path = match at {
            At::Folder | At::ConfigMap => root.path().join("manifests"),
            At::File => root.path().join("manifests/web.yaml"),
        };
        let source = FileSource::new(path, "node-1").check_frequency(NEVER);
        let config = PodConfig::builder().source(source).build().unwrap();
        let running = tokio::spawn(config.run(updates.0, shutdown.clone()));
        let (labels, updates) = (Vec::new(), updates.1);
        let mut watched = Self {
            root,
            at,
            updates,
            labels,
            marks: 0,
            commands: String::new(),
            shutdown,
            running,
        };
        assert_eq!(watched.next().await, ["ADD A"]);
        watched
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("manifests").join(name)
    }

    /// The operations that follow from commands: one of those allowed, or whatever comes until a later change is seen.
    async fn after(&mut self, commands: &str, allowed: &[&str]) -> String {
        commands.clone_into(&mut self.commands);
        sh(&self.root, commands).await;
        let mut seen = String::new();
        while !allowed.contains(&&*seen) {
            let more = self.next().await;
            seen = joined(&seen, &more.join(", "));
            // What is wrong by now gets no better.
            if !allowed.iter().any(|allowed| allowed.starts_with(&seen)) {
                return seen;
            }
        }
        if !self.path("").is_dir() {
            // There is no place for a mark.
            return seen;
        }
        joined(&seen, &self.until_mark().await)
    }

    /// The operations until one that only this call causes. With a single file, the mark is the last pod in it.
    async fn until_mark(&mut self) -> String {
        if self.at == At::File {
            return self.until_mark_in_file().await;
        }
        self.marks += 1;
        let mark = format!("mark-{}", self.marks);
        self.put(&format!("zz-{mark}.yaml"), &manifest(&mark, &mark));
        let mut seen = Vec::new();
        loop {
            for operation in self.next().await {
                if operation == format!("ADD {mark}") {
                    return seen.join(", ");
                }
                seen.push(operation);
            }
        }
    }

    async fn until_mark_in_file(&mut self) -> String {
        self.put("web.yaml", &manifest("mark", "mark"));
        let mut seen = self.until("ADD mark").await;
        assert!(
            seen.pop().is_some_and(|last| last.starts_with("REMOVE ")),
            "{seen:?}"
        );
        seen.join(", ")
    }

    /// The operations before this one.
    async fn until(&mut self, last: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|seen| seen != last) {
            seen.extend(self.next().await);
        }
        seen.pop();
        seen
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(".put"), text).unwrap();
        fs::rename(self.path(".put"), self.path(name)).unwrap();
    }

    /// The next operations, one for each pod.
    async fn next(&mut self) -> Vec<String> {
        let update = tokio::time::timeout(GUARD, self.updates.recv()).await;
        let update = update.unwrap_or_else(|_| panic!("nothing follows from {:?}", self.commands));
        let update = update.expect("no end");
        let op = match update.op {
            PodOperation::Add => "ADD",
            PodOperation::Remove => "REMOVE",
            PodOperation::Update => "UPDATE",
            other => panic!("{other:?}"),
        };
        update
            .pods
            .iter()
            .map(|pod| format!("{op} {}", self.label(pod)))
            .collect()
    }

    /// The letter of a pod, with a `'` for each pod of the same letter before it.
    fn label(&mut self, pod: &k8s_openapi::api::core::v1::Pod) -> String {
        if let Some((_, label)) = self.labels.iter().find(|(uid, _)| uid == pod.uid_str()) {
            return label.clone();
        }
        let letter = match pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap() {
            "i:1" => "A",
            "i:2" => "B",
            "i:3" => "C",
            other => other,
        };
        let before = self
            .labels
            .iter()
            .filter(|(_, label)| label.trim_end_matches('\'') == letter)
            .count();
        let label = format!("{letter}{}", "'".repeat(before));
        self.labels.push((pod.uid_str().to_owned(), label.clone()));
        label
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }
}

/// Runs shell commands in the folder of manifests, or beside it while there is none.
async fn sh(root: &TempDir, commands: &str) {
    let manifests = root.path().join("manifests");
    let mut sh = Command::new("sh");
    sh.args(["-ec", commands]);
    sh.current_dir(if manifests.is_dir() {
        &manifests
    } else {
        root.path()
    });
    sh.env("SRC", root.path().join("src"))
        .env("OUT", root.path().join("out"));
    assert!(sh.status().await.unwrap().success(), "{commands}");
}

fn joined(before: &str, then: &str) -> String {
    match (before, then) {
        (before, "") => before.to_owned(),
        ("", then) => then.to_owned(),
        (before, then) => format!("{before}, {then}"),
    }
}

fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: c\n    image: {image}\n"
    )
}
