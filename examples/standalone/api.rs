//! `--api`: a node that `kubectl` drives. The API server is in the agent.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use kubelet_agent::{AgentHandle, ConsoleAt, NodeAgent, Settings};
use kubelet_cri::process::ProcessRuntime;
use kubelet_server::prometheus::Metrics;
use tokio_util::sync::CancellationToken;

use crate::agent::Error;
use crate::args::Args;

/// Runs until Ctrl-C or SIGTERM. The pods run on, and the next agent with this root folder takes them over.
pub(crate) async fn run(args: &Args, address: SocketAddr) -> Result<ExitCode, Error> {
    let settings = settings(args)?;
    let processes = settings.root_dir.join("processes");
    let agent = match args.runtime.as_str() {
        "process" => NodeAgent::builder(settings)
            .containers(Arc::new(ProcessRuntime::builder(processes).open().await?)),
        _ => NodeAgent::builder(settings).cri(),
    };
    let mut agent = agent.serve_kubectl(address);
    if let Some(address) = args.console {
        let metrics = Metrics::new();
        metrics::set_global_recorder(metrics.recorder())?;
        agent = agent.console(ConsoleAt::Loopback(address)).console_durations(Arc::new(metrics));
    }
    let agent = agent.build().await?;
    say(&agent.handle());

    let shutdown = CancellationToken::new();
    let mut running = tokio::spawn(agent.run(shutdown.clone()));
    tokio::select! {
        () = crate::asked_to_stop() => shutdown.cancel(),
        ended = &mut running => return Ok(ended?.map(|()| ExitCode::SUCCESS)?),
    }
    tokio::select! {
        ended = running => Ok(ended?.map(|()| ExitCode::SUCCESS)?),
        // Requests that wait for a full disk take long.
        () = crate::asked_to_stop() => Err("ended before the last changes were in the file".into()),
    }
}

fn settings(args: &Args) -> Result<Settings, Error> {
    let mut settings = Settings::new(args.root_dir());
    settings.node_name = args.node_name.clone().unwrap_or_default();
    let config = &mut settings.configuration;
    // No garbage collection: the images of the machine are not this program's alone.
    config.image_gc_high_threshold_percent = 100;
    if let Some(manifests) = &args.manifests {
        config.static_pod_path = std::path::absolute(manifests)?.to_string_lossy().into_owned();
    }
    if args.runtime != "process" {
        config.container_runtime_endpoint.clone_from(&args.runtime);
        config.pod_logs_dir = "/var/log/pods".to_owned();
    }
    if let Some(logs) = &args.pod_logs_dir {
        config.pod_logs_dir = std::path::absolute(logs)?.to_string_lossy().into_owned();
    }
    Ok(settings)
}

fn say(agent: &AgentHandle) {
    let mut out = std::io::stdout();
    // Nobody may be reading it.
    if let Some(api) = agent.api_server() {
        let _ = writeln!(
            out,
            "The node {} serves kubectl on https://{}. In another terminal:\n\n    export KUBECONFIG={}\n    kubectl get pods\n\n\
             Ctrl-C ends the agent. The pods run on; the next agent takes them over.\n",
            agent.node_name(),
            api.address(),
            api.kubeconfig().display()
        );
    }
    if let Some(address) = agent.console_address() {
        let _ = writeln!(out, "The console is on http://{address}/\n");
    }
}
