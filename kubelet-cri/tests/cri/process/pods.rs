//! The temporary files of a pod.

use std::path::Path;

use kubelet_cri::{RuntimeService, v1};

use super::node::{Node, shell};
use crate::verbs::adapter::sandbox_status;

async fn run(node: &Node, sandbox: &str, name: &str, script: &str) -> v1::ContainerStatus {
    let mut config = shell(script);
    config.metadata.as_mut().unwrap().name = name.to_owned();
    config.log_path = format!("{name}/0.log");
    let id = node.create(sandbox, config).await.unwrap();
    node.start(&id).await.unwrap();
    node.exited(&id).await
}

fn folders(root: &Path) -> usize {
    std::fs::read_dir(root.join("processes/pods")).unwrap().count()
}

#[tokio::test]
async fn temporary_files_are_the_pods_and_end_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::at(dir.path()).await;
    let (web, db) = (node.sandbox("web").await, node.sandbox("db").await);
    let written = run(&node, &web, "init", r#"echo hello > "$TMPDIR/note""#).await;
    assert_eq!(written.exit_code, 0);
    drop(node);

    // The containers of a pod share them, also after a restart of the agent; another pod has its own.
    let node = Node::at(dir.path()).await;
    assert_eq!(folders(dir.path()), 2);
    let read = run(&node, &web, "main", r#"grep -q hello "$TMPDIR/note""#).await;
    assert_eq!(read.exit_code, 0);
    let other = run(
        &node,
        &db,
        "main",
        r#"test -d "$TMPDIR" && ! test -e "$TMPDIR/note""#,
    )
    .await;
    assert_eq!(other.exit_code, 0);

    for (sandbox, left) in [(web, 1), (db, 0)] {
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: sandbox.clone(),
        };
        node.cri.stop_pod_sandbox(request).await.unwrap();
        assert_eq!(folders(dir.path()), left);
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: sandbox,
        };
        node.cri.remove_pod_sandbox(request).await.unwrap();
    }
}

#[tokio::test]
async fn a_pod_without_its_folder_is_not_ready() {
    let node = Node::new().await;
    let (web, db) = (node.sandbox("web").await, node.sandbox("db").await);
    for (sandbox, state) in [
        (&db, v1::PodSandboxState::SandboxReady),
        (&web, v1::PodSandboxState::SandboxNotready),
    ] {
        if *sandbox == web {
            std::fs::remove_dir_all(node.root.join("processes/pods/uid-of-web_0")).unwrap();
        }
        assert_eq!(sandbox_status(&node.cri, sandbox).await.state(), state);
    }
    std::fs::remove_dir_all(node.root.join("processes/pods/uid-of-db_0")).unwrap();
    let sandboxes = node.cri.list_pod_sandbox(Default::default()).await.unwrap();
    let states: Vec<_> = sandboxes.items.iter().map(v1::PodSandbox::state).collect();
    assert_eq!(states, [v1::PodSandboxState::SandboxNotready; 2]);
}
