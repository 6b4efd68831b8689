//! The agent is killed, and the next one goes on.

use kubelet_testing::Containerd;

use super::cri::Cri;
use crate::standalone::manifests::server;
use crate::standalone::{Node, Process, StatusExt, until};

#[tokio::test]
async fn an_agent_that_was_killed_finds_its_containers_again_and_counts_on() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cri = Cri::of(&containerd).await;
    let node = Node::on(containerd.endpoint());
    node.add_sample("two-containers");
    let mut agent = node.start();
    let first = agent.ready("two-containers").await;
    let uid = &first.uid;

    let mut idler = None;
    for restarts in 1..=3 {
        // The first end is seen, the second happens while no agent is there, the third is seen by the second agent.
        if restarts == 2 {
            agent.kill().await;
        }
        let before = cri.running(uid).await;
        assert_eq!(before.len(), 2, "{before:?}");
        assert_eq!(*idler.get_or_insert(before["idler"]), before["idler"]);
        Process::kill(before["ticker"]);
        let ended =
            async || (!cri.running(uid).await.values().any(|pid| *pid == before["ticker"])).then_some(());
        until("the killed process is gone", ended).await;
        if restarts == 2 {
            agent = node.start();
        }
        let what = format!("was restarted {restarts} times");
        let again = agent.pod("two-containers", &what, |line| {
            line.status().restarts("ticker") == restarts && line.status().is_ready()
        });
        let again = again.await;
        assert_eq!(again.uid, *uid);
        let status = again.status().container("ticker");
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref()).unwrap();
        assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("Error")));
        assert_eq!(again.status().restarts("idler"), 0);
        assert_eq!(again.status().ids()["idler"], first.status().ids()["idler"]);
    }
    assert_eq!(cri.sandboxes(uid).await.len(), 1);
    let told = agent.told();
    assert_eq!(told.uids("two-containers"), [uid]);
    agent.interrupt().await;
}

#[tokio::test]
async fn an_agent_killed_while_it_starts_pods_leaves_none_half_or_double() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cri = Cri::of(&containerd).await;
    let node = Node::on(containerd.endpoint());
    let pods: Vec<String> = (0..6).map(|number| format!("web-{number}")).collect();
    for pod in &pods {
        node.write(&format!("{pod}.yaml"), &server(pod, "hello"));
    }
    let mut agent = node.start();
    // Some of them run by then, some have a sandbox, some have nothing.
    agent
        .until("one is ready", |told| {
            pods.iter().find_map(|pod| told.newest(pod)?.status().is_ready().then_some(()))
        })
        .await;
    let told = agent.kill().await;

    let mut agent = node.start();
    for pod in &pods {
        let line = agent.ready(pod).await;
        assert_eq!(cri.running(&line.uid).await.len(), 1);
        let sandboxes = cri.sandboxes(&line.uid).await;
        let ready = sandboxes.iter().filter(|sandbox| sandbox.state == 0).count();
        assert_eq!(ready, 1, "{sandboxes:#?}");
        if let Some(before) = told.newest(pod).filter(|before| before.status().is_ready()) {
            assert_eq!(before.status().ids(), line.status().ids());
        }
    }
    agent.interrupt().await;
}
