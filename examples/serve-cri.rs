//! Serves your own runtime as a CRI socket, for `crictl` and for any kubelet. This one runs containers as processes
//! of this machine; yours starts a microVM, a Wasm module or a batch job.
//!
//! ```console
//! $ cargo run --example serve-cri -- --root /tmp/serve-cri
//! ```
//!
//! In another terminal, with [`crictl`](https://github.com/kubernetes-sigs/cri-tools):
//!
//! ```console
//! $ export CONTAINER_RUNTIME_ENDPOINT=unix:///tmp/serve-cri/cri.sock
//! $ crictl info
//! $ cat > pod.json <<< '{"metadata": {"name": "web", "namespace": "default", "uid": "1"}, "log_directory": "/tmp/serve-cri/logs"}'
//! $ cat > main.json <<< '{"metadata": {"name": "main"}, "image": {"image": "any"}, "log_path": "main.log",
//!     "command": ["sh", "-c", "while true; do date; sleep 1; done"]}'
//! $ crictl run --no-pull main.json pod.json
//! $ crictl ps
//! $ crictl logs $(crictl ps -q)
//! $ crictl exec --sync $(crictl ps -q) ls /proc/self
//! $ crictl stats
//! $ crictl rmp --all --force
//! ```
//!
//! With `--features streaming` also `crictl exec -it`, `crictl attach` and `crictl port-forward` work.
//!
//! Or with a kubelet, here without an API server, as root, in the root of this repository. On a host with swap add `failSwapOn: false`, on a host
//! with cgroup v1 `failCgroupV1: false`:
//!
//! ```console
//! $ cat > kubelet.yaml <<EOF
//! apiVersion: kubelet.config.k8s.io/v1beta1
//! kind: KubeletConfiguration
//! containerRuntimeEndpoint: unix:///tmp/serve-cri/cri.sock
//! staticPodPath: $PWD/examples/manifests
//! authentication: {webhook: {enabled: false}, anonymous: {enabled: true}}
//! authorization: {mode: AlwaysAllow}
//! EOF
//! $ sudo kubelet --config kubelet.yaml
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use kubelet_cri::process::ProcessRuntime;
use kubelet_cri::{CriAdapter, CriServer, CriSocket};
#[cfg(feature = "streaming")]
use kubelet_server::streaming::{StreamServer, StreamServerOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Serves the process runtime as a CRI socket.
///
/// Everyone who can connect to the socket can run commands as you. Ctrl-C and SIGTERM end it.
#[derive(Debug, Parser)]
#[command(name = "serve-cri")]
struct Args {
    /// The folder for containers and pods, where the next serve-cri finds them [default: serve-cri in the temporary
    /// folder].
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// The socket [default: cri.sock in the root folder].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Keep the containers running at the end, as containerd does. The next serve-cri takes them over.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::var("RUST_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(Level::INFO));
    let log = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(std::io::stderr);
    log.finish().with(filter).init();
    let args = Args::parse();
    let root = args.root.unwrap_or_else(|| std::env::temp_dir().join("serve-cri"));
    let shutdown = CancellationToken::new();
    tokio::spawn(cancel_on_signal(shutdown.clone())?);

    // Any `ContainerRuntime` works here.
    let processes = Arc::new(ProcessRuntime::builder(root.join("processes")).open().await?);
    // A kubelet needs sandboxes and images. The adapter adds both, and keeps records of them.
    let services = CriAdapter::builder(processes.clone()).records_dir(root.join("records"));
    // Clients of exec, attach and port-forward get a URL of this server.
    #[cfg(feature = "streaming")]
    let streams = StreamServer::bind(StreamServerOptions::default()).await?;
    #[cfg(feature = "streaming")]
    let services = services.streaming(Arc::new(streams.handle()));
    let services = Arc::new(services.build());
    let socket = CriSocket::bind(args.socket.unwrap_or_else(|| root.join("cri.sock")), 0o600).await?;
    let serving = CriServer::new(services.clone(), services).serve(socket, shutdown.clone());
    #[cfg(feature = "streaming")]
    let serving = async { tokio::join!(serving, streams.run(shutdown)).0 };
    serving.await?;

    if !args.keep {
        processes.shutdown(Duration::from_secs(10)).await;
    }
    Ok(())
}

fn cancel_on_signal(shutdown: CancellationToken) -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        shutdown.cancel();
    })
}
