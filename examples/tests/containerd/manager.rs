//! The runtime manager on a containerd, without an agent around it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::{GcPolicy, PodStatus};
use kubelet_core::{PodContainerManager, PodExt, PodStateProvider, PodUid, RootDir, Runtime, RuntimeReader};
use kubelet_cri::{ImageService, RuntimeService};
use kubelet_kuberuntime::{CgroupDriver, CriRuntime, NodeSettings};
use kubelet_resources::cgroups::PodCgroups;
use kubelet_testing::Containerd;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// A manager with its own folders.
pub(crate) struct Manager {
    pub(crate) runtime: CriRuntime,
    pub(crate) cgroups: PodCgroups,
    pub(crate) dir: TempDir,
}

impl Manager {
    pub(crate) async fn on(runtime: Arc<dyn RuntimeService>, images: Arc<dyn ImageService>) -> Self {
        Self::with_cgroups(runtime, images, CgroupDriver::None).await
    }

    pub(crate) async fn with_cgroups(
        runtime: Arc<dyn RuntimeService>,
        images: Arc<dyn ImageService>,
        driver: CgroupDriver,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut node = NodeSettings::of_this_host();
        node.root_dir = RootDir::new(dir.path().join("root"));
        node.pod_logs_dir = dir.path().join("logs");
        node.cgroup_driver = driver;
        let runtime = CriRuntime::builder(runtime, images).node(node).build().await.unwrap();
        let cgroups = PodCgroups::builder(runtime.node_settings().pod_cgroups());
        let cgroups = cgroups.build().await.unwrap();
        Self { runtime, cgroups, dir }
    }

    /// What the runtime has of the pod.
    pub(crate) async fn status(&self, pod: &Pod) -> kubelet_core::Result<Arc<PodStatus>> {
        match self.runtime.pod(&pod.uid()).await? {
            Some(found) => self.runtime.pod_status(&found).await,
            None => Ok(Arc::new(PodStatus::empty(pod.uid(), pod.key(), Instant::now()))),
        }
    }

    /// Syncs the pod until its status fulfils the condition; retries failures.
    pub(crate) async fn sync_until(
        &self,
        pod: &Arc<Pod>,
        reached: impl Fn(&PodStatus) -> bool,
    ) -> Arc<PodStatus> {
        self.cgroups.ensure_exists(pod).await.unwrap();
        loop {
            if let Ok(status) = self.status(pod).await {
                if reached(&status) {
                    return status;
                }
                self.runtime.sync_pod(pod, &status).await;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the pod until nothing of it runs, and removes its cgroup.
    pub(crate) async fn kill(&self, pod: &Arc<Pod>) {
        self.stop(pod).await;
        self.cgroups.destroy(&pod.uid()).await.unwrap();
    }

    async fn stop(&self, pod: &Arc<Pod>) {
        loop {
            match self.runtime.pod(&pod.uid()).await {
                Ok(None) => return,
                Ok(Some(found)) => {
                    let killed = self.runtime.kill_pod(Some(pod), &found, None).await.is_ok();
                    let rests = |status: Arc<PodStatus>| {
                        !status.is_running() && status.active_containers().next().is_none()
                    };
                    if killed && self.status(pod).await.is_ok_and(rests) {
                        return;
                    }
                }
                Err(_) => {}
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Collects the garbage of dead pods, and everything of the pods in `gone`.
    pub(crate) async fn collect(&self, gone: &dyn PodStateProvider) {
        let policy = GcPolicy { all_sources_ready: true, ..GcPolicy::default() };
        if let Err(error) = self.runtime.garbage_collect(&policy, gone).await {
            tracing::debug!(%error, "to be tried again");
        }
    }
}

/// Checks that only this pod is left.
pub(crate) struct AllBut(pub(crate) Option<PodUid>);

impl PodStateProvider for AllBut {
    fn should_pod_content_be_removed(&self, uid: &PodUid) -> bool {
        self.0.as_ref() != Some(uid)
    }

    fn should_pod_runtime_be_removed(&self, uid: &PodUid) -> bool {
        self.0.as_ref() != Some(uid)
    }
}

/// A pod of one container `main` that runs a script on the host's network; its name is its UID.
pub(crate) fn pod(name: &str, script: &str, restart_policy: &str) -> Arc<Pod> {
    pod_of(
        name,
        json!({
            "hostNetwork": true,
            "restartPolicy": restart_policy,
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main",
                "image": Containerd::BUSYBOX,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script],
            }],
        }),
    )
}

pub(crate) fn pod_of(name: &str, spec: Value) -> Arc<Pod> {
    let pod = json!({ "metadata": { "name": name, "namespace": "default", "uid": name }, "spec": spec });
    Arc::new(serde_json::from_value(pod).unwrap())
}
