//! Finds out what the volumes of a pod are: which plugin mounts them, and which persistent volumes its claims are bound to
//! (`desiredStateOfWorldPopulator.createVolumeSpec`, `AddPodToVolume`).

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use kubelet_core::quantity::Amount;
use kubelet_core::{PodExt, PodUid};

use super::record::VolumeKey;
use super::selinux::{MountContext, SelinuxContexts};
use crate::{VolumeObjects, VolumePlugin, VolumeSpec};

/// A volume of a pod that a plugin can mount.
pub(crate) struct Resolved {
    /// The name in the pod's spec.
    pub(crate) outer_name: String,
    pub(crate) key: VolumeKey,
    pub(crate) plugin: Arc<dyn VolumePlugin>,
    pub(crate) spec: Arc<VolumeSpec>,
    pub(crate) is_block: bool,
    pub(crate) attachable: bool,
    pub(crate) has_device: bool,
    /// The sizes of the claim and of the persistent volume, in bytes, if the file system may grow.
    pub(crate) sizes: Option<(i64, i64)>,
    /// The SELinux context that the pod wants it to be mounted with.
    pub(crate) context: MountContext,
}

/// A volume of a pod's spec and how its containers use it.
#[derive(Clone, Copy)]
pub(crate) struct Used<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) is_mounted: bool,
    pub(crate) is_device: bool,
}

impl Used<'_> {
    /// Whether objects of the API server say what it is.
    pub(crate) fn has_claim(&self) -> bool {
        self.volume.persistent_volume_claim.is_some() || self.volume.ephemeral.is_some()
    }
}

/// The pod's volumes that a container mounts or has as a device, sorted by name (`getExpectedVolumes`), without image
/// volumes, which the runtime mounts.
pub(crate) fn used_volumes(pod: &Pod) -> Vec<Used<'_>> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let regular = containers.map(|container| (&container.volume_mounts, &container.volume_devices));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let all = regular.chain(ephemeral.map(|container| (&container.volume_mounts, &container.volume_devices)));
    let (mut mounted, mut devices) = (BTreeSet::new(), BTreeSet::new());
    for (mounts, of_container) in all {
        mounted.extend(mounts.iter().flatten().map(|mount| mount.name.as_str()));
        devices.extend(of_container.iter().flatten().map(|device| device.name.as_str()));
    }
    let volumes = spec
        .volumes
        .iter()
        .flatten()
        .filter(|volume| volume.image.is_none());
    let used = volumes.map(|volume| Used {
        volume,
        is_mounted: mounted.contains(volume.name.as_str()),
        is_device: devices.contains(volume.name.as_str()),
    });
    let mut used: Vec<Used<'_>> = used.filter(|used| used.is_mounted || used.is_device).collect();
    used.sort_by(|a, b| a.volume.name.cmp(&b.volume.name));
    used
}

/// Resolves the volumes of pods.
pub(crate) struct Resolver {
    pub(crate) plugins: Vec<Arc<dyn VolumePlugin>>,
    pub(crate) objects: Arc<dyn VolumeObjects>,
    pub(crate) translate: Option<Translate>,
    /// If the host has SELinux.
    pub(crate) selinux: Option<SelinuxContexts>,
}

/// Makes the CSI volume of a volume of an in-tree plugin, if it is one, in the namespace of its pod.
pub(crate) type Translate = Arc<dyn Fn(&VolumeSpec, &str) -> crate::Result<Option<VolumeSpec>> + Send + Sync>;

impl Resolver {
    /// One volume of the pod. The error has the kubelet's text.
    pub(crate) async fn resolve(&self, pod: &Arc<Pod>, used: Used<'_>) -> Result<Resolved, String> {
        let volume = used.volume;
        let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => Some((source.claim_name.clone(), source.read_only.unwrap_or(false))),
            (None, Some(_)) => Some((format!("{}-{}", pod.key().name, volume.name), false)),
            (None, None) => None,
        };
        let (spec, claim) = match claim {
            Some((name, read_only)) => {
                let (claim, spec) = self.claimed(pod, volume, &name, read_only).await?;
                (spec, Some(claim))
            }
            None => (VolumeSpec::of_pod(Arc::new(volume.clone())), None),
        };
        let spec = self.translated(spec, pod)?;
        if claim.is_some() {
            check_use(used, &spec)?;
        }
        let sizes = claim.and_then(|claim| sizes(&claim, &spec));
        self.with_plugin(pod, &volume.name, spec, sizes).await
    }

    /// The persistent volume of a claim.
    async fn claimed(
        &self,
        pod: &Arc<Pod>,
        volume: &Volume,
        name: &str,
        read_only: bool,
    ) -> Result<(Arc<PersistentVolumeClaim>, VolumeSpec), String> {
        let namespace = pod.key().namespace;
        let in_words = |why: String| format!("error processing PVC {namespace}/{name}: {why}");
        let claim = self.bound_claim(&namespace, name).await.map_err(in_words)?;
        let is_ephemeral = volume.persistent_volume_claim.is_none();
        if is_ephemeral && !is_controlled_by(&claim, pod) {
            let pod = &pod.key().name;
            return Err(format!(
                "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
            ));
        }
        let spec = self.volume_of(&claim, read_only).await.map_err(in_words)?;
        Ok((claim, spec))
    }

    /// (`getPVCExtractPV`)
    async fn bound_claim(&self, namespace: &str, name: &str) -> Result<Arc<PersistentVolumeClaim>, String> {
        let claim = match self.objects.claim(namespace, name).await {
            Ok(Some(claim)) => claim,
            Ok(None) => {
                return Err(format!(
                    "failed to fetch PVC from API server: persistentvolumeclaims {name:?} not found"
                ));
            }
            Err(error) => return Err(format!("failed to fetch PVC from API server: {error}")),
        };
        let mut finalizers = claim.metadata.finalizers.iter().flatten();
        // A pod that runs keeps its claim, even if the agent restarts: the claim goes when the pod does.
        let is_protected = finalizers.any(|finalizer| finalizer == PVC_PROTECTION);
        if claim.metadata.deletion_timestamp.is_some() && !is_protected {
            return Err("PVC is being deleted".to_owned());
        }
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase != Some("Bound") {
            return Err("PVC is not bound".to_owned());
        }
        if volume_name(&claim).is_empty() {
            return Err("PVC has empty pvc.Spec.VolumeName".to_owned());
        }
        Ok(claim)
    }

    /// (`getPVSpec`)
    async fn volume_of(&self, claim: &PersistentVolumeClaim, read_only: bool) -> Result<VolumeSpec, String> {
        let name = volume_name(claim);
        let volume = match self.objects.volume(name).await {
            Ok(Some(volume)) => volume,
            Ok(None) => {
                return Err(format!(
                    "failed to fetch PV {name} from API server: persistentvolumes {name:?} not found"
                ));
            }
            Err(error) => return Err(format!("failed to fetch PV {name} from API server: {error}")),
        };
        let claimed_by = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let Some(claimed_by) = claimed_by else {
            return Err(format!(
                "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
            ));
        };
        let found = claimed_by.uid.as_deref().unwrap_or_default();
        let expected = claim.metadata.uid.as_deref().unwrap_or_default();
        if found != expected {
            return Err(format!(
                "found PV object {name} but its pv.Spec.ClaimRef.UID {found} does not point to claim.UID {expected}"
            ));
        }
        Ok(VolumeSpec::persistent(volume, read_only))
    }

    fn translated(&self, spec: VolumeSpec, pod: &Pod) -> Result<VolumeSpec, String> {
        let Some(translate) = &self.translate else {
            return Ok(spec);
        };
        let translated = translate(&spec, &pod.key().namespace).map_err(|error| error.to_string())?;
        Ok(translated.unwrap_or(spec))
    }

    /// (`AddPodToVolume`)
    async fn with_plugin(
        &self,
        pod: &Pod,
        outer_name: &str,
        spec: VolumeSpec,
        sizes: Option<(i64, i64)>,
    ) -> Result<Resolved, String> {
        let plugin = self.plugin_for(&spec).map_err(|why| {
            let name = spec.name();
            format!("failed to get Plugin from volumeSpec for volume {name:?} err={why}")
        })?;
        let identified = identify(&*plugin, &spec, &pod.uid()).await.map_err(|error| {
            let (name, plugin) = (spec.name(), plugin.name());
            format!(
                "failed to GetUniqueVolumeNameFromSpec for volumeSpec {name:?} using volume plugin {plugin:?} err={error}"
            )
        })?;
        let attachable = match plugin.attachable() {
            Some(attachable) => attachable
                .can_attach(&spec)
                .await
                .map_err(|error| error.to_string())?,
            None => false,
        };
        let context = match &self.selinux {
            Some(contexts) => MountContext::of(contexts, &*plugin, &spec, pod, outer_name).await?,
            None => MountContext::default(),
        };
        Ok(Resolved {
            outer_name: outer_name.to_owned(),
            key: identified.key,
            is_block: spec.is_block(),
            attachable,
            has_device: identified.has_device,
            plugin,
            spec: Arc::new(spec),
            sizes,
            context,
        })
    }

    /// (`FindPluginBySpec`)
    pub(crate) fn plugin_for(&self, spec: &VolumeSpec) -> Result<Arc<dyn VolumePlugin>, String> {
        let matching: Vec<_> = self
            .plugins
            .iter()
            .filter(|plugin| plugin.can_support(spec))
            .collect();
        match matching[..] {
            [] => Err("no volume plugin matched".to_owned()),
            [plugin] => Ok(plugin.clone()),
            _ => {
                let names: Vec<&str> = matching.iter().map(|plugin| plugin.name()).collect();
                Err(format!("multiple volume plugins matched: {}", names.join(",")))
            }
        }
    }

    /// The plugin with this name, which is also the name of a folder.
    pub(crate) fn plugin_named(&self, name: &str) -> Option<Arc<dyn VolumePlugin>> {
        self.plugins.iter().find(|plugin| plugin.name() == name).cloned()
    }
}

/// The unique name of a volume, and whether the node mounts it for all pods.
pub(crate) struct Identified {
    pub(crate) key: VolumeKey,
    pub(crate) has_device: bool,
}

/// (`GetUniqueVolumeNameFromSpec`, `GetUniqueVolumeNameFromSpecWithPod`)
pub(crate) async fn identify(
    plugin: &dyn VolumePlugin,
    spec: &VolumeSpec,
    uid: &PodUid,
) -> crate::Result<Identified> {
    let device = plugin.device_mountable();
    let is_shared = match device {
        Some(device) => device.can_device_mount(spec).await?,
        None => false,
    };
    let name = match device {
        Some(device) if is_shared => device.volume_name(spec)?,
        _ => format!("{uid}-{}", spec.name()),
    };
    Ok(Identified {
        key: format!("{}/{name}", plugin.name()).into(),
        has_device: is_shared || spec.is_block(),
    })
}

/// `util.PVCProtectionFinalizer`
const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";

fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    name.unwrap_or_default()
}

/// (`ephemeral.VolumeIsForPod`)
fn is_controlled_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| owner.uid == pod.uid_str())
        && claim.metadata.namespace == pod.metadata.namespace
}

/// Containers mount file systems, and have block devices as devices.
fn check_use(used: Used<'_>, spec: &VolumeSpec) -> Result<(), String> {
    let name = &used.volume.name;
    match spec.is_block() {
        true if used.is_mounted => Err(format!(
            "volume {name} has volumeMode Block, but is specified in volumeMounts"
        )),
        false if used.is_device => Err(format!(
            "volume {name} has volumeMode Filesystem, but is specified in volumeDevices"
        )),
        _ => Ok(()),
    }
}

/// The sizes that say whether the file system has to grow (`checkVolumeFSResize`).
fn sizes(claim: &PersistentVolumeClaim, spec: &VolumeSpec) -> Option<(i64, i64)> {
    if spec.read_only || spec.migrated_inline {
        return None;
    }
    let bytes = |quantity| Amount::try_from(quantity).ok().map(Amount::value);
    let of_claim = claim.status.as_ref()?.capacity.as_ref()?.get("storage")?;
    let of_volume = spec.persistent_volume()?.capacity.as_ref()?.get("storage")?;
    Some((bytes(of_claim)?, bytes(of_volume)?))
}
