//! The cached answers of a plugin (`cache.NewExpirationStore`).

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::service_account::{Identity, ServiceAccountTokenCacheType};
use crate::images::{Coordinates, DockerConfig};

/// The key of credentials for all images (`globalCacheKey`); no image or registry has this name.
pub(super) const GLOBAL: &str = "<global>";

/// Credentials by image, registry, or [`GLOBAL`], and by service account.
#[derive(Default)]
pub(super) struct Cache {
    entries: Mutex<HashMap<Option<AccountKey>, HashMap<String, Entry>>>,
}

/// Whose credentials they are (`generateServiceAccountCacheKey`).
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct AccountKey {
    coordinates: Coordinates,
    annotations: BTreeMap<String, String>,
    /// The hash of the token, if they are only for this token.
    token: Option<[u8; 32]>,
}

struct Entry {
    config: DockerConfig,
    /// `None`: never; the time is beyond the range of the clock.
    expires: Option<Instant>,
}

impl AccountKey {
    pub(super) fn new(of: &Identity, cache_type: ServiceAccountTokenCacheType) -> Self {
        let of_token = cache_type == ServiceAccountTokenCacheType::Token;
        Self {
            coordinates: of.coordinates.clone(),
            annotations: of.annotations.clone(),
            token: of_token.then(|| Sha256::digest(&of.token).into()),
        }
    }
}

impl Cache {
    /// The cached credentials for the image: first by image, then by registry, then the global ones. `account` is `None`
    /// if the plugin gets no token.
    pub(super) fn get(&self, image: &str, account: &Option<AccountKey>) -> Option<DockerConfig> {
        let now = Instant::now();
        let entries = self.entries.lock();
        let entries = entries.get(account)?;
        [image, registry(image), GLOBAL].iter().find_map(|key| {
            let entry = entries.get(*key)?;
            entry.holds(now).then(|| entry.config.clone())
        })
    }

    /// Adds credentials, and removes expired ones.
    pub(super) fn add(
        &self,
        key: String,
        account: Option<AccountKey>,
        config: DockerConfig,
        expires: Option<Instant>,
    ) {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        entries.retain(|_, entries| {
            entries.retain(|_, entry| entry.holds(now));
            !entries.is_empty()
        });
        let of_account = entries.entry(account).or_default();
        of_account.insert(key, Entry { config, expires });
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
