//! What `validate-config` says of the files in `configurations`, beside what `node-agent` does with them.

use std::fs;
use std::path::Path;
use std::process::Output;

use futures::StreamExt;
use rustix::process::Signal;
use tokio::net::UnixDatagram;
use tokio::process::Command;

use crate::node_agent::Cluster;
use crate::program::program;
use crate::standalone::{Agent, free_port};

/// How many are tried at a time.
const AT_ONCE: usize = 6;

/// What the first line of a file says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Starts,
    /// On every machine, because of this field.
    Refused(String),
    /// On a machine without a cluster that has two CPUs or so, because of this field.
    RefusedHere(String),
}

impl Verdict {
    fn of(text: &str) -> Self {
        let first = text.lines().next().unwrap().trim_start_matches("# ");
        match first.split_once(": ") {
            Some(("Refused", field)) => Self::Refused(field.to_owned()),
            Some(("Refused on this machine", field)) => Self::RefusedHere(field.to_owned()),
            _ => {
                assert_eq!(first, "Starts.");
                Self::Starts
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_verdict_of_validate_config_is_that_of_the_start() {
    // It has the file `ca.crt`.
    let cluster = Cluster::secure_on_processes().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configurations");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.collect();
    assert!(files.len() >= 30, "{}", files.len());
    let tries = files.iter().map(|file| one(&cluster, file));
    let wrong: Vec<String> = futures::stream::iter(tries)
        .buffer_unordered(AT_ONCE)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    cluster.end().await;
}

/// What is wrong with the verdicts on a file.
async fn one(cluster: &Cluster, file: &Path) -> Option<String> {
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(file).unwrap();
    let expected = Verdict::of(&text);
    let here = cluster.dir.path().display().to_string();
    let text = text.replace("FOLDER", &here).replace("PORT", &free_port().to_string());
    let config = cluster.path(&format!("{name}.yaml"));
    fs::write(&config, text).unwrap();
    let flags = [
        format!("--root-dir={here}/root-{name}"),
        format!("--cert-dir={here}/pki-{name}"),
        "--hostname-override=node-1".to_owned(),
    ];
    let validate = async |this_node: bool| -> Output {
        let mut command = Command::new(program("validate-config"));
        command.arg(&config).args(this_node.then_some("--this-node")).arg("--").args(&flags);
        command.env_remove("RUST_LOG").output().await.unwrap()
    };
    let (anywhere, on_this_node) = (validate(false).await, validate(true).await);

    let socket = cluster.path(&format!("{name}.notify"));
    let systemd = UnixDatagram::bind(&socket).unwrap();
    let mut command = Command::new(program("node-agent"));
    command.arg("--config").arg(&config).args(&flags).env_remove("RUST_LOG").env("NOTIFY_SOCKET", &socket);
    let mut agent = Agent::spawn(&mut command);
    let mut word = [0; 64];
    let started = tokio::select! {
        _ = systemd.recv(&mut word) => None,
        (status, told) = agent.ended() => Some((status, told.log.join("\n"))),
    };
    let log = match started {
        // It runs.
        None => {
            agent.signal(Signal::TERM);
            agent.ended().await;
            None
        }
        Some((status, log)) => {
            assert!(!status.success(), "{name}: {log}");
            Some(log)
        }
    };

    let found = |output: &Output| {
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (anywhere, on_this_node) = (found(&anywhere), found(&on_this_node));
    let names = |found: &Option<String>, field: &str| found.as_ref().is_some_and(|text| text.contains(field));
    let right = match &expected {
        Verdict::Starts => [&anywhere, &on_this_node, &log].iter().all(|found| found.is_none()),
        Verdict::Refused(field) => [&anywhere, &on_this_node, &log].iter().all(|found| names(found, field)),
        Verdict::RefusedHere(field) => {
            anywhere.is_none() && names(&on_this_node, field) && names(&log, field)
        }
    };
    // Each line has a file and a field; a default has no line.
    let has_files = on_this_node.iter().flat_map(|text| text.lines()).all(|line| line.starts_with(&here));
    (!right || !has_files).then(|| {
        format!("{name}: {expected:?}\nvalidate-config: {anywhere:?}\n--this-node: {on_this_node:?}\nnode-agent: {log:?}\n")
    })
}
