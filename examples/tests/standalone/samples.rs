//! The sample manifests, and what they demonstrate.

use super::{Agent, Line, Node, StatusExt};

const SAMPLES: [&str; 5] = ["two-containers", "init-first", "crash-loop", "run-to-completion", "volumes"];

/// Puts all sample manifests on a node.
pub(crate) fn add_all(node: &Node) {
    SAMPLES.iter().for_each(|sample| node.add_sample(sample));
}

/// Waits until each sample has shown its behaviour.
pub(crate) async fn show(node: &Node, agent: &mut Agent) {
    let two = agent.ready("two-containers").await;
    assert_eq!(two.namespace, "default");
    for container in ["ticker", "idler"] {
        let status = two.status().container(container);
        assert!(status.ready && status.started == Some(true) && status.restart_count == 0, "{status:#?}");
    }
    node.logged("two-containers", &two.uid, "idler", "I am in two-containers-node\n").await;

    let once = agent.pod("run-to-completion", "succeeded", |line| is_phase(line, "Succeeded")).await;
    let ended = once.status().state("main").terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (0, Some("Completed")));
    assert_eq!(node.log("run-to-completion", &once.uid, "main", 0).unwrap(), "working\ndone\n");

    let init = agent.ready("init-first").await;
    let prepared = init.status().state("prepare").terminated.unwrap();
    let main = init.status().state("main").running.unwrap();
    assert_eq!(prepared.exit_code, 0);
    assert!(prepared.finished_at <= main.started_at, "{prepared:?} {main:?}");
    assert_eq!(node.log("init-first", &init.uid, "prepare", 0).unwrap(), "preparing\n");
    node.logged("init-first", &init.uid, "main", "prepared\n").await;
    // Never before its init container had ended.
    for line in agent.told().of("init-first") {
        let status = line.status();
        assert!(
            status.state("main").running.is_none() || status.exit_code("prepare") == Some(0),
            "{line:#?}"
        );
    }

    let mounted = agent.ready("volumes").await;
    let volumes = node.pod_dir(&mounted.uid).join("volumes");
    let labels = std::fs::read_to_string(volumes.join("kubernetes.io~downward-api/podinfo/labels")).unwrap();
    assert_eq!(labels, "app=\"demo\"");
    assert!(volumes.join("kubernetes.io~empty-dir/scratch").is_dir());

    for restarts in [1, 2] {
        let crash = agent.pod("crash-loop", "backs off", |line| {
            let status = line.status();
            status.waiting("main").as_deref() == Some("CrashLoopBackOff")
                && status.restarts("main") == restarts
        });
        let crash = crash.await;
        let status = crash.status().container("main");
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref()).unwrap();
        assert_eq!((last.exit_code, last.reason.as_deref()), (1, Some("Error")));
        assert!(is_phase(&crash, "Running") && !crash.status().is_ready());
    }
    // The others were not affected.
    for sample in ["two-containers", "init-first", "volumes"] {
        assert!(agent.told().newest(sample).unwrap().status().is_ready());
    }
}

pub(crate) fn is_phase(line: &Line, phase: &str) -> bool {
    line.status().phase.as_deref() == Some(phase)
}
