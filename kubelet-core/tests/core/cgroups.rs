//! When a pod's cgroup is made, and when it is removed.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::rig::{Node, Pods, pod};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{Error, PodContainerManager, PodExt, PodUid, Result};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Cgroups in memory, which tell what is done with them where the runtime does.
struct Cgroups {
    pods: Mutex<BTreeSet<PodUid>>,
    is_broken: Mutex<bool>,
    done: watch::Sender<Vec<String>>,
}

impl Cgroups {
    fn of<const N: usize>(pods: [&str; N], runtime: &Pods) -> Arc<Self> {
        Arc::new(Self {
            pods: Mutex::new(pods.map(PodUid::from).into()),
            is_broken: Mutex::default(),
            done: runtime.done.clone(),
        })
    }

    fn note(&self, what: String) {
        self.done.send_modify(|done| done.push(what));
    }
}

#[async_trait]
impl PodContainerManager for Cgroups {
    async fn exists(&self, pod: &Pod) -> bool {
        self.pods.lock().contains(pod.uid_str())
    }

    async fn ensure_exists(&self, pod: &Pod) -> Result<()> {
        if *self.is_broken.lock() {
            return Err(Error::io(
                "/sys",
                Some(&pod.uid()),
                std::io::Error::other("broken"),
            ));
        }
        if self.pods.lock().insert(pod.uid()) {
            self.note(format!("made {}", pod.uid()));
        }
        Ok(())
    }

    async fn destroy(&self, uid: &PodUid) -> Result<()> {
        if *self.is_broken.lock() {
            return Err(Error::io("/sys", Some(uid), std::io::Error::other("broken")));
        }
        if self.pods.lock().remove(uid) {
            self.note(format!("destroyed {uid}"));
        }
        Ok(())
    }

    async fn reduce_cpu_limits(&self, uid: &PodUid) -> Result<()> {
        self.note(format!("reduced {uid}"));
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<PodUid>> {
        Ok(self.pods.lock().iter().cloned().collect())
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_starts_in_its_cgroup_which_goes_with_it() {
    let runtime = Pods::default();
    let cgroups = Cgroups::of([], &runtime);
    let (node, [file]) = Node::start_with(runtime, ["file"], |kubelet| {
        kubelet.pod_containers(cgroups.clone())
    });
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    node.wait_for_phase("a", "Running").await;
    file.send(vec![]).unwrap();
    node.runtime.wait_for("destroyed a").await;
    let expected = ["made a", "started a", "killed a in 7", "destroyed a"];
    assert_eq!(node.runtime.done.borrow()[..4], expected);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_its_cgroup_a_pod_does_not_start_and_does_not_go() {
    let runtime = Pods::default();
    let cgroups = Cgroups::of([], &runtime);
    *cgroups.is_broken.lock() = true;
    let (node, [file]) = Node::start_with(runtime, ["file"], |kubelet| {
        kubelet.pod_containers(cgroups.clone())
    });
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    node.events.wait_for("FailedCreatePodContainer").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!node.runtime.did("started a"));
    *cgroups.is_broken.lock() = false;
    node.wait_for_phase("a", "Running").await;

    *cgroups.is_broken.lock() = true;
    file.send(vec![]).unwrap();
    node.runtime.wait_for("killed a in 7").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!node.runtime.did("forgot a"), "something of it is left");
    *cgroups.is_broken.lock() = false;
    node.runtime.wait_for("destroyed a").await;
    node.runtime.wait_for("forgot a").await;
    node.stop().await;
}

/// What befalls a pod with this restart policy that is found to run outside of its cgroup.
async fn found_outside(restart_policy: &str) -> Vec<String> {
    let runtime = Pods::default();
    runtime.running("a");
    let cgroups = Cgroups::of([], &runtime);
    let (node, [file]) = Node::start_with(runtime, ["file"], |kubelet| {
        kubelet.pod_containers(cgroups.clone())
    });
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().restart_policy = Some(restart_policy.to_owned());
    file.send(vec![Arc::new(pod)]).unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let done = node.runtime.done.borrow().clone();
    node.stop().await;
    done
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_outside_of_its_cgroup_is_killed_to_come_back_inside() {
    let done = found_outside("Always").await;
    assert_eq!(done, ["killed a in 0", "made a", "started a"]);
    // One that runs once has run.
    let done = found_outside("Never").await;
    assert_eq!(done[0], "killed a in 0");
    assert!(!done.contains(&"made a".to_owned()), "{done:?}");
}

#[tokio::test(start_paused = true)]
async fn cgroups_of_nobodys_pods_are_removed_when_their_volumes_are() {
    let runtime = Pods::default();
    let cgroups = Cgroups::of(["a", "ghost", "haunted"], &runtime);
    let (node, [file]) = Node::start_with(runtime, ["file"], |kubelet| {
        kubelet.pod_containers(cgroups.clone())
    });
    let volume = node.root.path().join("pods/haunted/volumes/kind/name");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(volume.join("file"), "somebody's").unwrap();
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    node.runtime.wait_for("destroyed ghost").await;
    node.runtime.wait_for("reduced haunted").await;
    assert!(!node.runtime.did("destroyed haunted"));
    std::fs::remove_dir_all(volume.parent().unwrap()).unwrap();
    node.runtime.wait_for("destroyed haunted").await;
    assert!(cgroups.pods.lock().contains("a"), "it is somebody's");
    node.stop().await;
}
