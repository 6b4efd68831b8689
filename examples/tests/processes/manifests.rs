//! The folder of manifests changes while the agent runs.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::standalone::manifests::{script, server, stubborn};
use crate::standalone::{Agent, Node, StatusExt};

/// A pod that no change here affects.
struct Bystander {
    uid: String,
    leaders: Vec<(String, i32)>,
    lines: usize,
}

impl Bystander {
    async fn start(node: &Node, agent: &mut Agent) -> Self {
        let uid = agent.ready("bystander").await.uid;
        let leaders = node.leaders(&uid);
        assert_eq!(leaders.len(), 1, "{leaders:?}");
        let lines = agent.told().of("bystander").len();
        Self { uid, leaders, lines }
    }

    fn assert_untouched(&self, node: &Node, agent: &Agent) {
        assert_eq!(node.leaders(&self.uid), self.leaders);
        let told = agent.told();
        let lines = told.of("bystander");
        assert_eq!(lines.len(), self.lines, "{lines:#?}");
    }
}

#[tokio::test]
async fn pods_come_change_and_go_with_their_manifests() {
    let node = Node::on_processes();
    node.write("bystander.yaml", &server("bystander", "hello"));
    let mut agent = node.start();
    let bystander = Bystander::start(&node, &mut agent).await;

    // It comes.
    node.write("web.yaml", &server("web", "one"));
    let first = agent.ready("web").await;
    node.logged("web", &first.uid, "main", "one\n").await;

    // Another command: another static pod, so another UID, after the first has ended.
    node.write("web.yaml", &server("web", "two"));
    let second = agent.replaced("web", &first.uid).await;
    node.logged("web", &second.uid, "main", "two\n").await;
    assert_eq!(node.leaders(&first.uid), []);
    assert_eq!(node.leaders(&second.uid).len(), 1);
    agent.gone(&first.uid).await;

    // Another image.
    node.write("web.yaml", &server("web", "two").replace("busybox:1.36", "busybox:1.37"));
    let third = agent.replaced("web", &second.uid).await;
    let image = third.status().container("main").image.clone();
    assert!(image.ends_with("busybox:1.37"), "{image}");
    assert_eq!(node.leaders(&second.uid), []);
    assert_eq!(node.leaders(&third.uid).len(), 1);
    node.logged("web", &third.uid, "main", "two\n").await;
    agent.gone(&second.uid).await;

    // It goes.
    node.remove("web.yaml");
    agent.gone(&third.uid).await;
    node.no_process_of(&third.uid).await;
    let told = agent.told();
    for uid in [&first.uid, &second.uid, &third.uid] {
        let last = told.lines.iter().rfind(|line| line.uid == *uid && line.status.is_some()).unwrap();
        assert_eq!(last.status().exit_code("main"), Some(0), "asked to end, and not killed: {last:#?}");
        assert_eq!(last.status().restarts("main"), 0);
    }

    bystander.assert_untouched(&node, &agent);
    let (status, _) = agent.interrupt().await;
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_pod_that_does_not_listen_is_killed_when_its_grace_is_over() {
    let node = Node::on_processes();
    node.write("deaf.yaml", &stubborn("deaf", "trap '' TERM; echo deaf; while true; do sleep 1; done"));
    let mut agent = node.start();
    let deaf = agent.ready("deaf").await;
    node.logged("deaf", &deaf.uid, "main", "deaf\n").await;
    node.remove("deaf.yaml");
    agent.gone(&deaf.uid).await;
    node.no_process_of(&deaf.uid).await;
    let told = agent.told();
    let last = told.of("deaf").into_iter().rfind(|line| line.status.is_some()).unwrap();
    assert_eq!(last.status().exit_code("main"), Some(137));
    agent.interrupt().await;
}

#[tokio::test]
async fn bad_manifests_are_reported_by_name_and_harm_no_other_pod() {
    let node = Node::on_processes();
    node.write("bystander.yaml", &server("bystander", "hello"));
    let mut agent = node.start();
    let bystander = Bystander::start(&node, &mut agent).await;

    node.write("broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: [");
    agent.logs(&["broken.yaml"]).await;

    node.write("not-a-pod.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n");
    agent.logs(&["not-a-pod.yaml", "Service"]).await;

    // Two files with pods of one name.
    node.write("twin.yaml", &server("bystander", "I am he"));
    agent.logs(&["twin.yaml", "default/bystander-node"]).await;

    // One file with two pods of one name: the first is run.
    let pair = format!("{}---\n{}", server("pair", "first"), server("pair", "second"));
    node.write("pair.yaml", &pair);
    agent.logs(&["pair.yaml", "more than one document"]).await;
    let first = agent.ready("pair").await;
    node.logged("pair", &first.uid, "main", "first\n").await;

    // A pipe without a writer: opening it blocks.
    mkfifoat(CWD, node.path("pipe.yaml"), Mode::RUSR | Mode::WUSR).unwrap();
    agent.logs(&["pipe.yaml", "FIFO"]).await;

    // A regular file that not even root can read from its beginning.
    symlink("/proc/self/mem", node.path("unreadable.yaml")).unwrap();
    agent.logs(&["unreadable.yaml", "cannot be read"]).await;

    node.write("large.yaml", &(server("large", "hello") + "#" + &"x".repeat(10 << 20)));
    agent.logs(&["large.yaml", "too large"]).await;

    fs::create_dir(node.path("folder.yaml")).unwrap();
    agent.logs(&["folder.yaml", "folder"]).await;

    // A pod's manifest breaks: the pod keeps running unchanged.
    node.write("pair.yaml", "{");
    agent.logs(&["pair.yaml", "couldn't parse"]).await;

    // All that is behind the agent when this pod runs.
    node.write("last.yaml", &server("last", "hello"));
    let last = agent.ready("last").await;
    bystander.assert_untouched(&node, &agent);
    assert_eq!(node.leaders(&first.uid).len(), 1);
    assert!(agent.told().newest("pair").unwrap().status().is_ready());
    assert_eq!(agent.told().of("large").len(), 0);

    // When a file is in order again its pod is as it says.
    node.write("broken.yaml", &script("mended", "echo mended; exec sleep 100000"));
    agent.ready("mended").await;
    bystander.assert_untouched(&node, &agent);
    assert_eq!(node.leaders(&last.uid).len(), 1);
    let (status, _) = agent.interrupt().await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(node.processes(), []);
}

#[tokio::test]
async fn a_file_renamed_over_another_counts_once() {
    let node = Node::on_processes();
    node.write("web.yaml", &server("web", "one"));
    let mut agent = node.start();
    let first = agent.ready("web").await;

    // The way of one editor: the new file beside, then over the old one.
    node.write("web.yaml", &server("web", "two"));
    let second = agent.replaced("web", &first.uid).await;
    // The way of another: the old file aside, the new one in its place, then away with the old one.
    fs::rename(node.path("web.yaml"), node.path(".web.yaml~")).unwrap();
    fs::write(node.path("web.yaml"), server("web", "three")).unwrap();
    fs::remove_file(node.path(".web.yaml~")).unwrap();
    let third = agent.replaced("web", &second.uid).await;
    // The same content again: no change.
    node.write("web.yaml", &server("web", "three"));
    // All that is behind the agent when this pod runs.
    node.write("last.yaml", &server("last", "hello"));
    agent.ready("last").await;

    let told = agent.told();
    assert_eq!(told.uids("web"), [&first.uid, &second.uid, &third.uid]);
    for (uid, word) in [(&first.uid, "one"), (&second.uid, "two"), (&third.uid, "three")] {
        assert_eq!(node.log("web", uid, "main", 0).unwrap(), format!("{word}\n"));
        assert_eq!(node.log("web", uid, "main", 1), None, "started once");
    }
    assert!(told.log.iter().all(|line| !line.contains("web.yaml")), "{:#?}", told.log);
    agent.interrupt().await;
}
