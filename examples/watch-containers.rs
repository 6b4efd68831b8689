//! Prints the lifecycle events of containers: those of a CRI runtime, or a process of this machine.
//!
//! ```console
//! $ cargo run --example watch-containers -- unix:///run/containerd/containerd.sock
//! $ cargo run --example watch-containers -- process sh -c 'sleep 3; exit 7'
//! ```

use std::io::{Write, stdout};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kubelet_core::runtime::{ContainerState, PodStatus};
use kubelet_core::{PodCache, PodExt, PodLifecycleEvent, PodUid, Runtime};
use kubelet_cri::process::ProcessRuntime;
use kubelet_cri::{CriAdapter, CriClient, ImageService, RuntimeService};
use kubelet_kuberuntime::CriRuntime;
use kubelet_pleg::EventedPleg;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

type Error = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = std::env::temp_dir().join(format!("watch-containers-{}", std::process::id()));
    let watched = match arguments.split_first() {
        Some((runtime, command)) if runtime == "process" && !command.is_empty() => {
            processes(command, &root).await
        }
        Some((endpoint, [])) if endpoint != "process" => {
            let client = Arc::new(CriClient::connect(endpoint).await?);
            watch(cri_runtime(client, &root).await?).await
        }
        _ => Err("give the endpoint of a CRI runtime, or `process` and a command".into()),
    };
    // The file may not exist.
    let _ = std::fs::remove_dir_all(root);
    watched
}

async fn cri_runtime<S>(services: Arc<S>, root: &Path) -> Result<Arc<CriRuntime>, Error>
where
    S: RuntimeService + ImageService + 'static,
{
    let builder = CriRuntime::builder(services.clone(), services).root_dir(root);
    Ok(Arc::new(builder.pod_logs_dir(root.join("logs")).build().await?))
}

/// Prints until Ctrl-C.
async fn watch(runtime: Arc<CriRuntime>) -> Result<(), Error> {
    let (cache, shutdown) = (PodCache::new(), CancellationToken::new());
    let pleg = EventedPleg::new(runtime, cache.clone());
    let mut events = pleg.handle().subscribe();
    let watching = tokio::spawn(pleg.run(shutdown.clone()));
    let printing = async {
        while let Some((uid, changes)) = events.next().await {
            // The current status of the pod, if the pod still exists.
            let status = cache.get(&uid).ok();
            for change in changes {
                writeln!(stdout(), "{}", line(&uid, &change, status.as_deref()))?;
            }
        }
        Ok::<_, Error>(())
    };
    tokio::select! {
        printed = printing => printed?,
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    shutdown.cancel();
    Ok(watching.await?)
}

/// `ContainerDied default/web main (exit code 7) containerd://4f2a…`
fn line(uid: &PodUid, change: &PodLifecycleEvent, status: Option<&PodStatus>) -> String {
    let pod = match status {
        Some(status) if !status.key.name.is_empty() => status.key.to_string(),
        _ => uid.to_string(),
    };
    let id = change.container.as_ref();
    let container = status.and_then(|status| status.containers.iter().find(|it| Some(&it.id) == id));
    let is_sandbox =
        status.is_some_and(|status| status.sandboxes.iter().any(|it| id.is_some_and(|id| it.id == id.id())));
    let what = match container {
        Some(it) if it.state == ContainerState::Exited => format!("{} (exit code {})", it.name, it.exit_code),
        Some(it) => it.name.to_string(),
        None if is_sandbox => "the sandbox".to_owned(),
        None => String::new(),
    };
    let id = id.map(ToString::to_string).unwrap_or_default();
    format!("{:?} {pod} {what} {id}", change.event_type)
}

/// Runs the command in a new pod, and watches it.
async fn processes(command: &[String], root: &Path) -> Result<(), Error> {
    let processes = Arc::new(ProcessRuntime::builder(root.join("processes")).open().await?);
    let adapter = Arc::new(CriAdapter::builder(processes.clone()).build());
    let runtime = cri_runtime(adapter, root).await?;

    let main = Container {
        name: "main".to_owned(),
        image: Some("none".to_owned()),
        command: Some(command.to_vec()),
        ..Container::default()
    };
    let mut pod = Pod::default();
    pod.metadata.name = Some("process".to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    pod.metadata.uid = Some("0b57".to_owned());
    pod.spec = Some(PodSpec { containers: vec![main], host_network: Some(true), ..PodSpec::default() });
    let nothing_yet = PodStatus::empty(pod.uid(), pod.key(), Instant::now());
    let pod = Arc::new(pod);

    let watched = watch(runtime.clone());
    let started = async {
        let failure = runtime.sync_pod(&pod, &nothing_yet).await.summary();
        failure.map_or(Ok(()), |failure| Err(failure.into()))
    };
    let watched = tokio::try_join!(watched, started).map(|_| ());
    processes.shutdown(Duration::ZERO).await;
    watched
}
