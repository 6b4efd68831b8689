//! Lists that are too long for one answer of the runtime.

use std::collections::BTreeSet;
use std::time::Duration;

use kubelet_core::runtime::GcPolicy;
use kubelet_core::{PodStateProvider, PodUid, Runtime, RuntimeReader};
use serde_json::json;
use tokio::time::advance;

use crate::fake::Script;
use crate::rig::{Rig, pod};

/// No pod exists any more.
struct AllGone;

impl PodStateProvider for AllGone {
    fn should_pod_content_be_removed(&self, _: &PodUid) -> bool {
        true
    }
    fn should_pod_runtime_be_removed(&self, _: &PodUid) -> bool {
        true
    }
}

/// Four pods with two ended containers each. Only one sandbox is ready.
async fn rig() -> Rig {
    let rig = Rig::new().await;
    for container in ["x", "y"] {
        let ends = Script {
            runs_for: Some(Duration::from_secs(1)),
            ..Script::default()
        };
        rig.fake.script(container, ends);
    }
    for name in ["a", "b", "c", "d"] {
        if name == "d" {
            rig.fake.lose_sandboxes();
        }
        let containers = json!([{ "name": "x", "image": "i" }, { "name": "y", "image": "i" }]);
        rig.sync_ok(&pod(name, json!({ "containers": containers }))).await;
    }
    advance(Duration::from_secs(2)).await;
    rig.fake.take_lists();
    rig
}

async fn names(rig: &Rig) -> BTreeSet<String> {
    let pods = rig.manager.pods(true).await.unwrap();
    for pod in &pods {
        assert_eq!((pod.containers.len(), pod.sandboxes.len()), (2, 1), "{}", pod.key);
    }
    pods.iter().map(|pod| pod.key.name.to_string()).collect()
}

fn all() -> BTreeSet<String> {
    ["a", "b", "c", "d"].map(str::to_owned).into()
}

#[tokio::test(start_paused = true)]
async fn a_runtime_with_streams_sends_them_in_parts() {
    let rig = rig().await;
    rig.fake.limit_lists(3, true);
    assert_eq!(names(&rig).await, all());
    rig.fake.take_lists();
    assert_eq!(names(&rig).await, all());
    let lists = rig.fake.take_lists();
    assert!(
        lists.contains(&"StreamContainers") && lists.contains(&"StreamPodSandboxes"),
        "{lists:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_streams_containers_are_listed_by_sandbox() {
    let rig = rig().await;
    rig.fake.limit_lists(3, false);
    assert_eq!(names(&rig).await, all());
    rig.fake.take_lists();
    assert_eq!(names(&rig).await, all());
    let lists = rig.fake.take_lists();
    // Sandboxes by their two states, once for sandboxes and once for containers; containers by sandbox.
    let of = |call: &str| lists.iter().filter(|list| **list == call).count();
    assert_eq!((of("ListPodSandbox"), of("ListContainers")), (4, 4), "{lists:?}");

    // After a while the whole list is tried again.
    rig.fake.limit_lists(100, false);
    advance(Duration::from_secs(5 * 60)).await;
    assert_eq!(names(&rig).await, all());
    rig.fake.take_lists();
    assert_eq!(names(&rig).await, all());
    let mut lists = rig.fake.take_lists();
    lists.sort_unstable();
    assert_eq!(lists, ["ListContainers", "ListPodSandbox"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_too_full_for_a_list_is_cleaned_up() {
    for streams in [true, false] {
        let rig = rig().await;
        rig.fake.limit_lists(3, streams);
        rig.fake.lose_sandboxes();
        let policy = GcPolicy {
            all_sources_ready: true,
            ..GcPolicy::default()
        };
        let collected = rig.manager.garbage_collect(&policy, &AllGone).await;
        match streams {
            true => collected.unwrap(),
            // Four sandboxes of one state are too many for a runtime without streams, which is an error.
            false => {
                let error = collected.unwrap_err().to_string();
                assert!(error.contains("larger than max"), "{error}");
                continue;
            }
        }
        assert!(rig.fake.container_ids().is_empty());
        assert!(rig.fake.sandbox_ids().is_empty());
    }
}
