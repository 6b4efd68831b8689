//! Volumes of files that the agent writes.

use std::fs;
use std::time::Duration;

use kubelet_core::{ConfigObjectKind, PodExt};
use kubelet_volume::Error;
use serde_json::json;

use super::fixture::{Fixture, mode, of_pod, pod, read};

#[tokio::test]
async fn a_config_map_is_on_the_disk_and_a_secret_in_memory() {
    let fixture = Fixture::new();
    fixture.world.set_config_map(json!({"data": {"a": "1"}}));
    fixture.world.set_secret([("s".to_owned(), b"2".to_vec())]);
    let (config_map, done) = fixture.set_up(json!({"configMap": {"name": "c"}})).await;
    done.unwrap();
    assert_eq!(read(&config_map, "a"), "1");
    assert!(fixture.mounter.calls.lock().is_empty() && fixture.mark("wrapped_v").is_file());

    let (secret, done) = fixture
        .set_up(json!({"secret": {"secretName": "s", "defaultMode": 256}}))
        .await;
    done.unwrap();
    assert_eq!(
        (read(&secret, "s"), mode(&secret.dir.join("..data/s"))),
        ("2".to_owned(), 0o400)
    );
    let calls = std::mem::take(&mut *fixture.mounter.calls.lock());
    assert_eq!(calls, ["mount tmpfs size=1073741824,noswap tmpfs"]);

    // It is mounted once.
    let plugin = fixture.of(&secret.spec);
    plugin.set_up(&secret).await.unwrap();
    assert!(fixture.mounter.calls.lock().is_empty());
    let objects = plugin.config_objects(&secret);
    assert_eq!((objects.len(), objects[0].kind), (1, ConfigObjectKind::Secret));
    assert_eq!((&*objects[0].namespace, &*objects[0].name), ("shop", "s"));

    let usage = plugin
        .usage(&super::fixture::on_disk(&secret), &secret.spec)
        .await;
    assert!(usage.unwrap().unwrap().capacity_bytes.is_some());
    fixture.tear_down(&secret).await;
    fixture.tear_down(&config_map).await;
    assert!(fixture.mounter.mounted.lock().is_empty());
    assert!(!fixture.mark("wrapped_v").exists());
}

#[tokio::test]
async fn without_the_permission_to_mount_files_are_on_the_disk_and_stay_there() {
    let mut fixture = Fixture::new();
    fixture.world.set_secret([("s".to_owned(), b"1".to_vec())]);
    *fixture.mounter.refuses.lock() = Some(|| Error::NotPermitted {
        message: "mount failed: operation not permitted".to_owned(),
    });
    let (secret, done) = fixture.set_up(json!({"secret": {"secretName": "s"}})).await;
    done.unwrap();
    assert_eq!(read(&secret, "s"), "1");

    // The next agent may mount. It must not hide the files from containers.
    *fixture.mounter.refuses.lock() = None;
    fixture.restart();
    fixture.world.set_secret([("s".to_owned(), b"2".to_vec())]);
    fixture.of(&secret.spec).set_up(&secret).await.unwrap();
    assert_eq!(read(&secret, "s"), "2");
    assert!(fixture.mounter.mounted.lock().is_empty());
    fixture.tear_down(&secret).await;
}

#[tokio::test]
async fn what_fails_leaves_nothing_or_what_was_there() {
    let fixture = Fixture::new();
    let volume = json!({"configMap": {"name": "c"}});
    let (mount, done) = fixture.set_up(volume.clone()).await;
    assert_eq!(done.unwrap_err().to_string(), "configmap \"c\" not found");
    assert!(!mount.dir.exists());

    // Nothing is left of the first version if it cannot be written.
    fixture.world.set_config_map(json!({"data": {"..": "1"}}));
    let (mount, done) = fixture.set_up(volume.clone()).await;
    assert_eq!(
        done.unwrap_err().to_string(),
        "invalid path: must not contain '..': .."
    );
    assert!(!mount.dir.exists() && !fixture.mark("wrapped_v").exists());

    // Containers keep the version they have.
    fixture.world.set_config_map(json!({"data": {"a": "1"}}));
    let plugin = fixture.of(&mount.spec);
    plugin.set_up(&mount).await.unwrap();
    fixture
        .world
        .set_config_map(json!({"data": {"a": "2", "../b": "2"}}));
    plugin.set_up(&mount).await.unwrap_err();
    assert_eq!(read(&mount, "a"), "1");
    *fixture.world.config_map.lock() = None;
    plugin.set_up(&mount).await.unwrap_err();
    assert_eq!(read(&mount, "a"), "1");

    // The mount fails.
    *fixture.mounter.refuses.lock() = Some(|| Error::failed("mount failed: busy"));
    fixture.world.set_secret([]);
    let (_, done) = fixture.set_up(json!({"secret": {"secretName": "s"}})).await;
    assert_eq!(done.unwrap_err().to_string(), "mount failed: busy");
}

#[tokio::test(start_paused = true)]
async fn a_projected_volume_joins_its_sources() {
    let fixture = Fixture::new();
    fixture
        .world
        .set_config_map(json!({"data": {"a": "of config map", "b": "1"}}));
    fixture
        .world
        .set_secret([("a".to_owned(), b"of secret".to_vec())]);
    let sources = json!([
        {"configMap": {"name": "c"}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [{"path": "./labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"serviceAccountToken": {"path": "other", "expirationSeconds": 900}},
        {"clusterTrustBundle": {"name": "web", "path": "ca/name"}},
        {"clusterTrustBundle": {"name": "missing", "optional": true, "path": "ca/none"}},
        {"clusterTrustBundle": {"signerName": "x/y", "labelSelector": {"matchLabels": {"k": "v"}}, "path": "ca/signer"}},
        {"podCertificate": {"signerName": "x/y", "keyType": "ED25519", "credentialBundlePath": "bundle", "keyPath": "key",
            "certificateChainPath": "chain"}},
    ]);
    let spec = of_pod(json!({"projected": {"sources": sources, "defaultMode": 292}}));
    let mount = fixture.mount(&pod(json!({})), spec);
    let plugin = fixture.of(&mount.spec);
    let begun = tokio::time::Instant::now();
    let done = plugin.set_up(&mount).await.unwrap();
    assert_eq!(done.again_at, Some(begun + Duration::from_secs(600)));
    for (name, text) in [
        // The last source counts.
        ("a", "of secret"),
        ("b", "1"),
        ("labels", "a=\"1\""),
        ("token", "token for 600"),
        ("other", "token for 900"),
        ("ca/name", "anchors of web"),
        ("ca/none", ""),
        ("ca/signer", "anchors of x/y Some({\"k\": \"v\"})"),
        ("bundle", "key of v/8;chain"),
        ("key", "key of v/8;"),
        ("chain", "chain"),
    ] {
        assert_eq!(read(&mount, name), text, "{name}");
        assert_eq!(mode(&mount.dir.join("..data").join(name)), 0o444, "{name}");
    }
    assert_eq!(plugin.config_objects(&mount).len(), 2);
    assert!(plugin.depends_on_pod(&mount.spec));

    // A token that should have been renewed is asked for at once.
    tokio::time::advance(Duration::from_secs(700)).await;
    let done = plugin.set_up(&mount).await.unwrap();
    assert_eq!(done.again_at, Some(tokio::time::Instant::now()));
    fixture.tear_down(&mount).await;
    assert_eq!(fixture.world.forgotten.lock()[0], mount.pod.uid());
}

#[tokio::test]
async fn what_is_the_pods_own_is_readable_for_its_user_and_group_alone() {
    if !super::fixture::may_mount() {
        return;
    }
    let fixture = Fixture::new();
    let sources = json!([
        {"serviceAccountToken": {"path": "token"}},
        {"clusterTrustBundle": {"name": "web", "path": "ca"}},
        {"podCertificate": {"signerName": "x/y", "keyType": "ED25519", "keyPath": "key"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]);
    let volume = json!({"projected": {"sources": sources, "defaultMode": 420}});
    for (context, own, others) in [
        (json!({}), 0o644, 0o644),
        (json!({"runAsUser": 1001}), 0o600, 0o644),
        (json!({"fsGroup": 2000}), 0o640, 0o644),
    ] {
        let mount = fixture.mount(&pod(context.clone()), of_pod(volume.clone()));
        fixture.of(&mount.spec).set_up(&mount).await.unwrap();
        for (name, expected) in [("token", own), ("ca", own), ("key", own), ("name", others)] {
            let found = mode(&mount.dir.join("..data").join(name));
            assert_eq!(found, expected, "{name} {context}");
        }
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(mount.dir.join("token")).unwrap());
        assert_eq!(i64::from(owner), context["runAsUser"].as_i64().unwrap_or(0));
        fixture.tear_down(&mount).await;
    }
}

#[tokio::test]
async fn all_errors_of_a_projected_volume_are_reported() {
    let fixture = Fixture::new();
    let sources = json!([
        {"configMap": {"name": "c"}},
        {"configMap": {"name": "c"}},
        {"secret": {"name": "s"}},
        {"clusterTrustBundle": {"path": "ca"}},
        {"clusterTrustBundle": {"name": "missing", "path": "ca"}},
        {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "spec.nodeName"}},
            {"path": "y", "resourceFieldRef": {"containerName": "none", "resource": "limits.cpu"}}]}},
    ]);
    let (mount, done) = fixture.set_up(json!({"projected": {"sources": sources}})).await;
    assert_eq!(
        done.unwrap_err().to_string(),
        "[configmap \"c\" not found, secret \"s\" not found, ClusterTrustBundle projection requires either name or \
         signerName to be set, clustertrustbundle \"missing\" not found, [unsupported fieldPath: spec.nodeName, \
         container none not found]]"
    );
    assert!(!mount.dir.exists());
}
