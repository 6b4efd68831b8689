//! Objects of the cluster that pods use: services, config maps, secrets, RuntimeClasses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Service;
use kubelet_core::{RuntimeReader, Services};
use kubelet_kuberuntime::ImagePullSettings;
use serde_json::json;

use crate::rig::{Rig, pod};

/// A cluster with the API server's own service, which is listed during the test.
#[derive(Default)]
struct Cluster {
    is_read: AtomicBool,
}

impl Services for Cluster {
    fn has_synced(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        let service = json!({"metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 443}]}});
        let service = serde_json::from_value(service).unwrap();
        (self.has_synced() && (namespace, name) == ("default", "kubernetes")).then(|| Arc::new(service))
    }

    fn in_namespace(&self, _: &str) -> Vec<Arc<Service>> {
        Vec::new()
    }
}

#[tokio::test(start_paused = true)]
async fn containers_wait_for_services_and_find_them_in_their_environment() {
    let (mut rig, cluster) = (Rig::new().await, Arc::new(Cluster::default()));
    rig.manager = rig.builder().services(cluster.clone()).build().await.unwrap();
    let own = json!([{ "name": "OWN", "value": "$(KUBERNETES_SERVICE_HOST)" }]);
    let pod = pod(
        "p",
        json!({ "containers": [{ "name": "main", "image": "i", "env": own }] }),
    );
    let result = rig.sync(&pod).await;
    let failure = result
        .results
        .iter()
        .find_map(|result| result.failure.clone())
        .unwrap();
    let why = "services have not yet been read at least once, cannot construct envvars";
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        ("CreateContainerConfigError", why)
    );
    assert!(
        rig.events
            .take()
            .contains(&format!("Failed spec.containers{{main}}: Error: {why}"))
    );

    cluster.is_read.store(true, Ordering::Relaxed);
    rig.sync_ok(&pod).await;
    let config = rig.fake.config_of("main");
    let value = |name: &str| {
        let variable = config.envs.iter().find(|variable| variable.key == name);
        String::from_utf8(variable.unwrap().value.clone()).unwrap()
    };
    assert_eq!(value("KUBERNETES_SERVICE_HOST"), "10.0.0.1");
    assert_eq!(value("OWN"), "10.0.0.1");
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_under_the_handler_of_its_class_or_not_at_all() {
    let mut rig = Rig::new().await;
    let classes = || Arc::new(BTreeMap::from([("sandboxed".to_owned(), "kata".to_owned())]));
    rig.manager = rig.builder().runtime_classes(classes()).build().await.unwrap();
    let cases = [
        ("none", json!(null), Ok("")),
        ("empty", json!(""), Ok("")),
        ("sandboxed", json!("sandboxed"), Ok("kata")),
        (
            "phantom",
            json!("phantom"),
            Err("runtimeclass.node.k8s.io \"phantom\" not found"),
        ),
    ];
    for (name, class, expected) in cases {
        let container = json!({ "name": name, "image": "i", "imagePullPolicy": "Always" });
        let pod = pod(
            name,
            json!({ "runtimeClassName": class, "containers": [container] }),
        );
        let result = rig.sync(&pod).await;
        match expected {
            Ok(handler) => {
                assert!(result.is_ok(), "{name}: {:?}", result.summary());
                let status = rig.status(&pod).await;
                assert_eq!(status.sandboxes[0].runtime_handler, handler, "{name}");
                assert_eq!(
                    rig.fake.take_pulled_for(),
                    [""],
                    "{name}: images are for all handlers"
                );
            }
            Err(why) => {
                let failure = result
                    .results
                    .iter()
                    .find_map(|result| result.failure.clone())
                    .unwrap();
                assert_eq!(failure.reason, "CreatePodSandboxError");
                let message = format!("Failed to create sandbox for pod \"{name}_ns({name})\": {why}");
                assert_eq!(failure.message, message);
                let event = format!("FailedCreatePodSandBox : Failed to create pod sandbox: {why}");
                assert!(rig.events.take().contains(&event));
                assert!(
                    rig.manager
                        .pods(true)
                        .await
                        .unwrap()
                        .iter()
                        .all(|pod| *pod.key.name != *name)
                );
            }
        }
    }

    // A missing RuntimeClass does not prevent the restart of a container in a running pod.
    let spec = json!({ "runtimeClassName": "sandboxed", "containers": [{ "name": "main", "image": "i" }] });
    let pod = pod("outlives", spec);
    rig.sync_ok(&pod).await;
    rig.manager = rig.builder().build().await.unwrap();
    rig.fake.signal("main", 9);
    rig.sync_ok(&pod).await;
    assert_eq!(rig.status(&pod).await.running_containers().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn with_its_feature_gate_images_are_for_a_handler() {
    let mut rig = Rig::new().await;
    let mut pulls = ImagePullSettings::default();
    pulls.runtime_class_in_image_cri_api = true;
    let classes = BTreeMap::from([("sandboxed".to_owned(), "kata".to_owned())]);
    let manager = rig
        .builder()
        .runtime_classes(Arc::new(classes))
        .image_pulls(pulls);
    rig.manager = manager.build().await.unwrap();
    let spec = json!({ "runtimeClassName": "sandboxed", "containers": [{ "name": "main", "image": "i",
        "imagePullPolicy": "Always" }] });
    rig.sync_ok(&pod("p", spec)).await;
    assert_eq!(rig.fake.take_pulled_for(), ["kata"]);
}
