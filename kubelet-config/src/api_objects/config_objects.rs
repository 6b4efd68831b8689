//! Config maps and secrets on an API server.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube_client::api::Api;
use kube_client::{Client, Error as ClientError, Resource};
use kubelet_core::{ConfigObjects, Error, Result};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::references::References;
use crate::reflector::Key;

/// How long an object is cached: several reads at one time send one request.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How often unused objects are dropped.
pub(super) const RETAIN_PERIOD: Duration = Duration::from_secs(60);
/// How long an answer is waited for.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// Reads config maps and secrets from an API server on demand. Clones share their cache.
///
/// Corresponds to the kubelet's managers with `configMapAndSecretChangeDetectionStrategy: Get`
/// ([`ConfigObjectWatches`](crate::ConfigObjectWatches) to those with `Watch`). It keeps each object: while the
/// server does not answer, it returns the last one, so that a container can restart. [`run`](Self::run) and
/// [`retain`](Self::retain) drop the objects that no pod refers to.
#[derive(Clone)]
pub struct ApiServerConfigObjects {
    client: Client,
    max_age: Duration,
    read: Arc<Mutex<Read>>,
}

#[derive(Default)]
struct Read {
    config_maps: Kept<ConfigMap>,
    secrets: Kept<Secret>,
}

/// What was read, and when.
type Kept<K> = HashMap<Key, (Instant, Arc<K>)>;

impl ApiServerConfigObjects {
    /// Objects of the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            max_age: MAX_AGE,
            read: Arc::default(),
        }
    }

    /// A clone that accepts cached objects of up to this age. It is for volumes, which are updated with each sync
    /// of their pod.
    #[must_use]
    pub fn with_max_age(&self, max_age: Duration) -> Self {
        Self {
            max_age,
            ..self.clone()
        }
    }

    /// Drops the objects that these pods do not refer to, each minute until `shutdown`.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn run(self, pods: impl Fn() -> Vec<Arc<Pod>>, shutdown: CancellationToken) {
        let mut minute = interval(RETAIN_PERIOD);
        minute.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.run_until_cancelled(minute.tick()).await.is_some() {
            self.retain(&pods());
        }
    }

    /// Drops the objects that these pods do not refer to. Call it from time to time, unless [`run`](Self::run)
    /// does.
    pub fn retain(&self, pods: &[Arc<Pod>]) {
        let mut read = self.read.lock();
        if read.config_maps.is_empty() && read.secrets.is_empty() {
            return;
        }
        let References { config_maps, secrets } = References::of(pods);
        read.config_maps.retain(|key, _| config_maps.contains(key));
        read.secrets.retain(|key, _| secrets.contains(key));
    }

    async fn get<K>(
        &self,
        kept: fn(&mut Read) -> &mut Kept<K>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<K>>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let key = Key::new(namespace, name);
        let last = kept(&mut self.read.lock()).get(&key).cloned();
        if let Some((read_at, object)) = &last
            && read_at.elapsed() < self.max_age
        {
            return Ok(Some(object.clone()));
        }
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let why: Box<dyn std::error::Error + Send + Sync> = match timeout(DEADLINE, api.get_opt(name)).await {
            Ok(Ok(found)) => {
                let found = found.map(Arc::new);
                let mut read = self.read.lock();
                match &found {
                    Some(object) => _ = kept(&mut read).insert(key, (Instant::now(), object.clone())),
                    None => _ = kept(&mut read).remove(&key),
                }
                return Ok(found);
            }
            // It has said what it thinks of it.
            Ok(Err(error @ ClientError::Api(_))) => return Err(failed::<K>(namespace, name, error.into())),
            Ok(Err(error)) => error.into(),
            Err(elapsed) => elapsed.into(),
        };
        match last {
            Some((_, object)) => {
                tracing::warn!(namespace, name, kind = %K::kind(&()), error = %why,
                    "the API server does not answer, using the object read last");
                Ok(Some(object))
            }
            None => Err(failed::<K>(namespace, name, why)),
        }
    }
}

kubelet_core::impl_debug!(ApiServerConfigObjects);

#[async_trait]
impl ConfigObjects for ApiServerConfigObjects {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<Arc<ConfigMap>>> {
        self.get(|read| &mut read.config_maps, namespace, name).await
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>> {
        self.get(|read| &mut read.secrets, namespace, name).await
    }
}

pub(super) fn failed<K: Resource<DynamicType = ()>>(
    namespace: &str,
    name: &str,
    source: Box<dyn std::error::Error + Send + Sync>,
) -> Error {
    Error::ConfigObject {
        kind: K::kind(&()).to_lowercase(),
        name: format!("{namespace}/{name}"),
        source: Arc::from(source),
    }
}
