//! Files of several sources in one volume in memory (`pkg/volume/projected`).

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ClusterTrustBundleProjection, ConfigMapProjection, PodCertificateProjection, ProjectedVolumeSource,
    SecretProjection, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use kubelet_core::{ConfigObjectKind, ConfigObjectRef, PodExt, VolumeUsage};
use tokio::time::Instant;

use super::config_map::{DEFAULT_MODE, Wanted, object};
use super::empty_dir::{self, Medium};
use super::errors::{aggregate, in_words};
use super::in_tree::Host;
use super::{config_map, downward_api, secret, wrapped};
use crate::filesystem::atomic_writer::{Payload, ProjectedFile};
use crate::filesystem::fs_group::fs_user;
use crate::{Attributes, Error, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec};

/// The mode of tokens, keys and certificates that have an owner or a group. The group gets its permissions later.
const OWN_MODE: u32 = 0o600;

/// `projected` volumes.
pub(super) struct ProjectedPlugin {
    host: Arc<Host>,
}

impl ProjectedPlugin {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self { host }
    }
}

fn source(spec: &VolumeSpec) -> Option<&ProjectedVolumeSource> {
    spec.pod_volume()?.projected.as_ref()
}

fn sources(spec: &VolumeSpec) -> &[VolumeProjection] {
    let sources = source(spec).and_then(|source| source.sources.as_deref());
    sources.unwrap_or_default()
}

#[async_trait]
impl VolumePlugin for ProjectedPlugin {
    fn name(&self) -> &str {
        "kubernetes.io/projected"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        source(spec).is_some()
    }

    fn attributes(&self, _: &PodMount) -> Attributes {
        wrapped::ATTRIBUTES
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        let source = source(&mount.spec).ok_or_else(|| Error::failed("the volume has no projected"))?;
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let collected = Collector::new(&self.host, mount, mode).collect().await?;
        let medium = Medium::memory(&self.host, None, &mount.pod).await?;
        wrapped::write(&self.host, mount, &medium, collected.files).await?;
        let now = self.host.clock.now();
        let wait = collected.renew_at.map(|renew_at| {
            let wait = renew_at.duration_since(now);
            wait.try_into().unwrap_or_default()
        });
        Ok(SetUp {
            again_at: wait.map(|wait: std::time::Duration| Instant::now() + wait),
        })
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        wrapped::tear_down(&self.host, mounted).await?;
        self.host.tokens.forget(&mounted.uid);
        if let Some(certificates) = &self.host.certificates {
            certificates.forget(&mounted.uid);
        }
        Ok(())
    }

    fn config_objects(&self, mount: &PodMount) -> Vec<ConfigObjectRef> {
        let of_source = |source: &VolumeProjection| {
            let config_map = source.config_map.as_ref();
            let config_map = config_map.map(|it| object(mount, ConfigObjectKind::ConfigMap, &it.name));
            let secret = source.secret.as_ref();
            let secret = secret.map(|it| object(mount, ConfigObjectKind::Secret, &it.name));
            config_map.into_iter().chain(secret)
        };
        sources(&mount.spec).iter().flat_map(of_source).collect()
    }

    fn depends_on_pod(&self, spec: &VolumeSpec) -> bool {
        let of_pod = |source: &VolumeProjection| source.downward_api.is_some();
        sources(spec).iter().any(of_pod)
    }

    fn supports_mount_options(&self) -> bool {
        false
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(VolumeSpec::of_pod(Arc::new(Volume {
            name: found.name.clone(),
            projected: Some(ProjectedVolumeSource::default()),
            ..Volume::default()
        })))
    }

    async fn usage(&self, mounted: &OnDisk, _: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        empty_dir::usage(&self.host, &mounted.dir).await.map(Some)
    }
}

/// Collects the files of all sources (`collectData`).
struct Collector<'a> {
    host: &'a Host,
    mount: &'a PodMount,
    mode: i32,
    /// Mode and owner of what is the pod's own.
    own: (u32, Option<u32>),
    collected: Collected,
}

#[derive(Default)]
struct Collected {
    files: Payload,
    /// When the first token must be renewed.
    renew_at: Option<Timestamp>,
}

impl<'a> Collector<'a> {
    fn new(host: &'a Host, mount: &'a PodMount, mode: i32) -> Self {
        let owner = fs_user(&mount.pod);
        let is_owned = owner.is_some() || mount.fs_group.is_some();
        let own_mode = if is_owned {
            OWN_MODE
        } else {
            mode.cast_unsigned() & 0o777
        };
        Self {
            host,
            mount,
            mode,
            own: (own_mode, owner),
            collected: Collected::default(),
        }
    }

    /// All files, or all errors. If two sources have the same path, the last one counts.
    async fn collect(mut self) -> Result<Collected> {
        let mut errors = Vec::new();
        for (index, source) in sources(&self.mount.spec).iter().enumerate() {
            if let Err(error) = self.add(index, source).await {
                errors.push(error);
            }
        }
        aggregate(errors).map_or(Ok(self.collected), Err)
    }

    async fn add(&mut self, index: usize, source: &VolumeProjection) -> Result<(), String> {
        if let Some(wanted) = &source.secret {
            self.add_secret(wanted).await
        } else if let Some(wanted) = &source.config_map {
            self.add_config_map(wanted).await
        } else if let Some(wanted) = &source.downward_api {
            let items = wanted.items.as_deref().unwrap_or_default();
            let files = downward_api::payload(self.host, &self.mount.pod, items, self.mode).await;
            self.collected
                .files
                .extend(files.map_err(|error| error.to_string())?);
            Ok(())
        } else if let Some(wanted) = &source.service_account_token {
            self.add_token(wanted).await
        } else if let Some(wanted) = &source.cluster_trust_bundle {
            self.add_trust_bundle(wanted).await
        } else if let Some(wanted) = &source.pod_certificate {
            self.add_certificate(index, wanted).await
        } else {
            Ok(())
        }
    }

    async fn add_secret(&mut self, source: &SecretProjection) -> Result<(), String> {
        let wanted = Wanted {
            items: source.items.as_deref().unwrap_or_default(),
            mode: self.mode,
            is_optional: source.optional.unwrap_or(false),
        };
        let namespace = &self.mount.pod.key().namespace;
        let found = secret::read(self.host, namespace, &source.name, wanted.is_optional).await?;
        self.collected.files.extend(secret::payload(&wanted, &found)?);
        Ok(())
    }

    async fn add_config_map(&mut self, source: &ConfigMapProjection) -> Result<(), String> {
        let wanted = Wanted {
            items: source.items.as_deref().unwrap_or_default(),
            mode: self.mode,
            is_optional: source.optional.unwrap_or(false),
        };
        let namespace = &self.mount.pod.key().namespace;
        let found = config_map::read(self.host, namespace, &source.name, wanted.is_optional).await?;
        self.collected.files.extend(config_map::payload(&wanted, &found)?);
        Ok(())
    }

    async fn add_token(&mut self, wanted: &ServiceAccountTokenProjection) -> Result<(), String> {
        let token = self.host.tokens.token(&self.mount.pod, wanted).await;
        let token = token.map_err(in_words)?;
        self.add_own(&wanted.path, token.text.into_bytes());
        let collected = &mut self.collected;
        collected.renew_at = [collected.renew_at, token.renew_at].into_iter().flatten().min();
        Ok(())
    }

    async fn add_trust_bundle(&mut self, wanted: &ClusterTrustBundleProjection) -> Result<(), String> {
        let bundles = &self.host.trust_bundles;
        let allow_missing = wanted.optional.unwrap_or(false);
        let anchors = match (&wanted.name, &wanted.signer_name) {
            (Some(name), _) => bundles.by_name(name, allow_missing).await,
            (None, Some(signer)) => {
                let selector = wanted.label_selector.as_ref();
                bundles.by_signer(signer, selector, allow_missing).await
            }
            (None, None) => {
                let message = "ClusterTrustBundle projection requires either name or signerName to be set";
                return Err(message.to_owned());
            }
        };
        self.add_own(&wanted.path, anchors.map_err(in_words)?);
        Ok(())
    }

    async fn add_certificate(
        &mut self,
        index: usize,
        wanted: &PodCertificateProjection,
    ) -> Result<(), String> {
        let certificates = self.host.certificates.as_ref();
        let certificates = certificates.ok_or("unimplemented")?;
        let (pod, volume) = (&self.mount.pod, self.mount.spec.name());
        let credential = certificates.credential(pod, volume, index).await;
        let credential = credential.map_err(in_words)?;
        let bundle = [credential.key.as_slice(), credential.chain.as_slice()].concat();
        for (path, data) in [
            (&wanted.credential_bundle_path, bundle),
            (&wanted.key_path, credential.key),
            (&wanted.certificate_chain_path, credential.chain),
        ] {
            if let Some(path) = path.as_ref().filter(|path| !path.is_empty()) {
                self.add_own(path, data);
            }
        }
        Ok(())
    }

    fn add_own(&mut self, path: &str, data: Vec<u8>) {
        let (mode, owner) = self.own;
        let file = ProjectedFile { data, mode, owner };
        self.collected.files.insert(path.to_owned(), file);
    }
}
