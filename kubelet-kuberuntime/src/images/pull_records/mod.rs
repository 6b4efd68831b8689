//! Records of image pulls and their credentials, because not every pod may use an image that is on the node
//! (`pullmanager.PullManager`, the feature gate `KubeletEnsureSecretPulledImages`).

mod files;
mod record;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_core::image_name::without_tag_and_digest;
use kubelet_core::{Clock, Disk};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::record::{
    ImagePullCredentials, ImagePullIntent, ImagePullSecret, ImagePullServiceAccount, ImagePulledRecord,
};
use super::ImagePullCredentialsVerificationPolicy;
use super::keyring::Credentials;
use kubelet_cri::v1;

/// How many secrets of one image are recorded because they matched (`writeRecordWhileMatchingLimit`).
const MATCHED_SECRETS_MAX: usize = 100;

/// The records, in memory and on disk. Reads use the memory; each change is written to a file at once.
pub(crate) struct PullRecords {
    policy: ImagePullCredentialsVerificationPolicy,
    clock: Clock,
    disk: Disk,
    shared: Arc<Shared>,
}

struct Shared {
    pulling_dir: PathBuf,
    pulled_dir: PathBuf,
    state: Mutex<State>,
    /// Held during the write of a file, so that the last writer writes the latest state.
    writing: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// By image name in specs.
    intents: HashMap<String, Intent>,
    /// By image reference of the runtime.
    pulled: HashMap<String, Pulled>,
    /// The names of files that cannot be read: these images were pulled with unknown credentials.
    unusable: HashSet<String>,
}

#[derive(Default)]
struct Intent {
    in_flight: u32,
    /// Whether a pull was cancelled in the client; the runtime may have completed it.
    given_up: bool,
}

struct Pulled {
    record: ImagePulledRecord,
    /// `None`: by an earlier agent.
    changed: Option<Instant>,
}

/// Who may use an image that is on the node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The pod may use it.
    Usable,
    /// The pod must pull it to prove that it may use it.
    MustPull,
    /// The pod may use it if its credentials [match](PullRecords::matches) those of a pull.
    WithCredentials,
}

impl PullRecords {
    /// Reads the records below `root_dir`. Skips those that cannot be read.
    pub(super) async fn load(
        root_dir: &Path,
        policy: ImagePullCredentialsVerificationPolicy,
        clock: Clock,
        disk: Disk,
    ) -> Self {
        let dir = root_dir.join("image_manager");
        let (pulling_dir, pulled_dir) = (dir.join("pulling"), dir.join("pulled"));
        let shared = Arc::new(Shared {
            pulling_dir,
            pulled_dir,
            state: Mutex::default(),
            writing: Mutex::default(),
        });
        let loading = shared.clone();
        let loaded = disk.run(move || {
            *loading.state.lock() = State::read(&loading);
            Ok(())
        });
        if let Err(error) = loaded.await {
            tracing::error!(%error, "cannot read the records of image pulls");
        }
        Self {
            policy,
            clock,
            disk,
            shared,
        }
    }

    /// Whether pulls were unfinished when the earlier agent ended.
    pub(super) fn has_intents(&self) -> bool {
        !self.shared.state.lock().intents.is_empty()
    }

    /// Handles the unfinished pulls of an earlier agent: the images that are present now were pulled, with unknown
    /// credentials (`initialize`).
    pub(super) async fn settle_intents(&self, images: &[v1::Image]) {
        for image in images {
            for name in image.repo_digests.iter().chain(&image.repo_tags) {
                if !self.shared.state.lock().intents.contains_key(name) {
                    continue;
                }
                if self.record(name, &image.id, None).await {
                    self.shared.state.lock().intents.remove(name);
                    self.settle_intent(name).await;
                }
            }
        }
    }

    /// Records that `image` is about to be pulled (`RecordPullIntent`). The pull counts as unfinished until the
    /// returned guard is [ended](Pulling::ended) or dropped.
    ///
    /// # Errors
    ///
    /// The intent could not be written. Then the image must not be pulled, because its pull would not be recorded.
    pub(super) async fn begin(&self, image: &str) -> Result<Pulling<'_>, String> {
        let is_new = {
            let mut state = self.shared.state.lock();
            let intent = state.intents.entry(image.to_owned()).or_default();
            intent.in_flight += 1;
            intent.in_flight == 1 && !intent.given_up
        };
        let mut pulling = Pulling {
            records: self,
            image: image.to_owned(),
            open: true,
        };
        if is_new && let Err(error) = self.write_intent(image).await {
            pulling.close(false);
            return Err(format!("failed to record image pull intent: {error}"));
        }
        Ok(pulling)
    }

    /// Whether a pod may use an image that is present (`MustAttemptImagePull`).
    pub(super) fn check(&self, image: &str, image_ref: &str) -> Known {
        let (known, result) = self.known(image, image_ref);
        if let Some(result) = result {
            count_check(result);
        }
        known
    }

    fn known(&self, image: &str, image_ref: &str) -> (Known, Option<&'static str>) {
        let repository = without_tag_and_digest(image);
        let state = self.shared.state.lock();
        let pulled = state.pulled.get(image_ref).map(|pulled| &pulled.record);
        let by_kubelet = pulled.is_some()
            || state.intents.contains_key(image)
            || (!state.unusable.is_empty() && state.unusable.contains(&files::file_name(image_ref)));
        if !self.policy.requires_verification(repository, by_kubelet) {
            return (Known::Usable, Some("credentialPolicyAllowed"));
        }
        let credentials = pulled.and_then(|record| record.credential_mapping.get(repository));
        match credentials {
            Some(credentials) if credentials.node_pods_accessible => {
                (Known::Usable, Some("credentialRecordFound"))
            }
            Some(credentials) if !credentials.names_nobody() => (Known::WithCredentials, None),
            Some(_) | None => (Known::MustPull, Some("mustAuthenticate")),
        }
    }

    /// Whether one of the pod's credentials is a credential of a pull: the same secret or service account, or another
    /// secret with the same content. A match is recorded.
    pub(super) async fn matches(&self, image: &str, image_ref: &str, credentials: &[Credentials]) -> bool {
        let found = {
            let state = self.shared.state.lock();
            let known = state.pulled.get(image_ref).and_then(|pulled| {
                let mapping = &pulled.record.credential_mapping;
                mapping.get(without_tag_and_digest(image))
            });
            known.and_then(|known| find_match(known, credentials))
        };
        count_check(match &found {
            Some(_) => "credentialRecordFound",
            None => "mustAuthenticate",
        });
        let Some(found) = found else { return false };
        if let Match::ToRemember(secret) = found {
            let credentials = ImagePullCredentials {
                kubernetes_secrets: vec![secret],
                ..Default::default()
            };
            self.record(image, image_ref, Some(credentials)).await;
        }
        true
    }

    /// Removes the records of images that are gone, except those recorded since the list (`PruneUnknownRecords`).
    /// `images` are the references of all present images.
    pub(crate) async fn prune(&self, images: &HashSet<String>, since: Instant) {
        let gone: Vec<String> = {
            let mut state = self.shared.state.lock();
            let gone = state.pulled.iter().filter(|(image_ref, pulled)| {
                !images.contains(*image_ref) && pulled.changed.is_none_or(|changed| changed < since)
            });
            let gone: Vec<String> = gone.map(|(image_ref, _)| image_ref.clone()).collect();
            for image_ref in &gone {
                state.pulled.remove(image_ref);
            }
            gone
        };
        for image_ref in gone {
            self.settle_pulled(&image_ref).await;
        }
    }

    /// Records the credentials of a pull (`writePulledRecordIfChanged`); without credentials, only the pull. Returns
    /// whether it was written.
    async fn record(&self, image: &str, image_ref: &str, credentials: Option<ImagePullCredentials>) -> bool {
        let changed = {
            let mut state = self.shared.state.lock();
            let is_new = !state.pulled.contains_key(image_ref);
            let pulled = state
                .pulled
                .entry(image_ref.to_owned())
                .or_insert_with(|| Pulled {
                    record: ImagePulledRecord {
                        last_updated_time: self.clock.api_now(),
                        image_ref: image_ref.to_owned(),
                        credential_mapping: BTreeMap::new(),
                    },
                    changed: None,
                });
            let merged = credentials
                .is_some_and(|credentials| pulled.record.merge(without_tag_and_digest(image), credentials));
            if is_new || merged {
                pulled.changed = Some(Instant::now());
                pulled.record.last_updated_time = self.clock.api_now();
            }
            is_new || merged
        };
        !changed || self.settle_pulled(image_ref).await
    }

    /// Writes or removes the file of an intent, to match the memory.
    async fn write_intent(&self, image: &str) -> io::Result<()> {
        let (shared, image) = (self.shared.clone(), image.to_owned());
        let written = self.disk.run(move || {
            let _writing = shared.writing.lock();
            let known = shared.state.lock().intents.contains_key(&image);
            let record = known.then(|| ImagePullIntent { image: image.clone() });
            files::set(&shared.pulling_dir, &image, record.as_ref())
        });
        let written = written.await;
        let known = self.shared.state.lock().intents.len();
        metrics::gauge!("kubelet_imagemanager_ondisk_pullintents").set(known as f64);
        written
    }

    async fn settle_intent(&self, image: &str) {
        if let Err(error) = self.write_intent(image).await {
            tracing::error!(image, %error, "cannot write the records of image pulls");
        }
    }

    /// Writes or removes the file of an image, to match the memory. Returns whether this succeeded.
    async fn settle_pulled(&self, image_ref: &str) -> bool {
        let (shared, key) = (self.shared.clone(), image_ref.to_owned());
        let written = self.disk.run(move || {
            let _writing = shared.writing.lock();
            let record = shared
                .state
                .lock()
                .pulled
                .get(&key)
                .map(|pulled| pulled.record.clone());
            files::set(&shared.pulled_dir, &key, record.as_ref())
        });
        let written = written.await;
        let known = self.shared.state.lock().pulled.len();
        metrics::gauge!("kubelet_imagemanager_ondisk_pulledrecords").set(known as f64);
        if let Err(error) = &written {
            tracing::error!(image_ref, %error, "cannot write the records of image pulls");
        }
        written.is_ok()
    }
}

/// An unfinished pull. If it is dropped before its [end](Self::ended), it records that the runtime may still complete
/// the pull.
pub(super) struct Pulling<'a> {
    records: &'a PullRecords,
    image: String,
    open: bool,
}

impl Pulling<'_> {
    /// Records the end of the pull (`RecordImagePulled`, `RecordImagePullFailed`): with the image's reference and the
    /// credentials of the pull, or with `None` after a failure.
    pub(super) async fn ended(mut self, pulled: Option<(&str, Option<&Credentials>)>) {
        let recorded = match pulled {
            Some((image_ref, used)) => {
                let credentials = ImagePullCredentials::of(used);
                self.records
                    .record(&self.image, image_ref, Some(credentials))
                    .await
            }
            None => true,
        };
        // If there is no record, the intent shows the next agent that the image was pulled.
        let settled = recorded && self.close(pulled.is_some());
        if settled {
            self.records.settle_intent(&self.image).await;
        }
    }

    /// Returns whether the intent was removed.
    fn close(&mut self, succeeded: bool) -> bool {
        self.open = false;
        let mut state = self.records.shared.state.lock();
        let Some(intent) = state.intents.get_mut(&self.image) else {
            return false;
        };
        intent.in_flight = intent.in_flight.saturating_sub(1);
        intent.given_up &= !succeeded;
        let over = intent.in_flight == 0 && !intent.given_up;
        if over {
            state.intents.remove(&self.image);
        }
        over
    }
}

impl Drop for Pulling<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if let Some(intent) = self.records.shared.state.lock().intents.get_mut(&self.image) {
            intent.in_flight = intent.in_flight.saturating_sub(1);
            intent.given_up = true;
        }
    }
}

impl State {
    fn read(shared: &Shared) -> Self {
        let (intents, _) = files::read_all::<ImagePullIntent>(&shared.pulling_dir);
        let (pulled, unusable) = files::read_all::<ImagePulledRecord>(&shared.pulled_dir);
        let given_up = |intent: ImagePullIntent| {
            let of_before = Intent {
                given_up: true,
                ..Intent::default()
            };
            (intent.image, of_before)
        };
        let loaded = |record: ImagePulledRecord| {
            let key = record.image_ref.clone();
            (
                key,
                Pulled {
                    record,
                    changed: None,
                },
            )
        };
        Self {
            intents: intents.into_iter().map(given_up).collect(),
            pulled: pulled.into_iter().map(loaded).collect(),
            unusable: unusable.into_iter().collect(),
        }
    }
}

/// The credentials of a pull.
enum Match {
    AsRecorded,
    /// The secret is another one with the same content, or its content has changed.
    ToRemember(ImagePullSecret),
}

fn find_match(known: &ImagePullCredentials, credentials: &[Credentials]) -> Option<Match> {
    let accounts = &known.kubernetes_service_accounts;
    // A pod has one account, so all plugins get tokens of the same one.
    let account = credentials.iter().find_map(ImagePullServiceAccount::of);
    let same_account = account.is_some_and(|account| accounts.contains(&account));
    find_secret(&known.kubernetes_secrets, credentials).or(same_account.then_some(Match::AsRecorded))
}

fn find_secret(known: &[ImagePullSecret], credentials: &[Credentials]) -> Option<Match> {
    let room = known.len() < MATCHED_SECRETS_MAX;
    for secret in credentials.iter().filter_map(ImagePullSecret::of) {
        for known in known {
            let same_content =
                !known.credential_hash.is_empty() && secret.credential_hash == known.credential_hash;
            let same_object = secret.is_same_object(known);
            match (same_content, same_object) {
                (true, false) if room => return Some(Match::ToRemember(secret)),
                (true, _) => return Some(Match::AsRecorded),
                (false, true) if room => return Some(Match::ToRemember(secret)),
                (false, _) => {}
            }
        }
    }
    None
}

/// Counts a check of whether a pod must pull an image that is present (`recordMustAttemptImagePullResult`).
pub(super) fn count_check(result: &'static str) {
    metrics::counter!("kubelet_imagemanager_image_mustpull_checks_total", "result" => result).increment(1);
}
