//! The service account tokens that a driver asks for (`podServiceAccountTokenAttrs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ServiceAccountTokenProjection};
use k8s_openapi::api::storage::v1::CSIDriverSpec;
use kubelet_core::{ServiceAccountTokens, clock};
use serde::Serialize;

/// The attribute, or the key of the secret, with the tokens as JSON.
pub(crate) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// The tokens of a pod for a driver.
pub(crate) struct Tokens {
    /// By audience, as JSON.
    pub(crate) text: String,
    /// When the first of them must be renewed.
    pub(crate) renew_at: Option<Timestamp>,
}

/// (`TokenRequestStatus`)
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Issued {
    token: String,
    expiration_timestamp: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
}

/// The tokens that the driver asks for; `None` if it asks for none.
pub(crate) async fn tokens_of(
    pod: &Arc<Pod>,
    driver: &CSIDriverSpec,
    issuer: &dyn ServiceAccountTokens,
) -> kubelet_core::Result<Option<Tokens>> {
    let requests = driver.token_requests.as_deref().unwrap_or_default();
    if requests.is_empty() {
        return Ok(None);
    }
    let mut issued = BTreeMap::new();
    let mut renew_at: Option<Timestamp> = None;
    for request in requests {
        let wanted = ServiceAccountTokenProjection {
            audience: Some(request.audience.clone()).filter(|audience| !audience.is_empty()),
            expiration_seconds: request.expiration_seconds,
            path: String::new(),
        };
        let token = issuer.token(pod, &wanted).await?;
        renew_at = match (renew_at, token.renew_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let entry = Issued {
            token: token.text,
            expiration_timestamp: token.expires_at.map(clock::api_time),
        };
        issued.insert(request.audience.as_str(), entry);
    }
    let text = serde_json::to_string(&issued).unwrap_or_default();
    Ok(Some(Tokens { text, renew_at }))
}
