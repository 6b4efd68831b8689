//! Runs one pod to its end, as `docker run` runs a container. It prints the output of the containers, and exits with
//! the pod's exit code.
//!
//! ```console
//! $ cargo run --example run-pod -- examples/manifests/run-to-completion.yaml
//! $ cargo run --example run-pod -- --runtime unix:///run/containerd/containerd.sock my-pod.yaml
//! ```
//!
//! It has no agent: it calls the runtime manager until the pod is as its spec says.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_config::manifest::{self, Location};
use kubelet_core::runtime::{ContainerState, PodStatus};
use kubelet_core::{Clock, NoProbes, PodExt, Runtime, RuntimeReader, VolumeManager as _};
use kubelet_cri::process::ProcessRuntime;
use kubelet_cri::{CriAdapter, CriClient, ImageService, RuntimeService, v1};
use kubelet_kuberuntime::logs::{LogChunks, LogStream, PodLogOptions};
use kubelet_kuberuntime::pod_actions::compute_pod_actions;
use kubelet_kuberuntime::{CriRuntime, NodeSettings};
use kubelet_volume::{HostMounter, InTreePlugins, Mounter as _, NodeVolumes};
use tokio::signal::ctrl_c;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How often to sync the pod.
const PERIOD: Duration = Duration::from_millis(300);

/// Runs the pod of a manifest to its end, prints its logs, and exits with its exit code.
///
/// The exit code is that of the first container that failed, or 0. Ctrl-C deletes the pod within its grace period, a
/// second Ctrl-C deletes it at once; the exit code is 130 then. In any case nothing of the pod is left.
#[derive(Parser)]
#[command(name = "run-pod")]
struct Args {
    /// The manifest of one pod, YAML or JSON.
    manifest: PathBuf,

    /// The runtime: processes of this machine, or the CRI runtime at this endpoint
    /// (unix:///run/containerd/containerd.sock, tcp://host:port). No kubelet may use this runtime, because it would
    /// kill the pod.
    #[arg(long, value_name = "process|ENDPOINT", default_value = "process")]
    runtime: String,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = std::env::var("RUST_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(Level::ERROR));
    let log = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(std::io::stderr);
    log.finish().with(filter).init();
    let root = std::env::temp_dir().join(format!("run-pod-{}", std::process::id()));
    let code = run(&Args::parse(), &root).await;
    // A volume that is still mounted may have the files of others.
    if HostMounter::new().mounts(&root).await.is_ok_and(|mounts| mounts.is_empty()) {
        let _ = tokio::fs::remove_dir_all(root).await;
    }
    code.unwrap_or_else(|error| {
        say(format_args!("{error}"));
        ExitCode::FAILURE
    })
}

async fn run(args: &Args, root: &std::path::Path) -> Result<ExitCode> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", args.manifest.display());
    let text = tokio::fs::read(&args.manifest).await.map_err(|error| named(&error))?;
    let decoded = manifest::decode(&text, "run-pod", Location::File(&args.manifest));
    let mut pod = decoded.map_err(|error| named(&error))?.pod;
    // Each run is a new pod.
    pod.metadata.uid = Some(format!("{}-{}", std::process::id(), Clock::system().now().as_nanosecond()));
    let pod = Arc::new(pod);

    let (services, images) = services(args, root).await?;
    let volumes = NodeVolumes::builder(root).plugins(InTreePlugins::new(root).build()).build()?;
    let mounted = Arc::new(volumes.handle());
    let runtime = CriRuntime::builder(services.clone(), images).node(NodeSettings::of_this_host());
    let runtime =
        runtime.volumes(mounted.clone()).root_dir(root).pod_logs_dir(root.join("logs")).build().await?;
    let (shutdown, mut logs) = (CancellationToken::new(), Logs::default());
    logs.several = containers(&pod).count() > 1;
    let mounting = tokio::spawn(volumes.run(shutdown.clone()));
    let life = async {
        mounted.wait_for_attach_and_mount(&pod).await?;
        to_its_end(&runtime, &pod, &mut logs).await
    };
    let (ended, interrupted) = tokio::select! {
        ended = life => (ended, false),
        _ = ctrl_c() => (Ok(()), true),
    };
    if interrupted {
        say(format_args!("deleting pod {}; Ctrl-C kills it", pod.key()));
    }
    let status = delete(&runtime, &*services, &pod, &mut logs).await?;
    mounted.wait_for_unmount(&pod).await?;
    shutdown.cancel();
    mounting.await?;
    ended?;
    Ok(ExitCode::from(if interrupted { 130 } else { exit_code(&pod, &status) }))
}

async fn services(
    args: &Args,
    root: &std::path::Path,
) -> Result<(Arc<dyn RuntimeService>, Arc<dyn ImageService>)> {
    if args.runtime == "process" {
        let processes = Arc::new(ProcessRuntime::builder(root.join("processes")).open().await?);
        let adapter = Arc::new(CriAdapter::builder(processes).records_dir(root.join("cri")).build());
        return Ok((adapter.clone(), adapter));
    }
    let client = Arc::new(CriClient::connect(&args.runtime).await?);
    Ok((client.clone(), client))
}

/// Syncs the pod until it has ended.
async fn to_its_end(runtime: &CriRuntime, pod: &Arc<Pod>, logs: &mut Logs) -> Result<()> {
    let mut said = None;
    loop {
        let status = status(runtime, pod).await?;
        logs.follow(runtime, &status).await;
        let actions = compute_pod_actions(pod, &status, &NoProbes, false);
        if actions.kill_pod && !actions.create_sandbox {
            return Ok(());
        }
        let failures = runtime.sync_pod(pod, &status).await.summary();
        if failures != said {
            if let Some(failures) = &failures {
                say(format_args!("{failures}"));
            }
            said = failures;
        }
        sleep(PERIOD).await;
    }
}

/// The runtime's status of the pod.
async fn status(runtime: &CriRuntime, pod: &Pod) -> kubelet_core::Result<Arc<PodStatus>> {
    match runtime.pod(&pod.uid()).await? {
        Some(found) => runtime.pod_status(&found).await,
        None => Ok(Arc::new(PodStatus::empty(pod.uid(), pod.key(), Instant::now()))),
    }
}

/// Kills the pod, prints its last output, and removes it. Returns how it ended.
async fn delete(
    runtime: &CriRuntime,
    services: &dyn RuntimeService,
    pod: &Arc<Pod>,
    logs: &mut Logs,
) -> Result<Arc<PodStatus>> {
    let Some(found) = runtime.pod(&pod.uid()).await? else {
        return status(runtime, pod).await.map_err(Into::into);
    };
    tokio::select! {
        killed = runtime.kill_pod(Some(pod), &found, None) => killed?,
        _ = ctrl_c() => runtime.kill_pod(Some(pod), &found, Some(Duration::ZERO)).await?,
    }
    let ended = status(runtime, pod).await?;
    logs.follow(runtime, &ended).await;
    while logs.shown.join_next().await.is_some() {}
    for sandbox in &ended.sandboxes {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
        services.remove_pod_sandbox(request).await?;
    }
    Ok(ended)
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    spec.map_or(&[][..], |spec| &spec.containers[..]).iter().chain(init)
}

/// The exit code of the first container that failed. Regular containers come before init containers.
fn exit_code(pod: &Pod, status: &PodStatus) -> u8 {
    let ended = |name: &str| status.container(name).filter(|it| it.state == ContainerState::Exited);
    let sidecar = |container: &Container| container.restart_policy.as_deref() == Some("Always");
    let codes = containers(pod).filter(|container| !sidecar(container));
    let mut codes = codes.filter_map(|container| Some(ended(&container.name)?.exit_code));
    codes.find(|code| *code != 0).map_or(0, |code| u8::try_from(code).unwrap_or(1))
}

/// The logs of all containers of the pod, each instance once.
#[derive(Default)]
struct Logs {
    seen: BTreeSet<String>,
    shown: JoinSet<()>,
    /// Whether to print the container's name before each line.
    several: bool,
}

impl Logs {
    async fn follow(&mut self, runtime: &CriRuntime, status: &PodStatus) {
        for container in &status.containers {
            if container.state == ContainerState::Created || !self.seen.insert(container.id.to_string()) {
                continue;
            }
            let options = PodLogOptions { follow: true, ..PodLogOptions::default() };
            let prefix = if self.several { format!("[{}] ", container.name) } else { String::new() };
            match runtime.container_logs(&container.id, options).await {
                Ok(chunks) => drop(self.shown.spawn(show(chunks, prefix))),
                Err(error) => say(format_args!("{error}")),
            }
        }
    }
}

async fn show(mut chunks: LogChunks, prefix: String) {
    let mut new_line = true;
    while let Some(chunk) = chunks.next().await {
        let written = match chunk {
            Ok(chunk) => {
                let mut text = Vec::with_capacity(chunk.bytes.len());
                for line in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
                    if new_line {
                        text.extend_from_slice(prefix.as_bytes());
                    }
                    new_line = line.ends_with(b"\n");
                    text.extend_from_slice(line);
                }
                match chunk.stream {
                    LogStream::Stdout => std::io::stdout().lock().write_all(&text),
                    LogStream::Stderr => std::io::stderr().lock().write_all(&text),
                }
            }
            Err(error) => return say(format_args!("{error}")),
        };
        if written.is_err() {
            return;
        }
    }
}

fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "run-pod: {what}");
}
