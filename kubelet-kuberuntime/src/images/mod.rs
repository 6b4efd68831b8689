//! Images: decides whether to pull one, pulls it, and backs off after a failed pull
//! (`pkg/kubelet/images/image_manager.go`).

mod back_off;
mod docker_config;
mod keyring;
mod pull;
mod pull_records;
mod registry_url;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kubelet_core::image_name::{ImageName, with_default_tag};
use kubelet_core::runtime::{BackOff, SyncFailure};
use kubelet_core::{
    Clock, Disk, Event, EventRecorder, EventType, PodExt, PodStatusReporter, PodUid, RateLimit, RootDir,
};
use tokio::sync::{OnceCell, Semaphore};

use self::back_off::PullBackOff;
use self::keyring::{Credentials, NodeKeyring};
use self::pull_records::{Known, count_check};
use crate::credential_provider::CredentialProviders;
use kubelet_cri::{Error, ImageService, v1};

pub(crate) use self::docker_config::{DockerConfig, Login};
pub(crate) use self::keyring::{Coordinates, Keyring, Source};
pub(crate) use self::pull::aggregate;
pub(crate) use self::pull_records::PullRecords;
pub(crate) use self::registry_url::urls_match;
pub use self::settings::{ImagePullCredentialsVerificationPolicy, ImagePullSettings};

/// Ensures that the image of a container is present before the container is created (`images.ImageManager`).
pub(crate) struct ImageManager {
    service: Arc<dyn ImageService>,
    recorder: Arc<dyn EventRecorder>,
    /// Measures the start latency of pods.
    statuses: Option<Arc<dyn PodStatusReporter>>,
    back_off: PullBackOff,
    /// The permits of parallel pulls, in the order of requests; `None` for no limit.
    turns: Option<Semaphore>,
    /// The rate limit of pulls (`throttleImagePulling`).
    throttle: RateLimit,
    records: PullRecords,
    node_keyring: NodeKeyring,
    providers: CredentialProviders,
}

/// The dependencies of an image manager.
pub(crate) struct ImageManagerParts<'a> {
    pub(crate) service: Arc<dyn ImageService>,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    /// Records when pulls for a pod start and finish (`ImagePodPullingTimeRecorder`).
    pub(crate) statuses: Option<Arc<dyn PodStatusReporter>>,
    pub(crate) settings: ImagePullSettings,
    pub(crate) providers: CredentialProviders,
    pub(crate) root_dir: &'a RootDir,
    pub(crate) disk: Disk,
    pub(crate) clock: Clock,
}

impl ImageManager {
    /// An image manager that pulls through `service`.
    pub(crate) async fn new(parts: ImageManagerParts<'_>) -> Self {
        let settings = parts.settings;
        let at_once = match settings.max_parallel_image_pulls {
            _ if settings.serialize_image_pulls => Some(1),
            None | Some(0) => None,
            Some(pulls) => usize::try_from(pulls).ok(),
        };
        let root_dir = parts.root_dir.path();
        let records = PullRecords::load(
            root_dir,
            settings.credentials_verification,
            parts.clock,
            parts.disk,
        )
        .await;
        let files = settings
            .docker_config_files
            .unwrap_or_else(|| NodeKeyring::default_files(root_dir));
        let manager = Self {
            service: parts.service,
            recorder: parts.recorder,
            statuses: parts.statuses,
            back_off: PullBackOff::new(settings.back_off_initial, settings.back_off_max),
            turns: at_once.map(|pulls| Semaphore::new(pulls.min(Semaphore::MAX_PERMITS))),
            throttle: RateLimit::new(settings.registry_pull_qps, settings.registry_burst),
            records,
            node_keyring: NodeKeyring::new(files, parts.disk),
            providers: parts.providers,
        };
        manager.settle_intents().await;
        manager
    }

    /// A pull that was running when the earlier agent ended has now either succeeded or failed.
    async fn settle_intents(&self) {
        if !self.records.has_intents() {
            return;
        }
        match self.service.list_images(v1::ListImagesRequest::default()).await {
            Ok(images) => self.records.settle_intents(&images.images).await,
            Err(error) => {
                tracing::warn!(%error, "cannot list images to find out which pulls of the earlier agent succeeded")
            }
        }
    }

    /// Returns the reference of an image to create a container with (`EnsureImageExists`), pulling it if its pull
    /// policy and its presence ask for it.
    ///
    /// A failure has the reason and message for `state.waiting`: `InvalidImageName`, `ErrImageNeverPull`,
    /// `ImageInspectError`, `ErrImagePull`, `ImagePullBackOff`, `RegistryUnavailable` or `SignatureValidationFailed`,
    /// or the error of the credentials.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again. An unfinished pull is then cancelled in the client; the runtime may continue
    /// it.
    pub(crate) async fn ensure_image_exists(&self, wanted: &WantedImage<'_>) -> Result<String, SyncFailure> {
        let mut request = Request {
            manager: self,
            wanted,
            image: wanted.image,
            with_tag: String::new(),
            credentials: OnceCell::new(),
        };
        let with_tag = with_default_tag(wanted.image);
        let policy = PullPolicy::of(wanted.pull_policy, with_tag.as_deref().unwrap_or_default());
        let mut counted = Counted::default();
        let ensured = match with_tag {
            Ok(with_tag) => {
                request.with_tag = with_tag;
                request.ensure(policy, &mut counted).await
            }
            Err(problem) => {
                let message = format!("Failed to apply default image tag {:?}: {problem}", wanted.image);
                request.warn("InspectFailed", message.clone());
                Err(failure("InvalidImageName", message))
            }
        };
        counted.count(policy);
        ensured
    }

    /// The back-offs of the pod's pulls.
    pub(crate) fn back_offs(&self, pod: &PodUid) -> Vec<BackOff> {
        self.back_off.of_pod(pod)
    }

    /// Restores the back-offs that [`back_offs`](Self::back_offs) returned in an earlier agent.
    pub(crate) fn restore_back_offs(&self, pod: &PodUid, back_offs: Vec<BackOff>) {
        self.back_off.restore(pod, back_offs);
    }

    /// Removes the back-offs of a deleted pod.
    pub(crate) fn forget(&self, pod: &PodUid) {
        self.back_off.forget(pod);
    }

    /// The records of pulled images.
    pub(crate) fn records(&self) -> &PullRecords {
        &self.records
    }

    async fn status(&self, spec: &v1::ImageSpec) -> Result<Option<v1::Image>, Error> {
        let request = v1::ImageStatusRequest {
            image: Some(spec.clone()),
            verbose: false,
        };
        Ok(self.service.image_status(request).await?.image)
    }
}

/// An image that a pod needs, for a container or as a volume.
pub(crate) struct WantedImage<'a> {
    pub(crate) pod: &'a Pod,
    /// The image name in the spec.
    pub(crate) image: &'a str,
    /// `imagePullPolicy`, or `pullPolicy` of a volume.
    pub(crate) pull_policy: Option<&'a str>,
    /// The field path of events, such as `spec.containers{main}`; `None` for the whole pod.
    pub(crate) field_path: Option<String>,
    /// The pod's pull secrets that exist.
    pub(crate) pull_secrets: &'a [Arc<Secret>],
    pub(crate) sandbox_config: &'a v1::PodSandboxConfig,
    pub(crate) runtime_handler: &'a str,
}

/// `imagePullPolicy`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// The given policy. Without one, `Always` for the tag `latest` and `IfNotPresent` for any other image, as in the
    /// API.
    fn of(policy: Option<&str>, image_with_tag: &str) -> Self {
        match policy {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            Some("IfNotPresent") => Self::IfNotPresent,
            _ if image_with_tag.ends_with(":latest") || image_with_tag.contains(":latest@") => Self::Always,
            _ => Self::IfNotPresent,
        }
    }

    /// The name in metrics.
    fn label(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::IfNotPresent => "ifnotpresent",
            Self::Never => "never",
        }
    }
}

/// The labels of a request in `image_manager_ensure_image_requests_total`; `None` is `unknown`.
#[derive(Default)]
struct Counted {
    present: Option<bool>,
    pull_required: Option<bool>,
}

impl Counted {
    fn count(&self, policy: PullPolicy) {
        let label = |known: Option<bool>| match known {
            None => "unknown",
            Some(true) => "true",
            Some(false) => "false",
        };
        metrics::counter!(
            "kubelet_image_manager_ensure_image_requests_total",
            "pull_policy" => policy.label(),
            "present_locally" => label(self.present),
            "pull_required" => label(self.pull_required),
        )
        .increment(1);
    }
}

/// One request for an image.
struct Request<'a> {
    manager: &'a ImageManager,
    wanted: &'a WantedImage<'a>,
    /// The image name in the spec.
    image: &'a str,
    /// The image name, with the default tag if it has neither tag nor digest.
    with_tag: String,
    /// Looked up once, when they are first needed.
    credentials: OnceCell<Result<Vec<Credentials>, String>>,
}

impl Request<'_> {
    async fn ensure(&self, policy: PullPolicy, counted: &mut Counted) -> Result<String, SyncFailure> {
        let spec = v1::ImageSpec {
            image: self.with_tag.clone(),
            annotations: self.wanted.pod.metadata.annotations.clone().unwrap_or_default(),
            runtime_handler: self.wanted.runtime_handler.to_owned(),
            ..Default::default()
        };
        if policy != PullPolicy::Always {
            let present = self.present(&spec).await?;
            counted.present = Some(present.is_some());
            if let Some(image_ref) = present
                && self.may_use(&image_ref).await?
            {
                counted.pull_required = Some(false);
                // If this pod had an intent to pull it, another pull was faster.
                self.finished_pulling();
                let message = format!(
                    "Container image {:?} already present on machine and can be accessed by the pod",
                    self.image
                );
                self.note("Pulled", message);
                return Ok(image_ref);
            }
        }
        if policy == PullPolicy::Never {
            // A pod that may not use the image must not learn that it is present.
            counted.pull_required = counted.present.filter(|present| *present);
            let message = format!(
                "Container image {:?} is not present with pull policy of Never",
                self.image
            );
            self.warn("ErrImageNeverPull", message.clone());
            return Err(failure("ErrImageNeverPull", message));
        }
        counted.pull_required = Some(true);
        let credentials = self.credentials().await?;
        self.pull(spec, credentials).await
    }

    /// The reference of the image if it is present.
    async fn present(&self, spec: &v1::ImageSpec) -> Result<Option<String>, SyncFailure> {
        let status = self.manager.status(spec).await.map_err(|error| {
            let message = format!("Failed to inspect image \"\": {}", error.rpc_text());
            self.warn("InspectFailed", message.clone());
            failure("ImageInspectError", message)
        })?;
        Ok(status.map(|image| image.id).filter(|id| !id.is_empty()))
    }

    /// Whether the pod may use an image that is present.
    async fn may_use(&self, image_ref: &str) -> Result<bool, SyncFailure> {
        let records = &self.manager.records;
        match records.check(self.image, image_ref) {
            Known::Usable => Ok(true),
            Known::MustPull => Ok(false),
            Known::WithCredentials => {
                let credentials = self.credentials().await;
                let credentials = credentials.inspect_err(|_| count_check("error"))?;
                Ok(records.matches(self.image, image_ref, credentials).await)
            }
        }
    }

    /// The credentials for a pull: first those of the pod's secrets, then those of the node's files, then those of
    /// plugins.
    async fn credentials(&self) -> Result<&[Credentials], SyncFailure> {
        let lookup = || async {
            let name = ImageName::parse(&self.with_tag);
            let repository = name.map_or_else(|_| self.with_tag.clone(), |name| name.repository().to_owned());
            let mut credentials = Keyring::of_secrets(self.wanted.pull_secrets)?.lookup(&repository);
            let manager = self.manager;
            credentials.extend(manager.node_keyring.keyring().await.lookup(&repository));
            let of_plugins = manager.providers.keyring(&repository, self.wanted.pod).await;
            credentials.extend(of_plugins.lookup(&repository));
            Ok(credentials)
        };
        match self.credentials.get_or_init(lookup).await {
            Ok(credentials) => Ok(credentials),
            Err(problem) => Err(failure(problem, problem.clone())),
        }
    }

    /// After a failed pull, the image counts as being pulled until it is present.
    fn finished_pulling(&self) {
        if let Some(statuses) = &self.manager.statuses {
            statuses.record_image_finished_pulling(&self.wanted.pod.uid());
        }
    }

    fn note(&self, reason: &str, message: String) {
        self.event(EventType::Normal, reason, message);
    }

    fn warn(&self, reason: &str, message: String) {
        self.event(EventType::Warning, reason, message);
    }

    fn event(&self, event_type: EventType, reason: &str, message: String) {
        self.manager.recorder.record(Event {
            pod: self.wanted.pod,
            field_path: self.wanted.field_path.clone(),
            event_type,
            reason,
            message,
        });
    }
}

fn failure(reason: &str, message: String) -> SyncFailure {
    SyncFailure {
        reason: reason.to_owned(),
        message,
        back_off_until: None,
    }
}
