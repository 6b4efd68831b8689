//! [`ApiServer`]: the server's handle.

mod builder;

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
#[cfg(feature = "tls")]
use super::certificates::Signer;
use super::faults::Faults;
use super::http::ApiService;
#[cfg(feature = "tls")]
use super::metrics::MetricsServer;
#[cfg(feature = "tls")]
use super::nodes::NodeDialer;
use super::objects::NamespaceDefaults;
use super::outage::Outage;
use super::request::{User, View};
use super::resource::{Resource, Served};
use super::status_error::StatusError;
use super::storage::Kept;
use super::store::{ListOptions, Listed, Raced, Selection, Store};
use super::tokens::{self, Identity};
use super::trouble::Trouble;
use kubelet_core::Calls;

pub use builder::ApiServerBuilder;

/// A Kubernetes API server in memory. Clones share one server.
#[derive(Clone, Debug)]
pub struct ApiServer {
    pub(crate) shared: Arc<Shared>,
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
    #[cfg(feature = "tls")]
    pub(crate) signer: Option<Signer>,
    pub(crate) storage_controllers: bool,
    pub(crate) claim_controllers: bool,
    #[cfg(feature = "tls")]
    pub(crate) metrics_server: Option<MetricsServer>,
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

    /// The revision up to which watchers have all changes.
    pub(crate) fn delivered(&self) -> u64 {
        self.store.lock().delivered()
    }

    /// Returns the fault for a request, if there is one.
    pub(crate) fn trouble(&self, call: &ApiCall) -> Option<Trouble> {
        self.faults.of(call)
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
        #[cfg(feature = "tls")]
        {
            let text = format!("user {:?} in {:?}", user.name, user.groups);
            self.signer.as_ref()?.secret_signature(&text)
        }
        #[cfg(not(feature = "tls"))]
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

    fn token_signature(&self, signed: &str) -> String {
        #[cfg(feature = "tls")]
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
