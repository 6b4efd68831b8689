//! [`ApiServerBuilder`]: the settings of a server, in memory or on a storage.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{Calls, Clock, Disk};
use parking_lot::Mutex;

use super::{ApiServer, Record, Shared};
use crate::authorize::Grants;
#[cfg(feature = "tls")]
use crate::certificates::{Signer, Signing};
use crate::faults::Faults;
#[cfg(feature = "tls")]
use crate::metrics::MetricsServer;
#[cfg(feature = "tls")]
use crate::nodes::NodeDialer;
use crate::objects::{self, NamespaceDefaults};
use crate::outage::Outage;
use crate::storage::{Kept, Storage};
use crate::store::Store;
use crate::write::name_of;
use crate::{Error, Result};

/// The default for [`ApiServerBuilder::history`].
const HISTORY: usize = 4096;
/// The default for [`ApiServerBuilder::bookmark_frequency`].
const BOOKMARK_FREQUENCY: Duration = Duration::from_secs(60);
/// The default for [`ApiServerBuilder::event_ttl`].
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// Configures an [`ApiServer`].
#[derive(Debug)]
pub struct ApiServerBuilder {
    #[cfg(feature = "tls")]
    pub(crate) signing: Signing,
    pub(crate) storage_controllers: bool,
    pub(crate) claim_controllers: bool,
    #[cfg(feature = "tls")]
    pub(crate) metrics_resolution: Option<Duration>,
    clock: Clock,
    seed: u64,
    history: usize,
    bookmark_frequency: Duration,
    record: Record,
    event_ttl: Duration,
    bind_pods_to: Option<String>,
    account_tokens: bool,
    #[cfg(feature = "tls")]
    dialer: Option<Arc<dyn NodeDialer>>,
}

impl ApiServer {
    /// Configures a server.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder {
            #[cfg(feature = "tls")]
            signing: Signing::default(),
            storage_controllers: false,
            claim_controllers: false,
            #[cfg(feature = "tls")]
            metrics_resolution: None,
            clock: Clock::system(),
            seed: 0,
            history: HISTORY,
            bookmark_frequency: BOOKMARK_FREQUENCY,
            record: Record::Writes,
            event_ttl: EVENT_TTL,
            bind_pods_to: None,
            account_tokens: true,
            #[cfg(feature = "tls")]
            dialer: None,
        }
    }
}

impl ApiServerBuilder {
    /// Sets the clock. The default is the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the seed of random numbers. With the same seed, the same requests make objects with the same names and
    /// UIDs.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets how many changes of each resource the server keeps for watches and for paged lists. The default is 4096.
    /// A request for an older change gets `410 Gone`.
    #[must_use]
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    /// Sets how often a watch that allows bookmarks gets one (`defaultBookmarkFrequency`). The default is one minute.
    /// Each such watch also gets a bookmark shortly before it ends.
    #[must_use]
    pub fn bookmark_frequency(mut self, every: Duration) -> Self {
        self.bookmark_frequency = every;
        self
    }

    /// Also records the requests that only read: `get`, `list` and `watch`.
    #[must_use]
    pub fn record_reads(mut self) -> Self {
        self.record = Record::All;
        self
    }

    /// Records no requests. A server that runs for long needs this, because the record grows.
    #[must_use]
    pub fn record_nothing(mut self) -> Self {
        self.record = Record::None;
        self
    }

    /// Sets how long a server with a storage keeps an event that does not recur (`--event-ttl`). The default is one hour.
    #[must_use]
    pub fn event_ttl(mut self, ttl: Duration) -> Self {
        self.event_ttl = ttl;
        self
    }

    /// Binds each pod to this node within the request that creates it, as a scheduler would do later. It regards scheduling
    /// gates, and nothing else: the kubelet rejects a pod that does not fit.
    #[must_use]
    pub fn bind_pods_to(mut self, node: impl Into<String>) -> Self {
        self.bind_pods_to = Some(node.into());
        self
    }

    /// Mounts no token of the service account `default` into pods, unless a pod asks for it with
    /// `automountServiceAccountToken: true`. Each namespace gets its account with this setting when it is created.
    #[must_use]
    pub fn without_account_tokens(mut self) -> Self {
        self.account_tokens = false;
        self
    }

    /// Sets who connects to the servers of nodes. The default is TCP with TLS, by the addresses of each node.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn node_dialer(mut self, dialer: Arc<dyn NodeDialer>) -> Self {
        self.dialer = Some(dialer);
        self
    }

    /// Builds a server in memory. It runs no task; it works when a request comes.
    pub fn build(self) -> ApiServer {
        #[cfg_attr(not(feature = "tls"), allow(unused_mut))]
        let mut rng = fastrand::Rng::with_seed(self.seed);
        #[cfg(feature = "tls")]
        let signer = self.signing.signer(&mut rng, self.clock.now());
        let store = Store::new(self.history);
        self.with(
            store,
            rng,
            #[cfg(feature = "tls")]
            signer,
            None,
        )
    }

    /// Opens a server on a storage, with the objects that are in there. Then call [`ApiServer::run`], which writes to it. Clients
    /// that resume a watch from before get `410 Gone`.
    ///
    /// Unlike a server that was [built](Self::build), it is for more than tests: UIDs are random, not drawn from the seed. If it signs
    /// certificates, the key of its authority is random and kept in the storage. It then signs the tokens of service accounts,
    /// too, and the token of a user stays the same over restarts.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`]: the storage cannot be read or written.
    pub async fn open(self, storage: Arc<dyn Storage>) -> Result<ApiServer> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |source: io::Error| Error::Storage {
                what,
                source: source.into(),
            }
        };
        let reading = storage.clone();
        let entries = Disk::default().run(move || reading.load().map_err(io::Error::other));
        let entries = entries.await.map_err(failed("cannot be read"))?;
        let mut store = Store::new(self.history);
        let invalid = |name: String| Error::Storage {
            what: name,
            source: "the entry cannot be read".into(),
        };
        let restored = store.restore(entries).map_err(invalid)?;
        #[cfg_attr(not(feature = "tls"), allow(unused_mut))]
        let mut new = BTreeMap::from([store.revision_entry()]);
        #[cfg(feature = "tls")]
        let signer = match self.signing.kept(&restored.others, self.clock.now()) {
            None => None,
            Some(kept) => {
                let (signer, entries) = kept.map_err(|why| failed("the authority")(io::Error::other(why)))?;
                new.extend(entries.into_iter().flatten());
                Some(signer)
            }
        };
        let writing = storage.clone();
        let written = Disk::default().run(move || writing.write(&new).map_err(io::Error::other));
        written.await.map_err(failed("cannot be written"))?;
        tracing::debug!(
            objects = restored.objects,
            revision = store.revision(),
            "opened the storage"
        );
        let kept = Kept::new(storage, store.revision(), self.event_ttl);
        Ok(self.with(
            store,
            fastrand::Rng::new(),
            #[cfg(feature = "tls")]
            signer,
            Some(kept),
        ))
    }

    fn with(
        self,
        mut store: Store,
        mut rng: fastrand::Rng,
        #[cfg(feature = "tls")] signer: Option<Signer>,
        kept: Option<Kept>,
    ) -> ApiServer {
        #[cfg_attr(not(feature = "tls"), allow(unused_mut))]
        let mut namespace_defaults = NamespaceDefaults {
            authority: String::new(),
            account_tokens: self.account_tokens,
        };
        #[cfg(feature = "tls")]
        if let Some(signer) = signer.as_ref().filter(|_| kept.is_some()) {
            signer.certificate().clone_into(&mut namespace_defaults.authority);
        }
        for (resource, object) in objects::initial_objects(&namespace_defaults, self.clock.now(), &mut rng) {
            let namespace = object["metadata"]["namespace"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let name = name_of(&object).to_owned();
            // One that the storage has stays as it is.
            let _ = store.commit(resource, &namespace, &name, None, Some(object));
        }
        ApiServer {
            shared: Arc::new(Shared {
                store: Mutex::new(store),
                rng: Mutex::new(rng),
                clock: self.clock,
                tokens: Mutex::new(BTreeMap::new()),
                grants: Grants::default(),
                #[cfg(feature = "tls")]
                signer,
                storage_controllers: self.storage_controllers,
                claim_controllers: self.claim_controllers,
                #[cfg(feature = "tls")]
                metrics_server: self.metrics_resolution.map(MetricsServer::new),
                faults: Faults::new(self.seed),
                outage: Outage::default(),
                bookmark_frequency: self.bookmark_frequency,
                calls: Calls::new(),
                record: self.record,
                kept,
                bind_pods_to: self.bind_pods_to,
                namespace_defaults,
                #[cfg(feature = "tls")]
                dialer: self.dialer,
            }),
        }
    }
}
