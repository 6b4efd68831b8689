//! `--run-once`: the result in exit code and table.

use std::process::Output;

use crate::standalone::Node;
use crate::standalone::manifests::{job, server};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The line of the table that is about this pod.
fn row(output: &Output, pod: &str) -> String {
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = table.lines().find(|line| line.starts_with(&format!("default/{pod}-node ")));
    row.unwrap_or_else(|| panic!("{pod} is not in the table:\n{}", text(output))).to_owned()
}

#[tokio::test]
async fn all_is_well() {
    let node = Node::on_processes();
    for sample in ["two-containers", "init-first", "run-to-completion", "volumes"] {
        node.add_sample(sample);
    }
    let output = node.run_once().await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(row(&output, "two-containers").contains("Running    2/2"), "{}", text(&output));
    assert!(row(&output, "init-first").contains("Running    1/1"), "{}", text(&output));
    assert!(row(&output, "run-to-completion").contains("Succeeded"), "{}", text(&output));
    assert!(row(&output, "volumes").contains("Running    1/1"), "{}", text(&output));
    assert_eq!(node.processes(), []);
}

#[tokio::test]
async fn a_pod_that_crashes_is_a_failure() {
    let node = Node::on_processes();
    node.write("web.yaml", &server("web", "hello"));
    node.add_sample("crash-loop");
    let output = node.run_once().await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(row(&output, "crash-loop").contains("CrashLoopBackOff"), "{}", text(&output));
    assert!(
        text(&output).contains(": container main: back-off 10s restarting failed container"),
        "{}",
        text(&output)
    );
    assert!(row(&output, "web").contains("Running"), "{}", text(&output));
    assert_eq!(node.processes(), []);
}

#[tokio::test]
async fn a_job_that_fails_is_a_failure() {
    let node = Node::on_processes();
    node.write("job.yaml", &job("job", "exit 7"));
    let output = node.run_once().await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let row = row(&output, "job");
    assert!(row.contains("Failed") && row.contains("Error (7)"), "{row}");
}

#[tokio::test]
async fn a_broken_manifest_is_a_failure() {
    let node = Node::on_processes();
    node.write("web.yaml", &server("web", "hello"));
    node.write("broken.yaml", "{");
    let output = node.run_once().await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(row(&output, "web").contains("Running"), "{}", text(&output));
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.lines().any(|line| line.contains("broken.yaml: ")), "{}", text(&output));
    assert_eq!(node.processes(), []);
}

#[tokio::test]
async fn a_pod_that_gets_nowhere_has_failed_when_patience_is_over() {
    let node = Node::on_processes();
    let volume = "    volumeMounts: [{name: data, mountPath: /data}]\n  volumes: [{name: data, hostPath: {path: /no/such/folder, type: Directory}}]\n";
    node.write("web.yaml", &(server("web", "hello").trim_end().to_owned() + "\n" + volume));
    let output = node.command().args(["--run-once", "--timeout", "2"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(row(&output, "web").contains("Pending"), "{}", text(&output));
    assert!(text(&output).contains("not running and not ended after 2 s"), "{}", text(&output));
}

#[tokio::test]
async fn the_default_folder_is_cleared_of_what_is_the_agents_and_of_nothing_else() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join(format!("kubelet-standalone-{}", rustix::process::geteuid().as_raw()));
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("somebody's"), "work").unwrap();
    let manifest = temp.path().join("job.yaml");
    std::fs::write(&manifest, job("job", "true")).unwrap();

    let mut command = tokio::process::Command::new(crate::program::program("standalone"));
    command.args(["--run-once", "--manifests"]).arg(&manifest).env("TMPDIR", temp.path());
    let output = command.output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let left: Vec<_> = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["somebody's"]);
}
