//! Admission while plugins answer slowly or fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{Disk, PodExt};
use kubelet_resources::topology::{HintSource, ResourceHints, TopologyHint, TopologyPolicy, TopologyScope};
use kubelet_resources::{
    BoxError, NumaSet, PluginAllocator, ResourceManager, ResourceManagerHandle, ResourcesConfig, Share,
};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::manager::{MemoryStore, Pods, Runtime, admit, none};
use crate::pods::{config, container, machine, pod, simple_pod};

/// A plugin whose devices are all on one node. It notes its calls, and answers when it is let.
#[derive(Default)]
struct Slow {
    node: Option<usize>,
    calls: Mutex<Vec<String>>,
    called: Notify,
    answer: Option<Notify>,
    error: Option<&'static str>,
}

impl Slow {
    fn hints(&self) -> ResourceHints {
        let hint = |node| TopologyHint::new(NumaSet::of([node]).unwrap(), true);
        let hints = self.node.map(|node| vec![hint(node)]);
        [("example.com/gpu".to_owned(), hints)].into()
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl HintSource for Slow {
    fn container_hints(&self, _: &Arc<Pod>, _: &Container) -> ResourceHints {
        self.hints()
    }

    fn pod_hints(&self, _: &Arc<Pod>) -> ResourceHints {
        self.hints()
    }
}

#[async_trait]
impl PluginAllocator for Slow {
    async fn allocate(&self, share: &Share) -> Result<(), BoxError> {
        let name = share.container().map(|container| container.name.clone());
        let nodes = share
            .hint
            .nodes
            .map(|nodes| nodes.iter().collect::<Vec<_>>())
            .unwrap_or_default();
        let call = format!("{}/{} {nodes:?}", share.pod.uid_str(), name.unwrap_or_default());
        self.calls.lock().unwrap().push(call);
        self.called.notify_one();
        if let Some(answer) = &self.answer {
            answer.notified().await;
        }
        match self.error {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn remove_stale(&self, _: &Arc<Pod>, _: &[Arc<Pod>]) {}
}

async fn start(config: &ResourcesConfig, plugins: &Arc<Slow>) -> ResourceManager {
    let runtime = Arc::new(Runtime::default());
    ResourceManager::builder(Arc::new(MemoryStore::default()), runtime)
        .disk(Disk::inline())
        .plugins(Arc::clone(plugins) as _)
        .start(&machine(2, 4, 1, 1), config)
        .await
        .unwrap()
}

fn with_cpus(handle: &ResourceManagerHandle) -> Vec<String> {
    handle.cpu_state().containers.into_keys().collect()
}

#[tokio::test(start_paused = true)]
async fn pods_are_admitted_one_after_the_other_and_nothing_is_locked_meanwhile() {
    let plugins = Arc::new(Slow {
        answer: Some(Notify::new()),
        ..Slow::default()
    });
    let answer = || plugins.answer.as_ref().unwrap().notify_one();
    let manager = start(&none(), &plugins).await;
    let handle = manager.handle();
    let two = json!({"cpu": "1", "memory": "1Gi"});
    let first = pod("first", &[], &[container("c", &two), container("d", &two)]);
    let second = simple_pod("second", "1", "1Gi");

    let shutdown = CancellationToken::new();
    let running = tokio::spawn(manager.run(Pods::ready(&[]), shutdown.clone()));
    let spawn = |pod: &Arc<Pod>| {
        let (handle, pod) = (handle.clone(), Arc::clone(pod));
        tokio::spawn(async move { admit(&handle, &pod).await })
    };
    let (first, second) = (spawn(&first), spawn(&second));
    plugins.called.notified().await;
    answer();
    plugins.called.notified().await;
    assert_eq!(plugins.calls(), ["first-uid/c []", "first-uid/d []"]);
    // The plugin is slow. The state can be read, and the loop frees nothing of the pod.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(with_cpus(&handle), ["first-uid"]);
    assert_eq!(plugins.calls(), [""; 0]);
    answer();
    plugins.called.notified().await;
    assert!(first.await.unwrap().is_ok());
    assert_eq!(plugins.calls(), ["second-uid/c []"]);
    answer();
    assert!(second.await.unwrap().is_ok());
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn the_plugin_and_the_cpus_get_the_same_hint() {
    for scope in [TopologyScope::Container, TopologyScope::Pod] {
        let plugins = Arc::new(Slow {
            node: Some(1),
            ..Slow::default()
        });
        let manager = start(&config(TopologyPolicy::SingleNumaNode, scope), &plugins).await;
        let a = simple_pod("a", "2", "1Gi");
        admit(&manager.handle(), &a).await.unwrap();
        assert_eq!(plugins.calls(), ["a-uid/c [1]"]);
        assert_eq!(manager.handle().placement("a-uid", "c").cpus, "4-5");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_rejected_pod_had_is_freed() {
    let plugins = Arc::new(Slow {
        error: Some("no such device"),
        ..Slow::default()
    });
    let manager = start(&none(), &plugins).await;
    let handle = manager.handle();
    let rejection = admit(&handle, &simple_pod("a", "2", "1Gi")).await.unwrap_err();
    assert_eq!(rejection.reason, "UnexpectedAdmissionError");
    assert_eq!(
        rejection.message,
        "Allocate failed due to no such device, which is unexpected"
    );
    // The plugin is asked before the CPUs are allocated.
    assert!(with_cpus(&handle).is_empty());
}
