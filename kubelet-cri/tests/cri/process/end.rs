//! How containers end: exit codes, signals, grace periods.

use std::time::Duration;

use kubelet_cri::verbs::{ContainerKey, ContainerRuntime, ContainerSpec};
use kubelet_cri::{Code, v1};
use rustix::process::Signal;

use super::node::{Node, nap, patiently, shell, signal, sleepers, until};

#[tokio::test]
async fn exit_codes() {
    let node = Node::new().await;
    for (pod, script, code, reason) in [
        ("ok", "exit 0", 0, "Completed"),
        ("bad", "exit 3", 3, "Error"),
        ("term", "kill -TERM $$", 143, "Error"),
        ("kill", "kill -KILL $$", 137, "Error"),
        ("pipe", "kill -PIPE $$", 141, "Error"),
    ] {
        let id = node.run(pod, script).await;
        let status = node.exited(&id).await;
        assert_eq!(
            (status.exit_code, status.reason.as_str()),
            (code, reason),
            "{script}"
        );
    }
}

#[tokio::test]
async fn killed_from_outside() {
    let node = Node::new().await;
    let id = node.run("web", &format!("exec sleep {}", nap(987010))).await;
    signal(node.pid(&id).await, Signal::KILL);
    let status = node.exited(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "Error"));
}

#[tokio::test]
async fn the_stop_signal_is_heeded_within_the_grace() {
    let node = Node::new().await;
    let polite = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let id = node.run("term", polite).await;
    node.log_says(&id, "ready").await;
    node.stop(&id, 1000).await;
    assert_eq!(node.status(&id).await.exit_code, 5);
    assert!(node.log(&id).await.contains(&"stdout F bye".to_owned()));

    let mut config = shell("trap 'exit 6' USR1; echo ready; while :; do sleep 0.05; done");
    config.stop_signal = v1::Signal::Sigusr1 as i32;
    let id = node.run_config("usr1", config).await;
    node.log_says(&id, "ready").await;
    node.stop(&id, 1000).await;
    assert_eq!(node.status(&id).await.exit_code, 6);
}

#[tokio::test]
async fn who_ignores_the_stop_signal_is_killed() {
    let node = Node::new().await;
    let id = node
        .run("deaf", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
        .await;
    node.log_says(&id, "ready").await;
    node.stop(&id, 1).await;
    assert_eq!(node.status(&id).await.exit_code, 137);
}

#[tokio::test]
async fn a_shorter_grace_overtakes_a_longer() {
    let node = Node::new().await;
    let id = node
        .run("deaf", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
        .await;
    node.log_says(&id, "ready").await;
    tokio::join!(node.stop(&id, 100_000), node.stop(&id, 0));
    assert_eq!(node.status(&id).await.exit_code, 137);
}

#[tokio::test]
async fn the_whole_group_goes_with_its_leader() {
    let node = Node::new().await;
    // Grandchildren that ignore SIGTERM: one is stopped, one is left behind by a leader that exits.
    let script = format!(
        "(trap '' TERM; sleep {0} & sleep {0} & wait) & echo ready; ",
        nap(987011)
    );
    let id = node.run("stopped", &format!("{script} wait")).await;
    until(|| sleepers(987011).len() == 2).await;
    node.stop(&id, 1).await;
    assert!(sleepers(987011).is_empty());

    let id = node.run("exits", &format!("{script} exit 4")).await;
    assert_eq!(node.exited(&id).await.exit_code, 4);
    assert!(sleepers(987011).is_empty());
}

#[tokio::test]
async fn removal_kills_what_runs() {
    let node = Node::new().await;
    let id = node.run("web", &format!("exec sleep {}", nap(987012))).await;
    node.remove(&id).await;
    assert!(sleepers(987012).is_empty());
    assert!(node.processes.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn commands_in_a_container() {
    let node = Node::new().await;
    let mut config = shell(&format!("exec sleep {}", nap(987013)));
    config.envs = vec![v1::KeyValue {
        key: "COLOUR".to_owned(),
        value: b"red".to_vec(),
    }];
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    config.working_dir = folder.display().to_string();
    let id = node.run_config("web", config).await;

    let script = "echo $COLOUR $PWD $HOSTNAME; echo oops >&2; exit 9";
    let output = node.exec(&id, &["sh", "-c", script], 0).await.unwrap();
    let expected = format!("red {} web\n", folder.display());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    assert_eq!((output.stderr.as_slice(), output.exit_code), (&b"oops\n"[..], 9));

    let large = node
        .exec(&id, &["head", "-c", "20000000", "/dev/zero"], 0)
        .await
        .unwrap();
    assert_eq!((large.stdout.len(), large.exit_code), (16 << 20, 0));

    let two_naps = format!("sleep {0} & sleep {0}", nap(987014));
    let slow = node.exec(&id, &["sh", "-c", &two_naps], 1).await.unwrap_err();
    assert_eq!(slow.code(), Code::DeadlineExceeded, "{slow}");
    until(|| sleepers(987014).is_empty()).await;

    let missing = node.exec(&id, &["no-such-program"], 0).await.unwrap_err();
    assert_eq!(missing.code(), Code::InvalidArgument, "{missing}");

    let seconds = nap(987015);
    let command = ["sleep", &seconds];
    let stop = async {
        until(|| !sleepers(987015).is_empty()).await;
        node.stop(&id, 1).await;
    };
    let (cut, ()) = tokio::join!(node.exec(&id, &command, 0), stop);
    assert_eq!(cut.unwrap_err().code(), Code::Unavailable);
    assert!(sleepers(987015).is_empty());
    let late = node.exec(&id, &["true"], 0).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition, "{late}");
}

#[tokio::test]
async fn shutdown_leaves_no_process() {
    let node = Node::new().await;
    for pod in 0..10 {
        node.run(
            &format!("pod-{pod}"),
            &format!("trap '' TERM; sleep {0} & sleep {0} & wait; wait", nap(987016)),
        )
        .await;
    }
    let id = node
        .run(
            "polite",
            "trap 'exit 8' TERM; echo ready; while :; do sleep 0.05; done",
        )
        .await;
    node.log_says(&id, "ready").await;
    until(|| sleepers(987016).len() == 20).await;
    patiently(node.processes.shutdown(Duration::from_secs(1))).await;
    assert!(sleepers(987016).is_empty());
    assert_eq!(node.status(&id).await.exit_code, 8);

    let spec = ContainerSpec::new(ContainerKey::new("uid", "late", 0), "any");
    assert!(node.processes.start(&spec).await.is_err());
    patiently(node.processes.shutdown(Duration::ZERO)).await;
}
