//! Many simulated nodes in one process. Each is a whole agent of this project on a runtime in memory.
//!
//! ```console
//! $ cargo run -p hollow-nodes -- --nodes 100 --pods 5                # with an API server in memory
//! $ cargo run -p hollow-nodes -- --nodes 100 --api-server kubeconfig # with the API server of your
//! kubeconfig
//! ```
//!
//! For the API server the nodes run its pods: it sees pods start, pass probes, restart and end. But no process
//! runs. An API server in memory has no scheduler, so `--pods` creates pods for each node. A node renews its lease, as a kubelet does.
//!
//! For thousands of nodes start several processes, each with a `--name` of its own: `docs/scale.md`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube_client::Client;
use kube_client::api::{Api, Patch, PatchParams, PostParams};
use kubelet_core::{Clock, PodExt};
use kubelet_node::{HeartbeatClient, LeaseController};
use kubelet_testing::ApiServer;
use kubelet_testing::simulation::{AgentError, SimulatedNode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often a node sends its status while nothing changes (`nodeStatusReportFrequency`). Its lease says more often that it lives.
const REPORT: Duration = Duration::from_secs(300);
/// So many nodes are registered at once.
const AT_ONCE: usize = 16;

/// Runs nodes with simulated containers against an API server.
#[derive(Debug, Parser)]
#[command(name = "hollow-nodes")]
struct Args {
    /// The number of nodes.
    #[arg(long, value_name = "N", default_value_t = 10)]
    nodes: usize,

    /// The number of pods to create for each node.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pods: usize,

    /// An API server in memory, which ends with this process, or the one of the kubeconfig (KUBECONFIG,
    /// ~/.kube/config, or the service account in a cluster).
    #[arg(long, value_enum, default_value_t = Server::Memory)]
    api_server: Server,

    /// The nodes are named NAME-0, NAME-1…
    #[arg(long, value_name = "NAME", default_value = "hollow")]
    name: String,

    /// Show a live table, or print a line of JSON every second. Default: the table on a terminal.
    #[arg(long, value_enum)]
    output: Option<Output>,

    /// Exit after this time. Default: run until Ctrl-C.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Server {
    Memory,
    Kubeconfig,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

#[tokio::main]
async fn main() -> Result<(), AgentError> {
    let args = Args::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let client = match args.api_server {
        Server::Memory => ApiServer::new().client(),
        Server::Kubeconfig => Client::try_default().await?,
    };
    raise_file_limit();
    let (folder, shutdown, mut running) = (tempfile::tempdir()?, CancellationToken::new(), JoinSet::new());
    let names = (0..args.nodes).map(|number| format!("{}-{number}", args.name));
    let nodes: Vec<SimulatedNode> = names
        .map(|name| {
            let root_dir = folder.path().join(&name);
            SimulatedNode::new(name, client.clone(), Clock::system(), root_dir)
        })
        .collect();
    let registered = stream::iter(&nodes).map(|node| register(&client, &node.name, args.pods));
    registered.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    for node in &nodes {
        running.spawn(node.clone().run_kubelet(shutdown.clone()));
        running.spawn(heartbeats(client.clone(), node.name.clone(), shutdown.clone()));
    }
    let ending = async {
        match args.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => drop(tokio::signal::ctrl_c().await),
        }
    };
    tokio::select! {
        () = ending => {}
        ended = show(&nodes, args.output) => ended?,
        Some(ended) = running.join_next() => ended??,
    }
    shutdown.cancel();
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

/// Creates the Node object, unless it exists, and its pods.
async fn register(client: &Client, name: &str, pods: usize) -> Result<(), AgentError> {
    let node =
        json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "type": "hollow"}}});
    match Api::all(client.clone())
        .create(&PostParams::default(), &serde_json::from_value::<Node>(node)?)
        .await
    {
        Err(kube_client::Error::Api(refused)) if refused.reason == "AlreadyExists" => {}
        made => drop(made?),
    }
    report_ready(client, name).await?;
    for number in 0..pods {
        make_pod(client, name, number).await?;
    }
    Ok(())
}

async fn report_ready(client: &Client, name: &str) -> kube_client::Result<()> {
    let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let ready =
        json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now});
    let status = json!({"capacity": amounts, "allocatable": amounts, "conditions": [ready]});
    let patch = Patch::Strategic(json!({"status": status}));
    Api::<Node>::all(client.clone()).patch_status(name, &PatchParams::default(), &patch).await.map(drop)
}

/// Renews the node's lease and reports the node as ready until `shutdown`.
async fn heartbeats(client: Client, name: String, shutdown: CancellationToken) -> Result<(), AgentError> {
    let lease = LeaseController::new(HeartbeatClient::new(client.clone()), &name);
    let reports = async {
        // Nodes that start together report at different times: after half of the period to one and a half periods, as kubelets do.
        let mut pause = REPORT.mul_f64(0.5 + fastrand::f64());
        while shutdown.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            if let Err(error) = report_ready(&client, &name).await {
                tracing::warn!(node = name, %error, "cannot update the node's status");
            }
            pause = REPORT;
        }
    };
    tokio::join!(lease.run(shutdown.clone()), reports);
    Ok(())
}

/// Each node keeps some connections open.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

async fn make_pod(client: &Client, node: &str, number: usize) -> Result<(), AgentError> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": format!("{node}-{number}"), "namespace": "default", "labels": {"type": "hollow"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "busybox:1.36"}]},
    }))?;
    Api::namespaced(client.clone(), "default").create(&PostParams::default(), &pod).await?;
    Ok(())
}

/// Shows how many pods of the nodes are in which phase, every second. Returns only on an error. It asks the agents, because a list
/// of all pods each second would be most of the load of a large API server.
async fn show(nodes: &[SimulatedNode], output: Option<Output>) -> Result<(), AgentError> {
    let on_terminal = stdout().is_terminal();
    let output = output.unwrap_or(if on_terminal { Output::Table } else { Output::Json });
    while !nodes.iter().all(|node| node.kubelet().is_some_and(|kubelet| kubelet.sources().all_ready())) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    loop {
        let mut phases: BTreeMap<String, usize> = BTreeMap::new();
        for kubelet in nodes.iter().filter_map(SimulatedNode::kubelet) {
            for pod in kubelet.pods().pods() {
                let status = kubelet.pod_status(&pod.uid());
                let phase = status.and_then(|status| status.phase.clone());
                *phases.entry(phase.unwrap_or_else(|| "Pending".to_owned())).or_default() += 1;
            }
        }
        let (nodes, pods) = (nodes.len(), phases.values().sum::<usize>());
        let text = match output {
            Output::Json => json!({"nodes": nodes, "pods": pods, "phases": phases}).to_string(),
            Output::Table => {
                let each = phases.iter().map(|(phase, count)| format!("{phase:<12}{count:>8}\x1b[K\n"));
                let clear = if on_terminal { "\x1b[H" } else { "" };
                format!(
                    "{clear}{:<12}{nodes:>8}\n{:<12}{pods:>8}\n{}\x1b[J",
                    "NODES",
                    "PODS",
                    each.collect::<String>()
                )
            }
        };
        writeln!(stdout(), "{text}")?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
