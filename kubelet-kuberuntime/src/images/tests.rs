use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PodStatus;
use kubelet_core::{ContainerId, NoServiceAccounts, PodStatusInput};
use parking_lot::Mutex;
use tokio::time::{Instant, advance, sleep};

use super::*;
use crate::counted::Counted;
use kubelet_cri::Code;

/// Has images by name; pulls take two seconds.
#[derive(Default)]
struct Images {
    present: Mutex<BTreeMap<String, v1::Image>>,
    failing: Mutex<BTreeMap<String, Error>>,
    /// The user that may pull a private image.
    owners: Mutex<BTreeMap<String, String>>,
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
        let images = self.present.lock().values().cloned().collect();
        Ok(v1::ListImagesResponse { images })
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
        let user = request.auth.as_ref().map(|auth| auth.username.clone());
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
        if let Some(owner) = self.owners.lock().get(&name)
            && user.as_ref() != Some(owner)
        {
            let text = format!("{} may not", user.as_deref().unwrap_or("nobody"));
            return Err(Error::call(Code::Unknown, "PullImage", "", text));
        }
        let image = v1::Image {
            id: format!("sha256:{name}"),
            repo_tags: vec![name.clone()],
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
    settings: ImagePullSettings,
    dir: tempfile::TempDir,
}

async fn world(settings: ImagePullSettings) -> World {
    let images = Arc::new(Images::default());
    let events = Arc::new(Events::default());
    let dir = tempfile::tempdir().unwrap();
    let manager = manager(&images, &events, &settings, dir.path()).await;
    World {
        images,
        events,
        manager,
        settings,
        dir,
    }
}

async fn manager(
    images: &Arc<Images>,
    events: &Arc<Events>,
    settings: &ImagePullSettings,
    root_dir: &std::path::Path,
) -> Arc<ImageManager> {
    let mut settings = settings.clone();
    settings
        .docker_config_files
        .get_or_insert_with(|| vec![root_dir.join("config.json")]);
    let root_dir = RootDir::new(root_dir);
    let manager = ImageManager::new(ImageManagerParts {
        service: images.clone(),
        recorder: events.clone(),
        statuses: None,
        settings,
        providers: CredentialProviders::new(Vec::new(), Arc::new(NoServiceAccounts)),
        root_dir: &root_dir,
        disk: Disk::inline(),
        clock: Clock::starting_at("2026-01-02T03:04:05Z".parse().unwrap()),
    });
    Arc::new(manager.await)
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

    /// Only this user may pull it.
    fn owns(&self, image: &str, user: &str) {
        self.images.owners.lock().insert(image.into(), user.into());
    }

    async fn ensure(&self, uid: &str, image: &str, policy: &str) -> Result<String, SyncFailure> {
        ensure(&self.manager, uid, image, policy).await
    }

    fn pulls(&self) -> usize {
        self.images.pulling.lock().requests.len()
    }
}

async fn ensure(manager: &ImageManager, uid: &str, image: &str, policy: &str) -> Result<String, SyncFailure> {
    ensure_with(manager, uid, image, policy, &[]).await
}

async fn ensure_with(
    manager: &ImageManager,
    uid: &str,
    image: &str,
    policy: &str,
    secrets: &[Arc<Secret>],
) -> Result<String, SyncFailure> {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.into());
    pod.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
    let sandbox = v1::PodSandboxConfig {
        hostname: "web".into(),
        ..Default::default()
    };
    let wanted = WantedImage {
        pod: &pod,
        image,
        pull_policy: Some(policy).filter(|policy| !policy.is_empty()),
        field_path: Some("spec.containers{main}".into()),
        pull_secrets: secrets,
        sandbox_config: &sandbox,
        runtime_handler: "handler",
    };
    manager.ensure_image_exists(&wanted).await
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
        let world = world(ImagePullSettings::default()).await;
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
    let world = world(ImagePullSettings::default()).await;
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
    let world = world(ImagePullSettings::default()).await;
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
    let world = world(ImagePullSettings::default()).await;
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
    let world = world(ImagePullSettings::default()).await;
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
    // Another pod does not wait, and neither does an image that has arrived meanwhile.
    assert_eq!(
        world.ensure("v", "a:1", "").await.unwrap_err().reason,
        "ErrImagePull"
    );
    world.has("a:1");
    world.ensure("v", "a:1", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_is_forgotten() {
    let world = world(ImagePullSettings::default()).await;
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
        let world = world(ImagePullSettings::default()).await;
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
        let world = world(settings.clone()).await;
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
    let world = world(ImagePullSettings::default()).await;
    let dropped = tokio::time::timeout(Duration::from_secs(1), world.ensure("u", "a:1", ""));
    assert!(dropped.await.is_err());
    world.ensure("u", "b:1", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pull_too_many_at_once_is_refused_and_backs_off() {
    let mut settings = ImagePullSettings::default();
    (settings.registry_pull_qps, settings.registry_burst) = (1, 2);
    let world = world(settings).await;
    // One after the other, two seconds each: the bucket does not become empty.
    for image in ["a:1", "a:2", "a:3", "a:4"] {
        world.ensure("u", image, "").await.unwrap();
    }

    let mut settings = world.settings.clone();
    settings.serialize_image_pulls = false;
    let manager = manager(&world.images, &world.events, &settings, world.dir.path()).await;
    let pull = |image: &'static str| ensure(&manager, "u", image, "");
    let (first, second, third) = tokio::join!(pull("c:1"), pull("c:2"), pull("c:3"));
    assert!(first.is_ok() && second.is_ok());
    let failure = third.unwrap_err();
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        ("ErrImagePull", "pull QPS exceeded")
    );
    let events = world.events.take();
    assert!(
        events.contains(&"Warning Failed: Failed to pull image \"c:3\": pull QPS exceeded".to_owned()),
        "{events:?}"
    );
    assert_eq!(pull("c:3").await.unwrap_err().reason, "ImagePullBackOff");
}

fn pull_secret(name: &str, user: &str) -> Arc<Secret> {
    let json = format!(r#"{{"auths": {{"r.io": {{"username": "{user}", "password": "p"}}}}}}"#);
    let mut secret = Secret {
        type_: Some("kubernetes.io/dockerconfigjson".into()),
        data: Some(
            [(
                ".dockerconfigjson".to_owned(),
                k8s_openapi::ByteString(json.into()),
            )]
            .into(),
        ),
        ..Default::default()
    };
    secret.metadata.name = Some(name.into());
    secret.metadata.namespace = Some("ns".into());
    secret.metadata.uid = Some(name.into());
    Arc::new(secret)
}

#[tokio::test(start_paused = true)]
async fn credentials_are_tried_one_after_the_other() {
    let world = world(ImagePullSettings::default()).await;
    world.owns("r.io/a:1", "ann");
    let node = r#"{"auths": {"r.io": {"username": "node"}}}"#;
    std::fs::write(world.dir.path().join("config.json"), node).unwrap();
    let secrets = [pull_secret("s1", "bob"), pull_secret("s2", "ann")];

    let failure = ensure_with(&world.manager, "u", "r.io/a:1", "", &secrets[..1])
        .await
        .unwrap_err();
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        ("ErrImagePull", "[bob may not, node may not]")
    );
    world.events.take();
    ensure_with(&world.manager, "v", "r.io/a:1", "", &secrets)
        .await
        .unwrap();
    let pulling = world.images.pulling.lock();
    let asked: Vec<_> = pulling
        .requests
        .iter()
        .map(|request| request.auth.clone().unwrap())
        .collect();
    let users: Vec<_> = asked.iter().map(|auth| auth.username.as_str()).collect();
    assert_eq!(users, ["bob", "node", "bob", "ann"]);
    assert_eq!(asked[0].password, "p");
}

#[tokio::test(start_paused = true)]
async fn a_pull_secret_that_cannot_be_read_is_told() {
    let world = world(ImagePullSettings::default()).await;
    let failure = ensure_with(&world.manager, "u", "r.io/a:1", "", &[broken_secret()])
        .await
        .unwrap_err();
    let problem = "secret ns/s: the Docker configuration is not an object";
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        (problem, problem)
    );
    assert_eq!(world.pulls(), 0);
}

fn broken_secret() -> Arc<Secret> {
    let mut secret = Secret::clone(&pull_secret("s", "ann"));
    let broken = k8s_openapi::ByteString(b"[]".into());
    secret.data = Some([(".dockerconfigjson".to_owned(), broken)].into());
    Arc::new(secret)
}

#[test]
fn who_may_use_an_image_that_is_there_is_counted() {
    let counted = Counted::of("kubelet_imagemanager_image_mustpull_checks_total ", async {
        let world = world(ImagePullSettings::default()).await;
        world.owns("r.io/a:1", "ann");
        let good = [pull_secret("s", "ann")];
        for secrets in [&good[..], &good, &[], &[broken_secret()]] {
            let _ = ensure_with(&world.manager, "u", "r.io/a:1", "", secrets).await;
        }
    });
    let expected = [
        ("credentialRecordFound", 1),
        ("error", 1),
        ("mustAuthenticate", 1),
    ];
    assert_eq!(
        counted,
        expected.map(|(result, count)| (result.to_owned(), count))
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_was_pulled_with_a_secret_is_not_for_everybody() {
    let world = world(ImagePullSettings::default()).await;
    world.owns("r.io/a:1", "ann");
    let secrets = [pull_secret("s", "ann")];
    ensure_with(&world.manager, "u", "r.io/a:1", "", &secrets)
        .await
        .unwrap();
    assert_eq!(world.pulls(), 1);

    // A pod with the secret, or with another one of the same content, does not pull it.
    for secrets in [&secrets, &[pull_secret("other", "ann")]] {
        ensure_with(&world.manager, "v", "r.io/a:1", "", secrets)
            .await
            .unwrap();
    }
    assert_eq!(world.pulls(), 1);
    world.events.take();

    // A pod without it must pull, and cannot.
    let failure = world.ensure("w", "r.io/a:1", "").await.unwrap_err();
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        ("ErrImagePull", "nobody may not")
    );
    assert_eq!(
        world.events.take(),
        [
            "Normal Pulling: Pulling image \"r.io/a:1\"",
            "Warning Failed: Failed to pull image \"r.io/a:1\": nobody may not"
        ]
    );
    let failure = world.ensure("w", "r.io/a:1", "Never").await.unwrap_err();
    assert_eq!(failure.reason, "ErrImageNeverPull");

    // The next agent reads the record.
    let manager = manager(&world.images, &world.events, &world.settings, world.dir.path()).await;
    assert!(ensure(&manager, "x", "r.io/a:1", "").await.is_err());
    ensure_with(&manager, "x", "r.io/a:1", "Never", &secrets)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_image_that_was_pulled_without_credentials_is_for_everybody() {
    let world = world(ImagePullSettings::default()).await;
    world.ensure("u", "r.io/a:1", "").await.unwrap();
    world.ensure("v", "r.io/a:1", "").await.unwrap();
    assert_eq!(world.pulls(), 1);
    // Under another name it counts as another image.
    let image = world.images.present.lock()["r.io/a:1"].clone();
    world.images.present.lock().insert("r.io/b:1".into(), image);
    world.ensure("v", "r.io/b:1", "").await.unwrap();
    assert_eq!(world.pulls(), 2);
}

#[tokio::test(start_paused = true)]
async fn policies_tell_whether_preloaded_images_need_a_proof() {
    use ImagePullCredentialsVerificationPolicy::*;
    let cases = [
        (NeverVerifyPreloadedImages, 0),
        (AlwaysVerify, 1),
        (NeverVerifyAllowlistedImages(vec!["r.io/a".into()]), 0),
        (NeverVerifyAllowlistedImages(vec!["r.io/b".into()]), 1),
        (NeverVerify, 0),
    ];
    for (policy, pulls) in cases {
        let settings = ImagePullSettings {
            credentials_verification: policy.clone(),
            ..Default::default()
        };
        let world = world(settings).await;
        world.has("r.io/a:1");
        world.ensure("u", "r.io/a:1", "").await.unwrap();
        assert_eq!(world.pulls(), pulls, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_was_cut_off_leaves_word_that_the_image_was_pulled() {
    let world = world(ImagePullSettings::default()).await;
    world.owns("r.io/a:1", "ann");
    let secrets = [pull_secret("s", "ann")];
    let pull = ensure_with(&world.manager, "u", "r.io/a:1", "", &secrets);
    assert!(tokio::time::timeout(Duration::from_secs(1), pull).await.is_err());
    // The runtime completed the pull, and its credentials were not recorded.
    let image = v1::Image {
        id: "sha256:r.io/a:1".into(),
        repo_tags: vec!["r.io/a:1".into()],
        ..Default::default()
    };
    world.images.present.lock().insert("r.io/a:1".into(), image);
    assert!(world.ensure("v", "r.io/a:1", "").await.is_err());

    let intents = world.dir.path().join("image_manager/pulling");
    assert_eq!(std::fs::read_dir(&intents).unwrap().count(), 1);
    let next = manager(&world.images, &world.events, &world.settings, world.dir.path()).await;
    assert_eq!(std::fs::read_dir(&intents).unwrap().count(), 0, "it is settled");
    assert!(ensure(&next, "v", "r.io/a:1", "").await.is_err());
    ensure_with(&next, "w", "r.io/a:1", "", &secrets).await.unwrap();
    ensure_with(&next, "x", "r.io/a:1", "Never", &secrets)
        .await
        .unwrap();
}

/// Records `s`, a pull that began, and `f`, an image that is present.
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
    let mut world = world(ImagePullSettings::default()).await;
    let starts = Arc::new(Starts::default());
    Arc::get_mut(&mut world.manager).unwrap().statuses = Some(starts.clone());
    let (images, manager) = (&world.images, &world.manager);
    let recorded = || std::mem::take(&mut *starts.0.lock());
    let image = v1::Image {
        id: "sha256:there:1".to_owned(),
        ..Default::default()
    };
    images.present.lock().insert("there:1".to_owned(), image);
    images.failing.lock().insert("gone:1".to_owned(), not_found());

    ensure(manager, "1", "new:1", "Always").await.unwrap();
    assert_eq!(recorded(), "s1 f1 ");
    // Another container may have pulled it for this pod.
    ensure(manager, "2", "there:1", "IfNotPresent").await.unwrap();
    assert_eq!(recorded(), "f2 ");
    // A failed pull stays recorded as running, also during its back-off.
    ensure(manager, "3", "gone:1", "").await.unwrap_err();
    ensure(manager, "3", "gone:1", "").await.unwrap_err();
    ensure(manager, "3", "gone:1", "Never").await.unwrap_err();
    assert_eq!(recorded(), "s3 ");
}

#[test]
fn requests_count_by_policy_presence_and_need() {
    let counted = Counted::of("kubelet_image_manager_ensure_image_requests_total ", async {
        let world = world(ImagePullSettings::default()).await;
        world.has("here:1");
        let requests = [
            ("a", "here:1", "IfNotPresent"),
            ("a", "here:1", "IfNotPresent"),
            ("a", "here:1", "Never"),
            ("a", "here:1", "Always"),
            ("a", "new:1", "IfNotPresent"),
            ("a", "none:1", "Never"),
            ("a", "broken:1", "IfNotPresent"),
            ("a", "BAD NAME", "Always"),
        ];
        for (uid, image, policy) in requests {
            let _ = world.ensure(uid, image, policy).await;
        }
    });
    let expected = [
        ("always unknown true", 1),
        ("always unknown unknown", 1),
        ("ifnotpresent false true", 1),
        ("ifnotpresent true false", 2),
        ("ifnotpresent unknown unknown", 1),
        ("never false unknown", 1),
        ("never true false", 1),
    ];
    assert_eq!(
        counted,
        expected.map(|(labels, count)| (labels.to_owned(), count))
    );
}
