//! Manifests for tests. All pods are on the host's network, as those of the samples, and need nothing of the node.

use super::node::IMAGE;

/// A pod of one container `main` that runs until it is asked to stop and then ends well. Another `word`, another pod.
pub(crate) fn server(name: &str, word: &str) -> String {
    script(name, &format!("trap 'exit 0' TERM; echo {word}; while true; do sleep 1 & wait $!; done"))
}

/// A pod of one container `main` that does this in a shell.
pub(crate) fn script(name: &str, script: &str) -> String {
    pod(name, "terminationGracePeriodSeconds: 60", script)
}

/// One that may be killed after a second.
pub(crate) fn stubborn(name: &str, script: &str) -> String {
    pod(name, "terminationGracePeriodSeconds: 1", script)
}

/// One that is run once.
pub(crate) fn job(name: &str, script: &str) -> String {
    pod(name, "restartPolicy: Never", script)
}

fn pod(name: &str, field: &str, script: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  hostNetwork: true
  {field}
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [\"sh\", \"-c\", \"{script}\"]
"
    )
}
