//! What `kubectl` shows of a static pod: it sees the mirror pod, and the mirror pod has the pod's status. Any recent version
//! works. Without `kubectl` the test prints `SKIPPED` and passes.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use kubelet_core::{Clock, PodExt, PodStatusReporter, PodUid};
use kubelet_testing::api_server::{User, find_kubectl};
use kubelet_testing::{Run, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::agent::{Agent, static_pod};

/// How long a `kubectl` may take before it counts as hung.
const GUARD: Duration = Duration::from_secs(120);

struct Kubectl {
    program: PathBuf,
    folder: TempDir,
}

impl Kubectl {
    /// Whether it succeeded, and what it printed.
    async fn run(&self, args: &[&str]) -> (bool, String) {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(self.folder.path().join("kubeconfig"))
            .arg("--cache-dir")
            .arg(self.folder.path().join("cache"))
            .args(args)
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(GUARD, command.output())
            .await
            .unwrap()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.success(),
            text(output.stdout) + &text(output.stderr),
        )
    }

    async fn says(&self, args: &[&str], words: &[&str]) {
        let (done, text) = self.run(args).await;
        assert!(done, "kubectl {args:?}: {text}");
        // However many spaces there are between two words.
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            assert!(flat.contains(word), "kubectl {args:?}: no {word:?} in {text}");
        }
    }
}

#[tokio::test]
async fn kubectl_sees_a_static_pod_as_it_is() {
    let Some(program) = find_kubectl().unwrap() else {
        return;
    };
    let agent = Agent::start_at(Clock::system()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = TempDir::new().unwrap();
    let kubectl = Kubectl { program, folder };
    let kubeconfig = agent
        .server
        .kubeconfig(listener.local_addr().unwrap(), User::admin());
    std::fs::write(kubectl.folder.path().join("kubeconfig"), kubeconfig).unwrap();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn({
        let (server, shutdown) = (agent.server.clone(), shutdown.clone());
        async move { server.serve(listener, shutdown).await }
    });

    agent.containers.script("main", [Run::forever()]);
    agent.manifests.send_replace(vec![static_pod("one")]);
    agent.mirror_of("one").await;
    let ready = ["wait", "--for=condition=Ready", "--timeout=100s", "pod/web"];
    kubectl.says(&ready, &["pod/web condition met"]).await;
    kubectl
        .says(
            &["get", "pod", "web", "-o", "wide"],
            &["web 1/1 Running 0", "node-1"],
        )
        .await;
    let truth = [
        "Controlled By: Node/node-1",
        "kubernetes.io/config.hash: one",
        "kubernetes.io/config.mirror: one",
        "Status: Running",
        "Image: busybox:1.36",
        "State: Running",
        "Ready: True",
        "Ready True",
        "ContainersReady True",
        "PodReadyToStartContainers True",
        "QoS Class: BestEffort",
    ];
    kubectl.says(&["describe", "pod", "web"], &truth).await;

    // It crashes, and starts again.
    let uid = PodUid::new("uid-of-one");
    assert_eq!(agent.containers.end(&uid, "main", 3), 1);
    let restarts = [
        "wait",
        "--for=jsonpath={.status.containerStatuses[0].restartCount}=1",
        "--timeout=100s",
        "pod/web",
    ];
    kubectl.says(&restarts, &["condition met"]).await;
    kubectl.says(&ready, &["condition met"]).await;
    kubectl.says(&["get", "pod", "web"], &["web 1/1 Running 1"]).await;
    kubectl
        .says(
            &["describe", "pod", "web"],
            &[
                "Last State: Terminated Reason: Error Exit Code: 3",
                "Restart Count: 1",
            ],
        )
        .await;

    // The mirror pod has exactly the status that the node holds.
    let shown = async || {
        let (done, text) = kubectl.run(&["get", "pod", "web", "-o", "json"]).await;
        assert!(done, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["status"].take()
    };
    let held = agent.statuses.pod_status(&uid).unwrap();
    assert_eq!(without_nulls(shown().await), without_nulls(json!(*held)));

    // A deleted mirror pod is created again.
    let before = agent.mirror_of("one").await;
    kubectl
        .says(&["delete", "pod", "web", "--wait=false"], &["deleted"])
        .await;
    eventually!(agent.mirror_of("one").await, |mirror| mirror.uid_str()
        != before.uid_str());
    kubectl.says(&["get", "pod", "web"], &["web 1/1 Running 1"]).await;

    // It is deleted when its manifest is removed.
    agent.manifests.send_replace(vec![]);
    kubectl
        .says(&["wait", "--for=delete", "--timeout=100s", "pod/web"], &[])
        .await;
    let (found, _) = kubectl.run(&["get", "pod", "web"]).await;
    assert!(!found);

    agent.stop().await;
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}

/// JSON in which a field that is unset is left away.
fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields
                .values_mut()
                .for_each(|value| *value = without_nulls(value.take()));
        }
        Value::Array(list) => list
            .iter_mut()
            .for_each(|value| *value = without_nulls(value.take())),
        _ => {}
    }
    value
}
