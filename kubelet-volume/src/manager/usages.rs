//! Measures volumes in the background (`volumeStatCalculator`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{PodExt, PodUid, VolumeUsage};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::record::VolumeKey;
use super::shared::Shared;

/// Measured values are spread over this part of the period, so that not all volumes are measured at once.
const JITTER: f64 = 1.0;

/// A mount that is measured.
pub(crate) type Measured = (VolumeKey, PodUid);

/// What was measured of each volume.
pub(crate) struct Usages {
    /// How long a value is used (`volumeStatsAggPeriod`). Zero: nothing is measured.
    period: Duration,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    values: HashMap<Measured, Entry>,
    /// The mounts that the engine has to measure.
    due: BTreeSet<Measured>,
}

#[derive(Default)]
struct Entry {
    usage: Option<VolumeUsage>,
    /// When it must be measured again.
    due_at: Option<Instant>,
    is_measured_now: bool,
}

impl Usages {
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            period,
            cache: Mutex::default(),
        }
    }

    /// The last values of a pod's volumes. Old ones are measured again by the engine.
    pub(crate) fn of_pod(&self, shared: &Shared, uid: &PodUid) -> BTreeMap<String, VolumeUsage> {
        let names: Vec<(String, VolumeKey)> = {
            let state = shared.state.lock();
            let mounted = state.mounted(uid);
            let names = state
                .pods
                .get(uid)
                .map(|entry| entry.names.clone())
                .unwrap_or_default();
            names
                .into_iter()
                .filter(|(name, _)| mounted.contains_key(name))
                .collect()
        };
        if self.period.is_zero() {
            return BTreeMap::new();
        }
        let now = Instant::now();
        let mut cache = self.cache.lock();
        let mut usages = BTreeMap::new();
        for (name, key) in names {
            let measured = (key, uid.clone());
            let entry = cache.values.entry(measured.clone()).or_default();
            if let Some(usage) = &entry.usage {
                usages.insert(name, usage.clone());
            }
            if !entry.is_measured_now && entry.due_at.is_none_or(|due| due <= now) {
                entry.is_measured_now = true;
                cache.due.insert(measured);
            }
        }
        if !cache.due.is_empty() {
            shared.wake.notify_one();
        }
        usages
    }

    /// The mounts to measure now. Each is measured at most once at a time.
    pub(crate) fn take_due(&self) -> BTreeSet<Measured> {
        std::mem::take(&mut self.cache.lock().due)
    }

    /// Forgets a pod's volumes.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.cache.lock().values.retain(|(_, of), _| of != uid);
    }
}

/// Measures one mount.
pub(crate) async fn measure(shared: Arc<Shared>, measured: Measured) {
    let (key, uid) = &measured;
    let read = {
        let state = shared.state.lock();
        let record = state.records.get(key);
        record.and_then(|record| {
            let mount = record.mounts.get(uid)?;
            let outer = mount.outer_names.first().cloned().unwrap_or_default();
            let mounted = (mount.on_disk.clone(), mount.spec.clone());
            Some((record.plugin.clone(), mounted, mount.pod.clone(), outer))
        })
    };
    let mut usage = None;
    if let Some((plugin, (on_disk, spec), pod, outer)) = read {
        match plugin.usage(&on_disk, &spec).await {
            Ok(found) => usage = found,
            Err(error) => tracing::debug!(%error, volume = &**key, pod = %uid, "Cannot measure a volume"),
        }
        if let Some(usage) = &mut usage {
            usage.time.get_or_insert_with(|| shared.clock.now());
            usage.claim = claim_name(&pod, &outer);
        }
    }
    let period = shared.jitter.apply(shared.usages.period, JITTER);
    let mut cache = shared.usages.cache.lock();
    // The pod may be gone by now.
    if let Some(entry) = cache.values.get_mut(&measured) {
        entry.is_measured_now = false;
        entry.due_at = Some(Instant::now() + period);
        entry.usage = usage;
    }
}

/// The namespace and name of the claim of a pod's volume, if it has one.
fn claim_name(pod: &k8s_openapi::api::core::v1::Pod, outer: &str) -> Option<(String, String)> {
    let volumes = pod.spec.as_ref()?.volumes.as_ref()?;
    let volume = volumes.iter().find(|volume| volume.name == outer)?;
    let key = pod.key();
    let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => source.claim_name.clone(),
        (None, Some(_)) => format!("{}-{}", key.name, volume.name),
        (None, None) => return None,
    };
    Some((key.namespace.to_string(), claim))
}
