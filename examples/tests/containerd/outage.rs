//! containerd dies and comes back while the agent runs.

use kubelet_testing::Containerd;

use super::cri::Cri;
use crate::standalone::manifests::{job, server};
use crate::standalone::{Node, Process, StatusExt, samples};

#[tokio::test]
async fn pods_outlive_a_containerd_that_is_killed_and_the_agent_goes_on() {
    let Some(mut containerd) = Containerd::start().await.unwrap() else { return };
    let node = Node::on(containerd.endpoint());
    node.add_sample("two-containers");
    for pod in ["web", "goes", "doomed"] {
        node.write(&format!("{pod}.yaml"), &server(pod, "hello"));
    }
    node.write("once.yaml", &job("once", "echo once"));
    let mut agent = node.start();
    let [two, web, goes, doomed] = [
        agent.ready("two-containers").await,
        agent.ready("web").await,
        agent.ready("goes").await,
        agent.ready("doomed").await,
    ];
    let once = agent.pod("once", "succeeded", |line| samples::is_phase(line, "Succeeded")).await;
    let cri = Cri::of(&containerd).await;
    let mut before = Vec::new();
    for line in [&two, &web, &once] {
        before.push((line, cri.ids(&line.uid).await, cri.running(&line.uid).await));
    }
    let victim = cri.running(&doomed.uid).await["main"];
    drop(cri);

    containerd.kill();
    agent.logs(&["Container runtime sanity check failed"]).await;
    // Meanwhile a container dies, and manifests are removed and added.
    Process::kill(victim);
    node.remove("goes.yaml");
    node.write("late.yaml", &server("late", "hello"));
    containerd.restart().await.unwrap();

    agent.ready("late").await;
    agent.gone(&goes.uid).await;
    // A slow containerd may report the container as unknown for a moment. The count is then 2, as in the kubelet.
    let again = agent.pod("doomed", "is ready again", |line| {
        line.status().restarts("main") > 0 && line.status().is_ready()
    });
    let again = again.await;
    let status = again.status().container("main");
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref()).unwrap();
    assert_eq!(last.exit_code, 137);

    let cri = Cri::of(&containerd).await;
    assert_eq!(cri.containers(&doomed.uid).await.len(), 2, "it began again once");
    assert!(cri.running(&goes.uid).await.is_empty());
    for (line, ids, running) in before {
        assert_eq!(cri.ids(&line.uid).await, ids, "nothing of {} was made anew", line.name);
        assert_eq!(cri.running(&line.uid).await, running);
    }
    // New manifests work as before.
    node.write("later.yaml", &server("later", "hello"));
    agent.ready("later").await;

    // There is no status for the pods that kept running.
    let told = agent.told();
    for line in [&two, &web] {
        let lines = told.of(&line.name);
        let since_ready = lines.iter().skip_while(|line| !line.status().is_ready());
        for line in since_ready {
            assert!(line.status().is_ready(), "{line:#?}");
            assert_eq!(line.status().ids(), told.newest(&line.name).unwrap().status().ids());
        }
    }
    agent.interrupt().await;
}
