//! The agent ends on a signal, and ends its pods.

use rustix::process::Signal;

use crate::standalone::manifests::{script, server};
use crate::standalone::{Node, StatusExt};

#[tokio::test]
async fn asked_to_end_it_ends_its_pods_gracefully_and_leaves_no_process() {
    for signal in [Signal::INT, Signal::TERM] {
        let node = Node::on_processes();
        node.write("web.yaml", &server("web", "hello"));
        // One that has children, and takes its time.
        let tidy = "trap 'echo tidying; sleep 1; echo tidy; exit 3' TERM; echo up; sleep 100000 & while true; do sleep 1 & wait $!; done";
        node.write("tidy.yaml", &script("tidy", tidy));
        let mut agent = node.start();
        let web = agent.ready("web").await;
        let tidy = agent.ready("tidy").await;
        // A shell runs before it comes to its `trap`.
        node.logged("web", &web.uid, "main", "hello\n").await;
        node.logged("tidy", &tidy.uid, "main", "up\n").await;
        agent.signal(signal);
        let (status, told) = agent.ended().await;
        assert_eq!(status.code(), Some(0));
        assert_eq!(node.processes(), []);
        assert_eq!(told.newest("web").unwrap().status().exit_code("main"), Some(0));
        assert_eq!(told.newest("tidy").unwrap().status().exit_code("main"), Some(3));
        assert_eq!(node.log("tidy", &tidy.uid, "main", 0).unwrap(), "up\ntidying\ntidy\n");
        assert_eq!(node.log("tidy", &tidy.uid, "main", 1), None, "not started again");
    }
}

#[tokio::test]
async fn asked_twice_it_waits_for_nobody() {
    let node = Node::on_processes();
    // A minute of grace, of which it would use all.
    node.write("deaf.yaml", &script("deaf", "trap 'echo asked' TERM; echo up; while true; do sleep 1; done"));
    let mut agent = node.start();
    let deaf = agent.ready("deaf").await;
    node.logged("deaf", &deaf.uid, "main", "up\n").await;
    agent.signal(Signal::INT);
    node.logged("deaf", &deaf.uid, "main", "asked\n").await;
    agent.signal(Signal::INT);
    let (status, told) = agent.ended().await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(node.processes(), []);
    let log = node.log("deaf", &deaf.uid, "main", 0).unwrap();
    assert_eq!(log.matches("asked").count(), 1, "{told:#?}");
}
