//! Removing images that nobody uses, when the disk is full or they are old (`pkg/kubelet/images/image_gc_manager.go`).

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

/// How often images are looked for and their use is noted (`Start`).
const DETECT_PERIOD: Duration = Duration::from_secs(5 * 60);
/// How often the list for the node's status is renewed (`Start`).
const LIST_PERIOD: Duration = Duration::from_secs(30);
/// How often images are collected (`ImageGCPeriod`).
const IMAGE_GC_PERIOD: Duration = Duration::from_secs(5 * 60);

/// Removes unused images (`ImageGCManager`): those that were not used for [`max_age`](ImageGcPolicy::max_age), and, when
/// the disk that holds them is fuller than a threshold, those that were not used for longest.
///
/// An image is in use while there is a container, running or not, that was made of it or has it mounted. Images that the
/// runtime pinned are never removed.
///
/// A handle: clones are cheap and work on the same records. [`run`](Self::run) does the work that comes by itself;
/// without it, each call works all the same. Its metrics are the kubelet's: `kubelet_image_garbage_collected_total`.
#[derive(Clone)]
pub struct ImageGcManager {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Arc<CriRuntime>,
    policy: ImageGcPolicy,
    stats: Arc<dyn ImageFsStats>,
    events: Arc<dyn NodeEventRecorder>,
    /// Since then use is noted: what was not used is not older.
    began: Instant,
    records: Mutex<Records>,
    /// The largest first.
    list: Mutex<Arc<[v1::Image]>>,
}

impl ImageGcManager {
    /// A collector of the images of `runtime`. `events` are about the node.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`](kubelet_core::Error::Misconfigured) tells what is wrong with the policy.
    pub fn new(
        runtime: Arc<CriRuntime>,
        policy: ImageGcPolicy,
        stats: Arc<dyn ImageFsStats>,
        events: Arc<dyn NodeEventRecorder>,
    ) -> Result<Self> {
        policy.check()?;
        let shared = Shared {
            runtime,
            policy,
            stats,
            events,
            began: Instant::now(),
            records: Mutex::default(),
            list: Mutex::new(Arc::new([])),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Notes which images are used, renews the [list](Self::images), and collects as the policy says, until `shutdown`. A
    /// collection that fails twice in a row is told by an event, `ImageGCFailed`. With a high threshold of 100 % and no
    /// greatest age nothing is collected.
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
        let collects = !self.shared.policy.collects_nothing();
        let mut failed = false;
        loop {
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
                        tracing::warn!(error, "cannot renew the list of images");
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
                // A collection notes use as well.
                _ = detect.tick(), if !collects => {
                    let detected = tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return,
                        detected = self.shared.detect_images(Instant::now()) => detected,
                    };
                    if let Err(error) = detected {
                        tracing::warn!(error, "cannot tell which images are used");
                    }
                }
            }
        }
    }

    /// The images of the node, the largest first, as they were half a minute ago at most while [`run`](Self::run) runs; empty
    /// before (`GetImageList`).
    pub fn images(&self) -> Arc<[v1::Image]> {
        self.shared.list.lock().clone()
    }

    /// Removes images as the policy says (`GarbageCollect`).
    ///
    /// # Errors
    ///
    /// The runtime did not tell of its images or did not remove one, or what could be removed was not enough; the
    /// latter is told by an event as well, `FreeDiskSpaceFailed`.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn garbage_collect(&self) -> Result<()> {
        let collected = self.shared.garbage_collect().await;
        collected.map_err(|message| failed("image garbage collection", message))
    }

    /// Removes all images that are not used, but those that are younger than the policy's least age
    /// (`DeleteUnusedImages`): when the disk runs full.
    ///
    /// # Errors
    ///
    /// The runtime did not tell of its images, or did not remove one.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn delete_unused_images(&self) -> Result<()> {
        let deleted = self.shared.delete_unused_images().await;
        deleted.map_err(|message| failed("deletion of unused images", message))
    }
}

fn failed(what: &'static str, message: String) -> kubelet_core::Error {
    kubelet_core::Error::runtime(what, std::io::Error::other(message))
}
