//! The token of the pod's service account, for a plugin (`serviceAccountProvider`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, ServiceAccounts};

use crate::images::Coordinates;

/// The token of the pod's service account that a plugin gets: the `tokenAttributes` of a credential provider.
///
/// An image that was pulled with the credentials of such a plugin is only for pods of the same service account. Other
/// pods must pull it to use it, as with a pull secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceAccountTokenAttributes {
    /// `serviceAccountTokenAudience`: the audience of the token.
    pub audience: String,
    /// `cacheType`: for whom credentials are cached.
    pub cache_type: ServiceAccountTokenCacheType,
    /// `requireServiceAccount`: the plugin is not called for pods without a service account, such as static pods. If
    /// `false`, it is called for them without a token.
    pub require_service_account: bool,
    /// `requiredServiceAccountAnnotationKeys`: annotations of the account that the plugin gets. It is not called if one
    /// is missing.
    pub required_annotation_keys: Vec<String>,
    /// `optionalServiceAccountAnnotationKeys`: annotations of the account that the plugin gets if they are there.
    pub optional_annotation_keys: Vec<String>,
}

/// For whom the credentials of a plugin are cached (`ServiceAccountTokenCacheType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceAccountTokenCacheType {
    /// For this token only. A plugin that returns the token itself needs this.
    Token,
    /// For the service account and its annotations.
    ServiceAccount,
}

impl ServiceAccountTokenAttributes {
    /// A token for this audience. The plugin gets no annotations. It is also called for pods without a service account.
    pub fn new(audience: impl Into<String>, cache_type: ServiceAccountTokenCacheType) -> Self {
        Self {
            audience: audience.into(),
            cache_type,
            require_service_account: false,
            required_annotation_keys: Vec::new(),
            optional_annotation_keys: Vec::new(),
        }
    }

    /// Whether the plugin is called for this pod, and with which token.
    pub(super) async fn of(&self, pod: &Pod, accounts: &dyn ServiceAccounts) -> Result<ForPod, String> {
        let spec = pod.spec.as_ref();
        let name = spec.and_then(|spec| spec.service_account_name.as_deref());
        let name = name.unwrap_or_default();
        if name.is_empty() {
            return Ok(match self.require_service_account {
                true => ForPod::NoCall("it has no service account".to_owned()),
                false => ForPod::WithoutAccount,
            });
        }
        let account = accounts.account(pod).await;
        let account = account.map_err(|error| format!("failed to get service account: {error}"))?;
        let known = account.metadata.annotations.as_ref();
        let annotation = |key: &String| Some((key.clone(), known?.get(key)?.clone()));
        let mut annotations = BTreeMap::new();
        for key in &self.required_annotation_keys {
            match annotation(key) {
                Some(found) => annotations.extend([found]),
                None => return Ok(ForPod::NoCall(format!("required annotation {key} not found"))),
            }
        }
        annotations.extend(self.optional_annotation_keys.iter().filter_map(annotation));
        let uid = account.metadata.uid.unwrap_or_default();
        let token = accounts.account_token(pod, &uid, &self.audience).await;
        let token = token.map_err(|error| format!("failed to get service account token: {error}"))?;
        let coordinates = Coordinates {
            uid,
            namespace: pod.key().namespace.to_string(),
            name: name.to_owned(),
        };
        Ok(ForPod::WithAccount(Identity {
            coordinates,
            annotations,
            token,
        }))
    }
}

/// Whether a plugin is called for a pod.
pub(super) enum ForPod {
    /// It is not called, for this reason.
    NoCall(String),
    /// It is called without a token.
    WithoutAccount,
    /// It is called with a token of this account.
    WithAccount(Identity),
}

/// A service account, and a token of it.
pub(super) struct Identity {
    pub(super) coordinates: Coordinates,
    /// Those that the plugin asks for.
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) token: String,
}
