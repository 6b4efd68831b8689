//! Image garbage collection: which images are removed, and when.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::{EventType, NodeEventRecorder};
use kubelet_cri::v1;
use kubelet_kuberuntime::{
    CriRuntime, FsStats, ImageFsStats, ImageGcManager, ImageGcPolicy, ImagePullSettings,
};
use serde_json::json;
use tokio::time::advance;
use tokio_util::sync::CancellationToken;

use crate::fake::Fake;
use crate::rig::{Rig, pod};

const MINUTE: Duration = Duration::from_secs(60);

/// A disk of 1,000 bytes that has only images, with other numbers set by the test.
struct DiskOfImages {
    fake: Arc<Fake>,
    other: Mutex<u64>,
    capacity: Mutex<u64>,
}

#[async_trait]
impl ImageFsStats for DiskOfImages {
    async fn image_fs_stats(&self) -> kubelet_core::Result<FsStats> {
        let used: u64 = self.fake.images().iter().map(|image| image.size).sum();
        let capacity = *self.capacity.lock().unwrap();
        let available = capacity.saturating_sub(used + *self.other.lock().unwrap());
        Ok(FsStats { capacity, available })
    }
}

#[derive(Default)]
struct NodeEvents(Mutex<Vec<String>>);

impl NodeEventRecorder for NodeEvents {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        let text = format!("{} {reason}: {message}", event_type.as_str());
        self.0.lock().unwrap().push(text);
    }
}

struct World {
    fake: Arc<Fake>,
    disk: Arc<DiskOfImages>,
    events: Arc<NodeEvents>,
    gc: ImageGcManager,
    /// Keeps the folders.
    _rig: Rig,
}

fn policy(change: impl FnOnce(&mut ImageGcPolicy)) -> ImageGcPolicy {
    let mut policy = ImageGcPolicy::default();
    change(&mut policy);
    policy
}

/// A running container of the image `used`, and one that has `mounted` as a volume.
async fn world(policy: ImageGcPolicy) -> World {
    let mut rig = Rig::new().await;
    rig.sync_ok(&pod(
        "p",
        json!({
            "volumes": [{ "name": "v", "image": { "reference": "mounted" } }],
            "containers": [{
                "name": "main",
                "image": "used",
                "imagePullPolicy": "IfNotPresent",
                "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
            }],
        }),
    ))
    .await;
    let fake = rig.fake.clone();
    let other = rig.builder().build().await.unwrap();
    let runtime: Arc<CriRuntime> = Arc::new(std::mem::replace(&mut rig.manager, other));
    let disk = Arc::new(DiskOfImages {
        fake: fake.clone(),
        other: Mutex::new(0),
        capacity: Mutex::new(1000),
    });
    let events = Arc::new(NodeEvents::default());
    let gc = ImageGcManager::new(runtime, policy, disk.clone(), events.clone()).unwrap();
    World {
        fake,
        disk,
        events,
        gc,
        _rig: rig,
    }
}

impl World {
    fn add(&self, id: &str, size: u64) {
        self.fake.add_image(v1::Image {
            id: id.to_owned(),
            size,
            ..Default::default()
        });
    }

    fn ids(&self) -> Vec<String> {
        self.fake.images().into_iter().map(|image| image.id).collect()
    }

    fn take_events(&self) -> Vec<String> {
        std::mem::take(&mut self.events.0.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_emptied_to_the_low_threshold_the_longest_unused_first() {
    let world = world(ImageGcPolicy::default()).await;
    *world.disk.other.lock().unwrap() = 100;
    world.add("id of used:latest", 300);
    world.add("mounted:latest", 100);
    world.add("first", 100);
    world.gc.garbage_collect().await.unwrap();
    advance(MINUTE).await;
    world.add("second", 100);
    world.add("third", 50);
    world.fake.add_image(v1::Image {
        id: "pause".to_owned(),
        size: 89,
        pinned: true,
        ..Default::default()
    });
    world.gc.garbage_collect().await.unwrap();
    assert_eq!(world.ids().len(), 6, "83.9 % is not too full");

    // Now 85.9 %, and young images are kept.
    *world.disk.other.lock().unwrap() = 120;
    advance(MINUTE + Duration::from_secs(1)).await;
    world.gc.garbage_collect().await.unwrap();
    assert!(!world.ids().contains(&"first".to_owned()));
    assert_eq!(world.ids().len(), 5, "75.9 %: enough");

    *world.disk.other.lock().unwrap() = 400;
    advance(MINUTE).await;
    let error = world.gc.garbage_collect().await.unwrap_err().to_string();
    let message = "Insufficient free disk space on the node's image filesystem (100% of 1000 B used). Failed to free \
                   sufficient space by deleting unused images (freed 150 bytes). Investigate disk usage, as it could be \
                   used by active images, logs, volumes, or other data.";
    assert!(error.ends_with(message), "{error}");
    assert_eq!(
        world.take_events(),
        [format!("Warning FreeDiskSpaceFailed: {message}")]
    );
    let mut ids = world.ids();
    ids.sort();
    assert_eq!(ids, ["id of used:latest", "mounted:latest", "pause"]);
}

#[tokio::test(start_paused = true)]
async fn the_policy_changes_while_images_are_collected() {
    let world = world(ImageGcPolicy::default()).await;
    world.add("id of used:latest", 500);
    world.add("unused", 200);
    let (ends, gc) = (CancellationToken::new(), world.gc.clone());
    let running = tokio::spawn(gc.run(ends.clone()));
    advance(6 * MINUTE).await;
    world.gc.garbage_collect().await.unwrap();
    assert_eq!(world.ids().len(), 2, "70 % is not too full");

    let low =
        |high| policy(|policy| (policy.high_threshold_percent, policy.low_threshold_percent) = (high, 50));
    assert!(
        world.gc.set_policy(low(40)).is_err(),
        "the low threshold is higher"
    );
    world.gc.garbage_collect().await.unwrap();
    assert_eq!(world.ids().len(), 2, "the policy stays");
    world.gc.set_policy(low(60)).unwrap();
    // Until the images are old enough.
    advance(3 * MINUTE).await;
    world.gc.garbage_collect().await.unwrap();
    assert_eq!(world.ids(), ["id of used:latest"]);
    ends.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_image_is_young_again_after_it_was_used() {
    let world = world(policy(|policy| policy.min_age = Duration::ZERO)).await;
    world.add("id of used:latest", 450);
    world.add("other", 450);
    world.gc.garbage_collect().await.unwrap();
    assert_eq!(world.ids(), ["id of used:latest"]);
    world.add("later", 10);
    world.gc.garbage_collect().await.unwrap();
    world.fake.forget_containers();
    advance(MINUTE).await;
    world.add("latest", 440);
    world.gc.garbage_collect().await.unwrap();
    // An image that was never used is removed before one that was.
    assert_eq!(world.ids(), ["id of used:latest"]);
}

#[tokio::test(start_paused = true)]
async fn old_images_go_once_use_was_noted_for_long_enough() {
    let world = world(policy(|policy| policy.max_age = 10 * MINUTE)).await;
    world.add("id of used:latest", 10);
    world.add("old", 10);
    for _ in 0..5 {
        advance(2 * MINUTE).await;
        world.gc.garbage_collect().await.unwrap();
    }
    assert_eq!(world.ids().len(), 2);
    advance(MINUTE).await;
    world.gc.garbage_collect().await.unwrap();
    assert_eq!(world.ids(), ["id of used:latest"]);
    world.fake.forget_containers();
    advance(10 * MINUTE).await;
    world.gc.garbage_collect().await.unwrap();
    assert_eq!(world.ids(), ["id of used:latest"]);
    advance(MINUTE).await;
    world.gc.garbage_collect().await.unwrap();
    assert!(world.ids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn under_pressure_all_that_is_unused_goes() {
    let world = world(policy(|policy| policy.min_age = Duration::ZERO)).await;
    for id in ["id of used:latest", "a", "b"] {
        world.add(id, 1);
    }
    world.gc.delete_unused_images().await.unwrap();
    assert_eq!(world.ids(), ["id of used:latest"]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_twice_in_a_row_is_told() {
    let world = world(policy(|policy| policy.min_age = Duration::ZERO)).await;
    world.add("stuck", 900);
    world.add("gone", 50);
    world.fake.keep_image("stuck");
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(world.gc.clone().run(shutdown.clone()));
    let told = async {
        while world.events.0.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let began = tokio::time::Instant::now();
    tokio::time::timeout(60 * MINUTE, told).await.unwrap();
    assert!(began.elapsed() >= 5 * MINUTE, "once may be chance");
    assert_eq!(
        world.take_events(),
        [
            "Warning ImageGCFailed: wanted to free 100 bytes, but freed 0 bytes space with errors in image deletion: rpc \
             error: code = Internal desc = image is stuck"
        ]
    );
    assert_eq!(world.gc.images().len(), 1);
    *world.disk.capacity.lock().unwrap() = 0;
    let error = world.gc.garbage_collect().await.unwrap_err().to_string();
    assert!(
        error.ends_with("invalid capacity 0 on image filesystem"),
        "{error}"
    );
    assert_eq!(
        world.take_events(),
        ["Warning InvalidDiskCapacity: invalid capacity 0 on image filesystem"]
    );
    shutdown.cancel();
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_image_of_a_handler_that_has_no_id_is_left_out() {
    let rig = Rig::new().await;
    let mut pulls = ImagePullSettings::default();
    pulls.runtime_class_in_image_cri_api = true;
    let runtime = rig.builder().image_pulls(pulls).build().await.unwrap();
    let disk = Arc::new(DiskOfImages {
        fake: rig.fake.clone(),
        other: Mutex::new(0),
        capacity: Mutex::new(1000),
    });
    for id in ["", "old"] {
        rig.fake.add_image(v1::Image {
            id: id.to_owned(),
            size: 10,
            ..Default::default()
        });
    }
    let events = Arc::new(NodeEvents::default());
    let now = policy(|policy| policy.min_age = Duration::ZERO);
    let gc = ImageGcManager::new(Arc::new(runtime), now, disk, events.clone()).unwrap();
    gc.delete_unused_images().await.unwrap();
    assert_eq!(rig.fake.images().len(), 1);
    assert_eq!(
        *events.0.lock().unwrap(),
        ["Warning InvalidImageID: ImageID is not valid, skipping, image: "]
    );
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_makes_no_sense_is_refused() {
    let cases = [
        (
            101,
            80,
            "invalid HighThresholdPercent 101, must be in range [0-100]",
        ),
        (
            80,
            101,
            "invalid LowThresholdPercent 101, must be in range [0-100]",
        ),
        (
            80,
            81,
            "LowThresholdPercent 81 can not be higher than HighThresholdPercent 80",
        ),
    ];
    for (high, low, problem) in cases {
        let rig = Rig::new().await;
        let disk = DiskOfImages {
            fake: rig.fake.clone(),
            other: Mutex::new(0),
            capacity: Mutex::new(1000),
        };
        let policy = policy(|policy| {
            (policy.high_threshold_percent, policy.low_threshold_percent) = (high, low);
        });
        let events = Arc::new(NodeEvents::default());
        let refused = ImageGcManager::new(Arc::new(rig.manager), policy, Arc::new(disk), events).err();
        assert!(refused.unwrap().to_string().ends_with(problem));
    }
}
