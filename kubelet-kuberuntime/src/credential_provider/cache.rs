//! The answers of a plugin that still hold (`cache.NewExpirationStore`).

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::images::DockerConfig;

/// The key of what holds for all images (`globalCacheKey`); no image or registry has such a name.
pub(super) const GLOBAL: &str = "<global>";

/// Credentials by image, registry, or [`GLOBAL`].
#[derive(Default)]
pub(super) struct Cache {
    entries: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    config: DockerConfig,
    /// `None`: past what the clock can hold.
    expires: Option<Instant>,
}

impl Cache {
    /// What holds for the image; that of the image itself before that of its registry and that of all.
    pub(super) fn get(&self, image: &str) -> Option<DockerConfig> {
        let now = Instant::now();
        let entries = self.entries.lock();
        [image, registry(image), GLOBAL].iter().find_map(|key| {
            let entry = entries.get(*key)?;
            entry.holds(now).then(|| entry.config.clone())
        })
    }

    /// Keeps credentials, and drops those that hold no longer.
    pub(super) fn add(&self, key: String, config: DockerConfig, expires: Option<Instant>) {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| entry.holds(now));
        entries.insert(key, Entry { config, expires });
    }
}

impl Entry {
    fn holds(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| now <= expires)
    }
}

/// Host and port (`parseRegistry`).
pub(super) fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or_default()
}
