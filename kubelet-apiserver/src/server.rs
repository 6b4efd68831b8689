//! [`ApiServer`]: the server's handle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use kubelet_core::Clock;
use parking_lot::Mutex;
use serde_json::Value;

use k8s_openapi::jiff::Timestamp;

use super::authorize::Grants;
use super::call::ApiCall;
#[cfg(feature = "signing")]
use super::certificates::{Signer, Signing};
#[cfg(feature = "faults")]
use super::faults::Faults;
use super::http::ApiService;
#[cfg(feature = "tls")]
use super::metrics::MetricsServer;
use super::objects;
use super::outage::Outage;
use super::request::{User, View};
use super::resource::{Resource, Served};
use super::status_error::StatusError;
use super::store::{ListOptions, Listed, Raced, Selection, Store};
use super::tokens::{self, Identity};
use super::trouble::Trouble;
use super::write::name_of;
use kubelet_core::Calls;

/// The default for [`ApiServerBuilder::history`].
const HISTORY: usize = 4096;
/// The default for [`ApiServerBuilder::bookmark_frequency`].
const BOOKMARK_FREQUENCY: Duration = Duration::from_secs(60);

/// A Kubernetes API server in memory. Clones share one server.
#[derive(Clone, Debug)]
pub struct ApiServer {
    pub(crate) shared: Arc<Shared>,
}

/// Configures an [`ApiServer`].
#[derive(Debug)]
pub struct ApiServerBuilder {
    #[cfg(feature = "signing")]
    pub(crate) signing: Signing,
    #[cfg(feature = "storage-controllers")]
    pub(crate) storage_controllers: bool,
    #[cfg(feature = "tls")]
    pub(crate) metrics_resolution: Option<Duration>,
    clock: Clock,
    seed: u64,
    history: usize,
    bookmark_frequency: Duration,
    record_reads: bool,
}

/// The state that all clones share.
#[derive(Debug)]
pub(crate) struct Shared {
    store: Mutex<Store>,
    rng: Mutex<fastrand::Rng>,
    clock: Clock,
    /// Users by bearer token.
    tokens: Mutex<BTreeMap<String, User>>,
    pub(crate) grants: Grants,
    #[cfg(feature = "signing")]
    pub(crate) signer: Option<Signer>,
    #[cfg(feature = "storage-controllers")]
    pub(crate) storage_controllers: bool,
    #[cfg(feature = "tls")]
    pub(crate) metrics_server: Option<MetricsServer>,
    #[cfg(feature = "faults")]
    faults: Faults,
    pub(crate) outage: Outage,
    pub(crate) bookmark_frequency: Duration,
    calls: Calls<ApiCall>,
    record_reads: bool,
}

impl ApiServer {
    /// A server on the system's clock. It holds what every new cluster holds, such as the namespace `default`.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Configures a server.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder {
            #[cfg(feature = "signing")]
            signing: Signing::default(),
            #[cfg(feature = "storage-controllers")]
            storage_controllers: false,
            #[cfg(feature = "tls")]
            metrics_resolution: None,
            clock: Clock::system(),
            seed: 0,
            history: HISTORY,
            bookmark_frequency: BOOKMARK_FREQUENCY,
            record_reads: false,
        }
    }

    /// A client in this process with the administrator's rights. Its requests pass through the whole server, but no
    /// network.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, because the client spawns a task.
    pub fn client(&self) -> Client {
        self.client_as(User::admin())
    }

    /// A client in this process with a user's rights.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, because the client spawns a task.
    pub fn client_as(&self, user: User) -> Client {
        Client::new(self.service_as(user), "default")
    }

    /// The server as an HTTP service. The `Authorization` header of each request names its user.
    pub fn service(&self) -> ApiService {
        ApiService::new(self.shared.clone(), None)
    }

    /// The server as an HTTP service. All requests are this user's.
    pub fn service_as(&self, user: User) -> ApiService {
        ApiService::new(self.shared.clone(), Some(user))
    }

    /// Returns a bearer token for a user.
    pub fn token_for(&self, user: User) -> String {
        self.shared.token_for(user)
    }

    /// Drops the history. A list or watch from an earlier `resourceVersion` then gets `410 Gone`.
    pub fn compact(&self) {
        self.shared.store.lock().compact();
    }

    /// The `resourceVersion` of the latest write.
    pub fn resource_version(&self) -> u64 {
        self.shared.revision()
    }

    /// The faults of this server. There are none until you add some.
    #[cfg(feature = "faults")]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The requests that the server received, for assertions. It records writes only, unless
    /// [`record_reads`](ApiServerBuilder::record_reads) is set. The record grows until you [clear](Calls::clear) it.
    pub fn calls(&self) -> &Calls<ApiCall> {
        &self.shared.calls
    }

    /// The number of open watches.
    pub fn open_watches(&self) -> usize {
        self.shared.store.lock().watches()
    }
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new()
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
        self.record_reads = true;
        self
    }

    /// Builds the server. It runs no task; it works when a request comes.
    pub fn build(self) -> ApiServer {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        #[cfg(feature = "signing")]
        let signer = self.signing.signer(&mut rng, self.clock.now());
        let mut store = Store::new(self.history);
        for (resource, object) in objects::initial_objects(self.clock.now(), &mut rng) {
            let namespace = object["metadata"]["namespace"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let name = name_of(&object).to_owned();
            // They have different names.
            let _ = store.commit(resource, &namespace, &name, None, Some(object));
        }
        ApiServer {
            shared: Arc::new(Shared {
                store: Mutex::new(store),
                rng: Mutex::new(rng),
                clock: self.clock,
                tokens: Mutex::new(BTreeMap::new()),
                grants: Grants::default(),
                #[cfg(feature = "signing")]
                signer,
                #[cfg(feature = "storage-controllers")]
                storage_controllers: self.storage_controllers,
                #[cfg(feature = "tls")]
                metrics_server: self.metrics_resolution.map(MetricsServer::new),
                #[cfg(feature = "faults")]
                faults: Faults::new(self.seed),
                outage: Outage::default(),
                bookmark_frequency: self.bookmark_frequency,
                calls: Calls::new(),
                record_reads: self.record_reads,
            }),
        }
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn served(&self) -> Served {
        Served {
            #[cfg(feature = "tls")]
            metrics: self.metrics_server.is_some(),
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.store.lock().revision()
    }

    /// Returns the fault for a request, if there is one.
    pub(crate) fn trouble(&self, call: &ApiCall) -> Option<Trouble> {
        #[cfg(feature = "faults")]
        return self.faults.of(call);
        #[cfg(not(feature = "faults"))]
        {
            let _ = call;
            None
        }
    }

    pub(crate) fn fork_rng(&self) -> fastrand::Rng {
        self.rng.lock().fork()
    }

    pub(crate) fn lookup(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.lock().get(resource, namespace, name)
    }

    pub(crate) fn list(
        &self,
        resource: &Resource,
        selection: &Selection,
        options: &ListOptions,
    ) -> Result<Listed, StatusError> {
        self.store.lock().list(resource, selection, options)
    }

    pub(crate) fn commit(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        old: Option<&Arc<Value>>,
        new: Option<Value>,
    ) -> Result<Arc<Value>, Raced> {
        self.store.lock().commit(resource, namespace, name, old, new)
    }

    pub(crate) fn with_store<T>(&self, f: impl FnOnce(&mut Store) -> T) -> T {
        f(&mut self.store.lock())
    }

    /// Records a request if it is to be recorded, and returns its number for [`answered`](Self::answered).
    pub(crate) fn record(&self, call: ApiCall) -> Option<u64> {
        (self.record_reads || !call.verb.only_looks()).then(|| self.calls.record(call))
    }

    pub(crate) fn answered(&self, call: Option<u64>, status: u16) {
        if let Some(number) = call {
            self.calls.amend(number, |call| call.status = Some(status));
        }
    }

    pub(crate) fn token_for(&self, user: User) -> String {
        let mut tokens = self.tokens.lock();
        if let Some((token, _)) = tokens.iter().find(|(_, known)| **known == user) {
            return token.clone();
        }
        let token = format!("{:032x}", self.rng.lock().u128(..));
        tokens.insert(token.clone(), user);
        token
    }

    /// The owner of a token, for some audiences: the server's own, or those of a `TokenReview`.
    ///
    /// # Errors
    ///
    /// Why the token has no owner, in the API server's words.
    pub(crate) fn authenticate(&self, token: &str, audiences: &[&str]) -> Result<Identity, String> {
        if let Some(user) = self.tokens.lock().get(token) {
            let identity = Identity::of(user.clone());
            return identity.filter(audiences).ok_or_else(|| tokens::INVALID.into());
        }
        tokens::authenticate(token, audiences, self, self.now())
    }
}

impl View for Shared {
    fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.lookup(resource, namespace, name)
    }

    fn list(&self, resource: &Resource, namespace: &str) -> Vec<Arc<Value>> {
        self.store.lock().objects(resource, namespace)
    }
}
