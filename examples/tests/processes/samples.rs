//! The sample manifests work as described.

use crate::standalone::{Node, StatusExt, samples};

#[tokio::test]
async fn samples_run_wait_crash_and_end() {
    let node = Node::on_processes();
    samples::add_all(&node);
    let mut agent = node.start();
    samples::show(&node, &mut agent).await;
    let uid = agent.ready("volumes").await.uid;
    node.logged("volumes", &uid, "main", "no mounts\n").await;

    let (status, told) = agent.interrupt().await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(node.processes(), []);
    let podinfo = node.pod_dir(&uid).join("volumes/kubernetes.io~downward-api/podinfo");
    assert!(!podinfo.exists(), "the volumes of a pod go with it");
    for (sample, container) in
        [("two-containers", "ticker"), ("two-containers", "idler"), ("init-first", "main")]
    {
        let line = told.newest(sample).unwrap();
        assert_eq!(line.status().exit_code(container), Some(0), "{line:#?}");
    }
}
