//! An agent in a process of its own, so that it can be killed: this test program, run once more.

use std::path::Path;
use std::process::{Child, Command};

use super::node::{self, Node, file_says, nap, patiently, shell};

const ROOT: &str = "KUBELET_CRI_TEST_AGENT_ROOT";

/// Not a test: what the agent does. It starts three containers and waits to be killed.
#[tokio::test]
#[ignore = "run by the tests of restarts"]
async fn agent() {
    let Some(root) = std::env::var_os(ROOT) else {
        return;
    };
    let root = Path::new(&root);
    let node = Node::at(root).await;
    let short = node.run("short", "exit 6").await;
    let mut counting = shell("i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done");
    counting.envs = vec![kubelet_cri::v1::KeyValue {
        key: "COLOUR".to_owned(),
        value: b"red".to_vec(),
    }];
    let long = node.run_config("long", counting).await;
    let doomed = node
        .run(
            "doomed",
            &format!("sleep {} & exec sleep {}", nap(987030), nap(987031)),
        )
        .await;
    node.exited(&short).await;
    node.log_says(&long, "stdout F 3\n").await;
    std::fs::write(
        root.join("ready.partial"),
        format!("{long} {}", node.pid(&doomed).await),
    )
    .unwrap();
    std::fs::rename(root.join("ready.partial"), root.join("ready")).unwrap();
    std::future::pending::<()>().await;
}

/// Runs the agent until it is killed with SIGKILL. Returns the id of `long` and the pid of `doomed`.
pub(crate) async fn run_and_kill(root: &Path) -> (String, i32) {
    let mut agent: Child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::agent::agent", "--ignored", "--nocapture"])
        .env(ROOT, root)
        .env(node::RUN, node::run())
        .spawn()
        .unwrap();
    patiently(file_says(&root.join("ready"), " ")).await;
    agent.kill().unwrap();
    agent.wait().unwrap();
    let ready = std::fs::read_to_string(root.join("ready")).unwrap();
    let (long, pid) = ready.split_once(' ').unwrap();
    (long.to_owned(), pid.parse().unwrap())
}
