//! Images: whether one must be pulled, pulling it, and waiting after a pull that failed
//! (`pkg/kubelet/images/image_manager.go`).

mod back_off;
mod name;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::runtime::SyncFailure;
use kubelet_core::{Event, EventRecorder, EventType, PodExt, PodStatusReporter, PodUid};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::back_off::PullBackOff;
use self::name::apply_default_image_tag;
use crate::{Code, Error, ImageService, v1};

/// How images are pulled: of `KubeletConfiguration` the fields of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImagePullSettings {
    /// `serializeImagePulls`: one pull after the other.
    pub serialize_image_pulls: bool,
    /// `maxParallelImagePulls`, where pulls are not serialized; `None` for no bound.
    pub max_parallel_image_pulls: Option<u32>,
    /// The first wait after a failed pull, 10 s; doubled after each further one.
    pub back_off_initial: Duration,
    /// The longest wait, 5 min.
    pub back_off_max: Duration,
}

impl Default for ImagePullSettings {
    fn default() -> Self {
        Self {
            serialize_image_pulls: true,
            max_parallel_image_pulls: None,
            back_off_initial: Duration::from_secs(10),
            back_off_max: Duration::from_secs(300),
        }
    }
}

/// Sees to it that the image of a container is there before the container is created (`images.ImageManager`).
pub(crate) struct ImageManager {
    service: Arc<dyn ImageService>,
    recorder: Arc<dyn EventRecorder>,
    /// Who measures how long pods take to start.
    statuses: Option<Arc<dyn PodStatusReporter>>,
    back_off: PullBackOff,
    /// A turn to pull; `None` where any number may pull at once. Turns are given in the order they were asked for.
    turns: Option<Semaphore>,
}

impl ImageManager {
    /// An image manager that pulls through `service`.
    pub(crate) fn new(
        service: Arc<dyn ImageService>,
        recorder: Arc<dyn EventRecorder>,
        settings: ImagePullSettings,
    ) -> Self {
        let at_once = match settings.max_parallel_image_pulls {
            _ if settings.serialize_image_pulls => Some(1),
            None | Some(0) => None,
            Some(pulls) => usize::try_from(pulls).ok(),
        };
        Self {
            service,
            recorder,
            statuses: None,
            back_off: PullBackOff::new(settings.back_off_initial, settings.back_off_max),
            turns: at_once.map(|pulls| Semaphore::new(pulls.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// It tells when it pulls for which pod (`ImagePodPullingTimeRecorder`).
    pub(crate) fn reporting_to(mut self, statuses: Option<Arc<dyn PodStatusReporter>>) -> Self {
        self.statuses = statuses;
        self
    }

    /// Returns the reference of the image to create `container` with (`EnsureImageExists`), pulling it if its pull
    /// policy and its presence ask for it.
    ///
    /// A failure bears what `state.waiting` shows: `InvalidImageName`, `ErrImageNeverPull`, `ImageInspectError`,
    /// `ErrImagePull`, `ImagePullBackOff`, `RegistryUnavailable` or `SignatureValidationFailed`.
    /// `field_path` is what events name, such as `spec.containers{main}`.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again. A pull under way is then cut off on this side; the runtime may go on.
    pub(crate) async fn ensure_image_exists(
        &self,
        pod: &Pod,
        container: &Container,
        field_path: &str,
        sandbox_config: &v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, SyncFailure> {
        let request = Request {
            manager: self,
            pod,
            image: container.image.as_deref().unwrap_or_default(),
            field_path,
        };
        let with_tag = apply_default_image_tag(request.image).map_err(|problem| {
            let message = format!("Failed to apply default image tag {:?}: {problem}", request.image);
            request.warn("InspectFailed", message.clone());
            failure("InvalidImageName", message)
        })?;
        let policy = PullPolicy::of(container, &with_tag);
        let spec = v1::ImageSpec {
            image: with_tag,
            annotations: pod.metadata.annotations.clone().unwrap_or_default(),
            runtime_handler: runtime_handler.to_owned(),
            ..Default::default()
        };
        if policy != PullPolicy::Always
            && let Some(image_ref) = request.present(&spec).await?
        {
            return Ok(image_ref);
        }
        if policy == PullPolicy::Never {
            let message = format!(
                "Container image {:?} is not present with pull policy of Never",
                request.image
            );
            request.warn("ErrImageNeverPull", message.clone());
            return Err(failure("ErrImageNeverPull", message));
        }
        request.pull(spec, sandbox_config, None).await
    }

    /// Forgets how pulls for a pod failed: it is gone.
    pub(crate) fn forget(&self, pod: &PodUid) {
        self.back_off.forget(pod);
    }
}

/// `imagePullPolicy`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// The container's; without one, `Always` for `latest` and `IfNotPresent` for any other image, as the API has it.
    fn of(container: &Container, image_with_tag: &str) -> Self {
        match container.image_pull_policy.as_deref() {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            Some("IfNotPresent") => Self::IfNotPresent,
            _ if image_with_tag.ends_with(":latest") || image_with_tag.contains(":latest@") => Self::Always,
            _ => Self::IfNotPresent,
        }
    }
}

/// One container that asks for its image.
struct Request<'a> {
    manager: &'a ImageManager,
    pod: &'a Pod,
    /// As the container's spec names it.
    image: &'a str,
    field_path: &'a str,
}

impl Request<'_> {
    /// The reference of the image if it is there already.
    async fn present(&self, spec: &v1::ImageSpec) -> Result<Option<String>, SyncFailure> {
        let status = self.manager.status(spec).await.map_err(|error| {
            let message = format!("Failed to inspect image \"\": {}", error.rpc_text());
            self.warn("InspectFailed", message.clone());
            failure("ImageInspectError", message)
        })?;
        let Some(image) = status.filter(|image| !image.id.is_empty()) else {
            return Ok(None);
        };
        // If this pod was about to pull it, another was faster.
        self.finished_pulling();
        self.note(
            "Pulled",
            format!(
                "Container image {:?} already present on machine and can be accessed by the pod",
                self.image
            ),
        );
        Ok(Some(image.id))
    }

    /// Pulls it, unless the last pull failed a short while ago.
    async fn pull(
        &self,
        spec: v1::ImageSpec,
        sandbox_config: &v1::PodSandboxConfig,
        auth: Option<v1::AuthConfig>,
    ) -> Result<String, SyncFailure> {
        let uid = self.pod.uid();
        if let Err(waiting) = self.manager.back_off.check(&uid, self.image) {
            let message = format!("Back-off pulling image {:?}", self.image);
            self.note("BackOff", message.clone());
            return Err(SyncFailure {
                back_off_until: Some(waiting.until),
                ..failure("ImagePullBackOff", format!("{message}: {}", waiting.error))
            });
        }

        if let Some(statuses) = &self.manager.statuses {
            statuses.record_image_started_pulling(&uid);
        }
        self.note("Pulling", format!("Pulling image {:?}", self.image));
        let asked = Instant::now();
        let turn = match &self.manager.turns {
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        let started = Instant::now();
        let request = v1::PullImageRequest {
            image: Some(spec.clone()),
            auth,
            sandbox_config: Some(sandbox_config.clone()),
        };
        let pulled = match self.manager.service.pull_image(request).await {
            Ok(response) if response.image_ref.is_empty() => {
                Err(format!("imageRef of image {:?} is not set", spec.image))
            }
            Ok(response) => Ok(response.image_ref),
            Err(error) => Err(pull_error_text(&error)),
        };
        let image_ref = match pulled {
            Ok(image_ref) => image_ref,
            Err(text) => {
                drop(turn);
                return Err(self.pull_failed(&uid, text));
            }
        };
        self.finished_pulling();
        // Only for the event: without it the size is shown as 0.
        let size = self.manager.status(&spec).await;
        let size = size.ok().flatten().map_or(0, |image| image.size);
        drop(turn);
        let waited = asked.elapsed();
        self.note(
            "Pulled",
            format!(
                "Successfully pulled image {:?} in {} ({} including waiting). Image size: {size} bytes.",
                self.image,
                go_duration(started.elapsed()),
                go_duration(waited)
            ),
        );
        metrics::histogram!("kubelet_image_pull_duration_seconds", "image_size_in_bytes" => size_bucket(size))
            .record(waited.as_secs_f64());
        self.manager.back_off.collect_garbage();
        Ok(image_ref)
    }

    /// Some runtimes put a word of CRI in front of what they say (`evalCRIPullErr`).
    fn pull_failed(&self, uid: &PodUid, text: String) -> SyncFailure {
        self.warn("Failed", format!("Failed to pull image {:?}: {text}", self.image));
        let words = [
            ("RegistryUnavailable", "the registry is unavailable"),
            ("SignatureValidationFailed", "the signature validation failed"),
        ];
        let said = words.iter().find_map(|(word, meaning)| {
            let rest = text.strip_prefix(word)?;
            let message = format!("image pull failed for {} because {meaning}{rest}", self.image);
            Some((*word, message))
        });
        let (reason, message) = said.unwrap_or(("ErrImagePull", text));
        let kept = format!("{reason}: {message}");
        self.manager.back_off.failed(uid, self.image, kept);
        failure(reason, message)
    }

    /// A pull that failed is not over before the image is there.
    fn finished_pulling(&self) {
        if let Some(statuses) = &self.manager.statuses {
            statuses.record_image_finished_pulling(&self.pod.uid());
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
            pod: self.pod,
            field_path: Some(self.field_path.to_owned()),
            event_type,
            reason,
            message,
        });
    }
}

impl ImageManager {
    async fn status(&self, spec: &v1::ImageSpec) -> Result<Option<v1::Image>, Error> {
        let request = v1::ImageStatusRequest {
            image: Some(spec.clone()),
            verbose: false,
        };
        Ok(self.service.image_status(request).await?.image)
    }
}

/// A code that says nothing is left away: what the runtime says then comes first, where its words are looked for.
fn pull_error_text(error: &Error) -> String {
    match error.code() {
        Code::Unknown => error.message(),
        _ => error.rpc_text(),
    }
}

fn failure(reason: &str, message: String) -> SyncFailure {
    SyncFailure {
        reason: reason.to_owned(),
        message,
        back_off_until: None,
    }
}

/// As Go prints durations, cut to milliseconds: `1m2.5s`, `320ms`, `0s`.
fn go_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let (seconds, fraction) = (millis / 1000 % 60, millis % 1000);
    let fraction = match fraction {
        0 => String::new(),
        rest => format!(".{rest:03}").trim_end_matches('0').to_owned(),
    };
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, _) => format!("{minutes}m{seconds}{fraction}s"),
        _ => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

/// The label of `image_pull_duration_seconds` (`GetImageSizeBucket`).
fn size_bucket(bytes: u64) -> &'static str {
    const MB: u64 = 1 << 20;
    const GB: u64 = 1 << 30;
    let at_most = [
        (0, "N/A"),
        (10 * MB, "0-10MB"),
        (100 * MB, "10MB-100MB"),
        (500 * MB, "100MB-500MB"),
        (GB, "500MB-1GB"),
        (5 * GB, "1GB-5GB"),
        (10 * GB, "5GB-10GB"),
        (20 * GB, "10GB-20GB"),
        (30 * GB, "20GB-30GB"),
        (40 * GB, "30GB-40GB"),
        (60 * GB, "40GB-60GB"),
        (100 * GB, "60GB-100GB"),
    ];
    let bucket = at_most.iter().find(|(most, _)| bytes <= *most);
    bucket.map_or("GT100GB", |(_, label)| label)
}
