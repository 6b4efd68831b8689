//! Config maps and secrets on an API server, each watched while pods refer to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube_client::{Client, Resource};
use kubelet_core::{ConfigObjectChanges, ConfigObjectKind, ConfigObjectRef, ConfigObjects, Result};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::broadcast;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::config_objects::{DEADLINE, RETAIN_PERIOD, failed};
use super::references::References;
use crate::informer::{Found, Informer, InformerHandle};
use crate::reflector::Key;

/// How many changes a subscriber may leave unread. Memory for all of them is taken at the start.
const UNREAD_CHANGES: usize = 64;

/// Watches the config maps and secrets that pods refer to. Each object has its own watch, since a node may not list
/// them. A watch starts with the first [read](Self::handle) and ends when no pod refers to the object.
///
/// Corresponds to the kubelet's managers with `configMapAndSecretChangeDetectionStrategy: Watch`, the default.
/// While nothing changes, it sends no requests. The handle [reports](ConfigObjects::changes) each change of an object
/// that is watched. An object that is immutable is read once, and not watched any further. While the server does not answer, it returns the objects seen last.
/// [`ApiServerConfigObjects`](crate::ApiServerConfigObjects) sends a request each time.
pub struct ConfigObjectWatches {
    handle: WatchedConfigObjects,
    begun: UnboundedReceiver<BoxFuture<'static, ()>>,
}

/// The objects that [`ConfigObjectWatches`] have seen. Clones share them.
#[derive(Clone)]
pub struct WatchedConfigObjects(Arc<Shared>);

struct Shared {
    client: Client,
    watches: Mutex<Watches>,
    changes: broadcast::Sender<ConfigObjectRef>,
    /// Where watches are run.
    begin: UnboundedSender<BoxFuture<'static, ()>>,
}

#[derive(Default)]
struct Watches {
    config_maps: WatchesOf<ConfigMap>,
    secrets: WatchesOf<Secret>,
}

type WatchesOf<K> = HashMap<Key, Watch<K>>;

/// One object that is watched.
struct Watch<K> {
    seen: InformerHandle<K>,
    begun: Instant,
    /// A reader did not wait for the first answer any longer.
    missed: Arc<AtomicBool>,
    /// Ends the watch. `None` once it has ended, because the object is immutable.
    running: Option<DropGuard>,
}

/// A kind of object that can be watched.
trait Configuration:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Send + Sync + 'static
{
    const KIND: ConfigObjectKind;

    /// Its data never changes again.
    fn is_immutable(&self) -> bool;

    fn of(watches: &mut Watches) -> &mut WatchesOf<Self>;
}

impl Configuration for ConfigMap {
    const KIND: ConfigObjectKind = ConfigObjectKind::ConfigMap;

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    fn of(watches: &mut Watches) -> &mut WatchesOf<Self> {
        &mut watches.config_maps
    }
}

impl Configuration for Secret {
    const KIND: ConfigObjectKind = ConfigObjectKind::Secret;

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    fn of(watches: &mut Watches) -> &mut WatchesOf<Self> {
        &mut watches.secrets
    }
}

impl<K> Watch<K> {
    /// The pod that it was begun for may be newer than the list of pods.
    fn is_new(&self) -> bool {
        self.begun.elapsed() < RETAIN_PERIOD
    }
}

impl ConfigObjectWatches {
    /// Watches on the API server of `client`. It sends no request before the first object is needed.
    pub fn new(client: Client) -> Self {
        let (begin, begun) = unbounded_channel();
        let shared = Shared {
            client,
            watches: Mutex::default(),
            changes: broadcast::Sender::new(UNREAD_CHANGES),
            begin,
        };
        Self {
            handle: WatchedConfigObjects(Arc::new(shared)),
            begun,
        }
    }

    /// The handle that reads objects. It returns nothing before the watches [run](Self::run).
    pub fn handle(&self) -> WatchedConfigObjects {
        self.handle.clone()
    }

    /// Watches until `shutdown`. Each minute it ends the watches of objects that none of `pods` refers to.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends all watches. The handle still returns the objects seen last.
    pub async fn run(mut self, pods: impl Fn() -> Vec<Arc<Pod>>, shutdown: CancellationToken) {
        let mut minute = interval(RETAIN_PERIOD);
        minute.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(watch) = self.begun.recv() => running.push(watch),
                Some(()) = running.next() => {}
                _ = minute.tick() => self.handle.retain(&pods()),
            }
        }
    }
}

impl WatchedConfigObjects {
    fn retain(&self, pods: &[Arc<Pod>]) {
        let mut watches = self.0.watches.lock();
        if watches.config_maps.is_empty() && watches.secrets.is_empty() {
            return;
        }
        let References { config_maps, secrets } = References::of(pods);
        watches
            .config_maps
            .retain(|key, watch| watch.is_new() || config_maps.contains(key));
        watches
            .secrets
            .retain(|key, watch| watch.is_new() || secrets.contains(key));
    }

    async fn get<K: Configuration>(&self, namespace: &str, name: &str) -> Result<Option<Arc<K>>> {
        let key = Key::new(namespace, name);
        let (seen, missed) = {
            let mut watches = self.0.watches.lock();
            let watch = K::of(&mut watches).entry(key.clone());
            let watch = watch.or_insert_with(|| self.watch(&key));
            (watch.seen.clone(), watch.missed.clone())
        };
        if timeout(DEADLINE, seen.synced()).await.is_err() {
            missed.store(true, Ordering::Relaxed);
            let why = format!(
                "failed to sync {} cache: timed out waiting for the condition",
                K::kind(&()).to_lowercase()
            );
            return Err(failed::<K>(namespace, name, why.into()));
        }
        let object = seen.get(namespace, name);
        if object.as_ref().is_some_and(|object| object.is_immutable())
            && let Some(watch) = K::of(&mut self.0.watches.lock()).get_mut(&key)
        {
            watch.running = None;
        }
        Ok(object)
    }

    /// Begins to watch one object.
    fn watch<K: Configuration>(&self, key: &Key) -> Watch<K> {
        let (shutdown, missed) = (CancellationToken::new(), Arc::<AtomicBool>::default());
        let (changes, was_missed) = (self.0.changes.clone(), missed.clone());
        let informer = Informer::<K>::named(self.0.client.clone(), key).on_change(move |key, found| {
            // The reader that began the watch waits for the first list.
            if found == Found::ByFirstList && !was_missed.load(Ordering::Relaxed) {
                return;
            }
            let Key { namespace, name } = key.clone();
            // An error: no one has subscribed.
            let _ = changes.send(ConfigObjectRef {
                kind: K::KIND,
                namespace,
                name,
            });
        });
        let seen = informer.handle();
        // Whoever ran them has ended: then this waits in vain, and says so.
        let _ = self.0.begin.send(informer.run(shutdown.clone()).boxed());
        Watch {
            seen,
            begun: Instant::now(),
            missed,
            running: Some(shutdown.drop_guard()),
        }
    }
}

#[async_trait]
impl ConfigObjects for WatchedConfigObjects {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<Arc<ConfigMap>>> {
        self.get(namespace, name).await
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>> {
        self.get(namespace, name).await
    }

    fn changes(&self) -> Option<ConfigObjectChanges> {
        Some(self.0.changes.subscribe())
    }
}

kubelet_core::impl_debug!(ConfigObjectWatches);

kubelet_core::impl_debug!(WatchedConfigObjects);
