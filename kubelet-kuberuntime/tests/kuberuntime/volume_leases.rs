//! The files that a container uses by sub-paths stay from the preparation of its mounts until it has started.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::ContainerState;
use kubelet_core::{MountedVolume, PodExt as _, PodUid, Result, Runtime as _, RuntimeReader as _};
use kubelet_core::{VolumeLease, VolumeLeases, VolumeManager};
use kubelet_kuberuntime::NodeSettings;
use serde_json::{Value, json};

use crate::fake::Script;
use crate::rig::{Rig, pod};

const SECOND: Duration = Duration::from_secs(1);

/// A config map as a volume of each pod. It is replaced as `kubelet-volume` does it, but nothing is removed.
#[derive(Clone)]
struct Files {
    dir: PathBuf,
    leases: VolumeLeases,
}

#[async_trait]
impl VolumeManager for Files {
    async fn wait_for_attach_and_mount(&self, _: &Arc<Pod>) -> Result<()> {
        Ok(())
    }

    fn mounted_volumes(&self, _: &PodUid) -> BTreeMap<String, MountedVolume> {
        BTreeMap::from([("v".to_owned(), MountedVolume::new(&self.dir))])
    }

    fn lease(&self, uid: &PodUid) -> VolumeLease {
        self.leases.lease(uid)
    }

    async fn wait_for_unmount(&self, pod: &Arc<Pod>) -> Result<()> {
        self.leases.ended(&pod.uid()).await;
        Ok(())
    }
}

impl Files {
    fn new(dir: &Path) -> Self {
        let dir = dir.canonicalize().unwrap();
        let files = Self {
            dir,
            leases: VolumeLeases::default(),
        };
        files.publish("..1");
        for key in ["a", "b"] {
            symlink(format!("..data/{key}"), files.dir.join(key)).unwrap();
        }
        files
    }

    fn publish(&self, version: &str) {
        let new = self.dir.join(version);
        std::fs::create_dir(&new).unwrap();
        ["a", "b"]
            .iter()
            .for_each(|key| std::fs::write(new.join(key), version).unwrap());
        symlink(version, self.dir.join("..data_tmp")).unwrap();
        std::fs::rename(self.dir.join("..data_tmp"), self.dir.join("..data")).unwrap();
    }

    fn is_held(&self, version: &str) -> bool {
        let is_held = self
            .leases
            .locked(&self.dir, |volume| volume.is_held(&self.dir.join(version)));
        is_held.unwrap()
    }

    fn has_lease(&self, pod: &Pod) -> bool {
        self.leases.ended(&pod.uid()).now_or_never().is_none()
    }

    /// The version of both files of the container that was created last.
    fn version_of(&self, rig: &Rig, container: &str) -> String {
        let mounts = rig.fake.config_of(container).mounts;
        let of = |key: &str| {
            let at = format!("/v/{key}");
            let mount = mounts.iter().find(|mount| mount.container_path == at).unwrap();
            let path = Path::new(&mount.host_path).strip_prefix(&self.dir).unwrap();
            path.parent().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(of("a"), of("b"));
        of("a")
    }
}

async fn rig() -> (Rig, Files, tempfile::TempDir) {
    let (mut rig, dir) = (Rig::new().await, tempfile::tempdir().unwrap());
    let files = Files::new(dir.path());
    rig.manager = builder(&rig, &files).build().await.unwrap();
    (rig, files, dir)
}

fn builder(rig: &Rig, files: &Files) -> kubelet_kuberuntime::CriRuntimeBuilder {
    let mut node = NodeSettings::default();
    // So that the runtime gets the paths in the volume.
    node.mount_sub_paths = false;
    node.resolv_conf = None;
    let builder = rig.builder().node(node).volumes(Arc::new(files.clone()));
    builder
        .root_dir(rig.dir.path().join("root"))
        .pod_logs_dir(rig.dir.path().join("logs"))
}

fn container(name: &str) -> Value {
    let mount = |key: &str| json!({"name": "v", "mountPath": format!("/v/{key}"), "subPath": key});
    json!({"name": name, "image": "i", "imagePullPolicy": "IfNotPresent", "volumeMounts": [mount("a"), mount("b")]})
}

/// Syncs the pod. While its container starts, the files are replaced.
async fn replace_during_start(rig: &Rig, files: &Files, pod: &Arc<Pod>, name: &str, versions: [&str; 2]) {
    let slow = Script {
        starts_in: 3 * SECOND,
        ..Script::default()
    };
    rig.fake.script(name, slow);
    let [old, new] = versions;
    let replaced = async {
        tokio::time::sleep(SECOND).await;
        assert_eq!(files.version_of(rig, name), old, "{name}");
        files.publish(new);
        tokio::time::sleep(SECOND).await;
        assert!(files.has_lease(pod), "{name} is starting");
        assert!(files.is_held(old) && !files.is_held(new), "{name}");
    };
    let (synced, ()) = tokio::join!(rig.sync(pod), replaced);
    assert!(synced.is_ok(), "{name}: {:?}", synced.summary());
    assert!(!files.has_lease(pod) && !files.is_held(old), "{name} has started");
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_container_keeps_the_version_that_it_starts_with() {
    let (rig, files, _dir) = rig().await;
    let mut sidecar = container("sidecar");
    sidecar["restartPolicy"] = json!("Always");
    let main = || json!([{"name": "main", "image": "i"}]);
    let of_main = pod(
        "p1",
        json!({"containers": [container("main")], "restartPolicy": "OnFailure"}),
    );
    replace_during_start(&rig, &files, &of_main, "main", ["..1", "..2"]).await;
    // It restarts in place.
    let failed = Script {
        runs_for: Some(SECOND),
        exit_code: 1,
        ..Script::default()
    };
    rig.fake.script("again", failed);
    let again = pod(
        "p2",
        json!({"containers": [container("again")], "restartPolicy": "OnFailure"}),
    );
    rig.sync_ok(&again).await;
    assert_eq!(files.version_of(&rig, "again"), "..2");
    files.publish("..3");
    tokio::time::sleep(2 * SECOND).await;
    replace_during_start(&rig, &files, &again, "again", ["..3", "..4"]).await;

    let of_init = pod(
        "p3",
        json!({"initContainers": [container("init")], "containers": main()}),
    );
    replace_during_start(&rig, &files, &of_init, "init", ["..4", "..5"]).await;
    let of_sidecar = pod("p4", json!({"initContainers": [sidecar], "containers": main()}));
    replace_during_start(&rig, &files, &of_sidecar, "sidecar", ["..5", "..6"]).await;
    rig.sync_ok(&pod("p5", json!({"containers": main()}))).await;
    let debugged = pod(
        "p5",
        json!({"containers": main(), "ephemeralContainers": [container("debugger")]}),
    );
    replace_during_start(&rig, &files, &debugged, "debugger", ["..6", "..7"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_lease_ends_with_an_attempt_that_fails() {
    let (rig, files, _dir) = rig().await;
    for (number, call) in ["CreateContainer", "StartContainer"].into_iter().enumerate() {
        rig.fake.fail_next(call);
        let name = format!("p{number}");
        let pod = pod(&name, json!({"containers": [container("main")]}));
        let failed = rig.sync(&pod).await;
        assert!(
            !failed.is_ok() && !files.has_lease(&pod) && !files.is_held("..1"),
            "{call}"
        );
    }
    let mut lost = container("main");
    lost["volumeMounts"][1]["subPath"] = json!("a/below");
    let pod = pod("lost", json!({"containers": [lost]}));
    let failed = rig.sync(&pod).await;
    let summary = failed.summary().unwrap();
    assert!(
        summary.contains("failed to prepare subPath for volumeMount"),
        "{summary}"
    );
    assert!(!files.has_lease(&pod) && !files.is_held("..1"));
}

/// The runtime is still starting the container when its sync is dropped. The kill of the pod waits for it.
#[tokio::test(start_paused = true)]
async fn a_start_whose_sync_is_dropped_keeps_its_lease_until_it_is_completed() {
    let (rig, files, _dir) = rig().await;
    let slow = Script {
        starts_in: 3 * SECOND,
        ..Script::default()
    };
    rig.fake.script("main", slow);
    let pod = pod("p", json!({"containers": [container("main")]}));
    assert!(tokio::time::timeout(SECOND, rig.sync(&pod)).await.is_err());
    files.publish("..2");
    assert!(files.is_held("..1") && files.has_lease(&pod));
    // Its volumes stay until then.
    let unmount = tokio::time::timeout(SECOND, files.wait_for_unmount(&pod)).await;
    assert!(unmount.is_err());
    let running = rig.manager.pod(&pod.uid()).await.unwrap().unwrap();
    rig.manager
        .kill_pod(Some(&pod), &running, Some(SECOND))
        .await
        .unwrap();
    assert_eq!(
        rig.status(&pod).await.containers[0].exit_code,
        143,
        "it had started"
    );
    files.wait_for_unmount(&pod).await.unwrap();
    assert!(!files.is_held("..1"));
}

/// The agent dies after it has created the container, and the files that this one would get are replaced before the next
/// agent looks. Also a container that must not restart was never started, so it starts.
#[tokio::test(start_paused = true)]
async fn the_next_agent_makes_another_container_of_the_files_of_then() {
    let (mut rig, files, _dir) = rig().await;
    for policy in ["Never", "OnFailure", "Always"] {
        let pod = pod(
            policy,
            json!({"containers": [container(policy)], "restartPolicy": policy}),
        );
        rig.fake.fail_next("StartContainer");
        rig.sync(&pod).await;
        let before = files.version_of(&rig, policy);
        assert_eq!(
            rig.status(&pod).await.containers[0].state,
            ContainerState::Created
        );
        let next = format!("{before}1");
        files.publish(&next);
        std::fs::remove_dir_all(files.dir.join(&before)).unwrap();
        rig.manager = builder(&rig, &files).build().await.unwrap();
        rig.sync_ok(&pod).await;
        assert_eq!(files.version_of(&rig, policy), next);
        let status = rig.status(&pod).await;
        assert_eq!(status.running_containers().count(), 1, "{policy}");
    }
}
