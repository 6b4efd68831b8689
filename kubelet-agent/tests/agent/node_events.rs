//! Events about the node.

use std::sync::Arc;

use kubelet_agent::{AgentEvent, NodeAgent, Settings};
use kubelet_core::{Disk, Event, EventRecorder, EventType, NodeEventRecorder};
use kubelet_cri::Code;
use kubelet_testing::eventually;
use kubelet_testing::memory_cri::{Call, MemoryCri};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::handle::{clock, source};

/// Keeps the events about the node.
#[derive(Default)]
struct NodeEvents(Mutex<Vec<(EventType, String, String)>>);

impl NodeEvents {
    fn of(&self, reason: &str) -> Vec<String> {
        let events = self.0.lock();
        let of_reason = events.iter().filter(|(_, found, _)| found == reason);
        of_reason.map(|(_, _, message)| message.clone()).collect()
    }
}

impl EventRecorder for NodeEvents {
    fn record(&self, _: Event<'_>) {}
}

impl NodeEventRecorder for NodeEvents {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        self.0.lock().push((event_type, reason.to_owned(), message));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_set_up_has_an_event() {
    let (folder, events) = (tempfile::tempdir().unwrap(), Arc::new(NodeEvents::default()));
    let runtime = Arc::new(MemoryCri::new(clock()));
    let versions = runtime.faults().on(Call::Version);
    versions.fails(Code::Internal, "the runtime is broken");
    let built = NodeAgent::builder(Settings::new(folder.path()))
        .services(runtime.clone(), runtime)
        .source(source(Vec::new()))
        .events(events.clone())
        .build()
        .await;
    let error = built.unwrap_err().to_string();
    assert!(error.contains("the runtime is broken"), "{error}");
    assert_eq!(events.of("KubeletSetupFailed"), [error]);
}

#[tokio::test(start_paused = true)]
async fn garbage_that_cannot_be_collected_and_search_domains_without_room_have_events() {
    let folder = tempfile::tempdir().unwrap();
    let domains: Vec<String> = (0..40).map(|number| format!("d{number}.example")).collect();
    let resolv_conf = folder.path().join("resolv.conf");
    std::fs::write(&resolv_conf, format!("search {}\n", domains.join(" "))).unwrap();
    let mut settings = Settings::new(folder.path().join("agent"));
    settings.configuration.resolv_conf = resolv_conf.to_str().unwrap().to_owned();
    settings.configuration.cluster_domain = "cluster.local".to_owned();

    let (runtime, events) = (Arc::new(MemoryCri::new(clock())), Arc::new(NodeEvents::default()));
    let agent = NodeAgent::builder(settings)
        .services(runtime.clone(), runtime.clone())
        .source(source(Vec::new()))
        .events(events.clone())
        .clock(clock())
        .disk(Disk::inline())
        .build()
        .await
        .unwrap();
    let mut watched = agent.handle().events();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(agent.run(shutdown.clone()));

    eventually!(events.of("CheckLimitsForResolvConf"), |events| !events.is_empty());
    let expected = format!(
        "Resolv.conf file '{}' contains search line consisting of more than 29 domains!",
        resolv_conf.display()
    );
    assert_eq!(events.of("CheckLimitsForResolvConf"), [expected]);
    let AgentEvent { pod, event_type, .. } = watched.recv().await.unwrap();
    assert_eq!((pod, event_type), (None, EventType::Warning));

    let lists = runtime.faults().on(Call::ListPodSandbox);
    lists.fails(Code::Internal, "the disk is broken");
    eventually!(events.of("ContainerGCFailed"), |events| !events.is_empty());
    let failures = events.of("ContainerGCFailed");
    assert!(failures[0].contains("the disk is broken"), "{failures:?}");

    shutdown.cancel();
    running.await.unwrap().unwrap();
}
