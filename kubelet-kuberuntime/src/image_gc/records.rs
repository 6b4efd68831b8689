//! Records when each image was first seen, and when it was last used.

use std::collections::{BTreeMap, HashSet};

use tokio::time::Instant;

use kubelet_cri::v1;

/// By the runtime's id of the image.
#[derive(Default)]
pub(super) struct Records(BTreeMap<String, Record>);

/// `imageRecord`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) first_detected: Instant,
    /// `None`: never since this agent started.
    pub(super) last_used: Option<Instant>,
    pub(super) size: u64,
    pinned: bool,
}

/// An image that may be removed (`evictionInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unused {
    pub(super) id: String,
    pub(super) record: Record,
}

impl Records {
    /// Records the present images and their usage, and removes the records of images that are gone (`detectImages`).
    pub(super) fn update(
        &mut self,
        images: &[v1::Image],
        in_use: &HashSet<String>,
        detected: Instant,
        now: Instant,
    ) {
        let mut before = std::mem::take(&mut self.0);
        for image in images {
            let mut record = before.remove(&image.id).unwrap_or(Record {
                first_detected: detected,
                last_used: None,
                size: 0,
                pinned: false,
            });
            if in_use.contains(&image.id) {
                record.last_used = Some(now);
            }
            record.size = image.size;
            record.pinned = image.pinned;
            self.0.insert(image.id.clone(), record);
        }
    }

    /// Images that may be removed: the longest unused first, and of these the first seen first
    /// (`imagesInEvictionOrder`).
    pub(super) fn in_eviction_order(&self, in_use: &HashSet<String>) -> Vec<Unused> {
        let unused = self.0.iter().filter(|(id, record)| {
            // Images in use and pinned images are kept.
            !in_use.contains(*id) && !record.pinned
        });
        let mut unused: Vec<Unused> = unused
            .map(|(id, record)| Unused {
                id: id.clone(),
                record: record.clone(),
            })
            .collect();
        unused.sort_by_key(|image| (image.record.last_used, image.record.first_detected));
        unused
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// The ids of all images.
    pub(super) fn ids(&self) -> HashSet<String> {
        self.0.keys().cloned().collect()
    }
}
