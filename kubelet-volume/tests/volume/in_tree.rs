//! The manager with the plugins of the kubelet itself, on this host: volumes are set up before containers start, brought up
//! to date, and taken away.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccountTokenProjection};
use kubelet_core::{
    ConfigObjects, Disk, Event, EventRecorder, PodExt, PodUid, Result, ServiceAccountToken,
    ServiceAccountTokens, VolumeManager,
};
use kubelet_volume::{HostMounter, InTreePlugins, NodeVolumes};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::manager::fake::Agent;

/// One config map, that may be there or not; tokens with a number; and what events say.
#[derive(Default)]
struct World {
    config_map: Mutex<Option<Arc<ConfigMap>>>,
    tokens: Mutex<u32>,
    forgotten: Mutex<Vec<PodUid>>,
    events: Mutex<Vec<String>>,
}

#[async_trait]
impl ConfigObjects for World {
    async fn config_map(&self, _: &str, _: &str) -> Result<Option<Arc<ConfigMap>>> {
        Ok(self.config_map.lock().clone())
    }
    async fn secret(&self, _: &str, _: &str) -> Result<Option<Arc<Secret>>> {
        Ok(None)
    }
}

#[async_trait]
impl ServiceAccountTokens for World {
    async fn token(&self, _: &Arc<Pod>, _: &ServiceAccountTokenProjection) -> Result<ServiceAccountToken> {
        *self.tokens.lock() += 1;
        Ok(ServiceAccountToken::new(format!("token-{}", self.tokens.lock())))
    }
    fn forget(&self, uid: &PodUid) {
        self.forgotten.lock().push(uid.clone());
    }
}

impl EventRecorder for World {
    fn record(&self, event: Event<'_>) {
        self.events
            .lock()
            .push(format!("{}: {}", event.reason, event.message));
    }
}

impl World {
    /// Starts an agent. Files are on the disk.
    fn agent(self: &Arc<Self>, root: &Path) -> Agent {
        self.agent_with(root, false)
    }

    fn agent_with(self: &Arc<Self>, root: &Path, in_memory: bool) -> Agent {
        let mounter = Arc::new(HostMounter::new());
        let plugins = InTreePlugins::new(root)
            .disk(Disk::inline())
            .in_memory(in_memory)
            .mounter(mounter.clone())
            .recorder(self.clone())
            .config_objects(self.clone())
            .tokens(self.clone());
        let volumes = NodeVolumes::builder(root)
            .plugins(plugins.build())
            .disk(Disk::inline())
            .mounter(mounter)
            .recorder(self.clone())
            .config_objects(self.clone());
        Agent::of(volumes.build().unwrap())
    }

    fn set_authority(&self, text: &str) {
        let config_map = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": text}});
        *self.config_map.lock() = Some(Arc::new(serde_json::from_value(config_map).unwrap()));
    }
}

/// A pod that mounts all of these volumes, and leaves one more unused.
fn pod(volumes: Value) -> Arc<Pod> {
    let mounts: Vec<Value> = volumes
        .as_array()
        .unwrap()
        .iter()
        .map(|it| json!({"name": it["name"], "mountPath": "/x"}))
        .collect();
    let mut volumes = volumes.as_array().unwrap().clone();
    volumes.push(json!({"name": "unused", "iscsi": {"iqn": "i", "lun": 0, "targetPortal": "p"}}));
    let pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "1-2-3"},
        "spec": {"volumes": volumes, "containers": [{"name": "main", "volumeMounts": mounts}]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn token_volume() -> Value {
    json!({"name": "kube-api-access-x", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}})
}

#[tokio::test(start_paused = true)]
async fn the_default_token_volume_waits_for_its_parts_and_follows_them() {
    let (root, world) = (tempfile::tempdir().unwrap(), Arc::new(World::default()));
    let agent = world.agent(root.path());
    let pod = pod(json!([token_volume()]));
    // It comes later: the pod's sync waits for it.
    let coming = async {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        world.set_authority("old");
    };
    let (mounted, ()) = tokio::join!(agent.volumes.wait_for_attach_and_mount(&pod), coming);
    mounted.unwrap();
    let expected = "FailedMount: MountVolume.SetUp failed for volume \"kube-api-access-x\" : configmap \"kube-root-ca.crt\" not found";
    assert!(
        world.events.lock().iter().all(|event| event == expected),
        "{:?}",
        world.events.lock()
    );
    assert_eq!(world.events.lock().len(), 4, "after 0, 0.5, 1.5 and 3.5 seconds");

    let dir = agent.volumes.mounted_volumes(&pod.uid())["kube-api-access-x"]
        .path
        .clone();
    assert_eq!(
        dir,
        root.path()
            .join("pods/1-2-3/volumes/kubernetes.io~projected/kube-api-access-x")
    );
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(
        (read("ca.crt"), read("namespace")),
        ("old".to_owned(), "shop".to_owned())
    );
    let first = read("token");
    assert_eq!(
        fs::metadata(dir.join("token")).unwrap().permissions().mode() & 0o777,
        0o644
    );

    // With the next sync it is as it should be by then; what cannot be read leaves what there is.
    world.set_authority("new");
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(read("ca.crt"), "new");
    assert_ne!(read("token"), first);
    *world.config_map.lock() = None;
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(read("ca.crt"), "new");

    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    assert!(!dir.exists() && agent.volumes.mounted_volumes(&pod.uid()).is_empty());
    assert_eq!(world.forgotten.lock()[0], pod.uid());
}

/// The versions of files in a volume, and what is in the current one.
fn versions(dir: &Path) -> (Vec<String>, String) {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let versions = names
        .filter(|name| name.starts_with("..") && name != "..data")
        .collect();
    (versions, fs::read_to_string(dir.join("ca.crt")).unwrap())
}

#[tokio::test(start_paused = true)]
async fn superseded_files_stay_while_a_container_starts_with_them_and_no_longer() {
    let (root, world) = (tempfile::tempdir().unwrap(), Arc::new(World::default()));
    let agent = world.agent(root.path());
    let pod = pod(json!([token_volume()]));
    world.set_authority("one");
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    let dir = agent.volumes.mounted_volumes(&pod.uid())["kube-api-access-x"]
        .path
        .clone();
    let start = || {
        let lease = agent.volumes.lease(&pod.uid());
        let found = lease.locked(&dir, |volume| {
            let place = volume.path().join("ca.crt").canonicalize().unwrap();
            lease.hold(&place);
            place
        });
        (lease, found.unwrap())
    };
    let (first, of_first) = start();
    // The new files are visible at once. Of the versions in between, nobody has any.
    for text in ["two", "three", "four"] {
        world.set_authority(text);
        agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
        let (versions, current) = versions(&dir);
        assert_eq!((versions.len(), current.as_str()), (2, text));
        assert_eq!(fs::read_to_string(&of_first).unwrap(), "one");
    }
    let (second, of_second) = start();
    world.set_authority("five");
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(versions(&dir).0.len(), 3);
    // The engine removes each with the end of its lease, without another change.
    drop(first);
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    assert!(!of_first.exists());
    assert_eq!(fs::read_to_string(&of_second).unwrap(), "four");
    drop(second);
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    assert_eq!(versions(&dir).0.len(), 1);

    // An agent that dies leaves some. The next one removes them.
    let (lease, of_lease) = start();
    world.set_authority("six");
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    agent.stop().await;
    std::mem::forget(lease);
    assert!(of_lease.exists());
    let agent = world.agent(root.path());
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    let (left, current) = versions(&dir);
    assert!(
        left.len() == 1 && current == "six" && !of_lease.exists(),
        "{left:?}"
    );

    // It is not unmounted before the start has ended.
    let lease = agent.volumes.lease(&pod.uid());
    let second = std::time::Duration::from_secs(1);
    for _ in 0..2 {
        let unmounted = tokio::time::timeout(second, agent.volumes.wait_for_unmount(&pod)).await;
        assert!(unmounted.is_err() && dir.exists());
        let unmounted = tokio::time::timeout(second, agent.volumes.unmount_orphaned(&pod.uid())).await;
        assert!(unmounted.is_err() && dir.exists());
    }
    drop(lease);
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    assert!(!dir.exists());
}

#[tokio::test(start_paused = true)]
async fn what_never_comes_or_is_not_offered_is_said_in_the_kubelets_words() {
    let (root, world) = (tempfile::tempdir().unwrap(), Arc::new(World::default()));
    let agent = world.agent(root.path());
    let iscsi = json!({"name": "b", "iscsi": {"iqn": "i", "lun": 0, "targetPortal": "p"}});
    let unknown = json!({"name": "m", "emptyDir": {"medium": "Floppy"}});
    let wrong = json!({"name": "w", "hostPath": {"path": "/dev/null", "type": "Directory"}});
    for (wanted, words) in [
        (
            json!([token_volume(), iscsi]),
            "unmounted volumes=[b kube-api-access-x], unattached volumes=[], failed to process volumes=[b]: failed to get \
             Plugin from volumeSpec for volume \"b\" err=no volume plugin matched",
        ),
        (json!([unknown]), "unmounted volumes=[m]"),
        (
            json!([token_volume()]),
            "unmounted volumes=[kube-api-access-x], unattached volumes=[], failed to process volumes=[]: context deadline exceeded",
        ),
        (json!([wrong]), "unmounted volumes=[w]"),
    ] {
        let error = agent
            .volumes
            .wait_for_attach_and_mount(&pod(wanted))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let said = "hostPath type check failed: /dev/null is not a directory";
    assert!(world.events.lock().last().unwrap().contains(said));
}

#[tokio::test]
async fn an_empty_dir_outlasts_the_agent_and_goes_with_its_pod() {
    let root = tempfile::tempdir().unwrap();
    let world = Arc::new(World::default());
    let pod =
        pod(json!([{"name": "scratch", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/tmp"}}]));
    let agent = world.agent(root.path());
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    let mounted = agent.volumes.mounted_volumes(&pod.uid());
    assert_eq!(mounted["host"].path, Path::new("/tmp"));
    let scratch = &mounted["scratch"].path;
    assert_eq!(fs::metadata(scratch).unwrap().permissions().mode() & 0o777, 0o777);
    fs::write(scratch.join("kept"), "mine").unwrap();

    // The next agent finds it, and leaves what is in it.
    agent.stop().await;
    let agent = world.agent(root.path());
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(fs::read_to_string(scratch.join("kept")).unwrap(), "mine");
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    assert!(!scratch.exists() && Path::new("/tmp").exists());
    assert!(world.events.lock().is_empty());
}

/// Whether what is in a folder is in memory.
#[cfg(target_os = "linux")]
fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == dir.to_str() && line.contains(" - tmpfs "))
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn projected_files_are_in_memory_where_that_may_be_mounted() {
    let (root, world) = (tempfile::tempdir().unwrap(), Arc::new(World::default()));
    world.set_authority("ca");
    let agent = world.agent_with(root.path(), true);
    let pod = pod(json!([token_volume()]));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    let dir = agent.volumes.mounted_volumes(&pod.uid())["kube-api-access-x"]
        .path
        .clone();
    let in_memory = is_mounted(&dir);
    println!("in memory: {in_memory}");
    let token = || fs::read_to_string(dir.join("token")).unwrap();
    assert_eq!(token(), "token-1");
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o777);

    // An agent that comes later finds what is there, mounts nothing upon it, and takes it away in the end.
    agent.stop().await;
    let agent = world.agent_with(root.path(), true);
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!((token().as_str(), is_mounted(&dir)), ("token-2", in_memory));
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    assert!(!dir.exists() && !is_mounted(&dir));

    // What is on the disk stays there: containers see it.
    agent.stop().await;
    let agent = world.agent(root.path());
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    agent.stop().await;
    let agent = world.agent_with(root.path(), true);
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!((token().as_str(), is_mounted(&dir)), ("token-4", false));
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_empty_dir_in_memory_is_bounded_and_goes_with_its_pod() {
    let (root, world) = (tempfile::tempdir().unwrap(), Arc::new(World::default()));
    let pod = pod(json!([{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]));
    let agent = world.agent_with(root.path(), true);
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    let dir = agent.volumes.mounted_volumes(&pod.uid())["m"].path.clone();
    assert_eq!(
        dir,
        root.path().join("pods/1-2-3/volumes/kubernetes.io~empty-dir/m")
    );
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o777);
    fs::write(dir.join("kept"), "mine").unwrap();
    let in_memory = is_mounted(&dir);
    println!("in memory: {in_memory}");
    if in_memory {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut mounts = mounts.lines();
        let mount = mounts.find(|line| line.split(' ').nth(4) == dir.to_str());
        assert!(mount.unwrap().contains("size=1024k"), "{mount:?}");
        assert!(fs::write(dir.join("more"), vec![0; 2 << 20]).is_err());
    }

    // The next agent finds it, mounts nothing upon it, and takes it away in the end.
    agent.stop().await;
    let agent = world.agent_with(root.path(), true);
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(fs::read_to_string(dir.join("kept")).unwrap(), "mine");
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    assert!(!dir.exists() && !is_mounted(&dir));
    assert!(world.events.lock().is_empty());
}
