//! The plugin: what the volume manager calls, and what its operations share.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, CSIVolumeSource, PersistentVolume, PersistentVolumeSpec, SecretReference,
    Volume,
};
use k8s_openapi::api::storage::v1::CSIDriver;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubelet_core::{
    Clock, Disk, EventRecorder, Jitter, LogEvents, NoServiceAccountTokens, RootDir, ServiceAccountTokens,
    VolumeUsage,
};
use parking_lot::Mutex;

use super::PLUGIN_NAME;
use super::client::Session;
use super::mount_dir::MountDirs;
use super::node_info::{CsiNodeInfo, NoCsiNodeInfo};
use super::objects::CsiObjects;
use super::paths::{Paths, attachment_name, mount_of};
use super::registry::CsiDrivers;
use super::source::{Source, named, persistent};
use super::volume_data::VolumeData;
use crate::{
    AttachableVolumePlugin, Attributes, BlockVolumePlugin, DeviceMountableVolumePlugin, Error, Mounter,
    NodeExpandableVolumePlugin, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec,
};

/// Volumes of CSI drivers (the kubelet's `kubernetes.io/csi`).
///
/// Each operation has 2 minutes for all its calls to the driver. A driver that hangs holds up the operations on its
/// volumes and nothing else.
pub struct CsiPlugin {
    pub(crate) node_name: String,
    pub(crate) paths: Paths,
    pub(crate) drivers: CsiDrivers,
    pub(crate) objects: Arc<dyn CsiObjects>,
    pub(crate) node_info: Arc<dyn CsiNodeInfo>,
    pub(crate) tokens: Arc<dyn ServiceAccountTokens>,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    pub(crate) dirs: MountDirs,
    pub(crate) clock: Clock,
    pub(crate) jitter: Jitter,
    pub(crate) volume_health: bool,
    selinux: bool,
    /// The drivers with `requiresRepublish`, as last read.
    pub(crate) republishing: Mutex<HashSet<String>>,
}

/// Builds a [`CsiPlugin`].
#[must_use]
pub struct CsiPluginBuilder {
    root_dir: RootDir,
    node_name: String,
    drivers: CsiDrivers,
    objects: Arc<dyn CsiObjects>,
    mounter: Arc<dyn Mounter>,
    node_info: Arc<dyn CsiNodeInfo>,
    tokens: Arc<dyn ServiceAccountTokens>,
    recorder: Arc<dyn EventRecorder>,
    disk: Disk,
    clock: Clock,
    jitter: Jitter,
    volume_health: bool,
    selinux: bool,
}

impl CsiPluginBuilder {
    /// Issues the tokens that drivers ask for. By default there are none.
    pub fn tokens(mut self, tokens: Arc<dyn ServiceAccountTokens>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Reports how many volumes the node can have when one cannot be attached for that (feature gate
    /// `MutableCSINodeAllocatableCount`). By default it is not reported.
    pub fn node_info(mut self, node_info: Arc<dyn CsiNodeInfo>) -> Self {
        self.node_info = node_info;
        self
    }

    /// Receives events, e.g. of a long change of the group of files. By default they are logged.
    pub fn recorder(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// Which thread does file work.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// The wall clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The source of jitter: volumes that are published again regularly are not all published at once.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Whether usage includes the health of a volume (feature gate `CSIVolumeHealth`); `false` by default.
    pub fn volume_health(mut self, enabled: bool) -> Self {
        self.volume_health = enabled;
        self
    }

    /// Whether this host has SELinux; `false` by default. The container runtime then labels volumes that are not mounted
    /// with a context.
    pub fn selinux(mut self, enabled: bool) -> Self {
        self.selinux = enabled;
        self
    }

    /// The plugin.
    pub fn build(self) -> CsiPlugin {
        CsiPlugin {
            node_name: self.node_name,
            paths: Paths::new(self.root_dir),
            drivers: self.drivers,
            objects: self.objects,
            node_info: self.node_info,
            tokens: self.tokens,
            recorder: self.recorder,
            dirs: MountDirs::new(self.disk, self.mounter),
            clock: self.clock,
            jitter: self.jitter,
            volume_health: self.volume_health,
            selinux: self.selinux,
            republishing: Mutex::default(),
        }
    }
}

impl CsiPlugin {
    /// A plugin for the drivers in `drivers`. `mounter` is asked where volumes are mounted: the drivers mount them.
    pub fn builder(
        root_dir: RootDir,
        node_name: impl Into<String>,
        drivers: CsiDrivers,
        objects: Arc<dyn CsiObjects>,
        mounter: Arc<dyn Mounter>,
    ) -> CsiPluginBuilder {
        CsiPluginBuilder {
            root_dir,
            node_name: node_name.into(),
            drivers,
            objects,
            mounter,
            node_info: Arc::new(NoCsiNodeInfo),
            tokens: Arc::new(NoServiceAccountTokens),
            recorder: Arc::new(LogEvents),
            disk: Disk::default(),
            clock: Clock::system(),
            jitter: Jitter::from_entropy(),
            volume_health: false,
            selinux: false,
        }
    }

    pub(crate) fn session(&self, driver: &str, spec: Option<&VolumeSpec>) -> Result<Session, String> {
        let migrated = spec.is_some_and(super::migration::is_migrated);
        self.drivers.session(driver, migrated)
    }

    /// The driver's object. Keeps in mind whether its volumes are published again and again.
    pub(crate) async fn driver(&self, name: &str) -> Result<Option<Arc<CSIDriver>>> {
        let driver = self.objects.driver(name).await?;
        let spec = driver.as_ref().map(|driver| &driver.spec);
        let republish = spec.is_some_and(|spec| spec.requires_republish.unwrap_or(false));
        let mut republishing = self.republishing.lock();
        match republish {
            true => republishing.insert(name.to_owned()),
            false => republishing.remove(name),
        };
        drop(republishing);
        Ok(driver)
    }

    /// Whether volumes of the driver are used without a `VolumeAttachment` (`skipAttach`).
    pub(crate) async fn skips_attach(&self, driver: &str) -> Result<bool> {
        let driver = self.driver(driver).await?;
        Ok(driver.is_some_and(|driver| driver.spec.attach_required == Some(false)))
    }

    /// What the controller part of the driver wrote into the attachment (`getPublishContext`).
    pub(crate) async fn publish_context(
        &self,
        source: &CSIPersistentVolumeSource,
    ) -> Result<BTreeMap<String, String>> {
        if self.skips_attach(&source.driver).await? {
            return Ok(BTreeMap::new());
        }
        let name = attachment_name(&source.volume_handle, &source.driver, &self.node_name);
        let Some(attachment) = self.objects.attachment(&name).await? else {
            return Err(Error::failed(not_found(&name)));
        };
        let status = attachment.status.unwrap_or_default();
        Ok(status.attachment_metadata.unwrap_or_default())
    }

    /// The content of a secret, as strings (`getCredentialsFromSecret`).
    pub(crate) async fn secret(&self, secret: &SecretReference) -> Result<BTreeMap<String, String>, String> {
        let (namespace, name) = names_of(secret);
        let failed = |why: String| {
            named(format_args!(
                "failed to find the secret {name} in the namespace {namespace} with error: {why}"
            ))
        };
        let found = self.objects.secret(namespace, name).await;
        let secret = found
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| failed(format!("secrets {name:?} not found")))?;
        let data = secret.data.iter().flatten();
        Ok(data
            .map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned()))
            .collect())
    }

    /// The mount options of the volume; with the label if the driver mounts with SELinux contexts.
    ///
    /// Also returns the label, if it is among the options.
    pub(crate) async fn mount_options<'a>(
        &self,
        spec: &VolumeSpec,
        driver: &str,
        label: Option<&'a str>,
    ) -> Result<(Vec<String>, Option<&'a str>)> {
        let mut options = spec.mount_options().to_vec();
        let Some(label) = label.filter(|label| !label.is_empty()) else {
            return Ok((options, None));
        };
        let mounts_with_context = self.mounts_with_context(driver).await.map_err(|error| {
            Error::failed(named(format_args!(
                "failed to query for SELinuxMount support: {error}"
            )))
        })?;
        if !mounts_with_context {
            return Ok((options, None));
        }
        options.push(format!("context={label:?}"));
        Ok((options, Some(label)))
    }

    /// `seLinuxMount` of the driver.
    async fn mounts_with_context(&self, driver: &str) -> Result<bool> {
        let driver = self.driver(driver).await?;
        Ok(driver.is_some_and(|driver| driver.spec.se_linux_mount.unwrap_or(false)))
    }
}

pub(crate) fn not_found(attachment: &str) -> String {
    format!("volumeattachments.storage.k8s.io {attachment:?} not found")
}

pub(crate) fn names_of(secret: &SecretReference) -> (&str, &str) {
    let namespace = secret.namespace.as_deref().unwrap_or_default();
    (namespace, secret.name.as_deref().unwrap_or_default())
}

#[async_trait]
impl VolumePlugin for CsiPlugin {
    fn name(&self) -> &str {
        PLUGIN_NAME
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        Source::of(spec).is_ok()
    }

    fn path(&self, mount: &PodMount) -> PathBuf {
        mount_of(&mount.dir)
    }

    fn attributes(&self, mount: &PodMount) -> Attributes {
        let read_only = Source::of(&mount.spec).is_ok_and(|source| source.is_read_only(&mount.spec));
        Attributes {
            read_only,
            managed: !read_only,
            selinux_relabel: self.selinux && mount.selinux_label.is_none(),
        }
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        self.publish(mount).await
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        self.unpublish(mounted).await
    }

    fn depends_on_pod(&self, spec: &VolumeSpec) -> bool {
        Source::of(spec).is_ok_and(|source| self.republishing.lock().contains(source.driver()))
    }

    async fn supports_selinux_mount(&self, spec: &VolumeSpec) -> Result<bool> {
        self.mounts_with_context(Source::of(spec)?.driver()).await
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        let dir = found.dir.clone();
        let data = self.dirs.disk.run(move || VolumeData::load(&dir)).await;
        let data = data.map_err(|error| unreadable("ConstructVolumeSpec", &found.dir, &error))?;
        Ok(match data.is_ephemeral() {
            true => inline_spec(&data),
            false => persistent_spec(&data, data.spec_name(), "Filesystem"),
        })
    }

    async fn usage(&self, mounted: &OnDisk, spec: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        self.stats(mounted, spec).await
    }

    fn attachable(&self) -> Option<&dyn AttachableVolumePlugin> {
        Some(self)
    }

    fn device_mountable(&self) -> Option<&dyn DeviceMountableVolumePlugin> {
        Some(self)
    }

    fn block(&self) -> Option<&dyn BlockVolumePlugin> {
        Some(self)
    }

    fn expandable(&self) -> Option<&dyn NodeExpandableVolumePlugin> {
        Some(self)
    }
}

pub(crate) fn unreadable(what: &str, dir: &Path, error: &std::io::Error) -> Error {
    Error::failed(named(format_args!(
        "plugin.{what} failed loading volume data using [{}]: {error}",
        dir.display()
    )))
}

fn inline_spec(data: &VolumeData) -> VolumeSpec {
    VolumeSpec::of_pod(Arc::new(Volume {
        name: data.spec_name().to_owned(),
        csi: Some(CSIVolumeSource {
            driver: data.driver().to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }))
}

/// A persistent volume with what the data say of it.
pub(crate) fn persistent_spec(data: &VolumeData, name: &str, mode: &str) -> VolumeSpec {
    let volume = PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..Default::default()
        },
        spec: Some(PersistentVolumeSpec {
            csi: Some(CSIPersistentVolumeSource {
                driver: data.driver().to_owned(),
                volume_handle: data.handle().to_owned(),
                ..Default::default()
            }),
            volume_mode: Some(mode.to_owned()),
            ..Default::default()
        }),
        status: None,
    };
    VolumeSpec::persistent(Arc::new(volume), false)
}

/// The unique name of a persistent volume among those of the plugin, `driver^handle` (`GetVolumeName`).
pub(crate) fn volume_name(spec: &VolumeSpec) -> Result<String> {
    let source = persistent(spec).map_err(|error| {
        Error::failed(named(format_args!(
            "plugin.GetVolumeName failed to extract volume source from spec: {error}"
        )))
    })?;
    Ok(format!("{}^{}", source.driver, source.volume_handle))
}
