//! How much memory one follower of a log needs: bytes of the heap, in the process of the server.
//!
//! `cargo bench -p benches --bench followers` needs neither root nor a runtime. It serves the log of a file, over TLS, to
//! clients in another process. It prints what the heap has more for each client: once it has the first line and waits, and
//! again after some more lines. `FOLLOWERS` sets the number of clients, 500 by default.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

#[allow(dead_code, reason = "it does more than follow")]
#[path = "../node_server/client.rs"]
mod client;

use std::alloc::System;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use futures::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::runtime::streaming::StreamError;
use kubelet_core::runtime::{ContainerLogs, PodLogOptions};
use kubelet_kuberuntime::logs::{LogReader, LogWatcher};
use kubelet_server::authorization::AlwaysAllow;
use kubelet_server::{Authentication, Authorization, NodeApi, Server, ServingCertificate, TlsSettings};
use rustls::pki_types::CertificateDer;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Lines};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const FOLLOWERS: usize = 500;
/// How many lines come after the first one.
const LINES: usize = 50;
const PATH: &str = "/containerLogs/default/web/main?follow=true&tailLines=1";
/// The name in the certificate.
const NODE: &str = "node";
/// The time after which what was needed for the lines is freed.
const SETTLING: Duration = Duration::from_secs(3);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().position(|argument| argument == "follow") {
        Some(at) => follow(&arguments[at + 1..]),
        None => serve(),
    }
}

fn live() -> i64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as i64 - stats.bytes_deallocated as i64
}

/// The log of one container.
struct Logs {
    path: PathBuf,
    watcher: LogWatcher,
}

#[async_trait]
impl ContainerLogs for Logs {
    async fn container_logs(
        &self,
        _: &Pod,
        _: &PodStatus,
        _: &str,
        options: PodLogOptions,
    ) -> Result<BoxStream<'static, Result<Vec<u8>, StreamError>>, StreamError> {
        let reader = LogReader::new(&self.path).options(options);
        let text = reader.watcher(self.watcher.clone()).read_text();
        Ok(text.map_err(StreamError::other).boxed())
    }
}

fn serve() {
    let followers = std::env::var("FOLLOWERS").map_or(FOLLOWERS, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let mut log = File::create(&path).unwrap();
    let line = format!(
        "2026-01-02T03:04:05.678901234Z stdout F {} a line\n",
        Lines::MARK as char
    );
    log.write_all(line.as_bytes()).unwrap();
    let pair = rcgen::generate_simple_self_signed([NODE.to_owned()]).unwrap();
    let certificate = dir.path().join("tls.der");
    std::fs::write(&certificate, pair.cert.der()).unwrap();
    let serving = ServingCertificate::new();
    let (chain, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
    serving
        .set_pem("bench", chain.as_bytes(), key.as_bytes())
        .unwrap();

    // As an agent has it: a thread, and others for what blocks.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let pod =
            r#"{"metadata":{"namespace":"default","name":"web"},"spec":{"containers":[{"name":"main"}]}}"#;
        let pod: Pod = serde_json::from_str(pod).unwrap();
        let authorization = Authorization::new(NODE, Arc::new(AlwaysAllow));
        let logs = Logs {
            path,
            watcher: LogWatcher::default(),
        };
        let api = NodeApi::builder(
            Arc::new(vec![Arc::new(pod)]),
            Authentication::anonymous(),
            authorization,
        )
        .logs(Arc::new(logs))
        .build();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::bind(address, api, &TlsSettings::new(Arc::new(serving))).unwrap();
        let (address, shutdown) = (server.local_addr(), CancellationToken::new());
        let server = tokio::spawn(server.run(shutdown.clone()));
        let measured =
            tokio::task::spawn_blocking(move || measure(address, &certificate, &mut log, &line, followers));
        for (when, bytes) in measured.await.unwrap() {
            println!("| {followers} followers, {when} | {bytes} bytes each |");
        }
        shutdown.cancel();
        server.await.unwrap();
    });
}

fn measure(
    address: SocketAddr,
    certificate: &Path,
    log: &mut File,
    line: &str,
    followers: usize,
) -> Vec<(&'static str, i64)> {
    // What is needed for any of them is there before.
    for warm in [2, followers] {
        let before = live();
        let mut clients = Command::new(std::env::current_exe().unwrap())
            .arg("follow")
            .args([address.to_string(), warm.to_string()])
            .arg(certificate)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(clients.stdout.take().unwrap()).lines();
        let mut each = || {
            says.next().unwrap().unwrap();
            std::thread::sleep(SETTLING);
            (live() - before) / followers as i64
        };
        let waiting = each();
        for _ in 0..LINES {
            log.write_all(line.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        let later = each();
        // They leave.
        drop(clients.stdin.take());
        clients.wait().unwrap();
        std::thread::sleep(SETTLING);
        if warm == followers {
            let left = (live() - before) / followers as i64;
            return vec![
                ("waiting", waiting),
                ("after more lines", later),
                ("when they are gone", left),
            ];
        }
    }
    Vec::new()
}

/// The clients, in a process of their own.
fn follow(arguments: &[String]) {
    let [address, count, certificate, ..] = arguments else {
        panic!("arguments are missing");
    };
    let certificate = CertificateDer::from(std::fs::read(certificate).unwrap());
    let client = Client::new(address.parse().unwrap(), NODE, certificate);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let opened = (0..count.parse().unwrap()).map(|_| async {
            let mut lines = client.open(PATH).await.unwrap();
            assert_eq!(lines.read(1).await.0, 1);
            lines
        });
        let mut open = join_all(opened).await;
        println!("open");
        for lines in &mut open {
            assert_eq!(lines.read(LINES).await.0, LINES);
        }
        println!("read");
        let mut end = String::new();
        std::io::stdin().read_line(&mut end).unwrap();
    });
}
