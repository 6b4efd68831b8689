//! Config maps and secrets on an API server.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};
use kube_client::api::Api;
use kube_client::{Client, Error as ClientError, Resource};
use kubelet_core::{ConfigObjects, Error, PodExt, Result};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

/// How long what was read is good enough: what is asked for at the same time is asked once.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How often what nobody refers to is dropped.
const RETAIN_PERIOD: Duration = Duration::from_secs(60);
/// How long an answer is waited for.
const DEADLINE: Duration = Duration::from_secs(10);

/// Reads config maps and secrets from an API server when they are asked for. Clones share what was read.
///
/// It answers to the kubelet's managers with `configMapAndSecretChangeDetectionStrategy: Get`, and keeps what it read:
/// while the server does not answer, what was read last counts, so that a container can be started again without it.
/// What pods do not refer to any more is dropped as long as it [runs](Self::run), or with [`retain`](Self::retain).
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

/// By namespace and name: what was read, and when.
type Kept<K> = HashMap<(String, String), (Instant, Arc<K>)>;

impl ApiServerConfigObjects {
    /// Those of the API server that `client` talks to.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            max_age: MAX_AGE,
            read: Arc::default(),
        }
    }

    /// A clone for which what was read so long ago is good enough: for volumes, which are brought up to date with each
    /// sync of their pod.
    #[must_use]
    pub fn with_max_age(&self, max_age: Duration) -> Self {
        Self {
            max_age,
            ..self.clone()
        }
    }

    /// Drops each minute what these pods do not refer to any more, until `shutdown`.
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

    /// Drops all but what these pods refer to; to be called every now and then, unless [`run`](Self::run) does.
    pub fn retain(&self, pods: &[Arc<Pod>]) {
        let mut read = self.read.lock();
        if read.config_maps.is_empty() && read.secrets.is_empty() {
            return;
        }
        let (mut config_maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
        for pod in pods {
            let namespace = pod.key().namespace.to_string();
            let mut references = References::default();
            references.of_pod(pod);
            let of_pod = |name: &str| (namespace.clone(), name.to_owned());
            config_maps.extend(references.config_maps.into_iter().map(of_pod));
            secrets.extend(references.secrets.into_iter().map(of_pod));
        }
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
        let key = (namespace.to_owned(), name.to_owned());
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
                    "The API server does not answer: what was read last counts");
                Ok(Some(object))
            }
            None => Err(failed::<K>(namespace, name, why)),
        }
    }
}

impl fmt::Debug for ApiServerConfigObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServerConfigObjects").finish_non_exhaustive()
    }
}

#[async_trait]
impl ConfigObjects for ApiServerConfigObjects {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<Arc<ConfigMap>>> {
        self.get(|read| &mut read.config_maps, namespace, name).await
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>> {
        self.get(|read| &mut read.secrets, namespace, name).await
    }
}

fn failed<K: Resource<DynamicType = ()>>(
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

/// The names of what a pod refers to (`getSecretNames`, `getConfigMapNames`).
#[derive(Default)]
struct References<'a> {
    config_maps: BTreeSet<&'a str>,
    secrets: BTreeSet<&'a str>,
}

impl<'a> References<'a> {
    fn of_pod(&mut self, pod: &'a Pod) {
        let Some(spec) = &pod.spec else { return };
        let pull_secrets = spec.image_pull_secrets.iter().flatten();
        self.secrets
            .extend(pull_secrets.map(|reference| reference.name.as_str()));
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        containers.for_each(|container| self.of_container(container));
        for container in spec.ephemeral_containers.iter().flatten() {
            self.of_environment(container.env.as_deref(), container.env_from.as_deref());
        }
        for volume in spec.volumes.iter().flatten() {
            let names = volume.config_map.as_ref().map(|source| source.name.as_str());
            self.config_maps.extend(names);
            let names = volume
                .secret
                .as_ref()
                .and_then(|source| source.secret_name.as_deref());
            self.secrets.extend(names);
            let projected = volume
                .projected
                .iter()
                .flat_map(|volume| volume.sources.iter().flatten());
            for source in projected {
                self.config_maps
                    .extend(source.config_map.as_ref().map(|source| source.name.as_str()));
                self.secrets
                    .extend(source.secret.as_ref().map(|source| source.name.as_str()));
            }
        }
    }

    fn of_container(&mut self, container: &'a Container) {
        self.of_environment(container.env.as_deref(), container.env_from.as_deref());
    }

    fn of_environment(
        &mut self,
        env: Option<&'a [k8s_openapi::api::core::v1::EnvVar]>,
        env_from: Option<&'a [k8s_openapi::api::core::v1::EnvFromSource]>,
    ) {
        for from in env
            .into_iter()
            .flatten()
            .filter_map(|env| env.value_from.as_ref())
        {
            self.config_maps
                .extend(from.config_map_key_ref.as_ref().map(|key| key.name.as_str()));
            self.secrets
                .extend(from.secret_key_ref.as_ref().map(|key| key.name.as_str()));
        }
        for from in env_from.into_iter().flatten() {
            self.config_maps
                .extend(from.config_map_ref.as_ref().map(|source| source.name.as_str()));
            self.secrets
                .extend(from.secret_ref.as_ref().map(|source| source.name.as_str()));
        }
    }
}
