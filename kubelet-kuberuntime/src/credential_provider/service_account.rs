//! The service account token that a plugin gets of the pod (`serviceAccountProvider`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::ServiceAccounts;

use crate::images::Coordinates;

/// The service account token that a plugin gets: the `tokenAttributes` of a credential provider.
///
/// Credentials from such a token are only for pods of the same service account. Other pods must pull the image to use it, as with a pull
/// secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceAccountTokenAttributes {
    /// `serviceAccountTokenAudience`: the audience of the token.
    pub audience: String,
    /// `cacheType`: how long credentials are cached.
    pub cache_type: ServiceAccountTokenCacheType,
    /// `requireServiceAccount`: the plugin is not called for pods without a service account, such as static pods. If
    /// `false`, it is called for them without a token.
    pub require_service_account: bool,
    /// `requiredServiceAccountAnnotationKeys`: annotations of the account that the plugin gets. It is not called if one is missing.
    pub required_annotation_keys: Vec<String>,
    /// `optionalServiceAccountAnnotationKeys`: annotations of the account that the plugin gets if they are there.
    pub optional_annotation_keys: Vec<String>,
}

/// For what the credentials of a plugin are cached (`ServiceAccountTokenCacheType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceAccountTokenCacheType {
    /// For this token only. A plugin that returns the token itself needs this.
    Token,
    /// For the service account and its annotations.
    ServiceAccount,
}

impl ServiceAccountTokenAttributes {
    /// A token for this audience. The plugin is called for pods without a service account, too, and gets no annotations.
    pub fn new(audience: impl Into<String>, cache_type: ServiceAccountTokenCacheType) -> Self {
        Self {
            audience: audience.into(),
            cache_type,
            require_service_account: false,
            required_annotation_keys: Vec::new(),
            optional_annotation_keys: Vec::new(),
        }
    }

    /// What the plugin gets of this pod.
    pub(super) async fn of(&self, pod: &Pod, accounts: &dyn ServiceAccounts) -> Result<ForPod, String> {
        let spec = pod.spec.as_ref();
        if spec.is_none_or(|spec| {
            spec.service_account_name
                .as_deref()
                .unwrap_or_default()
                .is_empty()
        }) {
            return Ok(match self.require_service_account {
                true => ForPod::NoCall("it has no service account".to_owned()),
                false => ForPod::WithoutAccount,
            });
        }
        let account = accounts.account(pod).await.map_err(|error| error.to_string())?;
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
        let coordinates = Coordinates::of(&account.metadata);
        let token = accounts
            .account_token(pod, &coordinates.uid, &self.audience)
            .await;
        Ok(ForPod::WithAccount(Identity {
            coordinates,
            annotations,
            token: token.map_err(|error| format!("failed to get service account token: {error}"))?,
        }))
    }
}

/// What a plugin gets of a pod.
pub(super) enum ForPod {
    /// It is not called, for this reason.
    NoCall(String),
    /// The pod has no service account.
    WithoutAccount,
    /// This service account.
    WithAccount(Identity),
}

/// A service account, and a token of it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) coordinates: Coordinates,
    /// Those that the plugin asks for.
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) token: String,
}
