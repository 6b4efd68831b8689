//! The program, run as users run it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hollow-nodes");

#[test]
fn the_pods_of_hollow_nodes_run() {
    // It ends by itself, should the pods never run.
    let arguments = ["--nodes", "3", "--pods", "2", "--output", "json", "--seconds", "120"];
    let mut hollow = Command::new(PROGRAM).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut seen = Vec::new();
    let all_run = json!({"nodes": 3, "pods": 6, "phases": {"Running": 6}});
    for line in BufReader::new(hollow.stdout.take().unwrap()).lines() {
        let shown: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let is_over = shown == all_run;
        seen.push(shown);
        if is_over {
            hollow.kill().unwrap();
            break;
        }
    }
    hollow.wait().unwrap();
    assert_eq!(seen.last(), Some(&all_run), "{seen:#?}");
}

#[test]
fn it_ends_in_good_order() {
    let arguments = ["--nodes", "2", "--pods", "1", "--output", "table", "--seconds", "3"];
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("NODES              2\nPODS               2\n"), "{text}");
}
