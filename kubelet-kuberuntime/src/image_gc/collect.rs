//! Decides which images to remove, in which order, and removes them.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use kubelet_core::{EventType, GoDuration, RuntimeReader};
use tokio::time::Instant;

use super::Shared;
use super::records::Unused;
use crate::images::aggregate;
use kubelet_cri::v1;

/// How many status calls for the mounts of containers are made at once.
const PARALLEL_STATUS_CALLS: usize = 8;

/// An error is the kubelet's message for events.
type Result<T> = std::result::Result<T, String>;

/// The reason of a removal, as the label of the metric.
#[derive(Clone, Copy)]
enum Reason {
    Age,
    Space,
}

impl Shared {
    /// `GarbageCollect`
    pub(super) async fn garbage_collect(&self) -> Result<()> {
        let now = Instant::now();
        let unused = self.unused_images(now).await?;
        let unused = self.free_old_images(unused, now).await?;

        let stats = self
            .stats
            .image_fs_stats()
            .await
            .map_err(|error| error.to_string())?;
        let (capacity, available) = (stats.capacity, stats.available.min(stats.capacity));
        if capacity == 0 {
            let problem = "invalid capacity 0 on image filesystem";
            self.warn("InvalidDiskCapacity", problem.to_owned());
            return Err(problem.to_owned());
        }
        let percent = |bytes: u64| u128::from(bytes) * 100 / u128::from(capacity);
        let (usage, policy) = (100 - percent(available), self.policy());
        if usage < u128::from(policy.high_threshold_percent) {
            return Ok(());
        }
        let wanted = u128::from(capacity) * u128::from(100 - policy.low_threshold_percent) / 100;
        let to_free = u64::try_from(wanted)
            .unwrap_or(u64::MAX)
            .saturating_sub(available);
        let freed = self.free_space(to_free, unused, now).await?;
        if freed < to_free {
            let message = format!(
                "Insufficient free disk space on the node's image filesystem ({usage}% of {} used). Failed to free \
                 sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could \
                 be used by active images, logs, volumes, or other data.",
                format_size(capacity)
            );
            self.warn("FreeDiskSpaceFailed", message.clone());
            return Err(message);
        }
        Ok(())
    }

    /// `DeleteUnusedImages`
    pub(super) async fn delete_unused_images(&self) -> Result<()> {
        let now = Instant::now();
        let unused = self.unused_images(now).await?;
        self.free_space(u64::try_from(i64::MAX).unwrap_or(u64::MAX), unused, now)
            .await?;
        Ok(())
    }

    async fn unused_images(&self, now: Instant) -> Result<Vec<Unused>> {
        let in_use = self.detect_images(now).await?;
        let mut unused = self.records.lock().in_eviction_order(&in_use);
        // An image of a runtime handler may have no id.
        if self.runtime.images_by_handler && unused.iter().any(|image| image.id.is_empty()) {
            self.warn(
                "InvalidImageID",
                "ImageID is not valid, skipping, image: ".to_owned(),
            );
            unused.retain(|image| !image.id.is_empty());
        }
        Ok(unused)
    }

    /// Records the present images, and returns those in use (`detectImages`).
    pub(super) async fn detect_images(&self, detected: Instant) -> Result<HashSet<String>> {
        let images = self
            .runtime
            .lists
            .images()
            .await
            .map_err(|error| error.rpc_text())?;
        let pods = self.runtime.pods(true).await.map_err(|error| error.to_string())?;
        let containers = pods.iter().flat_map(|pod| &pod.containers);
        let mut in_use: HashSet<String> = containers.map(|container| container.image_id.clone()).collect();
        let mut calls = Vec::new();
        for pod in &pods {
            for container in &pod.containers {
                calls.push(self.runtime.container_status(Some(&pod.uid), container.id.id()));
            }
        }
        let mounted = stream::iter(calls).buffer_unordered(PARALLEL_STATUS_CALLS);
        let mounted: Vec<Option<v1::ContainerStatus>> = mounted
            .try_collect()
            .await
            .map_err(|error| format!("get container status: {error}"))?;
        let mounts = mounted.into_iter().flatten().flat_map(|status| status.mounts);
        in_use.extend(mounts.filter_map(|mount| mount.image).map(|image| image.image));
        self.records
            .lock()
            .update(&images, &in_use, detected, Instant::now());
        Ok(in_use)
    }

    /// Removes images that were unused for the maximum age, once usage has been recorded for that long
    /// (`freeOldImages`). Returns the others.
    async fn free_old_images(&self, unused: Vec<Unused>, now: Instant) -> Result<Vec<Unused>> {
        let max_age = self.policy().max_age;
        if max_age.is_zero() || now - self.began <= max_age {
            return Ok(unused);
        }
        let old = |image: &Unused| {
            image
                .record
                .last_used
                .is_none_or(|used| older(used, now, max_age))
        };
        let (old, mut left): (Vec<_>, Vec<_>) = unused.into_iter().partition(old);
        let mut errors = Vec::new();
        for image in old {
            if let Err(error) = self.free_image(&image, Reason::Age).await {
                errors.push(error);
                left.push(image);
            }
        }
        if !errors.is_empty() {
            return Err(format!(
                "wanted to free images older than {}, encountered errors in image deletion: {}",
                GoDuration::from(max_age),
                aggregate(errors)
            ));
        }
        Ok(left)
    }

    /// Removes images until this many bytes are freed; returns how many bytes were freed (`freeSpace`).
    async fn free_space(&self, to_free: u64, unused: Vec<Unused>, now: Instant) -> Result<u64> {
        let (mut freed, min_age) = (0_u64, self.policy().min_age);
        let mut errors = Vec::new();
        for image in unused {
            let used_meanwhile = image.record.last_used.is_some_and(|used| used >= now);
            let too_young = now.saturating_duration_since(image.record.first_detected) < min_age;
            if used_meanwhile || too_young {
                continue;
            }
            match self.free_image(&image, Reason::Space).await {
                Ok(()) => freed = freed.saturating_add(image.record.size),
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            }
            if freed >= to_free {
                break;
            }
        }
        if !errors.is_empty() {
            return Err(format!(
                "wanted to free {to_free} bytes, but freed {freed} bytes space with errors in image deletion: {}",
                aggregate(errors)
            ));
        }
        let left = self.records.lock().ids();
        self.runtime.images.records().prune(&left, now).await;
        Ok(freed)
    }

    async fn free_image(&self, image: &Unused, reason: Reason) -> Result<()> {
        tracing::info!(
            image = image.id,
            size = image.record.size,
            "removing an image to free its space"
        );
        let request = v1::RemoveImageRequest {
            image: Some(v1::ImageSpec {
                image: image.id.clone(),
                ..Default::default()
            }),
        };
        let removed = self.runtime.image_service.remove_image(request).await;
        removed.map_err(|error| error.rpc_text())?;
        self.records.lock().remove(&image.id);
        let reason = match reason {
            Reason::Age => "age",
            Reason::Space => "space",
        };
        metrics::counter!("kubelet_image_garbage_collected_total", "reason" => reason).increment(1);
        Ok(())
    }

    /// The list for the node's status.
    pub(super) async fn renew_list(&self) -> Result<()> {
        let mut images = self
            .runtime
            .lists
            .images()
            .await
            .map_err(|error| error.rpc_text())?;
        images.sort_by_key(|image| Reverse(image.size));
        *self.list.lock() = images.into();
        Ok(())
    }

    fn warn(&self, reason: &str, message: String) {
        self.events.record_node(EventType::Warning, reason, message);
    }
}

fn older(used: Instant, now: Instant, age: Duration) -> bool {
    now.saturating_duration_since(used) > age
}

/// `formatSize`
fn format_size(bytes: u64) -> String {
    let units = [
        (1_u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_units() {
        let cases = [
            (1023, "1023 B"),
            (1 << 10, "1.0 KiB"),
            (1_610_612_736, "1.5 GiB"),
            (5 << 40, "5.0 TiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(format_size(bytes), text);
        }
    }
}
