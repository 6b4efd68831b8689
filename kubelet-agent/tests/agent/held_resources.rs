//! The pods whose CPUs, memory and devices are not free.

use std::sync::Arc;

use kubelet_agent::{NodeAgent, Settings};
use kubelet_core::{Error, PodExt, PodKey};
use kubelet_resources::{KubeletPods, NodePods};
use kubelet_testing::{MemoryCri, RuntimeStatusBuilder};
use tokio::time::Instant;

use crate::handle::{clock, source};

/// Pods that were deleted or rejected while no agent ran.
#[tokio::test]
async fn a_pod_that_only_the_runtime_knows_holds_the_resources_of_its_containers() {
    let folder = tempfile::tempdir().unwrap();
    let cri = Arc::new(MemoryCri::new(clock()));
    let agent = NodeAgent::builder(Settings::new(folder.path()))
        .services(cri.clone(), cri)
        .source(source(Vec::new()))
        .build()
        .await
        .unwrap();
    let handle = agent.handle();
    let (cache, now) = (handle.kubelet().cache(), Instant::now());
    let pods = KubeletPods::new(handle.kubelet().clone());
    let is_known = || cache.was_listed();
    assert!(!is_known() && !pods.sources_ready());

    let began = "2026-01-01T00:00:00Z".parse().unwrap();
    let runs = RuntimeStatusBuilder::new("runs", PodKey::new("default", "a"));
    let runs = runs.container("c", |container| container.running(began));
    let ended = RuntimeStatusBuilder::new("ended", PodKey::new("default", "b"));
    let ended = ended.container("c", |container| container.exited(began, began, 0));
    cache.set(&"runs".into(), Ok(Arc::new(runs.status())), now);
    cache.set(&"ended".into(), Ok(Arc::new(ended.status())), now);
    let lost = Error::runtime(
        "ContainerStatus",
        std::io::Error::other("the runtime does not answer"),
    );
    cache.set(&"unknown".into(), Err(lost), now);
    cache.update_time(now);
    assert!(is_known());

    let mut holding = pods.holding_pods();
    holding.sort_by_key(|pod| pod.uid());
    let holding: Vec<_> = holding
        .iter()
        .map(|pod| {
            let containers = pod.spec.as_ref().map(|spec| &spec.containers);
            let names =
                containers.map(|all| Vec::from_iter(all.iter().map(|container| container.name.as_str())));
            (pod.uid_str(), names)
        })
        .collect();
    // Without an answer of the runtime, each container may hold something.
    assert_eq!(holding, [("runs", Some(vec!["c"])), ("unknown", None)]);
}
