//! `azureFile`

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, SecretReference, Volume};

use super::{Inline, READ_WRITE_MANY, attributes, refused, source};
use crate::Result;

pub(super) const IN_TREE: &str = "kubernetes.io/azure-file";
const DRIVER: &str = "file.csi.azure.com";
const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";

pub(super) fn persistent(volume: &PersistentVolume) -> Result<Option<CSIPersistentVolumeSource>> {
    let Some(spec) = &volume.spec else { return Ok(None) };
    let Some(share) = &spec.azure_file else {
        return Ok(None);
    };
    let claimed = spec
        .claim_ref
        .as_ref()
        .and_then(|claim| claim.namespace.as_deref());
    let namespace = share.secret_namespace.as_deref().or(claimed).unwrap_or_default();
    if namespace.is_empty() {
        return Err(refused(
            "could not find a secret namespace in PersistentVolumeSource or ClaimRef",
        ));
    }
    let annotations = volume.metadata.annotations.as_ref();
    let group = annotations
        .and_then(|all| all.get(RESOURCE_GROUP))
        .map_or("", String::as_str);
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let share = Share {
        group,
        secret: &share.secret_name,
        share: &share.share_name,
        name,
        namespace,
        read_only: share.read_only,
    };
    Ok(Some(share.translated()))
}

pub(super) fn inline(volume: &Volume, namespace: &str) -> Result<Option<Inline>> {
    let Some(share) = &volume.azure_file else {
        return Ok(None);
    };
    let share = Share {
        group: "",
        secret: &share.secret_name,
        share: &share.share_name,
        name: &volume.name,
        namespace: match namespace.is_empty() {
            true => "default",
            false => namespace,
        },
        read_only: share.read_only,
    };
    let source = share.translated();
    Ok(Some(Inline {
        name: source.volume_handle.clone(),
        mode: READ_WRITE_MANY,
        source,
    }))
}

struct Share<'a> {
    group: &'a str,
    secret: &'a str,
    share: &'a str,
    name: &'a str,
    namespace: &'a str,
    read_only: Option<bool>,
}

impl Share<'_> {
    fn translated(&self) -> CSIPersistentVolumeSource {
        let Self {
            group,
            share,
            name,
            namespace,
            ..
        } = self;
        let handle = format!("{group}#{}#{share}#{name}#{namespace}", account(self.secret));
        CSIPersistentVolumeSource {
            read_only: self.read_only,
            volume_attributes: attributes([("sharename", self.share.to_owned())]),
            node_stage_secret_ref: Some(SecretReference {
                name: Some(self.secret.to_owned()),
                namespace: Some(self.namespace.to_owned()),
            }),
            ..source(DRIVER, handle)
        }
    }
}

/// The storage account in `azure-storage-account-<account>-secret`; of another name, the whole name.
fn account(secret: &str) -> &str {
    let (start, end) = ("azure-storage-account-", "-secret");
    let rest = secret.find(start).map(|at| &secret[at + start.len()..]);
    let account = rest.and_then(|rest| rest.rfind(end).map(|at| &rest[..at]));
    account.filter(|account| !account.is_empty()).unwrap_or(secret)
}
