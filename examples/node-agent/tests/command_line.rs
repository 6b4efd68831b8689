//! The command line. The tests of a running node are in `examples/tests/node_agent`. They run the program that cargo builds because
//! this package has a test of its own.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_node-agent");

#[test]
fn help_names_the_flags_of_a_kubelet_and_preflight() {
    let output = Command::new(PROGRAM).arg("--help").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["--kubeconfig", "--config", "--container-runtime-endpoint", "preflight"] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
}
