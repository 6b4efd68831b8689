//! What the files of a volume are made from, to know which changes concern it.

use kubelet_core::ConfigObjectRef;

use crate::{PodMount, VolumePlugin, VolumeSpec};

/// The sources of a mount that can change while it is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    /// Config maps and secrets.
    pub(crate) objects: Vec<ConfigObjectRef>,
    /// The pod's metadata.
    pub(crate) pod: bool,
    /// Trust bundles of the cluster.
    pub(crate) trust_bundles: bool,
    /// Certificates of the pod.
    pub(crate) certificates: bool,
}

impl Sources {
    pub(crate) fn of(plugin: &dyn VolumePlugin, mount: &PodMount) -> Self {
        let projected = projections(&mount.spec);
        Self {
            objects: plugin.config_objects(mount),
            pod: plugin.depends_on_pod(&mount.spec),
            trust_bundles: projected
                .clone()
                .any(|source| source.cluster_trust_bundle.is_some()),
            certificates: projected.clone().any(|source| source.pod_certificate.is_some()),
        }
    }
}

fn projections(
    spec: &VolumeSpec,
) -> impl Iterator<Item = &k8s_openapi::api::core::v1::VolumeProjection> + Clone {
    let projected = spec.pod_volume().and_then(|volume| volume.projected.as_ref());
    projected
        .into_iter()
        .flat_map(|projected| projected.sources.iter().flatten())
}
