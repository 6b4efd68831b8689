//! The folder of manifests changes while the agent runs.

use kubelet_cri::v1::{ContainerState, PodSandboxState};
use kubelet_testing::Containerd;

use super::cri::Cri;
use crate::standalone::manifests::server;
use crate::standalone::{Node, StatusExt, until};

#[tokio::test]
async fn pods_come_change_and_go_and_leave_nothing() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let other_image = Containerd::BUSYBOX.replace("1.36", "1.37");
    containerd.ctr(["images", "tag", Containerd::BUSYBOX, &other_image]).await.unwrap();
    let cri = Cri::of(&containerd).await;
    let node = Node::on(containerd.endpoint());
    node.write("bystander.yaml", &server("bystander", "hello"));
    let mut agent = node.start();
    let bystander = agent.ready("bystander").await;
    let before = (cri.ids(&bystander.uid).await, cri.running(&bystander.uid).await);
    let lines = agent.told().of("bystander").len();

    node.write("web.yaml", &server("web", "one"));
    let first = agent.ready("web").await;
    // A shell that has not come to its `trap` cannot be asked to end: it is init in its namespace.
    node.logged("web", &first.uid, "main", "one").await;
    node.write("web.yaml", &server("web", "two"));
    let second = agent.replaced("web", &first.uid).await;
    assert!(cri.running(&first.uid).await.is_empty());
    node.logged("web", &second.uid, "main", "two").await;
    node.write("web.yaml", &server("web", "two").replace(Containerd::BUSYBOX, &other_image));
    let third = agent.replaced("web", &second.uid).await;
    assert!(cri.running(&second.uid).await.is_empty());
    assert_eq!(cri.running(&third.uid).await.len(), 1);
    node.logged("web", &third.uid, "main", "two").await;
    node.remove("web.yaml");
    let gone = [&first.uid, &second.uid, &third.uid];
    for uid in gone {
        agent.gone(uid).await;
        for container in cri.containers(uid).await {
            assert_eq!(container.state(), ContainerState::ContainerExited, "{container:#?}");
        }
        for sandbox in cri.sandboxes(uid).await {
            assert_eq!(sandbox.state(), PodSandboxState::SandboxNotready, "{sandbox:#?}");
        }
        let told = agent.told();
        let last = told.lines.iter().rfind(|line| line.uid == *uid && line.status.is_some()).unwrap();
        assert_eq!(last.status().exit_code("main"), Some(0), "asked to end, and not killed: {last:#?}");
        assert_eq!(last.status().restarts("main"), 0);
    }

    // What they left is collected, once a minute, with their logs and folders.
    for uid in gone {
        let collected = async || cri.ids(uid).await.is_empty().then_some(());
        until("containers and sandboxes are collected", collected).await;
        let cleared =
            async || (node.log("web", uid, "main", 0).is_none() && !node.pod_dir(uid).exists()).then_some(());
        until("logs and folders are removed", cleared).await;
    }
    assert_eq!((cri.ids(&bystander.uid).await, cri.running(&bystander.uid).await), before);
    assert!(node.pod_dir(&bystander.uid).exists());
    let told = agent.told();
    assert_eq!(told.of("bystander").len(), lines, "{:#?}", told.of("bystander"));
    agent.interrupt().await;
}
