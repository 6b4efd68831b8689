//! Which config maps and secrets pods refer to.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVar, Pod};

use crate::reflector::Key;

/// What pods refer to, by namespace and name.
#[derive(Default)]
pub(super) struct References {
    pub(super) config_maps: HashSet<Key>,
    pub(super) secrets: HashSet<Key>,
}

impl References {
    pub(super) fn of(pods: &[Arc<Pod>]) -> Self {
        let mut all = Self::default();
        for pod in pods {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let mut names = Names::default();
            names.of_pod(pod);
            let of_pod = |name: &str| Key::new(namespace, name);
            all.config_maps.extend(names.config_maps.into_iter().map(of_pod));
            all.secrets.extend(names.secrets.into_iter().map(of_pod));
        }
        all
    }
}

/// The names that one pod refers to (`getSecretNames`, `getConfigMapNames`).
#[derive(Default)]
struct Names<'a> {
    config_maps: BTreeSet<&'a str>,
    secrets: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
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

    fn of_environment(&mut self, env: Option<&'a [EnvVar]>, env_from: Option<&'a [EnvFromSource]>) {
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
