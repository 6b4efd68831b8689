//! [`CriRuntime`], the generic runtime manager: a pod runtime on the two services of CRI (`pkg/kubelet/kuberuntime`).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::cgroups::ExclusiveCpus;
use kubelet_core::runtime::{
    ActuatedResources, BackOff, GcPolicy, PodStatus, PodSyncResult, Readiness, ResizeRefusal, RuntimePod,
    RuntimeStatus, StartRecord,
};
use kubelet_core::{
    Clock, ConfigObjects, ContainerId, ContainerResources, DynamicResources, Error, EventRecorder,
    NodeEventRecorder, PodContainerManager, PodStateProvider, PodStatusReporter, PodUid, ProbeResults,
    Result, Runtime, RuntimeClasses, RuntimeReader, Services, VolumeManager,
};
use kubelet_cri::{ImageService, RuntimeService, v1};
use parking_lot::Mutex;

use crate::builder::CriRuntimeBuilder;
use crate::calls::missing_calls::MissingCalls;
use crate::config::{HandlerFeatures, NodeSettings};
use crate::containers::actuated::Actuated;
use crate::containers::back_off::CrashLoopBackOff;
use crate::containers::unfinished_starts::UnfinishedStarts;
use crate::images::ImageManager;
use crate::read::Listing;
use crate::read::known_pods::KnownPods;
use crate::read::lists::Lists;
use crate::sandbox::user_namespaces::UserNamespaces;
use crate::stats::CpuTimes;

/// Runs pods on any [`RuntimeService`] and [`ImageService`], with the calls that the kubelet would make
/// (`kubeGenericRuntimeManager`).
///
/// It stores the facts about a pod in the runtime, in labels and annotations. So a new manager takes over all running
/// pods, also those of a kubelet. In memory it keeps back-offs, the resources that it applied last, and starts of
/// containers that were dropped; [`forget_pod`](Runtime::forget_pod) removes those of a pod. It spawns no tasks: all
/// work is done in the calls, which may be dropped at any time. If a start of a container is dropped, the next kill of
/// its pod completes it first.
///
/// Its metrics are the kubelet's: `kubelet_started_pods_total`, `kubelet_started_pods_errors_total`,
/// `kubelet_started_containers_total`, `kubelet_started_containers_errors_total`, and for its calls to the runtime
/// `kubelet_runtime_operations_total`, `kubelet_runtime_operations_duration_seconds`,
/// `kubelet_runtime_operations_errors_total`, `kubelet_run_podsandbox_duration_seconds`,
/// `kubelet_run_podsandbox_errors_total`.
pub struct CriRuntime {
    pub(crate) runtime_type: Arc<str>,
    pub(crate) runtime: Arc<dyn RuntimeService>,
    pub(crate) image_service: Arc<dyn ImageService>,
    pub(crate) images: ImageManager,
    pub(crate) lists: Lists,
    /// The pods of the last list.
    pub(crate) known_pods: Mutex<KnownPods>,
    pub(crate) actuated: Actuated,
    pub(crate) unfinished_starts: UnfinishedStarts,
    pub(crate) pod_cgroups: Option<Arc<dyn PodContainerManager>>,
    pub(crate) exclusive_cpus: Arc<dyn ExclusiveCpus>,
    pub(crate) crash_loop: CrashLoopBackOff,
    /// The features of each runtime handler, from the last `Status`.
    pub(crate) handlers: Mutex<Option<HashMap<String, HandlerFeatures>>>,
    pub(crate) user_namespaces: UserNamespaces,
    /// The calls that the runtime does not implement.
    pub(crate) missing: MissingCalls,
    pub(crate) cpu_times: CpuTimes,
    pub(crate) node: NodeSettings,
    pub(crate) runtime_classes: Arc<dyn RuntimeClasses>,
    /// Whether images are looked up and pulled for the pod's runtime handler.
    pub(crate) images_by_handler: bool,
    pub(crate) container_log_links: Option<PathBuf>,
    pub(crate) clock: Clock,
    pub(crate) log_watcher: crate::logs::LogWatcher,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    pub(crate) node_recorder: Arc<dyn NodeEventRecorder>,
    pub(crate) probes: Arc<dyn ProbeResults>,
    pub(crate) statuses: Option<Arc<dyn PodStatusReporter>>,
    pub(crate) volumes: Arc<dyn VolumeManager>,
    pub(crate) container_resources: Arc<dyn ContainerResources>,
    /// Prepares the claims of pods.
    pub(crate) dynamic_resources: Option<Arc<dyn DynamicResources>>,
    pub(crate) config_objects: Arc<dyn ConfigObjects>,
    pub(crate) services: Arc<dyn Services>,
    #[cfg(feature = "probes")]
    pub(crate) http: crate::probe::http::HttpClient,
}

impl CriRuntime {
    /// Returns a builder of a manager on these services.
    pub fn builder(runtime: Arc<dyn RuntimeService>, images: Arc<dyn ImageService>) -> CriRuntimeBuilder {
        CriRuntimeBuilder::new(runtime, images)
    }

    /// The settings of the builder, with the cgroup driver that the runtime reported.
    pub fn node_settings(&self) -> &NodeSettings {
        &self.node
    }

    /// Resizes the cgroups of pods together with the pods: before their containers get more, and after they get less.
    /// Without it, the cgroups keep their first limits.
    pub fn with_pod_cgroups(mut self, cgroups: Arc<dyn PodContainerManager>) -> Self {
        self.pod_cgroups = Some(cgroups);
        self
    }

    /// The handler that a pod's RuntimeClass names; empty for the default (`LookupRuntimeHandler`).
    pub(crate) fn runtime_handler(&self, pod: &Pod) -> Result<String, String> {
        let class = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.runtime_class_name.as_deref());
        match class {
            None | Some("") => Ok(String::new()),
            Some(class) => {
                let handler = self.runtime_classes.handler(class);
                handler.ok_or_else(|| format!("runtimeclass.node.k8s.io {class:?} not found"))
            }
        }
    }

    /// The features of a handler; none if the runtime does not report them.
    pub(crate) async fn handler_features(&self, handler: &str) -> HandlerFeatures {
        let known = |handlers: &Option<HashMap<String, HandlerFeatures>>| {
            let handlers = handlers.as_ref()?;
            Some(handlers.get(handler).copied().unwrap_or_default())
        };
        if let Some(features) = known(&self.handlers.lock()) {
            return features;
        }
        if let Err(error) = self.ask_status().await {
            tracing::warn!(%error, "cannot read the features of the runtime's handlers");
        }
        known(&self.handlers.lock()).unwrap_or_default()
    }

    pub(crate) async fn ask_status(&self) -> Result<v1::RuntimeStatus> {
        let response = self.runtime.status(v1::StatusRequest { verbose: false }).await;
        let response = response.map_err(|error| Error::runtime("Status", error))?;
        let handlers = response.runtime_handlers.into_iter().map(|handler| {
            let features = handler.features.unwrap_or_default();
            let features = HandlerFeatures {
                recursive_read_only_mounts: features.recursive_read_only_mounts,
                user_namespaces: features.user_namespaces,
            };
            (handler.name, features)
        });
        *self.handlers.lock() = Some(handlers.collect());
        Ok(response.status.unwrap_or_default())
    }
}

#[async_trait]
impl RuntimeReader for CriRuntime {
    async fn pods(&self, all: bool) -> Result<Vec<Arc<RuntimePod>>> {
        self.list_pods(Listing {
            running_only: !all,
            ..Listing::default()
        })
        .await
    }

    async fn pod(&self, uid: &PodUid) -> Result<Option<Arc<RuntimePod>>> {
        let listing = Listing {
            uid: Some(uid),
            ..Listing::default()
        };
        // A runtime may ignore the filter.
        let pods = self.list_pods(listing).await?;
        Ok(pods.into_iter().find(|pod| pod.uid == *uid))
    }

    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        self.read_pod_status(pod).await.map(Arc::new)
    }

    async fn pod_hints(&self) -> Result<Option<BoxStream<'static, Result<PodUid>>>> {
        self.hints().await
    }
}

#[async_trait]
impl Runtime for CriRuntime {
    fn runtime_type(&self) -> &str {
        &self.runtime_type
    }

    async fn status(&self) -> Result<RuntimeStatus> {
        let status = self.ask_status().await?;
        Ok(RuntimeStatus {
            runtime_ready: readiness(&status, "RuntimeReady"),
            network_ready: readiness(&status, "NetworkReady"),
        })
    }

    async fn sync_pod(&self, pod: &Arc<Pod>, status: &PodStatus) -> PodSyncResult {
        self.sync(pod, status, None).await
    }

    async fn sync_pod_recorded(
        &self,
        pod: &Arc<Pod>,
        status: &PodStatus,
        starts: &dyn StartRecord,
    ) -> PodSyncResult {
        self.sync(pod, status, Some(starts)).await
    }

    async fn kill_pod(
        &self,
        pod: Option<&Arc<Pod>>,
        running: &RuntimePod,
        grace_period: Option<Duration>,
    ) -> Result<()> {
        let grace_period = grace_period.map(|period| i64::try_from(period.as_secs()).unwrap_or(i64::MAX));
        let result = self
            .kill_pod_with_result(pod.map(|pod| &**pod), running, grace_period)
            .await;
        match result.summary() {
            None => Ok(()),
            Some(message) => Err(Error::SyncPod {
                pod: running.key.clone(),
                uid: running.uid.clone(),
                message,
            }),
        }
    }

    async fn garbage_collect(&self, policy: &GcPolicy, pods: &dyn PodStateProvider) -> Result<()> {
        self.collect_garbage(policy, pods).await
    }

    async fn delete_container(&self, container: &ContainerId) -> Result<()> {
        let removed = self.remove_container(container.id(), false).await;
        removed.map_err(|message| Error::runtime("RemoveContainer", std::io::Error::other(message)))
    }

    fn back_offs(&self, uid: &PodUid) -> Vec<BackOff> {
        let mut back_offs = self.crash_loop.of_pod(uid);
        back_offs.extend(self.images.back_offs(uid));
        back_offs
    }

    fn restore_back_offs(&self, uid: &PodUid, back_offs: Vec<BackOff>) {
        self.crash_loop.restore(uid, &back_offs);
        self.images.restore_back_offs(uid, back_offs);
    }

    fn refuses_resize(&self, desired: &Pod, allocated: &Pod) -> Option<ResizeRefusal> {
        self.refuses_to_resize_swap(desired, allocated)
    }

    fn has_recursive_read_only_mounts(&self, pod: &Pod) -> bool {
        let Ok(handler) = self.runtime_handler(pod) else {
            return false;
        };
        let handlers = self.handlers.lock();
        let features = handlers.as_ref().and_then(|handlers| handlers.get(&handler));
        features.is_some_and(|features| features.recursive_read_only_mounts)
    }

    fn is_pod_resize_in_progress(&self, pod: &Pod, status: &PodStatus) -> bool {
        self.has_resize_to_do(pod, status)
    }

    fn actuated_resources(&self, uid: &PodUid) -> Vec<ActuatedResources> {
        self.actuated.of_pod(uid)
    }

    fn restore_actuated_resources(&self, uid: &PodUid, actuated: Vec<ActuatedResources>) {
        self.actuated.restore(uid, actuated);
    }

    fn forget_pod(&self, uid: &PodUid) {
        self.crash_loop.forget(uid);
        self.images.forget(uid);
        self.actuated.forget(uid);
        self.unfinished_starts.forget(uid);
    }
}

/// One condition, with the text of the kubelet's `RuntimeCondition`. A runtime without this condition is not ready.
fn readiness(status: &v1::RuntimeStatus, condition: &str) -> Readiness {
    match status.conditions.iter().find(|found| found.r#type == condition) {
        Some(found) if found.status => Readiness::Ready,
        Some(found) => Readiness::NotReady(format!(
            "{condition}=false reason:{} message:{}",
            found.reason, found.message
        )),
        None => Readiness::NotReady(format!("the runtime does not report its condition {condition}")),
    }
}
