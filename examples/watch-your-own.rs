//! The kubelet's PLEG on your own runtime: it needs a list of pods and the status of one pod. This runtime keeps pods
//! in memory; there is no CRI, no cluster and no daemon.
//!
//! `cargo run --example watch-your-own`

use std::io::{Write, stdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubelet_core::runtime::{Container, ContainerState, ContainerStatus, PodStatus, RuntimePod};
use kubelet_core::{ContainerId, PodCache, PodKey, PodUid, Result, RuntimeReader};
use kubelet_pleg::GenericPleg;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

#[derive(Default)]
struct Mine(Mutex<Vec<Arc<RuntimePod>>>);

#[async_trait::async_trait]
impl RuntimeReader for Mine {
    async fn pods(&self, _all: bool) -> Result<Vec<Arc<RuntimePod>>> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        let status = |it: &Container| ContainerStatus::new(it.id.clone(), &*it.name, it.state);
        let mut read = PodStatus::empty(pod.uid.clone(), pod.key.clone(), Instant::now());
        read.containers = pod.containers.iter().map(status).collect();
        Ok(Arc::new(read))
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (mine, cache, shutdown) = (Arc::new(Mine::default()), PodCache::new(), CancellationToken::new());
    let pleg = GenericPleg::new(mine.clone(), cache.clone());
    let mut events = pleg.handle().subscribe();
    let watching = tokio::spawn(pleg.run(shutdown.clone()));

    // A container starts, ends and is removed.
    let lives = tokio::spawn(async move {
        for state in [Some(ContainerState::Running), Some(ContainerState::Exited), None] {
            let mut pod = RuntimePod::empty(PodUid::from("0b57"), PodKey::new("default", "web"));
            let container = |state| Container::new(ContainerId::new("mine", "1"), "nginx", state);
            pod.containers.extend(state.map(container));
            *mine.0.lock().unwrap_or_else(PoisonError::into_inner) =
                if state.is_some() { vec![Arc::new(pod)] } else { Vec::new() };
            sleep(Duration::from_secs(2)).await;
        }
        shutdown.cancel();
    });
    while let Some((uid, changes)) = events.next().await {
        let now = cache.get(&uid)?;
        for change in changes {
            let id = change.container.as_ref().map(ToString::to_string).unwrap_or_default();
            let left = now.containers.len();
            writeln!(stdout(), "pod {uid}: {:?} {id}, containers there: {left}", change.event_type)?;
        }
    }
    watching.await?;
    Ok(lives.await?)
}
