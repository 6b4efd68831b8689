//! Manifests for tests. All pods are on the host's network, like the samples, and have no requirements.

use super::node::IMAGE;

/// A pod with one container `main` that runs until SIGTERM and then exits with 0. Another `word` makes another pod.
pub(crate) fn server(name: &str, word: &str) -> String {
    script(name, &format!("trap 'exit 0' TERM; echo {word}; while true; do sleep 1 & wait $!; done"))
}

/// A pod with one container `main` that runs this shell script.
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
