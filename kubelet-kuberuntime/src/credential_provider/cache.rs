//! The cached answers of a plugin (`cache.NewExpirationStore`).

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::images::DockerConfig;

/// The key of credentials for all images (`globalCacheKey`); no image or registry has this name.
pub(super) const GLOBAL: &str = "<global>";

/// Credentials by image, registry, or [`GLOBAL`].
#[derive(Default)]
pub(super) struct Cache {
    entries: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    config: DockerConfig,
    /// `None`: never; the time is beyond the range of the clock.
    expires: Option<Instant>,
}

impl Cache {
    /// The cached credentials for the image: first by image, then by registry, then the global ones.
    pub(super) fn get(&self, image: &str) -> Option<DockerConfig> {
        let now = Instant::now();
        let entries = self.entries.lock();
        [image, registry(image), GLOBAL].iter().find_map(|key| {
            let entry = entries.get(*key)?;
            entry.holds(now).then(|| entry.config.clone())
        })
    }

    /// Adds credentials, and removes expired ones.
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
