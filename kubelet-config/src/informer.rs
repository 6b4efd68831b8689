//! Objects of an API server that an agent caches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube_client::{Client, Resource};
use kubelet_core::{Jitter, RuntimeClasses, Services};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;

use crate::reflector::{Change, Key, Listener, Object, Reflector, Requests, Unreadable};

/// How long one object is watched at least: there may be many such watches (`watch_based_manager.go`).
const MIN_WATCH_TIMEOUT_OF_ONE: Duration = Duration::from_secs(30 * 60);

/// Watches all objects of a kind that a kubelet keeps at hand, and has them read through its
/// [`handle`](Self::handle). Corresponds to client-go's informers and listers.
///
/// It lists and watches as [`ApiServerSource`](crate::ApiServerSource) does. While it cannot reach the server, it
/// returns the objects seen last.
pub struct Informer<K> {
    requests: Requests,
    jitter: Jitter,
    /// Removes the fields that no one reads. So none of them can make an object unreadable.
    trim: fn(&mut Value),
    /// Is called after an object changed.
    on_change: OnChange,
    handle: InformerHandle<K>,
}

/// Gets the key of an object that was created, changed or deleted, and whether this was found by the first list.
pub(crate) type OnChange = Box<dyn Fn(&Key, Found) + Send + Sync>;

/// How a change was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// By the first list: the object may be as old as the cluster.
    ByFirstList,
    /// Later.
    Later,
}

/// The objects that an [`Informer`] has seen. Clones share them. Each call is quick.
pub struct InformerHandle<K>(Arc<Seen<K>>);

struct Seen<K> {
    objects: RwLock<BTreeMap<Key, Arc<K>>>,
    /// All objects were seen once. It wakes those who wait in the order in which they began.
    synced: SetOnce<()>,
}

impl Informer<Service> {
    /// The services of all namespaces but for headless ones: what containers find in their environment. Of each its
    /// name, cluster IP and ports are kept.
    pub fn services(client: Client) -> Self {
        let selector = "spec.clusterIP!=None".to_owned();
        let requests = Requests::new(client, "/api/v1/services", Some(selector));
        Self::new(requests, |service| {
            keep(service, "", &["apiVersion", "kind", "metadata", "spec"]);
            keep(
                service,
                "/metadata",
                &["name", "namespace", "resourceVersion", "uid"],
            );
            keep(service, "/spec", &["clusterIP", "ports"]);
        })
    }
}

impl Informer<RuntimeClass> {
    /// The RuntimeClasses that pods name.
    pub fn runtime_classes(client: Client) -> Self {
        let requests = Requests::new(client, "/apis/node.k8s.io/v1/runtimeclasses", None);
        Self::new(requests, |_| ())
    }
}

impl Informer<ClusterTrustBundle> {
    /// The trust bundles of the cluster.
    pub(crate) fn cluster_trust_bundles(client: Client) -> Self {
        let path = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
        Self::new(Requests::new(client, path, None), |bundle| {
            keep(bundle, "/metadata", &["labels", "name", "resourceVersion", "uid"]);
        })
    }
}

#[cfg(feature = "pod-certificates")]
impl Informer<k8s_openapi::api::certificates::v1beta1::PodCertificateRequest> {
    /// The requests for certificates of the pods of a node.
    pub(crate) fn pod_certificate_requests(client: Client, node: &str) -> Self {
        let path = "/apis/certificates.k8s.io/v1beta1/podcertificaterequests";
        let selector = format!("spec.nodeName={}", escaped(node));
        Self::new(Requests::new(client, path, Some(selector)), |_| ())
    }
}

impl<K> Informer<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned + Clone,
{
    /// One object alone, which is all that a node may watch of some kinds.
    pub(crate) fn named(client: Client, key: &Key) -> Self {
        let path = K::url_path(&(), Some(&key.namespace));
        let requests = Requests::new(
            client,
            path,
            Some(format!("metadata.name={}", escaped(&key.name))),
        )
        .with_min_watch_timeout(MIN_WATCH_TIMEOUT_OF_ONE);
        Self::new(requests, |_| ())
    }
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + Clone> Informer<K> {
    fn new(requests: Requests, trim: fn(&mut Value)) -> Self {
        let seen = Seen {
            objects: RwLock::default(),
            synced: SetOnce::new(),
        };
        Self {
            requests,
            jitter: Jitter::default(),
            trim,
            on_change: Box::new(|_, _| {}),
            handle: InformerHandle(Arc::new(seen)),
        }
    }

    /// What spreads the requests of many nodes. Default: seeded by the operating system.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Calls `on_change` after each change, when the handle already returns the new state.
    pub(crate) fn on_change(mut self, on_change: impl Fn(&Key, Found) + Send + Sync + 'static) -> Self {
        self.on_change = Box::new(on_change);
        self
    }

    /// The handle that reads the objects.
    pub fn handle(&self) -> InformerHandle<K> {
        self.handle.clone()
    }

    /// Watches until `shutdown`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch. The handle still returns the objects seen last.
    pub async fn run(self, shutdown: CancellationToken) {
        let keeper = Keeper {
            trim: self.trim,
            on_change: self.on_change,
            handle: self.handle,
        };
        let reflector = Reflector::new(self.requests, self.jitter, keeper);
        shutdown.run_until_cancelled(reflector.run()).await;
    }
}

impl<K> InformerHandle<K> {
    /// Whether all objects were seen once (`HasSynced`).
    pub fn has_synced(&self) -> bool {
        self.0.synced.initialized()
    }

    /// Waits until all objects were seen once.
    pub async fn synced(&self) {
        self.0.synced.wait().await;
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.0.objects.read().get(&Key::new(namespace, name)).cloned()
    }

    /// All objects, in the order of their keys.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.0.objects.read().values().cloned().collect()
    }

    fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let objects = self.0.objects.read();
        let from_its_first = objects.range(Key::new(namespace, "")..);
        let of_it = from_its_first.take_while(|(key, _)| *key.namespace == *namespace);
        of_it.map(|(_, object)| object.clone()).collect()
    }
}

impl Services for InformerHandle<Service> {
    fn has_synced(&self) -> bool {
        self.has_synced()
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.get(namespace, name)
    }

    fn in_namespace(&self, namespace: &str) -> Vec<Arc<Service>> {
        self.in_namespace(namespace)
    }
}

impl RuntimeClasses for InformerHandle<RuntimeClass> {
    fn handler(&self, class: &str) -> Option<String> {
        self.get("", class).map(|class| class.handler.clone())
    }
}

/// A value as a field selector has it (`fields.EscapeValue`): a pod may refer to any name.
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// Removes the other fields of the object at `pointer`.
fn keep(object: &mut Value, pointer: &str, fields: &[&str]) {
    if let Some(part) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
        part.retain(|field, _| fields.contains(&field.as_str()));
    }
}

/// Writes the objects of a handle.
struct Keeper<K> {
    trim: fn(&mut Value),
    on_change: OnChange,
    handle: InformerHandle<K>,
}

impl<K: Resource<DynamicType = ()>> Keeper<K> {
    /// Replaces all objects. Returns those that differ, and how this was found.
    fn replace(&self, objects: BTreeMap<Key, Arc<K>>) -> (Vec<Key>, Found) {
        let version = |object: &K| (object.meta().uid.clone(), object.meta().resource_version.clone());
        let is_same = |other: Option<&Arc<K>>, object: &Arc<K>| {
            other.is_some_and(|other| version(other) == version(object))
        };
        let changed = {
            let mut seen = self.handle.0.objects.write();
            let gone = seen.keys().filter(|key| !objects.contains_key(*key));
            let mut changed: Vec<Key> = gone.cloned().collect();
            let other = objects
                .iter()
                .filter(|(key, object)| !is_same(seen.get(*key), object));
            changed.extend(other.map(|(key, _)| key.clone()));
            *seen = objects;
            changed
        };
        match self.handle.0.synced.set(()) {
            Ok(()) => (changed, Found::ByFirstList),
            Err(_) => (changed, Found::Later),
        }
    }
}

impl<K: Object> Listener<K> for Keeper<K> {
    async fn changed(&mut self, change: Change<K>) {
        let kind = K::kind(&());
        match change {
            Change::All(objects) => {
                let objects = objects.into_iter().map(|object| (Key::of(&*object), object));
                let (changed, found) = self.replace(objects.collect());
                changed.iter().for_each(|key| (self.on_change)(key, found));
            }
            Change::Applied(object) => {
                let key = Key::of(&*object);
                let inserted = key.clone();
                self.handle.0.objects.write().insert(inserted, object);
                (self.on_change)(&key, Found::Later);
            }
            Change::Deleted(object) => {
                let key = Key::of(&*object);
                self.handle.0.objects.write().remove(&key);
                (self.on_change)(&key, Found::Later);
            }
            Change::Unavailable(message) => {
                tracing::warn!(%kind, "the API server cannot be reached: {message}")
            }
            Change::Available => tracing::info!(%kind, "the API server can be reached again"),
            Change::Problem { item, message } => {
                tracing::warn!(item, "ignored an object that cannot be decoded: {message}")
            }
        }
    }

    fn read(&self, mut object: Value) -> Result<K, Unreadable> {
        (self.trim)(&mut object);
        serde_path_to_error::deserialize(object)
    }
}

impl<K> Clone for InformerHandle<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

kubelet_core::impl_debug!(Informer<K>);

kubelet_core::impl_debug!(InformerHandle<K>);
