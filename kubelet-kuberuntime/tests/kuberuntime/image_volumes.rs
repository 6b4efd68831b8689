//! Images as volumes, and pull secrets.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubelet_core::ConfigObjects;
use serde_json::json;

use crate::rig::{Rig, pod};

#[tokio::test(start_paused = true)]
async fn an_image_is_mounted_read_only_with_its_sub_path() {
    let rig = Rig::new().await;
    let pod = pod(
        "p",
        json!({
            "volumes": [{ "name": "v", "image": { "reference": "r.io/data:1", "pullPolicy": "IfNotPresent" } }],
            "containers": [{
                "name": "main",
                "image": "i",
                "volumeMounts": [{ "name": "v", "mountPath": "/data", "subPath": "sub" }],
            }],
        }),
    );
    rig.sync_ok(&pod).await;
    let config = rig.fake.config_of("main");
    let mount = config
        .mounts
        .iter()
        .find(|mount| mount.container_path == "/data")
        .unwrap();
    let image = mount.image.clone().unwrap();
    assert_eq!(
        (image.image.as_str(), image.user_specified_image.as_str()),
        ("id of r.io/data:1", "r.io/data:1")
    );
    assert_eq!(
        (
            mount.image_sub_path.as_str(),
            mount.host_path.as_str(),
            mount.readonly
        ),
        ("sub", "", true)
    );
    let events = rig.events.take();
    assert_eq!(
        events[0],
        "Pulled : Container image \"r.io/data:1\" already present on machine and can be accessed by the pod"
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_had_holds_up_only_who_mounts_it() {
    let rig = Rig::new().await;
    let pod = pod(
        "p",
        json!({
            "volumes": [{ "name": "v", "image": { "reference": "Not Valid" } }],
            "containers": [
                { "name": "main", "image": "i", "volumeMounts": [{ "name": "v", "mountPath": "/data" }] },
                { "name": "other", "image": "i" },
            ],
        }),
    );
    let result = rig.sync(&pod).await;
    let failed: Vec<_> = result
        .results
        .iter()
        .filter_map(|result| result.failure.as_ref())
        .collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].reason, "InvalidImageName");
    assert!(
        failed[0]
            .message
            .starts_with("Failed to apply default image tag \"Not Valid\"")
    );
    let calls = rig.fake.take_calls();
    assert_eq!(
        calls,
        [
            "RunPodSandbox p",
            "CreateContainer other 0",
            "StartContainer other"
        ]
    );
    let events = rig.events.take();
    assert!(events[0].starts_with("InspectFailed : "), "{events:?}");
    assert!(
        events.contains(&"Failed spec.containers{main}: Error: InvalidImageName".to_owned()),
        "{events:?}"
    );
}

/// Has one secret, `there`.
struct OneSecret;

#[async_trait]
impl ConfigObjects for OneSecret {
    async fn config_map(&self, _: &str, _: &str) -> kubelet_core::Result<Option<Arc<ConfigMap>>> {
        Ok(None)
    }
    async fn secret(&self, namespace: &str, name: &str) -> kubelet_core::Result<Option<Arc<Secret>>> {
        assert_eq!(namespace, "ns");
        let json = br#"{"auths": {"r.io": {"username": "ann", "password": "p"}}}"#;
        let secret = Secret {
            type_: Some("kubernetes.io/dockerconfigjson".into()),
            data: Some(
                [(
                    ".dockerconfigjson".to_owned(),
                    k8s_openapi::ByteString(json.into()),
                )]
                .into(),
            ),
            ..Default::default()
        };
        Ok((name == "there").then(|| Arc::new(secret)))
    }
}

#[tokio::test(start_paused = true)]
async fn pull_secrets_reach_the_runtime_and_missing_ones_are_told() {
    let mut rig = Rig::new().await;
    rig.manager = rig
        .builder()
        .config_objects(Arc::new(OneSecret))
        .build()
        .await
        .unwrap();
    let pod = pod(
        "p",
        json!({
            "imagePullSecrets": [{ "name": "gone" }, { "name": "" }, { "name": "there" }, { "name": "lost" }],
            "containers": [{ "name": "main", "image": "r.io/app:1", "imagePullPolicy": "Always" }],
        }),
    );
    rig.sync_ok(&pod).await;
    assert_eq!(
        rig.events.take()[0],
        "FailedToRetrieveImagePullSecret : Unable to retrieve some image pull secrets (gone, lost); attempting to pull \
         the image may not succeed."
    );
    assert_eq!(rig.fake.take_logins(), ["ann"]);
}
