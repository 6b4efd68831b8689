//! The links that log collectors read.

use std::sync::Arc;

use kubelet_agent::{NodeAgent, Settings};
use kubelet_core::Disk;
use kubelet_testing::{MemoryCri, PodBuilder, eventually};
use tokio_util::sync::CancellationToken;

use crate::handle::{clock, source};

#[tokio::test(start_paused = true)]
async fn a_container_has_a_link_to_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, links) = (folder.path().join("pods"), folder.path().join("containers"));
    let mut settings = Settings::new(folder.path().join("agent"));
    settings.configuration.pod_logs_dir = logs.to_str().unwrap().to_owned();
    settings.container_log_links = links.clone();
    let cri = Arc::new(MemoryCri::builder(clock()).write_logs_below(&logs).build());
    let web = PodBuilder::new("web").container("main", "nginx", |c| c).build();
    let agent = NodeAgent::builder(settings)
        .services(cri.clone(), cri)
        .source(source(vec![web]))
        .clock(clock())
        .disk(Disk::inline())
        .build()
        .await
        .unwrap();
    let (handle, shutdown) = (agent.handle(), CancellationToken::new());
    let running = tokio::spawn(agent.run(shutdown.clone()));

    let linked = || {
        let mut links = std::fs::read_dir(&links).ok()?;
        Some(links.next()?.unwrap().path())
    };
    eventually!(linked(), |link| link.is_some());
    let link = linked().unwrap();
    let name = link.file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with("web_default_main-") && name.ends_with(".log"),
        "{name}"
    );
    assert!(std::fs::read_link(&link).unwrap().starts_with(&logs), "{link:?}");
    assert!(link.exists());

    handle.end_pods(None).await;
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
