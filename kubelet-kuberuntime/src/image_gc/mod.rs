//! Removes unused images if the disk is full or if they are old (`pkg/kubelet/images/image_gc_manager.go`).

mod collect;
mod fs_stats;
mod policy;
mod records;

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{EventType, NodeEventRecorder, Result};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use self::records::Records;
use crate::runtime::CriRuntime;
use kubelet_cri::v1;

pub use self::fs_stats::{FsStats, ImageFsStats};
pub use self::policy::ImageGcPolicy;

/// How often images are listed and their usage is recorded (`Start`).
const DETECT_PERIOD: Duration = Duration::from_secs(5 * 60);
/// How often the list for the node's status is renewed (`Start`).
const LIST_PERIOD: Duration = Duration::from_secs(30);
/// How often images are collected (`ImageGCPeriod`).
const IMAGE_GC_PERIOD: Duration = Duration::from_secs(5 * 60);

/// Removes unused images (`ImageGCManager`): those that were unused for [`max_age`](ImageGcPolicy::max_age). If the
/// usage of their disk is above a threshold, it also removes others, the longest unused first.
///
/// An image is in use while a container exists, running or not, that was created from it or has it mounted. Images that
/// the runtime pinned are never removed.
///
/// It is a handle: clones are cheap and share the records. [`run`](Self::run) does the periodic work. The other methods
/// work without it, too. Its metric is the kubelet's `kubelet_image_garbage_collected_total`.
#[derive(Clone)]
pub struct ImageGcManager {
    shared: Arc<Shared>,
}

/// The images of the node, for those that must not keep the manager.
pub(crate) type ImageList = Arc<Mutex<Arc<[v1::Image]>>>;

struct Shared {
    runtime: Arc<CriRuntime>,
    policy: Mutex<ImageGcPolicy>,
    stats: Arc<dyn ImageFsStats>,
    events: Arc<dyn NodeEventRecorder>,
    /// When recording of usage began.
    began: Instant,
    records: Mutex<Records>,
    /// Largest first.
    list: ImageList,
}

impl ImageGcManager {
    /// A collector of the images of `runtime`. It emits events about the node to `events`.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`](kubelet_core::Error::Misconfigured) if the policy is invalid.
    pub fn new(
        runtime: Arc<CriRuntime>,
        policy: ImageGcPolicy,
        stats: Arc<dyn ImageFsStats>,
        events: Arc<dyn NodeEventRecorder>,
    ) -> Result<Self> {
        policy.check()?;
        let shared = Shared {
            runtime,
            policy: Mutex::new(policy),
            stats,
            events,
            began: Instant::now(),
            records: Mutex::default(),
            list: Arc::new(Mutex::new(Arc::new([]))),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Records which images are used, refreshes the [list](Self::images), and removes images by the policy, until
    /// `shutdown`. If a collection fails twice in a row, it emits the event `ImageGCFailed`. With a high threshold of
    /// 100 % and no maximum age it removes nothing.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn run(self, shutdown: CancellationToken) {
        let every = |period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let (mut detect, mut list, mut collect) =
            (every(DETECT_PERIOD), every(LIST_PERIOD), every(IMAGE_GC_PERIOD));
        let mut failed = false;
        loop {
            // The policy can change meanwhile. The next tick is early enough for it.
            let collects = !self.shared.policy().collects_nothing();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                _ = list.tick() => {
                    let renewed = tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return,
                        renewed = self.shared.renew_list() => renewed,
                    };
                    if let Err(error) = renewed {
                        tracing::warn!(error, "cannot refresh the list of images");
                    }
                }
                _ = collect.tick(), if collects => {
                    let collected = tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return,
                        collected = self.shared.garbage_collect() => collected,
                    };
                    let last_failed = std::mem::replace(&mut failed, collected.is_err());
                    if let Err(error) = collected {
                        tracing::error!(error, "Image garbage collection failed");
                        if last_failed {
                            self.shared.events.record_node(EventType::Warning, "ImageGCFailed", error);
                        }
                    }
                }
                // A collection records usage as well.
                _ = detect.tick(), if !collects => {
                    let detected = tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return,
                        detected = self.shared.detect_images(Instant::now()) => detected,
                    };
                    if let Err(error) = detected {
                        tracing::warn!(error, "cannot find out which images are used");
                    }
                }
            }
        }
    }

    /// Replaces the policy. It applies from the next collection on.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`](kubelet_core::Error::Misconfigured) if the policy is invalid. The present one stays.
    pub fn set_policy(&self, policy: ImageGcPolicy) -> Result<()> {
        policy.check()?;
        *self.shared.policy.lock() = policy;
        Ok(())
    }

    /// The images of the node, largest first (`GetImageList`). While [`run`](Self::run) runs, the list is at most half
    /// a minute old; before that it is empty.
    pub fn images(&self) -> Arc<[v1::Image]> {
        self.shared.list.lock().clone()
    }

    /// What [`images`](Self::images) returns, now and later.
    pub(crate) fn list(&self) -> ImageList {
        self.shared.list.clone()
    }

    /// Removes images by the policy (`GarbageCollect`).
    ///
    /// # Errors
    ///
    /// The runtime could not list its images or could not remove one, or the removed images did not free enough space.
    /// For the last one it also emits the event `FreeDiskSpaceFailed`.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn garbage_collect(&self) -> Result<()> {
        let collected = self.shared.garbage_collect().await;
        collected.map_err(|message| failed("image garbage collection", message))
    }

    /// Removes all unused images that have the policy's minimum age (`DeleteUnusedImages`). Call it when the disk is
    /// full.
    ///
    /// # Errors
    ///
    /// The runtime could not list its images, or could not remove one.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn delete_unused_images(&self) -> Result<()> {
        let deleted = self.shared.delete_unused_images().await;
        deleted.map_err(|message| failed("deletion of unused images", message))
    }
}

impl Shared {
    /// The policy at present.
    fn policy(&self) -> ImageGcPolicy {
        self.policy.lock().clone()
    }
}

fn failed(what: &'static str, message: String) -> kubelet_core::Error {
    kubelet_core::Error::runtime(what, std::io::Error::other(message))
}
