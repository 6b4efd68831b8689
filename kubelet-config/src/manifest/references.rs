//! What a static pod may not refer to: objects of an API server that it may never see
//! (`podutil.HasAPIObjectReference`).

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

use crate::{Error, Result};

/// Refuses a pod that refers to an object of the API server.
pub(super) fn refuse_api_references(pod: &Pod) -> Result<()> {
    let Some(resource) = pod.spec.as_ref().and_then(api_reference) else {
        return Ok(());
    };
    Err(Error::ApiReference {
        pod: pod.metadata.name.clone().unwrap_or_default(),
        resource,
    })
}

fn api_reference(spec: &PodSpec) -> Option<&'static str> {
    let volumes = || spec.volumes.iter().flatten();
    let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
    if !spec
        .service_account_name
        .as_deref()
        .unwrap_or_default()
        .is_empty()
    {
        return Some("serviceaccounts");
    }
    let mut pull_secrets = spec.image_pull_secrets.iter().flatten();
    let pull_secrets = pull_secrets.any(|secret| !secret.name.is_empty());
    if pull_secrets || containers().any(needs_secret) || volumes().any(volume_needs_secret) {
        return Some("secrets");
    }
    if containers().any(needs_config_map) || volumes().any(volume_needs_config_map) {
        return Some("configmaps");
    }
    if spec.resource_claims.iter().flatten().next().is_some() {
        return Some("resourceclaims");
    }
    volumes().find_map(volume_reference)
}

fn needs_secret(container: &Container) -> bool {
    let env = container.env.iter().flatten();
    env.filter_map(|env| env.value_from.as_ref())
        .any(|from| from.secret_key_ref.is_some())
        || container
            .env_from
            .iter()
            .flatten()
            .any(|from| from.secret_ref.is_some())
}

fn needs_config_map(container: &Container) -> bool {
    let env = container.env.iter().flatten();
    env.filter_map(|env| env.value_from.as_ref())
        .any(|from| from.config_map_key_ref.is_some())
        || container
            .env_from
            .iter()
            .flatten()
            .any(|from| from.config_map_ref.is_some())
}

fn volume_needs_secret(volume: &Volume) -> bool {
    let projected = volume
        .projected
        .iter()
        .flat_map(|projected| projected.sources.iter().flatten());
    volume.azure_file.is_some()
        || volume.secret.is_some()
        || projected.clone().any(|source| source.secret.is_some())
        || volume
            .cephfs
            .as_ref()
            .is_some_and(|volume| volume.secret_ref.is_some())
        || volume
            .cinder
            .as_ref()
            .is_some_and(|volume| volume.secret_ref.is_some())
        || volume
            .flex_volume
            .as_ref()
            .is_some_and(|volume| volume.secret_ref.is_some())
        || volume
            .rbd
            .as_ref()
            .is_some_and(|volume| volume.secret_ref.is_some())
        || volume
            .scale_io
            .as_ref()
            .is_some_and(|volume| !volume.secret_ref.name.is_empty())
        || volume
            .iscsi
            .as_ref()
            .is_some_and(|volume| volume.secret_ref.is_some())
        || volume
            .storageos
            .as_ref()
            .is_some_and(|volume| volume.secret_ref.is_some())
        || volume
            .csi
            .as_ref()
            .is_some_and(|volume| volume.node_publish_secret_ref.is_some())
}

fn volume_needs_config_map(volume: &Volume) -> bool {
    let mut projected = volume
        .projected
        .iter()
        .flat_map(|projected| projected.sources.iter().flatten());
    volume.config_map.is_some() || projected.any(|source| source.config_map.is_some())
}

fn volume_reference(volume: &Volume) -> Option<&'static str> {
    if volume.csi.is_some() {
        return Some("csidrivers (via CSI volumes)");
    }
    if volume.glusterfs.is_some() {
        return Some("endpoints (via glusterFS volumes)");
    }
    if volume.persistent_volume_claim.is_some() {
        return Some("persistentvolumeclaims");
    }
    if volume.ephemeral.is_some() {
        return Some("persistentvolumeclaims (via ephemeral volumes)");
    }
    let sources = volume
        .projected
        .iter()
        .flat_map(|projected| projected.sources.iter().flatten());
    sources.into_iter().find_map(|source| {
        if source.service_account_token.is_some() {
            Some("serviceaccounts (via projected volumes)")
        } else if source.cluster_trust_bundle.is_some() {
            Some("clustertrustbundles")
        } else if source.downward_api.is_none() {
            Some("podcertificates")
        } else {
            None
        }
    })
}
