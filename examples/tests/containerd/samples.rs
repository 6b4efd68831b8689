//! The sample manifests as real containers.

use std::collections::BTreeMap;

use kubelet_cri::v1::{ContainerMetadata, PodSandboxState};
use kubelet_testing::Containerd;

use super::cri::Cri;
use crate::standalone::{Line, Node, StatusExt, samples};

#[tokio::test]
async fn samples_run_and_outlive_the_agent_that_is_interrupted() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cri = Cri::of(&containerd).await;
    let node = Node::on(containerd.endpoint());
    samples::add_all(&node);
    let mut agent = node.start();
    samples::show(&node, &mut agent).await;
    let uid = agent.ready("volumes").await.uid;
    node.logged("volumes", &uid, "main", "app=\"demo\"\n").await;

    let told = agent.told();
    for name in ["two-containers", "init-first", "crash-loop", "run-to-completion"] {
        bears_the_kubelets_labels(&cri, told.newest(name).unwrap()).await;
    }
    let [two, init, once] =
        ["two-containers", "init-first", "run-to-completion"].map(|name| told.newest(name).unwrap());
    let mut before = Vec::new();
    for line in [two, init, once] {
        before.push((line, cri.ids(&line.uid).await, cri.running(&line.uid).await));
    }

    // As a kubelet it leaves its pods running.
    let (status, told) = agent.interrupt().await;
    assert_eq!(status.code(), Some(0));
    for (line, ids, running) in &before {
        assert_eq!(cri.ids(&line.uid).await, *ids);
        assert_eq!(cri.running(&line.uid).await, *running);
        assert_eq!(told.newest(&line.name).unwrap().status(), line.status(), "nothing was told of an end");
    }
    let restarts = told.newest("crash-loop").unwrap().status().restarts("main");

    // The next one takes them over.
    let mut agent = node.start();
    for line in [two, init] {
        let again = agent.ready(&line.name).await;
        assert_eq!(again.uid, line.uid);
        assert_eq!(again.status().ids(), line.status().ids());
    }
    agent.pod("run-to-completion", "succeeded", |line| samples::is_phase(line, "Succeeded")).await;
    agent.pod("crash-loop", "goes on", |line| line.status().restarts("main") > restarts).await;
    for (line, ids, running) in &before {
        assert_eq!(cri.ids(&line.uid).await, *ids, "nothing of {} was made anew", line.name);
        assert_eq!(cri.running(&line.uid).await, *running);
    }
    for line in agent.told().of("crash-loop") {
        assert!(line.status().restarts("main") >= restarts, "restart counts only grow: {line:#?}");
    }
    agent.interrupt().await;
}

/// What other programs of a node know a pod by.
async fn bears_the_kubelets_labels(cri: &Cri<'_>, line: &Line) {
    let Line { name, uid, .. } = line;
    let pod_labels: BTreeMap<_, _> = [
        ("io.kubernetes.pod.name", format!("{name}-node")),
        ("io.kubernetes.pod.namespace", "default".to_owned()),
        ("io.kubernetes.pod.uid", uid.clone()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();

    let sandboxes = cri.sandboxes(uid).await;
    let [sandbox] = &sandboxes[..] else { panic!("{name}: {sandboxes:#?}") };
    assert_eq!(sandbox.labels, pod_labels);
    assert_eq!(sandbox.annotations["kubernetes.io/config.source"], "file");
    assert_eq!(sandbox.annotations["kubernetes.io/config.hash"], *uid);
    assert!(sandbox.annotations.contains_key("kubernetes.io/config.seen"));
    assert_eq!(sandbox.annotations.len(), 3, "{:#?}", sandbox.annotations);
    let metadata = sandbox.metadata.clone().unwrap();
    assert_eq!(
        (metadata.name, metadata.namespace, metadata.uid, metadata.attempt),
        (format!("{name}-node"), "default".to_owned(), uid.clone(), 0)
    );
    // A pod that has succeeded needs its sandbox no more.
    let ended = samples::is_phase(line, "Succeeded");
    assert!(ended || sandbox.state() == PodSandboxState::SandboxReady, "{sandbox:#?}");

    let containers = cri.containers(uid).await;
    for container in &containers {
        let metadata = container.metadata.clone().unwrap();
        let mut labels = pod_labels.clone();
        labels.insert("io.kubernetes.container.name".to_owned(), metadata.name.clone());
        assert_eq!(container.labels, labels);
        let annotations = &container.annotations;
        assert_eq!(annotations["io.kubernetes.container.restartCount"], metadata.attempt.to_string());
        assert_eq!(annotations["io.kubernetes.container.terminationMessagePath"], "/dev/termination-log");
        assert_eq!(annotations["io.kubernetes.container.terminationMessagePolicy"], "File");
        let grace = if matches!(name.as_str(), "two-containers" | "init-first") { "5" } else { "30" };
        assert_eq!(annotations["io.kubernetes.pod.terminationGracePeriod"], grace);
        let hash = &annotations["io.kubernetes.container.hash"];
        assert!(u32::from_str_radix(hash, 16).is_ok(), "{hash}");
        assert_eq!(annotations.len(), 5, "{annotations:#?}");
        let Some(config) = cri.container_config(&container.id).await else {
            // What has a successor may be removed at any time.
            let mut others = containers.iter().filter_map(|other| other.metadata.as_ref());
            let is_after =
                |other: &ContainerMetadata| other.name == metadata.name && other.attempt > metadata.attempt;
            assert!(others.any(is_after), "{container:#?}");
            continue;
        };
        assert_eq!(config["log_path"], format!("{}/{}.log", metadata.name, metadata.attempt));
    }
}
