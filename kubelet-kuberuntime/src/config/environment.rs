//! The environment variables of a container (`makeEnvironmentVariables`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, EnvFromSource, EnvVarSource, FileKeySelector, Secret};
use kubelet_core::PodExt;

use super::expansion::{expand, reference};
use super::service_environment::service_environment;
use super::{ConfigError, ContainerInputs, NodeSettings, Result, downward, env_file};

/// Variables by name. Values are bytes, because secrets may have any bytes.
pub(super) type Environment = BTreeMap<String, Vec<u8>>;

/// The environment of a container.
///
/// `envFrom` comes first, then `env` in its order, so that a variable can refer to those before it. A later variable of
/// the same name wins. References can use the variables of services; all other variables override them.
pub(super) async fn environment(node: &NodeSettings, inputs: &ContainerInputs<'_>) -> Result<Environment> {
    let of_services = service_environment(inputs.pod, inputs.services)?;
    let mut objects = Objects::new(inputs);
    let mut environment = Environment::new();
    for source in inputs.container.env_from.iter().flatten() {
        environment.extend(env_from(source, &mut objects).await?);
    }
    for variable in inputs.container.env.iter().flatten() {
        let literal = variable.value.as_deref().filter(|value| !value.is_empty());
        let value = match (literal, &variable.value_from) {
            (Some(text), _) => Some(expand_value(text, &environment, &of_services).into_bytes()),
            (None, Some(source)) => value_from(node, inputs, source, &mut objects).await?,
            (None, None) => Some(Vec::new()),
        };
        if let Some(value) = value {
            environment.insert(variable.name.clone(), value);
        }
    }
    for (name, value) in of_services {
        environment.entry(name).or_insert_with(|| value.into_bytes());
    }
    Ok(environment)
}

/// Replaces references to variables of `environment`. Unknown references stay unchanged.
pub(super) fn expand_with(text: &str, environment: &Environment) -> String {
    expand(text, |name| match environment.get(name) {
        Some(value) => String::from_utf8_lossy(value),
        None => reference(name),
    })
}

fn expand_value(text: &str, environment: &Environment, of_services: &BTreeMap<String, String>) -> String {
    expand(text, |name| {
        match (environment.get(name), of_services.get(name)) {
            (Some(value), _) => String::from_utf8_lossy(value),
            (None, Some(value)) => Cow::Borrowed(value.as_str()),
            (None, None) => reference(name),
        }
    })
}

async fn env_from(source: &EnvFromSource, objects: &mut Objects<'_>) -> Result<Environment> {
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let prefixed = |name: &String| format!("{prefix}{name}");
    if let Some(config_map) = &source.config_map_ref {
        let optional = config_map.optional == Some(true);
        let found = objects.config_map(&config_map.name, optional).await?;
        let data = found.iter().flat_map(|object| object.data.iter().flatten());
        return Ok(data
            .map(|(name, value)| (prefixed(name), value.clone().into_bytes()))
            .collect());
    }
    if let Some(secret) = &source.secret_ref {
        let optional = secret.optional == Some(true);
        let found = objects.secret(&secret.name, optional).await?;
        let data = found.iter().flat_map(|object| object.data.iter().flatten());
        return Ok(data
            .map(|(name, value)| (prefixed(name), value.0.clone()))
            .collect());
    }
    Ok(Environment::new())
}

/// `None` if the referenced object is optional and does not exist: then the variable is not set.
async fn value_from(
    node: &NodeSettings,
    inputs: &ContainerInputs<'_>,
    source: &EnvVarSource,
    objects: &mut Objects<'_>,
) -> Result<Option<Vec<u8>>> {
    let namespace = objects.namespace;
    if let Some(field) = &source.field_ref {
        let value = downward::field_value(node, inputs, field)?;
        return Ok(Some(value.into_bytes()));
    }
    if let Some(field) = &source.resource_field_ref {
        let value = downward::resource_field_value(node, inputs, field)?;
        return Ok(Some(value.into_bytes()));
    }
    let (value, optional, missing) = if let Some(selector) = &source.config_map_key_ref {
        let optional = selector.optional == Some(true);
        let Some(object) = objects.config_map(&selector.name, optional).await? else {
            return Ok(None);
        };
        let value = object.data.as_ref().and_then(|data| data.get(&selector.key));
        let missing = format!(
            "couldn't find key {} in ConfigMap {namespace}/{}",
            selector.key, selector.name
        );
        (value.map(|value| value.clone().into_bytes()), optional, missing)
    } else if let Some(selector) = &source.secret_key_ref {
        let optional = selector.optional == Some(true);
        let Some(object) = objects.secret(&selector.name, optional).await? else {
            return Ok(None);
        };
        let value = object.data.as_ref().and_then(|data| data.get(&selector.key));
        let missing = format!(
            "couldn't find key {} in Secret {namespace}/{}",
            selector.key, selector.name
        );
        (value.map(|value| value.0.clone()), optional, missing)
    } else if let Some(selector) = &source.file_key_ref {
        return value_from_file(node, inputs, selector).await;
    } else {
        return Ok(Some(Vec::new()));
    };
    match value {
        Some(value) => Ok(Some(value)),
        None if optional => Ok(None),
        None => Err(ConfigError::NotFound(missing)),
    }
}

/// A missing file is an error even if the variable is optional. A key with an empty value counts as missing.
async fn value_from_file(
    node: &NodeSettings,
    inputs: &ContainerInputs<'_>,
    selector: &FileKeySelector,
) -> Result<Option<Vec<u8>>> {
    let Some(volume) = inputs.volumes.get(&selector.volume_name) else {
        let volume = &selector.volume_name;
        return Err(ConfigError::Spec(format!(
            "cannot find the volume {volume:?} referenced by FileKeyRef"
        )));
    };
    let (volume, path, key) = (volume.clone(), selector.path.clone(), selector.key.clone());
    let file = volume.path.join(&path);
    let read = node
        .disk
        .run(move || env_file::read(&volume.path, path.as_ref(), &key))
        .await;
    match read {
        Ok(value) if !value.is_empty() => Ok(Some(value)),
        Ok(_) if selector.optional == Some(true) => Ok(None),
        Ok(_) => Err(ConfigError::NotFound(format!(
            "environment variable key {:?} not found in file {:?}",
            selector.key,
            file.display().to_string()
        ))),
        Err(error) => {
            let pod = inputs.pod;
            tracing::error!(pod = %pod.key(), uid = pod.uid_str(), container = inputs.container.name,
                file = %file.display(), %error, "cannot read a file of environment variables");
            Err(ConfigError::Spec("couldn't parse env file".to_owned()))
        }
    }
}

/// The config maps and secrets of one container. Each is read once, so that all variables use one version.
struct Objects<'a> {
    inputs: &'a ContainerInputs<'a>,
    namespace: &'a str,
    config_maps: BTreeMap<String, Arc<ConfigMap>>,
    secrets: BTreeMap<String, Arc<Secret>>,
}

impl<'a> Objects<'a> {
    fn new(inputs: &'a ContainerInputs<'a>) -> Self {
        Self {
            inputs,
            namespace: inputs.pod.metadata.namespace.as_deref().unwrap_or_default(),
            config_maps: BTreeMap::new(),
            secrets: BTreeMap::new(),
        }
    }

    async fn config_map(&mut self, name: &str, optional: bool) -> Result<Option<Arc<ConfigMap>>> {
        if let Some(object) = self.config_maps.get(name) {
            return Ok(Some(object.clone()));
        }
        let found = self
            .inputs
            .config_objects
            .config_map(self.namespace, name)
            .await?;
        match found {
            Some(object) => {
                self.config_maps.insert(name.to_owned(), object.clone());
                Ok(Some(object))
            }
            None if optional => Ok(None),
            None => Err(ConfigError::NotFound(format!("configmap {name:?} not found"))),
        }
    }

    async fn secret(&mut self, name: &str, optional: bool) -> Result<Option<Arc<Secret>>> {
        if let Some(object) = self.secrets.get(name) {
            return Ok(Some(object.clone()));
        }
        let found = self.inputs.config_objects.secret(self.namespace, name).await?;
        match found {
            Some(object) => {
                self.secrets.insert(name.to_owned(), object.clone());
                Ok(Some(object))
            }
            None if optional => Ok(None),
            None => Err(ConfigError::NotFound(format!("secret {name:?} not found"))),
        }
    }
}
