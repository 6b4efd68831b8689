use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PodStatus;
use kubelet_core::{ContainerId, PodStatusInput};
use parking_lot::Mutex;
use tokio::time::{advance, sleep};

use super::*;

/// Holds images by name; pulls take two seconds.
#[derive(Default)]
struct Images {
    present: Mutex<BTreeMap<String, v1::Image>>,
    failing: Mutex<BTreeMap<String, Error>>,
    pulling: Mutex<Pulling>,
}

#[derive(Default)]
struct Pulling {
    requests: Vec<v1::PullImageRequest>,
    now: usize,
    most: usize,
}

#[async_trait]
impl ImageService for Images {
    async fn list_images(&self, _: v1::ListImagesRequest) -> Result<v1::ListImagesResponse, Error> {
        Err(Error::unimplemented("ListImages"))
    }

    async fn image_status(&self, request: v1::ImageStatusRequest) -> Result<v1::ImageStatusResponse, Error> {
        let name = request.image.unwrap().image;
        if name == "broken:1" {
            return Err(Error::internal("ImageStatus", name, "disk on fire"));
        }
        Ok(v1::ImageStatusResponse {
            image: self.present.lock().get(&name).cloned(),
            ..Default::default()
        })
    }

    async fn pull_image(&self, request: v1::PullImageRequest) -> Result<v1::PullImageResponse, Error> {
        let name = request.image.clone().unwrap().image;
        {
            let mut pulling = self.pulling.lock();
            pulling.requests.push(request);
            pulling.now += 1;
            pulling.most = pulling.most.max(pulling.now);
        }
        sleep(Duration::from_secs(2)).await;
        self.pulling.lock().now -= 1;
        if let Some(error) = self.failing.lock().get(&name) {
            return Err(error.clone());
        }
        let image = v1::Image {
            id: format!("sha256:{name}"),
            size: 123,
            ..Default::default()
        };
        self.present.lock().insert(name, image.clone());
        Ok(v1::PullImageResponse { image_ref: image.id })
    }

    async fn remove_image(&self, _: v1::RemoveImageRequest) -> Result<v1::RemoveImageResponse, Error> {
        Err(Error::unimplemented("RemoveImage"))
    }
}

#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl Events {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl EventRecorder for Events {
    fn record(&self, event: Event<'_>) {
        assert_eq!(event.field_path.as_deref(), Some("spec.containers{main}"));
        let kind = event.event_type.as_str();
        self.0
            .lock()
            .push(format!("{kind} {}: {}", event.reason, event.message));
    }
}

struct World {
    images: Arc<Images>,
    events: Arc<Events>,
    manager: Arc<ImageManager>,
}

fn world(settings: ImagePullSettings) -> World {
    let images = Arc::new(Images::default());
    let events = Arc::new(Events::default());
    let manager = ImageManager::new(images.clone(), events.clone(), settings);
    World {
        images,
        events,
        manager: Arc::new(manager),
    }
}

impl World {
    fn has(&self, name: &str) {
        let image = v1::Image {
            id: format!("sha256:{name}"),
            ..Default::default()
        };
        self.images.present.lock().insert(name.to_owned(), image);
    }

    fn fails(&self, name: &str, error: Error) {
        self.images.failing.lock().insert(name.to_owned(), error);
    }

    async fn ensure(&self, uid: &str, image: &str, policy: &str) -> Result<String, SyncFailure> {
        ensure(&self.manager, uid, image, policy).await
    }

    fn pulls(&self) -> usize {
        self.images.pulling.lock().requests.len()
    }
}

async fn ensure(manager: &ImageManager, uid: &str, image: &str, policy: &str) -> Result<String, SyncFailure> {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.into());
    pod.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
    let container = Container {
        name: "main".into(),
        image: Some(image.into()),
        image_pull_policy: Some(policy.into()).filter(|policy: &String| !policy.is_empty()),
        ..Default::default()
    };
    let sandbox = v1::PodSandboxConfig {
        hostname: "web".into(),
        ..Default::default()
    };
    manager
        .ensure_image_exists(&pod, &container, "spec.containers{main}", &sandbox, "handler")
        .await
}

fn not_found() -> Error {
    Error::call(Code::NotFound, "PullImage", "", "no such image")
}

#[tokio::test(start_paused = true)]
async fn policies_decide_whether_to_pull() {
    let cases = [
        // image, present, policy, pulls
        ("a:1", true, "IfNotPresent", 0),
        ("a:1", false, "IfNotPresent", 1),
        ("a:1", true, "Always", 1),
        ("a:1", true, "Never", 0),
        ("a:1", true, "", 0),
        ("a:latest", true, "", 1),
        ("a:latest", true, "IfNotPresent", 0),
    ];
    for (image, present, policy, pulls) in cases {
        let world = world(ImagePullSettings::default());
        if present {
            world.has(image);
        }
        let image_ref = world.ensure("u", image, policy).await;
        assert_eq!(
            image_ref,
            Ok(format!("sha256:{image}")),
            "{image} {present} {policy}"
        );
        assert_eq!(world.pulls(), pulls, "{image} {present} {policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bare_name_means_its_latest() {
    let world = world(ImagePullSettings::default());
    world.has("a:latest");
    assert_eq!(
        world.ensure("u", "a", "IfNotPresent").await,
        Ok("sha256:a:latest".to_owned())
    );
    assert_eq!(
        world.events.take(),
        ["Normal Pulled: Container image \"a\" already present on machine and can be accessed by the pod"]
    );
    world.ensure("u", "a", "").await.unwrap();
    assert_eq!(world.pulls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pull_is_told_and_bears_all_the_runtime_needs() {
    let world = world(ImagePullSettings::default());
    world.ensure("u", "a:1", "").await.unwrap();
    assert_eq!(
        world.events.take(),
        [
            "Normal Pulling: Pulling image \"a:1\"",
            "Normal Pulled: Successfully pulled image \"a:1\" in 2s (2s including waiting). Image size: 123 bytes."
        ]
    );
    let request = world.images.pulling.lock().requests.remove(0);
    let spec = request.image.unwrap();
    assert_eq!(
        (spec.image.as_str(), spec.runtime_handler.as_str()),
        ("a:1", "handler")
    );
    assert_eq!(spec.annotations["a"], "b");
    assert_eq!(request.sandbox_config.unwrap().hostname, "web");
    assert_eq!(request.auth, None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused() {
    let world = world(ImagePullSettings::default());
    let cases = [
        (
            "Not A Valid Image",
            "",
            "InvalidImageName",
            "InspectFailed",
            "Failed to apply default image tag \"Not A Valid Image\": couldn't parse image name \"Not A Valid \
             Image\": invalid reference format: repository name (library/Not A Valid Image) must be lowercase",
        ),
        (
            "a:1",
            "Never",
            "ErrImageNeverPull",
            "ErrImageNeverPull",
            "Container image \"a:1\" is not present with pull policy of Never",
        ),
        (
            "broken:1",
            "",
            "ImageInspectError",
            "InspectFailed",
            "Failed to inspect image \"\": rpc error: code = Internal desc = disk on fire",
        ),
    ];
    for (image, policy, reason, event, message) in cases {
        let failure = world.ensure("u", image, policy).await.unwrap_err();
        assert_eq!(
            (failure.reason.as_str(), failure.message.as_str()),
            (reason, message)
        );
        assert_eq!(failure.back_off_until, None);
        assert_eq!(world.events.take(), [format!("Warning {event}: {message}")]);
    }
    assert_eq!(world.pulls(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_pull_the_next_waits_its_turn() {
    let world = world(ImagePullSettings::default());
    world.fails("a:1", not_found());
    let said = "rpc error: code = NotFound desc = no such image";
    for (pull, seconds) in [10, 20, 40, 80, 160, 300, 300].into_iter().enumerate() {
        let failure = world.ensure("u", "a:1", "").await.unwrap_err();
        assert_eq!(
            (failure.reason.as_str(), failure.message.as_str()),
            ("ErrImagePull", said)
        );
        assert_eq!(
            world.events.take(),
            [
                "Normal Pulling: Pulling image \"a:1\"".to_owned(),
                format!("Warning Failed: Failed to pull image \"a:1\": {said}")
            ]
        );

        let until = Instant::now() + Duration::from_secs(seconds);
        let failure = world.ensure("u", "a:1", "").await.unwrap_err();
        assert_eq!(failure.reason, "ImagePullBackOff");
        assert_eq!(
            failure.message,
            format!("Back-off pulling image \"a:1\": ErrImagePull: {said}")
        );
        assert_eq!(failure.back_off_until, Some(until));
        assert_eq!(
            world.events.take(),
            ["Normal BackOff: Back-off pulling image \"a:1\""]
        );
        assert_eq!(world.pulls(), pull + 1);
        advance(until - Instant::now()).await;
    }
    // Neither another pod nor an image that has come in the meantime has to wait.
    assert_eq!(
        world.ensure("v", "a:1", "").await.unwrap_err().reason,
        "ErrImagePull"
    );
    world.has("a:1");
    world.ensure("v", "a:1", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_is_forgotten() {
    let world = world(ImagePullSettings::default());
    world.fails("a:1", not_found());
    world.ensure("u", "a:1", "").await.unwrap_err();
    world.manager.forget(&"u".into());
    assert_eq!(
        world.ensure("u", "a:1", "").await.unwrap_err().reason,
        "ErrImagePull"
    );
}

#[tokio::test(start_paused = true)]
async fn the_words_of_cri_become_reasons() {
    let unknown = |text: &str| Error::call(Code::Unknown, "PullImage", "", text);
    let cases = [
        (
            unknown("RegistryUnavailable: gateway timeout"),
            "RegistryUnavailable",
            "image pull failed for a:1 because the registry is unavailable: gateway timeout",
        ),
        (
            unknown("SignatureValidationFailed: no key"),
            "SignatureValidationFailed",
            "image pull failed for a:1 because the signature validation failed: no key",
        ),
        (unknown("boom"), "ErrImagePull", "boom"),
    ];
    for (error, reason, message) in cases {
        let world = world(ImagePullSettings::default());
        world.fails("a:1", error);
        let failure = world.ensure("u", "a:1", "").await.unwrap_err();
        assert_eq!(
            (failure.reason.as_str(), failure.message.as_str()),
            (reason, message)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn pulls_take_turns() {
    let parallel = |max_parallel_image_pulls| ImagePullSettings {
        serialize_image_pulls: false,
        max_parallel_image_pulls,
        ..Default::default()
    };
    let cases = [
        (ImagePullSettings::default(), 1),
        (parallel(Some(2)), 2),
        (parallel(None), 5),
    ];
    for (settings, at_once) in cases {
        let world = world(settings.clone());
        let mut pulls = tokio::task::JoinSet::new();
        for pull in 0..5 {
            let manager = world.manager.clone();
            pulls.spawn(async move { ensure(&manager, "u", &format!("a:{pull}"), "").await });
        }
        while let Some(pulled) = pulls.join_next().await {
            pulled.unwrap().unwrap();
        }
        assert_eq!(world.images.pulling.lock().most, at_once, "{settings:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_is_dropped_gives_its_turn_back() {
    let world = world(ImagePullSettings::default());
    let dropped = tokio::time::timeout(Duration::from_secs(1), world.ensure("u", "a:1", ""));
    assert!(dropped.await.is_err());
    world.ensure("u", "b:1", "").await.unwrap();
}

#[test]
fn durations_look_like_gos() {
    let cases = [
        (0, "0s"),
        (7, "7ms"),
        (1000, "1s"),
        (1050, "1.05s"),
        (60_000, "1m0s"),
        (62_500, "1m2.5s"),
        (3_600_001, "1h0m0.001s"),
    ];
    for (millis, text) in cases {
        assert_eq!(go_duration(Duration::from_millis(millis)), text);
    }
    assert_eq!(go_duration(Duration::from_micros(999)), "0s");
}

#[test]
fn sizes_have_labels() {
    let cases = [
        (0, "N/A"),
        (1, "0-10MB"),
        (10 << 20, "0-10MB"),
        ((10 << 20) + 1, "10MB-100MB"),
        (200 << 30, "GT100GB"),
    ];
    for (bytes, label) in cases {
        assert_eq!(size_bucket(bytes), label);
    }
}

/// Keeps `s`, a pull that began, and `f`, an image that is there.
#[derive(Default)]
struct Starts(Mutex<String>);

impl PodStatusReporter for Starts {
    fn generate(&self, _: &PodStatusInput<'_>) -> PodStatus {
        PodStatus::default()
    }
    fn pod_status(&self, _: &PodUid) -> Option<Arc<PodStatus>> {
        None
    }
    fn set_pod_status(&self, _: &Arc<Pod>, _: PodStatus) {}
    fn terminate_pod(&self, _: &Arc<Pod>) {}
    fn set_container_readiness(&self, _: &PodUid, _: &ContainerId, _: bool) {}
    fn set_container_startup(&self, _: &PodUid, _: &ContainerId, _: bool) {}
    fn record_image_started_pulling(&self, uid: &PodUid) {
        self.0.lock().push_str(&format!("s{uid} "));
    }
    fn record_image_finished_pulling(&self, uid: &PodUid) {
        self.0.lock().push_str(&format!("f{uid} "));
    }
    fn observe_pod(&self, _: &Arc<Pod>) {}
    fn remove_orphaned_statuses(&self, _: &HashSet<PodUid>) {}
}

#[tokio::test(start_paused = true)]
async fn a_pull_is_over_when_the_image_is_there() {
    let (images, starts) = (Arc::new(Images::default()), Arc::new(Starts::default()));
    let events = Arc::new(Events::default());
    let manager = ImageManager::new(images.clone(), events, ImagePullSettings::default())
        .reporting_to(Some(starts.clone()));
    let told = || std::mem::take(&mut *starts.0.lock());
    let image = v1::Image {
        id: "sha256:there:1".to_owned(),
        ..Default::default()
    };
    images.present.lock().insert("there:1".to_owned(), image);
    images.failing.lock().insert("gone:1".to_owned(), not_found());

    ensure(&manager, "1", "new:1", "Always").await.unwrap();
    assert_eq!(told(), "s1 f1 ");
    // Another may have pulled it for this pod.
    ensure(&manager, "2", "there:1", "IfNotPresent").await.unwrap();
    assert_eq!(told(), "f2 ");
    // One that fails goes on, while it is backed off as well.
    ensure(&manager, "3", "gone:1", "").await.unwrap_err();
    ensure(&manager, "3", "gone:1", "").await.unwrap_err();
    ensure(&manager, "3", "gone:1", "Never").await.unwrap_err();
    assert_eq!(told(), "s3 ");
}
