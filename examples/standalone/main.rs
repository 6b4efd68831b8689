//! A node agent without a cluster: it runs the pods of a folder of manifests.
//!
//! ```console
//! $ cargo run --example standalone
//! $ cargo run --example standalone -- --manifests my-pods --runtime unix:///run/containerd/containerd.sock
//! ```
//!
//! On a terminal it shows a live table of pods, otherwise a line of JSON for each changed status. With the
//! process runtime, Ctrl-C ends the pods, which are children of the agent. With any other runtime the pods stay
//! running, as with a kubelet.
//!
//! With an API server in the agent, `kubectl` creates the pods, and they are there after a restart:
//!
//! ```console
//! $ cargo run --features api --example standalone -- --api 127.0.0.1:6443
//! ```

mod agent;
#[cfg(feature = "api")]
mod api;
mod args;
mod log;
mod private;
mod run_once;
mod show;
mod table;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use kubelet_core::{Clock, KubeletHandle, StatusSink};
use kubelet_status::{FanOut, JsonLines, MemorySink};
use kubelet_volume::{HostMounter, Mounter as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use agent::{Agent, Error};
use args::{Args, Output};

/// It returns free memory to the system at once, as `.cargo/config.toml` sets it.
#[cfg(feature = "api")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(code) => code,
        Err(error) => {
            // Not with `tracing`, which may not be set up yet or be hidden below the table.
            let _ = writeln!(std::io::stderr(), "standalone: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<ExitCode, Error> {
    #[cfg(feature = "api")]
    if let Some(address) = args.api {
        log::init(Output::Json);
        return api::run(&args, address).await;
    }
    let lines = log::init(args.output());
    if args.root_dir.is_none() {
        private::folder(&args.root_dir())?;
    }
    let statuses = MemorySink::new();
    let mut sinks: Vec<Arc<dyn StatusSink>> = vec![Arc::new(statuses.clone())];
    if args.output() == Output::Json {
        sinks.push(Arc::new(JsonLines::new(tokio::io::stdout(), Clock::system())));
    }
    let Agent { kubelet, logs, volumes, processes, problems } = Agent::new(&args, FanOut::new(sinks)).await?;

    let handle = kubelet.handle();
    let shutdown = CancellationToken::new();
    let rotating = tokio::spawn(logs.run(shutdown.clone()));
    // The kubelet needs its volumes until it has ended.
    let mounts = CancellationToken::new();
    let mounting = tokio::spawn(volumes.run(mounts.clone()));
    let mut agent = tokio::spawn(kubelet.run(shutdown.clone()));
    let shown = async {
        match (args.run_once, args.output()) {
            (true, _) => {
                Some(run_once::wait(&handle, &statuses, &problems, Duration::from_secs(args.timeout)).await)
            }
            (false, Output::Table) => show::live_table(&statuses, &lines).await,
            (false, Output::Json) => std::future::pending().await,
        }
    };
    let verdict = tokio::select! {
        verdict = shown => verdict,
        () = asked_to_stop() => None,
        ended = &mut agent => return Ok(ended?.map(|()| ExitCode::SUCCESS)?),
    };
    if let (Some(verdict), Output::Table) = (&verdict, args.output()) {
        show::verdict(verdict);
    }

    if let Some(processes) = processes {
        let _ = writeln!(
            std::io::stderr(),
            "stopping {} pods; press Ctrl-C again to kill them",
            handle.pods().len()
        );
        end_pods(&handle).await;
        shutdown.cancel();
        agent.await??;
        rotating.await?;
        mounts.cancel();
        mounting.await?;
        // Kill the processes that did not end in time.
        processes.shutdown(Duration::ZERO).await;
        drop(processes);
        if args.root_dir.is_none() {
            clean_up(&args.root_dir()).await;
        }
    } else {
        shutdown.cancel();
        agent.await??;
        rotating.await?;
        mounts.cancel();
        mounting.await?;
    }
    Ok(if verdict.is_some_and(|verdict| verdict.failed()) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Deletes this program's folders and files from a root folder that was a default.
async fn clean_up(root_dir: &Path) {
    // A volume that is still mounted may have the files of others.
    match HostMounter::new().mounts(root_dir).await {
        Ok(mounts) if mounts.is_empty() => {}
        _ => return,
    }
    for ours in ["cri", "logs", "pods", "processes"] {
        let _ = tokio::fs::remove_dir_all(root_dir.join(ours)).await;
    }
    for ours in ["allocated_pods_state", "actuated_pods_state"] {
        let _ = tokio::fs::remove_file(root_dir.join(ours)).await;
    }
    let _ = tokio::fs::remove_dir(root_dir).await;
}

/// Gives each pod its grace period. A second Ctrl-C ends the wait.
async fn end_pods(handle: &KubeletHandle) {
    tokio::select! {
        () = handle.end_pods(None) => {}
        () = asked_to_stop() => {}
    }
}

/// Ctrl-C or SIGTERM.
async fn asked_to_stop() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}
