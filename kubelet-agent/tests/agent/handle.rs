//! The handle of an agent, and parts that are replaced.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kubelet_agent::{NodeAgent, Settings};
use kubelet_core::admission::{PodAdmitAttributes, PodAdmitHandler, Rejection};
use kubelet_core::{Clock, Disk, PodExt, StreamSource};
use kubelet_status::MemorySink;
use kubelet_testing::{MemoryRuntime, PodBuilder, eventually};
use tokio_util::sync::CancellationToken;

pub(crate) fn clock() -> Clock {
    Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())
}

pub(crate) fn source(
    pods: Vec<Arc<Pod>>,
) -> StreamSource<impl futures::Stream<Item = Vec<Arc<Pod>>> + Send + 'static> {
    StreamSource::new("test", stream::iter([pods]).chain(stream::pending()))
}

/// Rejects pods with this name.
struct Rejects(&'static str);

#[async_trait]
impl PodAdmitHandler for Rejects {
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
        match attributes.pod.metadata.name.as_deref() == Some(self.0) {
            true => Err(Rejection::new("Unwanted", "not on this node")),
            false => Ok(()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_handle_shows_pods_and_their_events() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = MemoryRuntime::new(clock());
    let (web, bad) = (
        PodBuilder::new("web").container("main", "nginx", |c| c).build(),
        PodBuilder::new("bad").container("main", "nginx", |c| c).build(),
    );
    let sink = Arc::new(MemorySink::new());
    let agent = NodeAgent::builder(Settings::new(folder.path()))
        .containers(Arc::new(runtime.clone()))
        .source(source(vec![web.clone(), bad.clone()]))
        .sink(sink.clone())
        .admission(Arc::new(Rejects("bad")))
        .clock(clock())
        .disk(Disk::inline())
        .build()
        .await
        .unwrap();
    let (handle, shutdown) = (agent.handle(), CancellationToken::new());
    let mut events = handle.events();
    let running = tokio::spawn(agent.run(shutdown.clone()));

    let phase = |pod: &Arc<Pod>| handle.status(&pod.uid()).and_then(|status| status.phase.clone());
    eventually!(phase(&web), |phase| phase.as_deref() == Some("Running"));
    eventually!(phase(&bad), |phase| phase.as_deref() == Some("Failed"));
    assert_eq!(handle.pods().len(), 2);
    assert!(handle.health().failed().is_empty());
    assert!(!handle.explain(&web.uid()).is_empty());
    let reported = |pod: &Arc<Pod>| sink.get(&pod.uid()).and_then(|status| status.phase.clone());
    eventually!(reported(&web), |phase| phase.as_deref() == Some("Running"));

    // What the runtime cannot do is refused.
    let refused = handle
        .exec(&web.key(), "main", &["true".to_owned()], Duration::from_secs(1))
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("exec"), "{refused}");

    let mut reasons = Vec::new();
    while let Ok(event) = events.try_recv() {
        assert!(event.pod.is_some() || event.reason != "Started");
        reasons.push(event.reason);
    }
    assert!(reasons.iter().any(|reason| reason == "Started"), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason == "Unwanted"), "{reasons:?}");

    handle.end_pods(None).await;
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_configuration_is_applied_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new(folder.path());
    let mut wanted = settings.configuration.clone();
    let agent = NodeAgent::builder(settings)
        .containers(Arc::new(MemoryRuntime::new(clock())))
        .source(source(Vec::new()))
        .disk(Disk::inline())
        .build()
        .await
        .unwrap();
    let (handle, shutdown) = (agent.handle(), CancellationToken::new());
    let mut notices = handle.reconfigured();
    let running = tokio::spawn(agent.run(shutdown.clone()));

    wanted.container_log_max_files = 9;
    wanted.max_pods = 3;
    let done = handle.reconfigure(&wanted).unwrap();
    assert_eq!(
        (done.applied, done.needs_restart),
        (vec!["containerLogMaxFiles".into()], vec!["maxPods".into()])
    );
    assert_eq!(notices.borrow_and_update().needs_restart, ["maxPods"]);
    wanted.container_log_max_files = 1;
    assert!(handle.reconfigure(&wanted).is_err());
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
