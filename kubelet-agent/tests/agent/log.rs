//! What an operator reads in the log at the default level: each fault once, in a sentence.

use std::io;
use std::sync::Arc;

use kubelet_agent::{NodeAgent, Settings};
use kubelet_core::Disk;
use kubelet_cri::Code;
use kubelet_testing::memory_cri::{Call, MemoryCri};
use kubelet_testing::{PodBuilder, eventually, subscribe};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use crate::handle::{clock, source};

/// The lines that were written.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn with(&self, words: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock()).into_owned();
        let lines = text.lines().filter(|line| line.contains(words));
        lines.map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_has_one_line() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_ansi(false)
        .with_writer(move || writer.clone());
    let _log = subscribe(subscriber.finish());

    let folder = tempfile::tempdir().unwrap();
    let runtime = Arc::new(MemoryCri::new(clock()));
    let starts = runtime.faults().on(Call::StartContainer).pod("bad");
    starts.fails(Code::Unknown, "exec: no such program");
    let pods = ["good", "bad"].map(|name| PodBuilder::new(name).container("main", "nginx", |c| c).build());
    let agent = NodeAgent::builder(Settings::new(folder.path()))
        .services(runtime.clone(), runtime.clone())
        .source(source(pods.to_vec()))
        .clock(clock())
        .disk(Disk::inline())
        .build()
        .await
        .unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(agent.run(shutdown.clone()));

    let failures = eventually!(log.with("no such program"), |lines| !lines.is_empty());
    assert_eq!(failures.len(), 1, "{failures:#?}");
    let line = &failures[0];
    for words in [
        "ERROR",
        "cannot sync a pod",
        "default/bad",
        "\"main\"",
        "RunContainerError",
    ] {
        assert!(line.contains(words), "{words}: {line}");
    }
    // Each further try is a line. That it waits in between is at most one.
    eventually!(log.with("no such program"), |lines| lines.len() >= 3);
    let back_offs = log.with("Back-off restarting failed container");
    assert!(back_offs.len() <= 1, "{back_offs:#?}");
    let alarms = log.with("default/bad").into_iter();
    let alarms: Vec<String> = alarms
        .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        .collect();
    assert_eq!(
        alarms.len(),
        log.with("no such program").len() + back_offs.len(),
        "{alarms:#?}"
    );
    // Nobody misses the DNS of a cluster where there is none, and the node's conditions are there once.
    let missed = log.with("MissingClusterDNS");
    assert!(missed.is_empty(), "{missed:#?}");
    for condition in [
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
    ] {
        let lines = log.with(condition);
        assert_eq!(lines.len(), 1, "{lines:#?}");
    }
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
