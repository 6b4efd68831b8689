//! Merges the pods of a folder and of a URL into one stream and prints its operations.
//!
//! `cargo run --example merge-sources -- --manifests examples/manifests --url http://127.0.0.1:8000/pods.yaml`
//!
//! Serve manifests with `python3 -m http.server`. Then add, edit and remove manifests. Press Ctrl-C to exit.

use std::io::{Write, stderr, stdout};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use kubelet_config::{FileSource, HttpSource, PodConfig};
use kubelet_core::PodExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Merges the pods of a folder and of a URL, and prints the operations.
#[derive(Parser)]
struct Args {
    /// A folder of manifests, or one manifest.
    #[arg(long, value_name = "PATH")]
    manifests: Option<PathBuf>,
    /// The URL of a pod or a list of pods.
    #[arg(long)]
    url: Option<String>,
    /// The name of the node. It is the suffix of the pods' names.
    #[arg(long, default_value = "node-1")]
    node_name: String,
    /// Seconds between two reads of the URL.
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    period: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::var("RUST_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(Level::WARN));
    tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(stderr).finish().with(filter).init();
    let args = Args::parse();
    let mut config = PodConfig::builder();
    if let Some(path) = args.manifests {
        config = config.source(FileSource::new(path, &args.node_name));
    }
    if let Some(url) = args.url {
        let period = Duration::try_from_secs_f64(args.period)?;
        config = config.source(HttpSource::new(url, &args.node_name)?.check_frequency(period));
    }
    let config = config.build()?;
    let (handle, shutdown) = (config.handle(), CancellationToken::new());
    let (tx, mut updates) = mpsc::channel(50);
    let merging = tokio::spawn(config.run(tx, shutdown.clone()));
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        shutdown.cancel();
    });
    while let Some(update) = updates.recv().await {
        let op = format!("{:?}", update.op).to_uppercase();
        let pods: Vec<_> = update.pods.iter().map(|pod| pod.key().to_string()).collect();
        let (source, pods) = (update.source, pods.join(" "));
        let total = handle.merged_state().len();
        writeln!(stdout(), "{op:<9} {source:<4} [{pods}] {total} in all")?;
    }
    Ok(merging.await??)
}
