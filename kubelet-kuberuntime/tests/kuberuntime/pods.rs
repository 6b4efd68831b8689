//! Reading pods back.

use kubelet_core::runtime::{ContainerState, Readiness, SandboxState};
use kubelet_core::{PodUid, Runtime, RuntimeReader};
use serde_json::json;

use crate::rig::{Rig, pod};

#[tokio::test(start_paused = true)]
async fn what_was_started_is_listed_and_nothing_of_others() {
    let rig = Rig::new().await;
    rig.fake.add_foreign_container();
    let pod = pod(
        "p",
        json!({ "containers": [{ "name": "main", "image": "busybox" }] }),
    );
    rig.sync_ok(&pod).await;
    for all in [true, false] {
        let pods = rig.manager.pods(all).await.unwrap();
        assert_eq!(pods.len(), 1);
        let listed = &pods[0];
        assert_eq!(
            (listed.uid.as_str(), listed.key.to_string()),
            ("p", "ns/p".to_owned())
        );
        assert_eq!(listed.sandboxes[0].state, SandboxState::Ready);
        let container = &listed.containers[0];
        assert_eq!(container.id.to_string(), "fake://container-0002");
        assert_eq!(
            (container.name.as_str(), container.state),
            ("main", ContainerState::Running)
        );
        assert_eq!(container.sandbox_id, "sandbox-0001");
        assert_eq!(container.hash, rig.status(&pod).await.containers[0].hash);
    }
    assert!(rig.manager.pod(&PodUid::from("other")).await.unwrap().is_none());

    // Removed between the list and the status call.
    let listed = rig.manager.pods(true).await.unwrap();
    rig.fake.forget_containers();
    let status = rig.manager.pod_status(&listed[0]).await.unwrap();
    assert!(status.containers.is_empty() && status.sandboxes.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn conditions_in_the_kubelets_words() {
    let status = Rig::new().await.manager.status().await.unwrap();
    assert_eq!(status.runtime_ready, Readiness::Ready);
    let said = "NetworkReady=false reason:NetworkPluginNotReady message:no network";
    assert_eq!(status.network_ready, Readiness::NotReady(said.to_owned()));
}
