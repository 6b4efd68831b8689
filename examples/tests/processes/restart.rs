//! Unexpected ends: of a container's process, or of the agent.

use crate::standalone::manifests::{job, server};
use crate::standalone::{Node, Process, StatusExt, samples};

#[tokio::test]
async fn a_killed_process_is_started_again_and_its_neighbour_is_left_alone() {
    let node = Node::on_processes();
    node.add_sample("two-containers");
    let mut agent = node.start();
    let uid = agent.ready("two-containers").await.uid;
    let before = node.leaders(&uid);
    let [(idler, idler_pid), (ticker, ticker_pid)] = &before[..] else { panic!("{before:?}") };
    assert_eq!((idler.as_str(), ticker.as_str()), ("idler_0", "ticker_0"));

    Process::kill(*ticker_pid);
    let again = agent.pod("two-containers", "is ready again", |line| {
        line.status().restarts("ticker") == 1 && line.status().is_ready()
    });
    let again = again.await;
    let status = again.status().container("ticker");
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref()).unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("Error")));
    assert_eq!(again.status().restarts("idler"), 0);
    let after = node.leaders(&uid);
    assert_eq!(after.len(), 2, "{after:?}");
    assert_eq!(after[0], (idler.clone(), *idler_pid));
    assert_eq!(after[1].0, "ticker_1");
    agent.interrupt().await;
}

#[tokio::test]
async fn an_agent_that_was_killed_finds_its_pods_again() {
    let node = Node::on_processes();
    samples::add_all(&node);
    node.write("doomed.yaml", &server("doomed", "hello"));
    let mut agent = node.start();
    let [two, init, doomed] =
        [agent.ready("two-containers").await, agent.ready("init-first").await, agent.ready("doomed").await];
    agent.pod("run-to-completion", "succeeded", |line| samples::is_phase(line, "Succeeded")).await;
    agent.pod("crash-loop", "was restarted", |line| line.status().restarts("main") == 1).await;
    let told = agent.kill().await;
    let restarts = told.newest("crash-loop").unwrap().status().restarts("main");

    // They live on, but for one.
    let leaders = [&two, &init, &doomed].map(|line| node.leaders(&line.uid));
    assert_eq!(leaders.each_ref().map(Vec::len), [2, 1, 1], "{leaders:?}");
    Process::kill(leaders[2][0].1);
    node.no_process_of(&doomed.uid).await;

    let mut agent = node.start();
    for before in [&two, &init] {
        let after = agent.ready(&before.name).await;
        assert_eq!(after.uid, before.uid);
        assert_eq!(after.status().ids(), before.status().ids());
        for (container, _) in before.status().ids() {
            assert_eq!(after.status().restarts(&container), 0);
            assert_eq!(after.status().state(&container), before.status().state(&container));
        }
    }
    let again = agent.pod("doomed", "is ready again", |line| line.status().is_ready()).await;
    let status = again.status().container("main");
    assert_eq!(status.restart_count, 1);
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref()).unwrap();
    // Its exit was missed.
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    agent.pod("crash-loop", "goes on", |line| line.status().restarts("main") == restarts + 1).await;
    let once = agent.pod("run-to-completion", "succeeded", |line| samples::is_phase(line, "Succeeded")).await;

    // None was started twice.
    for (before, leaders) in [&two, &init].into_iter().zip(&leaders) {
        assert_eq!(node.leaders(&before.uid), *leaders);
        assert_eq!(agent.told().uids(&before.name), [&before.uid]);
    }
    assert_eq!(node.leaders(&doomed.uid).len(), 1);
    assert_eq!(node.log("run-to-completion", &once.uid, "main", 0).unwrap(), "working\ndone\n");
    assert_eq!(node.log("run-to-completion", &once.uid, "main", 1), None);
    for line in agent.told().of("crash-loop") {
        assert!(line.status().restarts("main") >= restarts, "restart counts only grow: {line:#?}");
    }

    // And it ends them as its own.
    let (status, told) = agent.interrupt().await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(node.processes(), []);
    assert!(told.newest("two-containers").unwrap().status().exit_code("ticker").is_some());
}

#[tokio::test]
async fn a_manifest_that_goes_while_no_agent_is_there_ends_its_pod_with_the_next() {
    let node = Node::on_processes();
    node.write("stays.yaml", &server("stays", "hello"));
    node.write("goes.yaml", &server("goes", "hello"));
    let mut agent = node.start();
    let [stays, goes] = [agent.ready("stays").await, agent.ready("goes").await];
    agent.kill().await;
    let leaders = node.leaders(&stays.uid);
    assert_eq!(node.leaders(&goes.uid).len(), 1);
    node.remove("goes.yaml");
    node.write("comes.yaml", &job("comes", "echo here"));

    let mut agent = node.start();
    agent.ready("stays").await;
    agent.pod("comes", "succeeded", |line| samples::is_phase(line, "Succeeded")).await;
    node.no_process_of(&goes.uid).await;
    assert_eq!(node.leaders(&stays.uid), leaders);
    agent.interrupt().await;
}
