//! Resizes of whole pods: the calls to the runtime, and the limits of the cgroups.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::cgroups::CgroupLimits;
use kubelet_core::runtime::SyncAction;
use kubelet_core::{PodContainerManager, PodUid, Result, Runtime};
use parking_lot::Mutex;
use serde_json::json;

use crate::rig::{Rig, pod};

/// The cgroup of the pod.
#[derive(Default)]
struct Cgroup {
    limits: Mutex<CgroupLimits>,
    usage: Mutex<u64>,
    /// Whether the kernel refuses all memory limits.
    refuses_memory: Mutex<bool>,
}

#[async_trait]
impl PodContainerManager for Cgroup {
    async fn exists(&self, _: &Pod) -> bool {
        true
    }

    async fn ensure_exists(&self, _: &Pod) -> Result<()> {
        Ok(())
    }

    async fn destroy(&self, _: &PodUid) -> Result<()> {
        Ok(())
    }

    async fn reduce_cpu_limits(&self, _: &PodUid) -> Result<()> {
        Ok(())
    }

    async fn limits(&self, _: &Pod) -> io::Result<Option<CgroupLimits>> {
        Ok(Some(self.limits.lock().clone()))
    }

    async fn set_limits(&self, _: &Pod, limits: CgroupLimits) -> io::Result<()> {
        let mut present = self.limits.lock();
        if let Some(memory) = limits.memory {
            if *self.refuses_memory.lock() {
                return Err(io::Error::other(format!(
                    "memory.limit_in_bytes={memory}: refused"
                )));
            }
            present.memory = Some(memory);
        }
        present.cpu_shares = limits.cpu_shares.or(present.cpu_shares);
        present.cpu_quota = limits.cpu_quota.or(present.cpu_quota);
        present.cpu_period = limits.cpu_period.or(present.cpu_period);
        Ok(())
    }

    async fn memory_usage(&self, _: &Pod) -> Option<u64> {
        Some(*self.usage.lock())
    }

    async fn pods(&self) -> Result<Vec<PodUid>> {
        Ok(Vec::new())
    }
}

/// A manager with the cgroup of its pod.
struct Resized {
    rig: Rig,
    cgroup: Arc<Cgroup>,
}

impl Resized {
    /// With a running pod.
    async fn running(pod: &Arc<Pod>, cpu_shares: i64, cpu_quota: i64, memory: i64) -> Self {
        let mut rig = Rig::new().await;
        rig.fake.is_told_of_sandboxes();
        let cgroup = Arc::new(Cgroup::default());
        {
            let mut limits = cgroup.limits.lock();
            (limits.cpu_shares, limits.cpu_quota) = (Some(cpu_shares), Some(cpu_quota));
            (limits.cpu_period, limits.memory) = (Some(100_000), Some(memory));
        }
        *cgroup.usage.lock() = 500;
        let manager = rig.builder().build().await.unwrap();
        rig.manager = manager.with_pod_cgroups(cgroup.clone());
        rig.sync_ok(pod).await;
        rig.fake.take_calls();
        Self { rig, cgroup }
    }

    /// The calls of a sync.
    async fn sync_ok(&self, pod: &Arc<Pod>) -> Vec<String> {
        self.rig.sync_ok(pod).await;
        self.rig.fake.take_calls()
    }

    /// The calls of a sync whose resize fails, and the error.
    async fn sync_fails(&self, pod: &Arc<Pod>) -> (Vec<String>, String) {
        let result = self.rig.sync(pod).await;
        let resize = result
            .results
            .iter()
            .find(|result| result.action == SyncAction::ResizePodInPlace);
        let failure = resize.unwrap().failure.clone().expect("it fails");
        assert_eq!(failure.reason, "ResizePodInPlaceError");
        let status = self.rig.status(pod).await;
        assert!(self.rig.manager.is_pod_resize_in_progress(pod, &status));
        (self.rig.fake.take_calls(), failure.message)
    }

    /// Shares, quota, memory.
    fn limits(&self) -> [i64; 3] {
        let limits = self.cgroup.limits.lock();
        [limits.cpu_shares, limits.cpu_quota, limits.memory].map(Option::unwrap)
    }

    fn uses(&self, memory: u64) {
        *self.cgroup.usage.lock() = memory;
    }
}

/// A pod with one container with these resources.
fn of_container(cpu: &str, memory: &str) -> Arc<Pod> {
    let list = json!({ "cpu": cpu, "memory": memory });
    let resources = json!({ "requests": list, "limits": list });
    let container =
        json!({ "name": "a", "image": "i", "imagePullPolicy": "IfNotPresent", "resources": resources });
    pod("p", json!({ "containers": [container] }))
}

/// A pod with these pod-level resources; its container has a fixed part.
fn of_pod(cpu: &str, memory: &str) -> Arc<Pod> {
    let mut pod = of_container("500m", "600");
    let list = json!({ "cpu": cpu, "memory": memory });
    let resources = json!({ "requests": list, "limits": list });
    let spec = Arc::make_mut(&mut pod).spec.as_mut().unwrap();
    spec.resources = Some(serde_json::from_value(resources).unwrap());
    pod
}

/// The pod's call to the runtime.
fn told(cpu: &str, memory: u32) -> String {
    format!("UpdatePodSandboxResources cpu {cpu} memory {memory}")
}

/// The container's call to the runtime.
fn given(cpu: &str, memory: u32) -> String {
    format!("UpdateContainerResources a cpu {cpu} memory {memory}")
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_more_before_its_containers_and_less_after_them() {
    let (small, large) = (of_container("1", "1000"), of_container("2", "2000"));
    let resized = Resized::running(&small, 1024, 100000, 1000).await;
    let expected = [
        told("1024/100000", 2000),
        given("1024/100000", 2000),
        told("1024/200000", 2000),
        told("2048/200000", 2000),
        given("2048/200000", 2000),
    ];
    assert_eq!(resized.sync_ok(&large).await, expected);
    assert_eq!(resized.limits(), [2048, 200000, 2000]);
    let expected = [
        given("2048/200000", 1000),
        told("2048/200000", 1000),
        given("1024/100000", 1000),
        told("1024/200000", 1000),
        told("1024/100000", 1000),
    ];
    assert_eq!(resized.sync_ok(&small).await, expected);
    assert_eq!(resized.limits(), [1024, 100000, 1000]);
    assert!(resized.sync_ok(&small).await.is_empty(), "it is done");
}

#[tokio::test(start_paused = true)]
async fn a_resize_of_the_pod_alone_is_one() {
    let mut resized = Resized::running(&of_pod("1", "1000"), 1024, 100000, 1000).await;
    let expected = [
        told("1024/100000", 2000),
        told("1024/200000", 2000),
        told("2048/200000", 2000),
    ];
    let large = of_pod("2", "2000");
    assert_eq!(resized.sync_ok(&large).await, expected);
    assert_eq!(resized.limits(), [2048, 200000, 2000]);
    assert!(resized.sync_ok(&large).await.is_empty(), "it is done");

    // The next agent continues from the resources that this one has sent.
    let uid = "p".into();
    let record = resized.rig.manager.actuated_resources(&uid);
    resized.rig.restart().await;
    resized.rig.manager.restore_actuated_resources(&uid, record);
    assert!(resized.sync_ok(&large).await.is_empty());
    let expected = [
        told("2048/200000", 1000),
        told("1024/200000", 1000),
        told("1024/100000", 1000),
    ];
    let small = of_pod("1", "1000");
    let status = resized.rig.status(&small).await;
    assert!(resized.rig.manager.is_pod_resize_in_progress(&small, &status));
    assert_eq!(resized.sync_ok(&small).await, expected);
}

#[tokio::test(start_paused = true)]
async fn pod_level_resources_may_be_new() {
    let before = of_container("500m", "600");
    let resized = Resized::running(&before, 512, 50000, 600).await;
    let expected = [
        told("512/50000", 2000),
        told("512/200000", 2000),
        told("2048/200000", 2000),
    ];
    let after = of_pod("2", "2000");
    let status = resized.rig.status(&after).await;
    assert!(resized.rig.manager.is_pod_resize_in_progress(&after, &status));
    assert_eq!(resized.sync_ok(&after).await, expected);
    assert_eq!(resized.limits(), [2048, 200000, 2000]);
    assert!(resized.sync_ok(&after).await.is_empty(), "it is done");
    assert!(!resized.rig.manager.is_pod_resize_in_progress(&after, &status));

    // The next agent knows from the record that the pod had none.
    for has_record in [true, false] {
        let mut next = Resized::running(&before, 512, 50000, 600).await;
        let record = next.rig.manager.actuated_resources(&"p".into());
        let manager = next.rig.builder().build().await.unwrap();
        next.rig.manager = manager.with_pod_cgroups(next.cgroup.clone());
        if has_record {
            next.rig.manager.restore_actuated_resources(&"p".into(), record);
            assert_eq!(next.sync_ok(&after).await, expected);
        } else {
            // Without a record, what runs has the resources of its spec.
            assert!(next.sync_ok(&after).await.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_new_sandbox_came_before_is_resized_after_it() {
    let resized = Resized::running(&of_pod("1", "1000"), 1024, 100000, 1000).await;
    resized.rig.fake.lose_sandboxes();
    let large = of_pod("2", "2000");
    // The cgroup stays, with the limits that it has.
    resized.sync_ok(&large).await;
    assert_eq!(resized.limits(), [1024, 100000, 1000]);
    let status = resized.rig.status(&large).await;
    assert!(resized.rig.manager.is_pod_resize_in_progress(&large, &status));
    resized.sync_ok(&large).await;
    assert_eq!(resized.limits(), [2048, 200000, 2000]);
    assert!(resized.sync_ok(&large).await.is_empty(), "it is done");
}

#[tokio::test(start_paused = true)]
async fn what_was_widened_for_a_container_that_could_not_be_resized_stays() {
    let resized = Resized::running(&of_container("1", "1000"), 1024, 100000, 1000).await;
    let large = of_container("2", "2000");
    resized.rig.fake.fail_next("UpdateContainerResources");
    let (calls, message) = resized.sync_fails(&large).await;
    assert_eq!(calls, [told("1024/100000", 2000)]);
    assert_eq!(message, "rpc error: code = Internal desc = broken");
    assert_eq!(resized.limits(), [1024, 100000, 2000]);
    let expected = [
        given("1024/100000", 2000),
        told("1024/200000", 2000),
        told("2048/200000", 2000),
        given("2048/200000", 2000),
    ];
    assert_eq!(resized.sync_ok(&large).await, expected, "it is not told twice");
    assert_eq!(resized.limits(), [2048, 200000, 2000]);
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_rejects_changes_no_cgroup() {
    let resized = Resized::running(&of_container("1", "1000"), 1024, 100000, 1000).await;
    resized.rig.fake.fail_next("UpdatePodSandboxResources");
    let (calls, message) = resized.sync_fails(&of_container("2", "2000")).await;
    assert!(calls.is_empty(), "{calls:?}");
    let rejected = "failed to notify runtime for UpdatePodSandboxResources (resource=memory); resize rejected: \
                    updatePodSandboxResources failed for sanboxID ";
    assert!(message.starts_with(rejected), "{message}");
    assert!(
        message.ends_with(": rpc error: code = Internal desc = broken"),
        "{message}"
    );
    assert_eq!(resized.limits(), [1024, 100000, 1000]);
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_told_when_a_cgroup_stays_as_it_was() {
    let resized = Resized::running(&of_container("1", "65536"), 1024, 100000, 65536).await;
    *resized.cgroup.refuses_memory.lock() = true;
    let (calls, message) = resized.sync_fails(&of_container("2", "70000")).await;
    assert_eq!(calls, [told("1024/100000", 70000), told("1024/100000", 65536)]);
    assert!(message.starts_with("memory.limit_in_bytes=70000: "), "{message}");
    assert_eq!(resized.limits(), [1024, 100000, 65536]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_not_narrowed_below_what_it_uses() {
    for narrower in [of_container("1", "600"), of_pod("1", "600")] {
        let large = match narrower.spec.as_ref().unwrap().resources {
            Some(_) => of_pod("1", "1000"),
            None => of_container("1", "1000"),
        };
        let resized = Resized::running(&large, 1024, 100000, 1000).await;
        resized.uses(900);
        let (calls, message) = resized.sync_fails(&narrower).await;
        assert!(calls.is_empty(), "{calls:?}");
        let problem = "cannot decrease memory limits: attempting to set pod memory limit (600) below current usage (900)";
        assert_eq!(message, problem);
        resized.uses(550);
        let calls = resized.sync_ok(&narrower).await;
        assert_eq!(calls.last(), Some(&told("1024/100000", 600)));
        assert_eq!(resized.limits()[2], 600);
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_narrowed_is_narrowed_later() {
    let resized = Resized::running(&of_container("2", "2000"), 2048, 200000, 2000).await;
    let small = of_container("1", "1000");
    resized.rig.fake.fail_next("UpdatePodSandboxResources");
    let (calls, _) = resized.sync_fails(&small).await;
    assert_eq!(calls, [given("2048/200000", 1000)]);
    let expected = [
        told("2048/200000", 1000),
        given("1024/100000", 1000),
        told("1024/200000", 1000),
        told("1024/100000", 1000),
    ];
    assert_eq!(resized.sync_ok(&small).await, expected);
    assert_eq!(resized.limits(), [1024, 100000, 1000]);

    // Also if its containers need no actions.
    let tiny = of_container("1", "600");
    resized.rig.fake.fail_next("UpdatePodSandboxResources");
    let (calls, _) = resized.sync_fails(&tiny).await;
    assert_eq!(calls, [given("1024/100000", 600)]);
    assert_eq!(resized.sync_ok(&tiny).await, [told("1024/100000", 600)]);
    assert!(resized.sync_ok(&tiny).await.is_empty(), "it is done");
}
