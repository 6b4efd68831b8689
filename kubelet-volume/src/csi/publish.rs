//! Mounts a volume for a pod, and unmounts it (`csi_mounter.go`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec};
use kubelet_core::PodExt;
use tokio::time::Instant;
use tonic::Code;

use super::PLUGIN_NAME;
use super::capability::mounted;
use super::client::Capabilities;
use super::paths::{attachment_name, data_dir_of, mount_of};
use super::plugin::{CsiPlugin, names_of};
use super::source::{READ_WRITE_ONCE, Source, access_mode, named};
use super::tokens::{TOKENS, tokens_of};
use super::v1::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest};
use super::volume_data::{
    ATTACHMENT, DRIVER_NAME, LIFECYCLE_MODE, NODE_NAME, SELINUX_CONTEXT, SPEC_NAME, VOLUME_HANDLE, VolumeData,
};
use crate::filesystem::ownership::VolumeOwnership;
use crate::{Error, OnDisk, PodMount, Result, SetUp};

/// How often a volume is published again if its driver requires it. The kubelet does it at each sync of the pod: every
/// minute, up to half a minute later (`syncFrequency`, `workerResyncIntervalJitterFactor`).
const REPUBLISH_PERIOD: Duration = Duration::from_secs(60);
const REPUBLISH_JITTER: f64 = 0.5;

/// All that is known before the driver is asked.
struct Prepared {
    request: NodePublishVolumeRequest,
    data: VolumeData,
    has: Capabilities,
    fs_group_policy: String,
    again_at: Option<Instant>,
}

impl CsiPlugin {
    /// (`SetUpAt`)
    pub(crate) async fn publish(&self, mount: &PodMount) -> Result<SetUp> {
        let target = mount_of(&mount.dir);
        let source = Source::of(&mount.spec)?;
        let session = self.session(source.driver(), Some(&mount.spec));
        let session =
            session.map_err(|error| named(format_args!("mounter.SetUpAt failed to get CSI client: {error}")));
        let mut session = match session {
            Ok(session) => session,
            Err(message) => return Err(self.dirs.failure(&target, message).await),
        };
        let prepared = async {
            let driver = self.checked_driver(source).await?;
            let has = self.capabilities_for(&mut session, source).await?;
            self.prepare_publish(mount, source, &target, driver, has).await
        };
        let prepared = match prepared.await {
            Ok(prepared) => prepared,
            Err(message) => return Err(self.dirs.failure(&target, message).await),
        };
        self.dirs.begin(&target, prepared.data).await?;
        if let Err(error) = session.publish(prepared.request).await {
            let message = error.to_string();
            return Err(match error.is_final() {
                false => Error::uncertain(message),
                true => {
                    self.dirs.failed(&target).await;
                    self.dirs.failure(&target, message).await
                }
            });
        }
        self.dirs.succeeded(&target);
        if !prepared.has.mount_group && self.gives_to_group(mount, source, &prepared.fs_group_policy) {
            self.give_to_group(mount, source, &target).await?;
        }
        Ok(SetUp {
            again_at: prepared.again_at,
        })
    }

    /// The driver's object, if it allows volumes of this kind (`supportsVolumeLifecycleMode`).
    async fn checked_driver(&self, source: Source<'_>) -> Result<Option<Arc<CSIDriver>>, String> {
        let failed = |why: String| {
            named(format_args!(
                "mounter.SetupAt failed to check volume lifecycle mode: {why}"
            ))
        };
        let name = source.driver();
        let driver = self
            .driver(name)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let mode = source.lifecycle_mode();
        let Some(found) = &driver else {
            return match source {
                Source::Persistent(_) => Ok(None),
                Source::Inline(_) => Err(failed(format!(
                    "volume mode {mode:?} not supported by driver {name} (no CSIDriver object)"
                ))),
            };
        };
        let modes = found.spec.volume_lifecycle_modes.as_deref().unwrap_or_default();
        if modes.iter().any(|listed| listed == mode) {
            return Ok(driver);
        }
        let listed: Vec<String> = modes.iter().map(|mode| format!("{mode:?}")).collect();
        Err(failed(format!(
            "volume mode {mode:?} not supported by driver {name} (only supports [{}])",
            listed.join(" ")
        )))
    }

    async fn capabilities_for(
        &self,
        session: &mut super::client::Session,
        source: Source<'_>,
    ) -> Result<Capabilities, String> {
        session.capabilities().await.map_err(|error| match source {
            Source::Persistent(_) => named(format_args!(
                "mounter.SetUpAt failed to check for STAGE_UNSTAGE_VOLUME capability: {error}"
            )),
            Source::Inline(_) => named(format_args!(
                "mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability: {error}"
            )),
        })
    }

    async fn prepare_publish(
        &self,
        mount: &PodMount,
        source: Source<'_>,
        target: &Path,
        driver: Option<Arc<CSIDriver>>,
        has: Capabilities,
    ) -> Result<Prepared, String> {
        let spec = driver.as_ref().map(|driver| &driver.spec);
        let fs_group_policy = fs_group_policy(spec)?;
        let handle = source.handle(&mount.pod.uid(), mount.spec.name());
        let (mut staging, mut publish_context, mut mode) = (String::new(), BTreeMap::new(), READ_WRITE_ONCE);
        if let Source::Persistent(csi) = source {
            mode = access_mode(&mount.spec);
            if has.stage {
                let path = self.paths.device_mount(&csi.driver, &csi.volume_handle);
                staging = path.map_err(|error| error.to_string())?.display().to_string();
            }
            publish_context = self.publish_context(csi).await.map_err(|error| {
                named(format_args!(
                    "mounter.SetUpAt failed to fetch publishContext: {error}"
                ))
            })?;
        }
        let parent = data_dir_of(target);
        self.dirs.make(parent).await.map_err(|error| {
            named(format_args!(
                "mounter.SetUpAt failed to create dir {parent:?}:  {error}"
            ))
        })?;
        let mut secrets = self.publish_secrets(&mount.pod, source).await?;
        let mut volume_context = source.attributes();
        if spec.is_some_and(|spec| spec.pod_info_on_mount.unwrap_or(false)) {
            volume_context.extend(pod_info(&mount.pod, source.lifecycle_mode() == "Ephemeral"));
        }
        let again_at = self
            .add_tokens(&mount.pod, spec, &mut volume_context, &mut secrets)
            .await?;
        let label = mount.selinux_label.as_deref();
        let options = self.mount_options(&mount.spec, source.driver(), label).await;
        let (options, label) = options.map_err(|error| error.to_string())?;
        let attachment = attachment_name(&handle, source.driver(), &self.node_name);
        let data = VolumeData::new([
            (SPEC_NAME, mount.spec.name()),
            (VOLUME_HANDLE, &handle),
            (DRIVER_NAME, source.driver()),
            (NODE_NAME, &self.node_name),
            (LIFECYCLE_MODE, source.lifecycle_mode()),
            (ATTACHMENT, &attachment),
            (SELINUX_CONTEXT, label.unwrap_or_default()),
        ]);
        let request = NodePublishVolumeRequest {
            volume_id: handle,
            publish_context,
            staging_target_path: staging,
            target_path: target.display().to_string(),
            volume_capability: Some(mounted(mode, has, source.fs_type(), options, mount.fs_group)),
            readonly: source.is_read_only(&mount.spec),
            secrets,
            volume_context,
        };
        Ok(Prepared {
            request,
            data,
            has,
            fs_group_policy,
            again_at,
        })
    }

    async fn publish_secrets(
        &self,
        pod: &Pod,
        source: Source<'_>,
    ) -> Result<BTreeMap<String, String>, String> {
        let Some(secret) = source.publish_secret(&pod.key().namespace) else {
            return Ok(BTreeMap::new());
        };
        let (namespace, name) = names_of(&secret);
        let read = self.secret(&secret).await;
        read.map_err(|error| format!("fetching NodePublishSecretRef {namespace}/{name} failed: {error}"))
    }

    /// Adds the tokens that the driver asks for to the attributes or the secrets. Returns when to publish again.
    async fn add_tokens(
        &self,
        pod: &Arc<Pod>,
        driver: Option<&CSIDriverSpec>,
        attributes: &mut BTreeMap<String, String>,
        secrets: &mut BTreeMap<String, String>,
    ) -> Result<Option<Instant>, String> {
        let Some(driver) = driver else { return Ok(None) };
        let tokens = tokens_of(pod, driver, &*self.tokens).await;
        let tokens = tokens.map_err(|error| {
            named(format_args!(
                "mounter.SetUpAt failed to get service accoount token attributes: {error}"
            ))
        })?;
        let mut renew_at = None;
        if let Some(tokens) = tokens {
            let into = match driver.service_account_token_in_secrets.unwrap_or(false) {
                true => secrets,
                false => attributes,
            };
            into.insert(TOKENS.to_owned(), tokens.text);
            renew_at = tokens.renew_at;
        }
        // Without requiresRepublish a driver gets each token once.
        if !driver.requires_republish.unwrap_or(false) {
            return Ok(None);
        }
        let now = self.clock.now();
        let until_renewal = renew_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let period = self.jitter.apply(REPUBLISH_PERIOD, REPUBLISH_JITTER);
        Ok(Some(
            Instant::now() + until_renewal.map_or(period, |left| left.min(period)),
        ))
    }

    /// Whether the agent gives the files to the pod's group (`supportsFSGroup`).
    fn gives_to_group(&self, mount: &PodMount, source: Source<'_>, policy: &str) -> bool {
        if mount.fs_group.is_none() || source.is_read_only(&mount.spec) {
            return false;
        }
        match policy {
            "None" => false,
            "File" => true,
            _ if source.fs_type().is_empty() => false,
            _ => match source {
                Source::Inline(_) => true,
                Source::Persistent(_) => {
                    let spec = mount.spec.persistent_volume();
                    let mut modes = spec
                        .into_iter()
                        .flat_map(|spec| spec.access_modes.iter().flatten());
                    modes.any(|mode| mode == READ_WRITE_ONCE || mode == "ReadWriteOncePod")
                }
            },
        }
    }

    async fn give_to_group(&self, mount: &PodMount, source: Source<'_>, target: &Path) -> Result<()> {
        let Some(group) = mount.fs_group else {
            return Ok(());
        };
        let ownership = VolumeOwnership {
            dir: target.to_owned(),
            group,
            read_only: false,
            policy: mount.fs_group_change_policy,
        };
        let begun = Instant::now();
        let changed = ownership
            .change(self.dirs.disk, &mount.pod, &*self.recorder)
            .await;
        let status = if changed.is_ok() {
            "success"
        } else {
            "fail-unknown"
        };
        metrics::histogram!(
            "storage_operation_duration_seconds",
            "volume_plugin" => format!("{PLUGIN_NAME}:{}", source.driver()),
            "operation_name" => "volume_apply_access_control",
            "status" => status,
            "migrated" => "false",
        )
        .record(begun.elapsed().as_secs_f64());
        // The volume is mounted, and must be unmounted if the pod goes.
        changed.map_err(|error| {
            let handle = source.handle(&mount.pod.uid(), mount.spec.name());
            Error::uncertain(format!("applyFSGroup failed for vol {handle}: {error}"))
        })
    }

    /// (`TearDownAt`)
    pub(crate) async fn unpublish(&self, mounted: &OnDisk) -> Result<()> {
        let target = mount_of(&mounted.dir);
        let data = match self.dirs.load(&target).await {
            Ok(data) => data,
            Err(error) => return self.unpublish_unknown(&target, error).await,
        };
        let failed = |what: String| Error::failed(named(format_args!("Unmounter.TearDownAt failed{what}")));
        let session = self.session(data.driver(), None);
        let mut session = session.map_err(|error| failed(format!(" to get CSI client: {error}")))?;
        let request = NodeUnpublishVolumeRequest {
            volume_id: data.handle().to_owned(),
            target_path: target.display().to_string(),
        };
        match session.unpublish(request).await {
            // An inline volume goes when it is unpublished. The agent or the driver was killed before the agent knew.
            Err(error) if error.code == Code::NotFound && data.is_ephemeral() => {}
            unpublished => unpublished.map_err(|error| failed(format!(": {error}")))?,
        }
        self.tokens.forget(&mounted.uid);
        // The driver has confirmed what it did not do. The data are needed to ask it again.
        if self.dirs.mounter.is_mount_point(&target).await? {
            let still_mounted = failed(format!(": {} is still mounted", target.display()));
            if !self.dirs.is_left_again(&target) {
                return Err(still_mounted);
            }
            // A driver that was killed after it mounted the volume may not know that it did.
            tracing::warn!(target = %target.display(), driver = data.driver(), "the driver leaves its mount, unmounting it");
            self.dirs.mounter.unmount(&target).await?;
            if self.dirs.mounter.is_mount_point(&target).await? {
                return Err(still_mounted);
            }
        }
        self.dirs
            .remove(&target)
            .await
            .map_err(|error| failed(format!(" to clean mount dir [{}]: {error}", target.display())))
    }

    /// Without data nobody can be asked to unmount it. If nothing is mounted, the empty folders are removed: an agent
    /// that was killed left them.
    async fn unpublish_unknown(&self, target: &Path, error: io::Error) -> Result<()> {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        if is_missing && !self.dirs.mounter.is_mount_point(target).await? {
            return self.dirs.remove(target).await;
        }
        Err(Error::failed(named(format_args!(
            "unmounter failed to load volume data file [{}]: {error}",
            target.display()
        ))))
    }
}

/// Who gives the files to the pod's group (`getFSGroupPolicy`).
fn fs_group_policy(driver: Option<&CSIDriverSpec>) -> Result<String, String> {
    let Some(driver) = driver else {
        return Ok("ReadWriteOnceWithFSType".to_owned());
    };
    match driver.fs_group_policy.as_deref() {
        Some(policy) if !policy.is_empty() => Ok(policy.to_owned()),
        _ => Err(named(format_args!(
            "mounter.SetupAt failed to check fsGroup policy: {}",
            named("expected valid fsGroupPolicy, received nil value or empty string")
        ))),
    }
}

/// What a driver with `podInfoOnMount` gets (`getPodInfoAttrs`).
pub(crate) fn pod_info(pod: &Pod, ephemeral: bool) -> [(String, String); 5] {
    let key = pod.key();
    let account = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.clone());
    [
        ("csi.storage.k8s.io/pod.name", key.name.to_string()),
        ("csi.storage.k8s.io/pod.namespace", key.namespace.to_string()),
        ("csi.storage.k8s.io/pod.uid", pod.uid().to_string()),
        (
            "csi.storage.k8s.io/serviceAccount.name",
            account.unwrap_or_default(),
        ),
        ("csi.storage.k8s.io/ephemeral", ephemeral.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}
