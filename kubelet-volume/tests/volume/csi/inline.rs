//! Volumes that live and die with their pod, and what drivers get of the pod.

use std::time::Duration;

use kubelet_testing::csi_driver::CsiMethod;
use kubelet_volume::{AttachableVolumePlugin, DeviceMountableVolumePlugin, VolumePlugin};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::node::{Node, csi_driver, inline, on_disk, persistent, plain};
use super::persistent::published;

fn ephemeral() -> Value {
    json!({"volumeLifecycleModes": ["Persistent", "Ephemeral"], "podInfoOnMount": true})
}

#[tokio::test]
async fn an_inline_volume_is_published_with_a_handle_of_its_own() {
    let node = Node::with(ephemeral());
    let spec = inline(json!({"volumeAttributes": {"size": "1"}, "fsType": "ext4", "readOnly": true}));
    assert!(!node.plugin.can_attach(&spec).await.unwrap());
    assert!(!node.plugin.can_device_mount(&spec).await.unwrap());
    let mount = node.mount("a", spec);
    node.plugin.set_up(&mount).await.unwrap();
    let request = published(&node);
    assert!(request.volume_id.starts_with("csi-") && request.volume_id.len() == 68);
    assert_eq!(request.staging_target_path, "");
    assert!(request.readonly);
    assert_eq!(
        json!(request.volume_context),
        json!({
            "size": "1",
            "csi.storage.k8s.io/pod.name": "a",
            "csi.storage.k8s.io/pod.namespace": "default",
            "csi.storage.k8s.io/pod.uid": "uid-of-a",
            "csi.storage.k8s.io/serviceAccount.name": "robot",
            "csi.storage.k8s.io/ephemeral": "true",
        })
    );
    let found = node.plugin.reconstruct(&on_disk(&mount)).await.unwrap();
    assert_eq!(
        found.pod_volume().unwrap().csi.as_ref().unwrap().driver,
        node.driver.name()
    );
    assert_eq!(found.name(), "scratch");
    node.tear_down(&mount).await.unwrap();
    node.assert_clean();
}

#[tokio::test]
async fn a_driver_must_allow_inline_volumes() {
    let node = Node::new();
    let mount = node.mount("a", inline(json!({})));
    let error = node.plugin.set_up(&mount).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode \"Ephemeral\" not supported by driver disk.example.com (only supports [\"Persistent\"])"
    );
    node.objects.set_driver(csi_driver(
        json!({"volumeLifecycleModes": ["Ephemeral"], "attachRequired": false}),
    ));
    let persistent = node.mount("a", plain("pv-1"));
    let error = node.plugin.set_up(&persistent).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("volume mode \"Persistent\" not supported"),
        "{error}"
    );
    assert!(node.calls_of(CsiMethod::NodePublishVolume).is_empty());
    assert!(!mount.dir.exists());
}

#[tokio::test]
async fn the_secret_of_an_inline_volume_is_in_the_namespace_of_the_pod() {
    let node = Node::with(ephemeral());
    let mount = node.mount("a", inline(json!({"nodePublishSecretRef": {"name": "key"}})));
    let error = node.plugin.set_up(&mount).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("fetching NodePublishSecretRef default/key failed: "),
        "{error}"
    );
}

#[tokio::test]
async fn tokens_are_attributes_or_secrets_and_are_renewed() {
    for in_secrets in [false, true] {
        let node = Node::with(json!({
            "attachRequired": false,
            "requiresRepublish": true,
            "tokenRequests": [{"audience": "vault", "expirationSeconds": 150}, {"audience": ""}],
            "serviceAccountTokenInSecrets": in_secrets,
        }));
        let spec = plain("pv-1");
        node.stage(&spec).await.unwrap();
        let mount = node.mount("a", spec);
        let set_up = node.plugin.set_up(&mount).await.unwrap();
        let request = published(&node);
        let (with, without) = match in_secrets {
            true => (request.secrets, request.volume_context),
            false => (request.volume_context, request.secrets),
        };
        let tokens: Value = serde_json::from_str(&with["csi.storage.k8s.io/serviceAccount.tokens"]).unwrap();
        assert_eq!(
            tokens,
            json!({
                "": {"token": "a for the API server", "expirationTimestamp": "2026-01-01T00:10:00Z"},
                "vault": {"token": "a for vault", "expirationTimestamp": "2026-01-01T00:02:30Z"},
            })
        );
        assert!(without.is_empty());
        // The token for the vault is renewed 30 s after the clock began.
        let again = set_up.again_at.unwrap();
        assert!(again <= Instant::now() + Duration::from_secs(30));
        assert!(node.plugin.depends_on_pod(&mount.spec));
    }
}

#[tokio::test]
async fn without_republishing_a_volume_is_published_once() {
    let node = Node::with(json!({"attachRequired": false, "tokenRequests": [{"audience": "vault"}]}));
    let spec = persistent("pv-1", json!({}), json!({}));
    node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec);
    let set_up = node.plugin.set_up(&mount).await.unwrap();
    assert_eq!(set_up.again_at, None);
    assert!(!node.plugin.depends_on_pod(&mount.spec));
}

#[tokio::test]
async fn republishing_keeps_the_mount_even_if_it_fails() {
    use kubelet_testing::csi_driver::{CsiFault, CsiTrouble, VOLUME_FILE};

    let node = Node::with(json!({"attachRequired": false, "requiresRepublish": true}));
    let spec = plain("pv-1");
    node.stage(&spec).await.unwrap();
    let mount = node.mount("a", spec);
    let again = node.plugin.set_up(&mount).await.unwrap().again_at.unwrap();
    let now = Instant::now();
    assert!(again > now + Duration::from_secs(50) && again <= now + Duration::from_secs(90));
    let trouble = CsiTrouble::Fails(tonic::Code::Internal, "no".into());
    node.driver
        .fault(CsiFault::on(CsiMethod::NodePublishVolume).times(1).then(trouble));
    let error = node.plugin.set_up(&mount).await.unwrap_err();
    assert_eq!(error.to_string(), "rpc error: code = Internal desc = no");
    assert!(node.plugin.path(&mount).join(VOLUME_FILE).exists());
    assert!(mount.dir.join("vol_data.json").exists());
    node.plugin.set_up(&mount).await.unwrap();
    node.tear_down(&mount).await.unwrap();
}
