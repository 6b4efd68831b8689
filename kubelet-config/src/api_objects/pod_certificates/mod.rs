//! The certificates of pods, from an API server (`pkg/kubelet/podcertificate`).

mod key;
mod source;
mod state;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;
use k8s_openapi::api::core::v1::{Pod, PodCertificateProjection};
use kube_client::Client;
use kubelet_core::{
    Clock, Error, EventRecorder, Jitter, LogEvents, NodeGetter, PodCertificates, PodCredential, PodExt,
    PodUid, Result,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, broadcast};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::source::Source;
use self::state::State;
use super::config_objects::RETAIN_PERIOD;
use crate::informer::{Informer, InformerHandle};

/// How many changes a subscriber may leave unread.
const UNREAD_CHANGES: usize = 1024;

/// Requests the certificates of `podCertificate` sources by `PodCertificateRequest` objects (`v1beta1`), and renews
/// them. Most API servers do not serve this kind of object, so nothing is requested before a pod needs a certificate.
///
/// Corresponds to the kubelet's `podcertificate.IssuingManager`. Keys exist in memory only: after a restart of the
/// agent, each certificate is requested again. It generates keys of all types that the kubelet knows: `ED25519`,
/// `ECDSAP256`, `ECDSAP384`, `ECDSAP521`, `RSA3072` and `RSA4096`, on the blocking threads of the runtime.
pub struct PodCertificateManager {
    informer: Informer<PodCertificateRequest>,
    handle: ApiServerPodCertificates,
    begun: UnboundedReceiver<BoxFuture<'static, ()>>,
}

/// Sets up a [`PodCertificateManager`].
pub struct PodCertificateManagerBuilder {
    client: Client,
    node_name: String,
    node: Arc<dyn NodeGetter>,
    recorder: Arc<dyn EventRecorder>,
    clock: Clock,
    jitter: Jitter,
}

/// The certificates that a [`PodCertificateManager`] has requested. Clones share them.
#[derive(Clone)]
pub struct ApiServerPodCertificates(Arc<Shared>);

struct Shared {
    client: Client,
    node_name: String,
    node: Arc<dyn NodeGetter>,
    recorder: Arc<dyn EventRecorder>,
    clock: Clock,
    jitter: Jitter,
    requests: InformerHandle<PodCertificateRequest>,
    sources: Arc<Mutex<Sources>>,
    needed: AtomicBool,
    /// Something is needed for the first time.
    first: Notify,
    /// A source has another state.
    changed: Notify,
    changes: broadcast::Sender<PodUid>,
    /// Where the sources are run.
    begin: UnboundedSender<BoxFuture<'static, ()>>,
}

type Sources = HashMap<Key, Entry>;

/// One source of one pod (`projectionKey`).
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    pod: PodUid,
    volume: String,
    index: usize,
}

struct Entry {
    namespace: String,
    signer: String,
    source: Arc<Watched>,
    begun: Instant,
    /// Ends what runs for the source.
    _running: DropGuard,
}

/// What a source shares with those who read it.
struct Watched {
    state: Mutex<State>,
    /// Its request has changed.
    wake: Notify,
}

impl PodCertificateManager {
    /// Sets up the manager for the API server of `client` and the node with this name. `node` returns the node object,
    /// whose UID is part of each request.
    pub fn builder(
        client: Client,
        node_name: impl Into<String>,
        node: Arc<dyn NodeGetter>,
    ) -> PodCertificateManagerBuilder {
        PodCertificateManagerBuilder {
            client,
            node_name: node_name.into(),
            node,
            recorder: Arc::new(LogEvents),
            clock: Clock::system(),
            jitter: Jitter::default(),
        }
    }

    /// The handle that reads certificates. It returns none before the manager [runs](Self::run).
    pub fn handle(&self) -> ApiServerPodCertificates {
        self.handle.clone()
    }

    /// Requests and renews certificates until `shutdown`. Each minute it drops the keys of pods that are not in `pods`
    /// any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends all requests. The handle still returns the certificates issued last.
    pub async fn run(mut self, pods: impl Fn() -> Vec<Arc<Pod>>, shutdown: CancellationToken) {
        let shared = self.handle.0.clone();
        let first_need = async {
            while !shared.needed.load(Ordering::Acquire) {
                shared.first.notified().await;
            }
        };
        if shutdown.run_until_cancelled(first_need).await.is_none() {
            return;
        }
        let informer = self.informer.run(shutdown.clone());
        tokio::pin!(informer);
        let mut minute = interval(RETAIN_PERIOD);
        minute.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut running = FuturesUnordered::new();
        let mut reported = BTreeMap::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = &mut informer => return,
                Some(source) = self.begun.recv() => running.push(source),
                Some(()) = running.next() => {}
                () = shared.changed.notified() => shared.report(&mut reported),
                _ = minute.tick() => {
                    shared.retain(&pods());
                    shared.report(&mut reported);
                }
            }
        }
    }
}

impl PodCertificateManagerBuilder {
    /// The recorder of events about requests that were denied and certificates that expire. Default: logs them.
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// The clock for the age of certificates. Default: the clock of the operating system.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The jitter of renewals. Default: seeded by the operating system.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Builds the manager. It sends no request before the first certificate is needed.
    pub fn build(self) -> PodCertificateManager {
        let sources = Arc::<Mutex<Sources>>::default();
        let (begin, begun) = unbounded_channel();
        let woken = sources.clone();
        let informer = Informer::pod_certificate_requests(self.client.clone(), &self.node_name)
            .with_jitter(self.jitter.clone())
            .on_change(move |key, _| {
                for entry in woken.lock().values() {
                    if *entry.namespace == *key.namespace
                        && entry.source.state.lock().request() == Some(&*key.name)
                    {
                        entry.source.wake.notify_one();
                    }
                }
            });
        let shared = Shared {
            requests: informer.handle(),
            client: self.client,
            node_name: self.node_name,
            node: self.node,
            recorder: self.recorder,
            clock: self.clock,
            jitter: self.jitter,
            sources,
            needed: AtomicBool::new(false),
            first: Notify::new(),
            changed: Notify::new(),
            changes: broadcast::Sender::new(UNREAD_CHANGES),
            begin,
        };
        PodCertificateManager {
            informer,
            handle: ApiServerPodCertificates(Arc::new(shared)),
            begun,
        }
    }
}

impl Shared {
    /// Drops the sources of pods that are gone.
    fn retain(&self, pods: &[Arc<Pod>]) {
        let mut sources = self.sources.lock();
        // A pod may be newer than the list.
        sources.retain(|key, entry| {
            entry.begun.elapsed() < RETAIN_PERIOD
                || pods.iter().any(|pod| *pod.uid_str() == *key.pod.as_str())
        });
    }

    /// Sets the metric (`MetricReport`).
    fn report(&self, reported: &mut BTreeMap<(String, &'static str), u32>) {
        let now = self.clock.now();
        reported.values_mut().for_each(|count| *count = 0);
        for entry in self.sources.lock().values() {
            let label = entry.source.state.lock().label(now);
            *reported.entry((entry.signer.clone(), label)).or_default() += 1;
        }
        for ((signer, state), count) in &*reported {
            metrics::gauge!("kubelet_podcertificate_states", "signer_name" => signer.clone(), "state" => *state)
                .set(*count);
        }
    }
}

impl ApiServerPodCertificates {
    /// Begins to run a source.
    fn begin(&self, pod: &Arc<Pod>, key: &Key, wanted: &PodCertificateProjection) -> Entry {
        let watched = Arc::new(Watched {
            state: Mutex::new(State::Initial),
            wake: Notify::new(),
        });
        let ends = CancellationToken::new();
        let source = Source {
            shared: self.0.clone(),
            watched: watched.clone(),
            pod: pod.clone(),
            key: key.clone(),
            wanted: wanted.clone(),
        };
        let until = ends.clone();
        let running = async move {
            until.run_until_cancelled(source.run()).await;
        };
        // If the manager has ended, no certificate is ever issued, and the volume's error says so.
        let _ = self.0.begin.send(running.boxed());
        self.0.needed.store(true, Ordering::Release);
        self.0.first.notify_one();
        Entry {
            namespace: pod.key().namespace.to_string(),
            signer: wanted.signer_name.clone(),
            source: watched,
            begun: Instant::now(),
            _running: ends.drop_guard(),
        }
    }
}

#[async_trait]
impl PodCertificates for ApiServerPodCertificates {
    async fn credential(&self, pod: &Arc<Pod>, volume: &str, source_index: usize) -> Result<PodCredential> {
        let wanted = wanted(pod, volume, source_index).ok_or_else(|| {
            failed("pod does not contain the named podCertificate projected volume source".to_owned())
        })?;
        let key = Key {
            pod: pod.uid(),
            volume: volume.to_owned(),
            index: source_index,
        };
        let mut sources = self.0.sources.lock();
        let entry = sources
            .entry(key.clone())
            .or_insert_with(|| self.begin(pod, &key, wanted));
        let state = entry.source.state.lock();
        state.credential().map_err(failed)
    }

    fn changes(&self) -> Option<broadcast::Receiver<PodUid>> {
        Some(self.0.changes.subscribe())
    }

    fn forget(&self, uid: &PodUid) {
        self.0.sources.lock().retain(|key, _| key.pod != *uid);
    }
}

/// The source with this index in a volume of a pod.
fn wanted<'a>(pod: &'a Pod, volume: &str, index: usize) -> Option<&'a PodCertificateProjection> {
    let mut volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    let projected = volumes.find(|it| it.name == volume)?.projected.as_ref()?;
    let source = projected.sources.as_ref()?.get(index)?;
    source.pod_certificate.as_ref()
}

fn failed(message: String) -> Error {
    Error::Certificates { message }
}

kubelet_core::impl_debug!(PodCertificateManager);

kubelet_core::impl_debug!(PodCertificateManagerBuilder);

kubelet_core::impl_debug!(ApiServerPodCertificates);
