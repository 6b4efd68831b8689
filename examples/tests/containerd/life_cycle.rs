//! The life of pods as real containers: init containers, sidecars, hooks, environment, exit codes, last words, restarts.

use k8s_openapi::api::core::v1::ContainerStateTerminated;
use kubelet_testing::Containerd;

use crate::standalone::{Line, Node, StatusExt, samples};

/// An init container, a sidecar, and a container with hooks. They log what happens.
const WHOLE: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: whole
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 30
  initContainers:
  - name: prepare
    image: docker.io/library/busybox:1.36
    command: ["sh", "-c", "echo prepared"]
  - name: proxy
    restartPolicy: Always
    image: docker.io/library/busybox:1.36
    command: ["sh", "-c", "trap 'echo proxy ends; exit 0' TERM; echo proxy; while true; do sleep 1 & wait $!; done"]
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    env:
    - {name: GREETING, value: hello}
    - {name: SENTENCE, value: "$(GREETING) $(NOBODY)"}
    - {name: ESCAPED, value: "$$(GREETING)"}
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    resources: {requests: {cpu: 100m}}
    command: ["sh", "-c"]
    args:
    - |
      trap 'echo main ends; exit 0' TERM
      echo "$SENTENCE|$ESCAPED|$POD_NAME|$CPU|$0"
      while true; do sleep 1 & wait $!; done
    - "$(GREETING)-$$(GREETING)-$(NOBODY)"
    lifecycle:
      postStart: {exec: {command: ["sh", "-c", "echo post-start > /proc/1/fd/1"]}}
      preStop: {exec: {command: ["sh", "-c", "echo pre-stop > /proc/1/fd/1; sleep 1"]}}
"#;

#[tokio::test]
async fn init_sidecar_main_hooks_and_environment() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let node = Node::on(containerd.endpoint());
    node.write("whole.yaml", WHOLE);
    let mut agent = node.start();
    let line = agent.ready("whole").await;
    let uid = &line.uid;
    assert_eq!(line.status().exit_code("prepare"), Some(0));
    assert!(line.status().state("proxy").running.is_some(), "{line:#?}");
    let log = |container: &str| node.log("whole", uid, container, 0).unwrap();
    assert_eq!(log("prepare"), "prepared\n");
    node.logged("whole", uid, "proxy", "proxy\n").await;
    node.logged(
        "whole",
        uid,
        "main",
        "hello $(NOBODY)|$(GREETING)|whole-node|100|hello-$(GREETING)-$(NOBODY)\n",
    )
    .await;
    node.logged("whole", uid, "main", "post-start\n").await;

    node.remove("whole.yaml");
    node.logged("whole", uid, "proxy", "proxy ends\n").await;
    let (main, proxy) = (log("main"), log("proxy"));
    assert!(main.ends_with("pre-stop\nmain ends\n"), "the hook first: {main:?}");
    assert_eq!(main.lines().count(), 4, "{main:?}");
    assert_eq!(proxy, "proxy\nproxy ends\n");
    agent.gone(uid).await;
    let told = agent.told();
    let last = told.lines.iter().rfind(|line| line.uid == *uid && line.status.is_some()).unwrap();
    let ended = |container: &str| last.status().state(container).terminated.unwrap();
    let (main, proxy) = (ended("main"), ended("proxy"));
    assert_eq!((main.exit_code, proxy.exit_code), (0, 0));
    assert!(main.finished_at <= proxy.finished_at, "the sidecar last: {last:#?}");
    agent.interrupt().await;
}

/// A pod of one container and what ends with it.
fn pod(name: &str, policy: &str, script: &str, more: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  hostNetwork: true
  restartPolicy: {policy}
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    command: ["sh", "-c", "{script}"]
{more}"#
    )
}

const FALLBACK: &str = "    terminationMessagePolicy: FallbackToLogsOnError\n";
const SIDECAR: &str = r#"  initContainers:
  - name: proxy
    restartPolicy: Always
    image: docker.io/library/busybox:1.36
    command: ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done"]
"#;

#[tokio::test]
async fn exit_codes_last_words_and_restart_policies() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let node = Node::on(containerd.endpoint());
    let written = "echo -n written > /dev/termination-log; exit 1";
    let pods = [
        pod("written", "Never", written, FALLBACK),
        pod("logged", "Never", "echo one; echo two >&2; exit 42", FALLBACK),
        pod("well", "Never", "echo one; exit 0", FALLBACK),
        pod(
            "own-path",
            "Never",
            "echo -n mine > /tmp/words; exit 3",
            "    terminationMessagePath: /tmp/words\n",
        ),
        pod("killed", "Never", "sleep 1000 & kill -9 $!; wait $!", ""),
        pod("no-program", "Never", "true", "").replace("\"sh\", \"-c\", ", ""),
        pod("always", "Always", "exit 0", ""),
        pod("on-failure", "OnFailure", "exit 5", ""),
        pod("on-failure-well", "OnFailure", "exit 0", ""),
        pod("with-sidecar", "Never", "exit 0", SIDECAR),
    ];
    for (number, manifest) in pods.iter().enumerate() {
        // It replaces the shell's script by a program that is not there.
        node.write(&format!("{number}.yaml"), &manifest.replace("\"true\"", "\"/none\""));
    }
    let mut agent = node.start();
    for (pod, phase, code, message) in [
        ("written", "Failed", 1, Some("written")),
        ("logged", "Failed", 42, Some("one\ntwo\n")),
        ("well", "Succeeded", 0, None),
        ("own-path", "Failed", 3, Some("mine")),
        ("killed", "Failed", 137, None),
        ("no-program", "Failed", 128, None),
        ("on-failure-well", "Succeeded", 0, None),
        ("with-sidecar", "Succeeded", 0, None),
    ] {
        let line = agent.pod(pod, phase, |line| samples::is_phase(line, phase)).await;
        let ended = terminated(&line);
        assert_eq!(ended.exit_code, code, "{line:#?}");
        let expected = match code {
            0 => "Completed",
            128 => "StartError",
            _ => "Error",
        };
        assert_eq!(ended.reason.as_deref(), Some(expected), "{line:#?}");
        assert_eq!(line.status().restarts("main"), 0, "{line:#?}");
        if code != 128 {
            assert_eq!(ended.message.as_deref().map(sorted).as_deref(), message, "{line:#?}");
        } else {
            assert!(ended.message.as_deref().is_some_and(|told| told.contains("/none")), "{line:#?}");
        }
    }
    for (pod, code) in [("always", 0), ("on-failure", 5)] {
        let again = |line: &Line| line.status().waiting("main").as_deref() == Some("CrashLoopBackOff");
        let line = agent.pod(pod, "is restarted and waits", again).await;
        let container = line.status().container("main");
        assert!(container.restart_count >= 1, "{line:#?}");
        let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref()).unwrap();
        assert_eq!(last.exit_code, code, "{line:#?}");
    }
    let (_, told) = agent.interrupt().await;
    for pod in ["written", "logged", "well", "killed", "no-program", "on-failure-well", "with-sidecar"] {
        let line = told.newest(pod).unwrap();
        assert_eq!(line.status().restarts("main"), 0, "what has ended stays so: {line:#?}");
    }
}

/// Standard output and error are two pipes: which of their lines comes first is chance.
fn sorted(lines: &str) -> String {
    let mut lines: Vec<&str> = lines.split_inclusive('\n').collect();
    lines.sort_unstable();
    lines.concat()
}

fn terminated(line: &Line) -> ContainerStateTerminated {
    line.status().state("main").terminated.unwrap_or_else(|| panic!("{line:#?}"))
}
