//! The engine: starts the operations of volumes, one at a time for each, when something has changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{ConfigObjectChanges, PodUid};
use tokio::sync::{broadcast, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::back_off::Kind;
use super::builder::NodeVolumesBuilder;
use super::handle::{self, NodeVolumesHandle};
use super::metrics::TotalVolumes;
use super::next_step::{Presence, Step, next_step};
use super::record::VolumeKey;
use super::shared::Shared;
use super::{operation, reconstruct, superseded, usages};

/// How long the engine waits before it asks the API server again which volumes are attached, after a restart.
const ATTACHED_RETRY: Duration = Duration::from_secs(1);

/// Mounts and unmounts the volumes of all pods of a node (the kubelet's `volumemanager`).
///
/// Pods come in through its [handle](Self::handle). The engine keeps one record for each volume, decides on the next step
/// of a volume when its situation changes, and runs at most one operation of a volume at a time. A failed operation waits
/// 500 ms, then twice as long each time, up to 2 min 2 s. While nothing changes, it does nothing.
///
/// When it starts, it finds out from the disk what an earlier agent mounted. These volumes stay until their pods come up
/// again, which then use them as they are, or until [`unmount_orphaned`](kubelet_core::VolumeManager::unmount_orphaned).
///
/// A plugin that hangs holds up the pods that use the same volume, and no others.
pub struct NodeVolumes {
    pub(crate) shared: Arc<Shared>,
    pub(crate) observed: Observed,
}

/// The subscriptions of the engine. `None`: what it is about is not observed.
pub(crate) struct Observed {
    pub(crate) objects: Option<ConfigObjectChanges>,
    pub(crate) trust_bundles: Option<watch::Receiver<u64>>,
    pub(crate) certificates: Option<broadcast::Receiver<PodUid>>,
    pub(crate) attached: Option<watch::Receiver<u64>>,
}

impl NodeVolumes {
    /// Starts to configure the volumes below this root folder, e.g. `/var/lib/kubelet`.
    pub fn builder(root_dir: impl Into<std::path::PathBuf>) -> NodeVolumesBuilder {
        NodeVolumesBuilder::new(root_dir)
    }

    /// What pods, the node and metrics use. Clones are equivalent.
    pub fn handle(&self) -> NodeVolumesHandle {
        NodeVolumesHandle {
            shared: self.shared.clone(),
        }
    }

    /// Mounts and unmounts until `shutdown`.
    ///
    /// # Cancel safety
    ///
    /// At shutdown, and when the future is dropped, running operations are dropped. What they mounted is found again by
    /// the next agent. Volumes stay mounted.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut engine = Engine {
            shared: self.shared,
            observed: self.observed,
            operations: JoinSet::new(),
            under_way: HashMap::new(),
            background: JoinSet::new(),
            timers: BTreeSet::new(),
            totals: TotalVolumes::default(),
        };
        shutdown.run_until_cancelled(engine.work()).await;
        engine.operations.shutdown().await;
        engine.background.shutdown().await;
    }
}

struct Engine {
    shared: Arc<Shared>,
    observed: Observed,
    operations: JoinSet<()>,
    /// The steps that run, to know which one panicked.
    under_way: HashMap<Id, (VolumeKey, Step)>,
    /// Measurements, reads of claims, and removals of superseded files.
    background: JoinSet<()>,
    timers: BTreeSet<(Instant, VolumeKey)>,
    totals: TotalVolumes,
}

impl Engine {
    async fn work(&mut self) {
        reconstruct::read_all(&self.shared).await;
        // It runs once, so this is the first time.
        let _ = self.shared.is_read.set(());
        if !self.shared.state.lock().attached_is_known {
            self.background.spawn(read_attached(self.shared.clone()));
        }
        loop {
            self.start_steps();
            self.start_background();
            self.wait().await;
        }
    }

    /// Decides for each volume that has changed.
    fn start_steps(&mut self) {
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        if state.dirty.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(key) = state.dirty.pop_first() {
            let device_is_held = state.device_is_held(&key);
            let Some(record) = state.records.get_mut(&key) else {
                continue;
            };
            record.situation.device_is_held = device_is_held;
            record.situation.device_is_unfit = record.has_other_context();
            let step = next_step(&record.situation, shared.controller_attaches, now);
            let wakes_at = match step {
                Step::WaitUntil(at) => Some(at),
                _ => None,
            };
            if let Some(before) = std::mem::replace(&mut record.wakes_at, wakes_at) {
                self.timers.remove(&(before, key.clone()));
            }
            if let Some(at) = wakes_at {
                self.timers.insert((at, key.clone()));
            }
            match step {
                Step::Rest | Step::WaitUntil(_) => {}
                Step::Forget => state.forget(&key),
                step => {
                    record.situation.is_busy = true;
                    // From now on no pod can have it: one that comes back waits until it is mounted again.
                    if let Step::TearDown(uid) = &step
                        && let Some(mount) = record.situation.mounts.get_mut(uid)
                    {
                        mount.presence = Presence::Uncertain;
                    }
                    let running = operation::run(shared.clone(), key.clone(), step.clone());
                    let id = self.operations.spawn(running).id();
                    self.under_way.insert(id, (key, step));
                }
            }
        }
        self.totals.update(&state);
    }

    /// Reads claims and measures volumes for those who asked.
    fn start_background(&mut self) {
        let claims = std::mem::take(&mut self.shared.state.lock().claims_to_read);
        for uid in claims {
            self.background
                .spawn(handle::read_claims(self.shared.clone(), uid));
        }
        for measured in self.shared.usages.take_due() {
            self.background
                .spawn(usages::measure(self.shared.clone(), measured));
        }
    }

    /// Waits until something may have changed.
    async fn wait(&mut self) {
        let next = self.timers.first().map(|(at, _)| *at);
        let observed = &mut self.observed;
        // A fixed order, so that a simulation with the same seed has the same history.
        tokio::select! {
            biased;
            Some(ended) = self.operations.join_next_with_id() => self.ended(ended),
            Some(_) = self.background.join_next() => {}
            () = self.shared.wake.notified() => {}
            freed = self.shared.leases.freed() => {
                self.background.spawn(superseded::remove(self.shared.clone(), freed));
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => self.ring(),
            change = from(observed.objects.as_mut().map(|it| it.recv())) => {
                match &change {
                    Ok(object) => self.shared.state.lock().object_changed(Some(object)),
                    Err(broadcast::error::RecvError::Lagged(_)) => self.shared.state.lock().object_changed(None),
                    Err(broadcast::error::RecvError::Closed) => {
                        observed.objects = None;
                        self.shared.refresh.lock().objects = true;
                    }
                }
                drain(observed.objects.as_mut(), &self.shared);
            }
            change = from(observed.trust_bundles.as_mut().map(|it| it.changed())) => match change {
                Ok(()) => self.shared.state.lock().sources_changed(|_, sources| sources.trust_bundles),
                Err(_) => {
                    observed.trust_bundles = None;
                    self.shared.refresh.lock().trust_bundles = true;
                }
            },
            change = from(observed.certificates.as_mut().map(|it| it.recv())) => match change {
                Ok(of) => {
                    self.shared.state.lock().sources_changed(|uid, sources| sources.certificates && *uid == of);
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    self.shared.state.lock().sources_changed(|_, sources| sources.certificates);
                }
                Err(broadcast::error::RecvError::Closed) => {
                    observed.certificates = None;
                    self.shared.refresh.lock().certificates = true;
                }
            },
            change = from(observed.attached.as_mut().map(|it| it.changed())) => match change {
                Ok(()) => attached_changed(&self.shared),
                Err(_) => observed.attached = None,
            },
        }
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        match ended {
            Ok((id, ())) => _ = self.under_way.remove(&id),
            Err(error) => {
                if let Some((key, step)) = self.under_way.remove(&error.id()) {
                    operation::lost(&self.shared, &key, &step);
                }
            }
        }
    }

    /// The time of some volumes has come.
    fn ring(&mut self) {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            if let Some((_, key)) = self.timers.pop_first() {
                if let Some(record) = state.records.get_mut(&key) {
                    record.wakes_at = None;
                }
                state.dirty.insert(key);
            }
        }
    }
}

/// Waits for a subscription; for ever, if there is none.
async fn from<T>(change: Option<impl Future<Output = T>>) -> T {
    match change {
        Some(change) => change.await,
        None => std::future::pending().await,
    }
}

/// Takes all changes that have arrived, so that a storm of changes becomes one update of each mount.
fn drain(changes: Option<&mut ConfigObjectChanges>, shared: &Shared) {
    let Some(changes) = changes else { return };
    loop {
        match changes.try_recv() {
            Ok(object) => shared.state.lock().object_changed(Some(&object)),
            Err(broadcast::error::TryRecvError::Lagged(_)) => shared.state.lock().object_changed(None),
            Err(_) => return,
        }
    }
}

/// The list of attached volumes may have changed: who waits for it looks at once.
fn attached_changed(shared: &Shared) {
    let mut state = shared.state.lock();
    let mut waiting = Vec::new();
    for (key, record) in &mut state.records {
        if record.situation.attachable && !record.situation.attached {
            if record.situation.back_off.has_failed(Kind::VerifyAttached) {
                record.situation.back_off.reset();
            }
            waiting.push(key.clone());
        }
    }
    state.dirty.extend(waiting);
}

/// Until the API server answers, it is not known which of the found volumes are attached.
async fn read_attached(shared: Arc<Shared>) {
    while let Err(error) = reconstruct::read_attached(&shared).await {
        tracing::debug!(%error, "Cannot read which volumes are attached to the node");
        sleep(ATTACHED_RETRY).await;
    }
}
