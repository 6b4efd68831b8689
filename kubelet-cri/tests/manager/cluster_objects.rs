//! What pods are told of the cluster, and what they name of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Service;
use kubelet_core::Services;
use serde_json::json;

use crate::rig::{Rig, pod};

/// A cluster with the API server's own service, which is read in the course of the test.
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
    let pod = pod("p", json!({ "containers": [{ "name": "main", "image": "i", "env": own }] }));
    let result = rig.sync(&pod).await;
    let failure = result.results.iter().find_map(|result| result.failure.clone()).unwrap();
    let why = "services have not yet been read at least once, cannot construct envvars";
    assert_eq!((failure.reason.as_str(), failure.message.as_str()), ("CreateContainerConfigError", why));
    assert!(rig.events.take().contains(&format!("Failed spec.containers{{main}}: Error: {why}")));

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
