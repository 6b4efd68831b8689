//! `--api`: a node that `kubectl` drives. The API server is in the agent.

mod cluster;
mod node;

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use crate::agent::{self, Error};
use crate::args::Args;
use crate::private;
use cluster::Cluster;

/// Runs until Ctrl-C or SIGTERM. The pods run on, and the next agent with this root folder takes them over.
pub(crate) async fn run(args: &Args, address: SocketAddr) -> Result<ExitCode, Error> {
    if args.run_once {
        return Err("--api and --run-once do not go together".into());
    }
    let root_dir = args.root_dir();
    private::folder(&root_dir, private::Others::Nothing)?;
    let node_name = args.node_name.clone().unwrap_or_else(agent::host_name);
    let cluster = Cluster::open(&root_dir, &node_name).await?;
    let mut served = cluster.serve(address).await?;
    let kubeconfig = root_dir.join("kubeconfig");
    served.write_kubeconfig(&kubeconfig)?;
    let stopping = CancellationToken::new();
    let mut node = node::start(args, &root_dir, &node_name, &cluster, stopping.clone()).await?;
    say(&format!(
        "The node {node_name} serves kubectl on https://{}. In another terminal:\n\n    export KUBECONFIG={}\n    kubectl get \
         pods\n\nCtrl-C ends the agent. The pods run on; the next agent takes them over.\n",
        served.address(),
        kubeconfig.display()
    ));
    let ended = tokio::select! {
        () = crate::asked_to_stop() => Ok(()),
        failed = node.failed() => failed,
        failed = served.failed() => Err(failed),
    };
    stopping.cancel();
    let ending = async {
        let ended = ended.and(node.join().await);
        // It ends last: the others send it their last statuses and events.
        served.end().await?;
        ended.map(|()| ExitCode::SUCCESS)
    };
    tokio::select! {
        ended = ending => ended,
        // Requests that wait for a full disk take long.
        () = crate::asked_to_stop() => Err("ended before the last changes were in the file".into()),
    }
}

fn say(text: &str) {
    // Nobody may be reading it.
    let _ = writeln!(std::io::stdout(), "{text}");
}
