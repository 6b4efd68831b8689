//! Measures how long pods take from their creation to `Running`, and how much memory each needs.
//!
//! ```console
//! $ cargo run --release --example cold-start                # modules
//! # cargo run --release --example cold-start -- containerd  # the same program in a container; needs root
//! ```

#![allow(clippy::print_stdout, reason = "a program")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kubelet_agent::{NodeAgent, Settings};
use kubelet_core::{PodExt as _, StreamSource};
use kubelet_testing::Containerd;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wasm_node::WasmRuntime;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The pods that there are to be.
type Source = StreamSource<BoxStream<'static, Vec<Arc<Pod>>>>;

const PODS: usize = 30;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut settings = Settings::new(folder.path().join("agent"));
    settings.configuration.image_gc_high_threshold_percent = 100;
    if std::env::args().nth(1).as_deref() != Some("containerd") {
        let modules = concat!(env!("CARGO_MANIFEST_DIR"), "/modules");
        let wasm = Arc::new(WasmRuntime::builder(folder.path().join("wasm")).modules(modules).open()?);
        let agent = NodeAgent::builder(settings).containers(wasm.clone());
        let (greeting, path) = (folder.path().join("greeting"), "/greeting");
        std::fs::create_dir(&greeting)?;
        std::fs::write(greeting.join("greeting"), "hello")?;
        let container = json!({"name": "main", "image": "file/hello.wat", "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{"name": "greeting", "mountPath": path}]});
        let volumes = json!([{"name": "greeting", "hostPath": {"path": greeting}}]);
        measure(async |source: Source| Ok(agent.source(source).build().await?), container, volumes, None)
            .await?;
        wasm.shutdown().await;
        return Ok(());
    }
    let Some(containerd) = Containerd::start().await? else { return Ok(()) };
    settings.configuration.container_runtime_endpoint = containerd.endpoint();
    settings.configuration.cgroups_per_qos = false;
    let script = "n=0; while :; do n=$((n+1)); echo $n hello; sleep 1; done";
    let container = json!({"name": "main", "image": Containerd::BUSYBOX, "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script]});
    let agent = NodeAgent::builder(settings).cri();
    let build = async |source: Source| Ok(agent.source(source).build().await?);
    measure(build, container, json!([]), Some(containerd.folder())).await
}

/// Creates pods one after the other, and prints the figures.
async fn measure(
    build: impl AsyncFnOnce(Source) -> Result<NodeAgent>,
    container: Value,
    volumes: Value,
    containerd: Option<&Path>,
) -> Result<()> {
    let (create, created) = mpsc::channel::<Vec<Arc<Pod>>>(1);
    let created = stream::unfold(created, |mut created| async { Some((created.recv().await?, created)) });
    let agent = build(StreamSource::new("mine", created.boxed())).await?;
    let (handle, shutdown) = (agent.handle(), CancellationToken::new());
    let running = tokio::spawn(agent.run(shutdown.clone()));
    create.send(Vec::new()).await?;

    let (mut pods, mut times, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..PODS {
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(json!({
            "metadata": {"name": format!("pod-{number}"), "namespace": "default", "uid": format!("uid-{number}")},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], "volumes": volumes},
        }))?);
        pods.push(pod.clone());
        let begin = Instant::now();
        create.send(pods.clone()).await?;
        let is_running = || handle.status(&pod.uid())?.phase.as_deref().map(|phase| phase == "Running");
        while is_running() != Some(true) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        times.push(begin.elapsed());
        memory.push(resident(containerd)?);
    }
    let (first, warm) = (times[0], &mut times[1..]);
    warm.sort();
    println!("first pod: {first:.1?} from create to Running, {} KiB in all", memory[0]);
    println!("later pods: {:.1?} in the middle, {:.1?} at most", warm[warm.len() / 2], warm[warm.len() - 1]);
    println!("memory: {} KiB for each later pod", (memory[PODS - 1] - memory[0]) / (PODS as u64 - 1));
    handle.end_pods(None).await;
    shutdown.cancel();
    Ok(running.await??)
}

/// The resident memory in KiB of this process, and of the shims of a containerd with their containers.
fn resident(containerd: Option<&Path>) -> Result<u64> {
    let mut counted = BTreeSet::from([std::process::id()]);
    if let Some(folder) = containerd {
        // A parent may have a higher number than its child: look until there are no more.
        loop {
            let before = counted.len();
            for entry in std::fs::read_dir("/proc")? {
                let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                let shim = file(process, "cmdline").contains("shim")
                    && file(process, "cmdline").contains(&folder.display().to_string());
                let parent = field(&file(process, "status"), "PPid:");
                let is_ours = |parent| parent != std::process::id() && counted.contains(&parent);
                if shim || parent.and_then(|parent| u32::try_from(parent).ok()).is_some_and(is_ours) {
                    counted.insert(process);
                }
            }
            if counted.len() == before {
                break;
            }
        }
    }
    // Pages that several processes share count once: `Pss`.
    Ok(counted.iter().filter_map(|process| field(&file(*process, "smaps_rollup"), "Pss:")).sum())
}

fn file(process: u32, name: &str) -> String {
    std::fs::read(format!("/proc/{process}/{name}"))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
