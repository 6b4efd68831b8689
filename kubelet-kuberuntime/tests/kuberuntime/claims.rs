//! Claims are prepared before the sandbox, and containers get their CDI devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{DynamicResources, DynamicResourcesError, PodUid};
use serde_json::json;

use crate::rig::{Rig, pod};

/// One device for each container; preparing fails while `broken`.
#[derive(Default)]
struct Claims {
    broken: AtomicBool,
    prepared: AtomicBool,
}

#[async_trait]
impl DynamicResources for Claims {
    async fn prepare(&self, _: &Pod) -> Result<(), DynamicResourcesError> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(DynamicResourcesError(
                "prepare dynamic resources: no driver".into(),
            ));
        }
        self.prepared.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn unprepare(&self, _: &Pod) -> Result<(), DynamicResourcesError> {
        Ok(())
    }

    fn might_need_unprepare(&self, _: &PodUid) -> bool {
        false
    }

    fn cdi_devices(&self, _: &Pod, container: &Container) -> Result<Vec<String>, DynamicResourcesError> {
        match self.prepared.load(Ordering::Relaxed) {
            true => Ok(vec![format!("gpu={}", container.name)]),
            false => Err(DynamicResourcesError("not prepared".into())),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_claims_are_not_prepared_gets_no_sandbox() {
    let mut rig = Rig::new().await;
    let claims = Arc::new(Claims::default());
    claims.broken.store(true, Ordering::Relaxed);
    rig.manager = rig
        .builder()
        .dynamic_resources(claims.clone())
        .build()
        .await
        .unwrap();
    let pod = pod("p", json!({ "containers": [{ "name": "main", "image": "i" }] }));
    rig.sync(&pod).await;
    assert!(rig.fake.sandbox_ids().is_empty());
    let events = rig.events.take();
    let expected = "FailedPrepareDynamicResources : Failed to prepare dynamic resources: prepare dynamic resources: no driver";
    assert!(events.contains(&expected.to_owned()), "{events:?}");

    claims.broken.store(false, Ordering::Relaxed);
    rig.sync_ok(&pod).await;
    let devices = rig.fake.config_of("main").cdi_devices;
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["gpu=main"]);
}
