//! [`ApiServer`]: the server's handle.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use kubelet_core::{Clock, Disk};
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
use super::nodes::NodeDialer;
use super::objects::{self, NamespaceDefaults};
use super::outage::Outage;
use super::request::{User, View};
use super::resource::Resource;
use super::status_error::StatusError;
use super::storage::{Kept, Storage};
use super::store::{ListOptions, Listed, Raced, Selection, Store};
use super::tokens::{self, Identity};
use super::trouble::Trouble;
use super::write::name_of;
use crate::{Error, Result};
use kubelet_core::Calls;

/// The default for [`ApiServerBuilder::history`].
const HISTORY: usize = 4096;
/// The default for [`ApiServerBuilder::bookmark_frequency`].
const BOOKMARK_FREQUENCY: Duration = Duration::from_secs(60);
/// The default for [`ApiServerBuilder::event_ttl`].
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

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

/// Which requests are recorded for assertions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    None,
    Writes,
    All,
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
    #[cfg(feature = "faults")]
    faults: Faults,
    pub(crate) outage: Outage,
    pub(crate) bookmark_frequency: Duration,
    calls: Calls<ApiCall>,
    record: Record,
    /// `None` for a server in memory.
    pub(crate) kept: Option<Kept>,
    /// The node that gets all pods, if there is one.
    pub(crate) bind_pods_to: Option<String>,
    /// What each new namespace gets.
    pub(crate) namespace_defaults: NamespaceDefaults,
    #[cfg(feature = "tls")]
    pub(crate) dialer: Option<Arc<dyn NodeDialer>>,
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
        #[cfg_attr(not(feature = "signing"), allow(unused_mut))]
        let mut rng = fastrand::Rng::with_seed(self.seed);
        #[cfg(feature = "signing")]
        let signer = self.signing.signer(&mut rng, self.clock.now());
        let store = Store::new(self.history);
        self.with(
            store,
            rng,
            #[cfg(feature = "signing")]
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
        #[cfg(feature = "signing")]
        let signer = match self.signing.kept(&restored.others, self.clock.now()) {
            None => None,
            Some(kept) => {
                let (signer, new) = kept.map_err(|why| failed("the authority")(io::Error::other(why)))?;
                if let Some(entries) = new {
                    let writing = storage.clone();
                    let written =
                        Disk::default().run(move || writing.write(&entries).map_err(io::Error::other));
                    written.await.map_err(failed("cannot be written"))?;
                }
                Some(signer)
            }
        };
        tracing::debug!(
            objects = restored.objects,
            revision = store.revision(),
            "opened the storage"
        );
        let kept = Kept::new(storage, store.revision(), self.event_ttl);
        Ok(self.with(
            store,
            fastrand::Rng::new(),
            #[cfg(feature = "signing")]
            signer,
            Some(kept),
        ))
    }

    fn with(
        self,
        mut store: Store,
        mut rng: fastrand::Rng,
        #[cfg(feature = "signing")] signer: Option<Signer>,
        kept: Option<Kept>,
    ) -> ApiServer {
        #[cfg_attr(not(feature = "signing"), allow(unused_mut))]
        let mut namespace_defaults = NamespaceDefaults {
            authority: String::new(),
            account_tokens: self.account_tokens,
        };
        #[cfg(feature = "signing")]
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
                #[cfg(feature = "signing")]
                signer,
                #[cfg(feature = "storage-controllers")]
                storage_controllers: self.storage_controllers,
                #[cfg(feature = "faults")]
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

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.store.lock().revision()
    }

    /// The revision up to which watchers have all changes.
    pub(crate) fn delivered(&self) -> u64 {
        self.store.lock().delivered()
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
    ) -> std::result::Result<Listed, StatusError> {
        self.store.lock().list(resource, selection, options)
    }

    pub(crate) fn commit(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        old: Option<&Arc<Value>>,
        new: Option<Value>,
    ) -> std::result::Result<Arc<Value>, Raced> {
        let committed = self.store.lock().commit(resource, namespace, name, old, new);
        if let Some(kept) = &self.kept {
            kept.changed();
        }
        committed
    }

    pub(crate) fn with_store<T>(&self, f: impl FnOnce(&mut Store) -> T) -> T {
        f(&mut self.store.lock())
    }

    /// Records a request if it is to be recorded, and returns its number for [`answered`](Self::answered).
    pub(crate) fn record(&self, call: ApiCall) -> Option<u64> {
        let recorded = match self.record {
            Record::None => false,
            Record::Writes => !call.verb.only_looks(),
            Record::All => true,
        };
        recorded.then(|| self.calls.record(call))
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
        let token = self
            .secret_token(&user)
            .unwrap_or_else(|| format!("{:032x}", self.rng.lock().u128(..)));
        tokens.insert(token.clone(), user);
        token
    }

    /// The token of a user that nobody can guess; `None` if the server has no secret key.
    fn secret_token(&self, user: &User) -> Option<String> {
        #[cfg(feature = "signing")]
        {
            let text = format!("user {:?} in {:?}", user.name, user.groups);
            self.signer.as_ref()?.secret_signature(&text)
        }
        #[cfg(not(feature = "signing"))]
        {
            let _ = user;
            None
        }
    }

    /// The owner of a token, for some audiences: the server's own, or those of a `TokenReview`.
    ///
    /// # Errors
    ///
    /// Why the token has no owner, in the API server's words.
    pub(crate) fn authenticate(
        &self,
        token: &str,
        audiences: &[&str],
    ) -> std::result::Result<Identity, String> {
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

    fn token_signature(&self, signed: &str) -> String {
        #[cfg(feature = "signing")]
        if let Some(signature) = self
            .signer
            .as_ref()
            .and_then(|signer| signer.secret_signature(signed))
        {
            return signature;
        }
        let _ = signed;
        tokens::UNSIGNED.to_owned()
    }
}
