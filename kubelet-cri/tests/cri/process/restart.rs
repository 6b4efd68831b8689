//! A restart of the agent: the containers keep running.

use std::io;
use std::time::Duration;

use futures::FutureExt;
use kubelet_cri::process::ProcessRuntime;
use kubelet_cri::verbs::{ContainerKey, ContainerRuntime, ContainerSpec};
use kubelet_cri::{RuntimeService, v1};
use rustix::process::Signal;

use super::agent;
use super::node::{Node, nap, patiently, shell, signal, sleepers, until};

#[tokio::test]
async fn containers_outlive_an_agent_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (long, doomed) = agent::run_and_kill(dir.path()).await;
    // One ends while no agent is running, and leaves a child behind.
    signal(doomed, Signal::KILL);
    until(|| sleepers(987031).is_empty()).await;
    assert_eq!(sleepers(987030).len(), 1);

    let node = Node::at(dir.path()).await;
    let containers = node.list(v1::ContainerFilter::default()).await;
    assert_eq!(containers.len(), 3);
    let sandboxes = node.cri.list_pod_sandbox(Default::default()).await.unwrap().items;
    assert_eq!(sandboxes.len(), 3);
    assert!(
        sandboxes
            .iter()
            .all(|sandbox| sandbox.state() == v1::PodSandboxState::SandboxReady)
    );
    until(|| sleepers(987030).is_empty()).await;
    for container in &containers {
        assert_eq!(container.annotations["io.kubernetes.container.hash"], "e3b3a006");
        let sandbox = sandboxes
            .iter()
            .find(|sandbox| sandbox.id == container.pod_sandbox_id)
            .unwrap();
        let status = node.status(&container.id).await;
        let expected = match sandbox.metadata.as_ref().unwrap().name.as_str() {
            "short" => (v1::ContainerState::ContainerExited, 6, "Error"),
            "doomed" => (v1::ContainerState::ContainerExited, 137, "ContainerStatusUnknown"),
            _ => (v1::ContainerState::ContainerRunning, 0, ""),
        };
        assert_eq!(
            (status.state(), status.exit_code, status.reason.as_str()),
            expected
        );
    }

    // The containers that were taken over keep running, and their logs continue. Only output that the agent had read
    // and not written is lost.
    let seen: usize = node.log(&long).await.len();
    node.log_says(&long, &format!("stdout F {}\n", seen + 5)).await;
    let pid = node.pid(&long).await;
    let output = node.exec(&long, &["sh", "-c", "echo $COLOUR"], 0).await.unwrap();
    assert_eq!(output.stdout, b"red\n");
    let mut spec = ContainerSpec::new(ContainerKey::new("uid-of-long", "main", 0), "any");
    spec.command = shell("true").command;
    assert_eq!(
        node.processes.start(&spec).await.unwrap().info["pid"],
        pid.to_string()
    );

    node.stop(&long, 1000).await;
    let status = node.status(&long).await;
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (137, "ContainerStatusUnknown")
    );
    let log = node.log(&long).await;
    let number = |line: &String| line.strip_prefix("stdout F ").unwrap().parse::<u32>().unwrap();
    let numbers: Vec<u32> = log.iter().map(number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let gaps = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert!(gaps <= 1, "{numbers:?}");
    for container in containers {
        node.remove(&container.id).await;
    }
    patiently(node.processes.shutdown(Duration::ZERO)).await;
}

#[tokio::test]
async fn dropping_the_runtime_leaves_containers_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::at(dir.path()).await;
    let id = node.run("web", &format!("exec sleep {}", nap(987032))).await;
    let pid = node.pid(&id).await;
    let taken = ProcessRuntime::builder(dir.path().join("processes")).open().await;
    let error = taken.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(
        error.to_string().contains(&*dir.path().to_string_lossy()),
        "{error}"
    );

    drop(node);
    let node = Node::at(dir.path()).await;
    assert_eq!(node.pid(&id).await, pid);
    patiently(node.processes.shutdown(Duration::from_secs(1000))).await;
    assert!(sleepers(987032).is_empty());
    assert_eq!(
        node.status(&id).await.state(),
        v1::ContainerState::ContainerExited
    );
}

#[tokio::test]
async fn a_start_under_way_when_the_runtime_is_dropped_is_over_before_the_next_one_looks() {
    let dir = tempfile::tempdir().unwrap();
    let open = async || loop {
        match ProcessRuntime::builder(dir.path()).open().await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::task::yield_now().await,
            opened => return opened.unwrap(),
        }
    };
    for attempt in 0..20 {
        let mut spec = ContainerSpec::new(ContainerKey::new("uid", "main", attempt), "any");
        spec.command = vec!["sleep".into(), nap(987035)];
        let runtime = open().await;
        // Dropped as soon as it waits.
        let _ = runtime.start(&spec).now_or_never();
        drop(runtime);

        let runtime = patiently(open()).await;
        let container = runtime.start(&spec).await.unwrap();
        assert_eq!(runtime.list().await.unwrap(), [container]);
        runtime.remove(&spec.key).await.unwrap();
        assert!(sleepers(987035).is_empty());
    }
}

#[tokio::test]
async fn an_agent_that_died_while_starting_a_container_left_it_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::at(dir.path()).await;
    let id = node.run("web", &format!("exec sleep {}", nap(987033))).await;
    let pid = node.pid(&id).await;
    drop(node);
    // The state between the start of the process and the write of its record.
    let file = dir
        .path()
        .join("processes/containers/uid-of-web_main_0/state.json");
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    record["process"] = serde_json::Value::Null;
    std::fs::write(&file, record.to_string()).unwrap();
    let node = Node::at(dir.path()).await;
    assert_eq!(node.pid(&id).await, pid);
    let started_at = node.status(&id).await.started_at;

    // The state before that, and an invalid record.
    drop(node);
    std::fs::write(&file, "{").unwrap();
    let half = dir.path().join("processes/containers/u_half_0");
    std::fs::create_dir(&half).unwrap();
    let node = Node::at(dir.path()).await;
    assert!(node.processes.list().await.unwrap().is_empty());
    assert!(!half.exists() && file.exists());
    // The adapter has its record, and reports that the runtime does not list it.
    let status = node.status(&id).await;
    assert_eq!(
        (status.reason.as_str(), status.started_at),
        ("ContainerStatusUnknown", started_at)
    );
    signal(pid, Signal::KILL);
}

#[tokio::test]
async fn a_pid_of_another_process_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::at(dir.path()).await;
    let id = node.run("web", &format!("exec sleep {}", nap(987034))).await;
    until(|| sleepers(987034).len() == 1).await;
    let pid = node.pid(&id).await;
    drop(node);
    // The record of another container, with the pid of this process.
    let file = dir
        .path()
        .join("processes/containers/uid-of-web_main_0/state.json");
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    record["process"]["start_time"] = (record["process"]["start_time"].as_u64().unwrap() + 1).into();
    std::fs::write(&file, record.to_string()).unwrap();

    let node = Node::at(dir.path()).await;
    assert_eq!(node.status(&id).await.reason, "ContainerStatusUnknown");
    node.remove(&id).await;
    assert_eq!(sleepers(987034), [pid]);
    signal(pid, Signal::KILL);
}
