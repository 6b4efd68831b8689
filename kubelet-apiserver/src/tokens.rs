//! Service account tokens: issued for a `TokenRequest`, accepted as credentials.
//!
//! They look like the API server's tokens (JSON web tokens) but have no signature, since a test needs no secret. Only
//! the claims count.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::objects::Fields;
use super::request::{User, View};
use super::resource::Resource;

/// The issuer of tokens, and their default audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";
const HEADER: &str = r#"{"alg":"none","kid":"kubelet-apiserver"}"#;
const CLAIMS: &str = "kubernetes.io";

/// The contents of a token.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) account: &'a Value,
    pub(crate) audiences: &'a Value,
    /// The pod, secret or node it is bound to: its key in the claims, its name and its UID.
    pub(crate) bound: Vec<(&'static str, String, String)>,
    pub(crate) issued: Timestamp,
    pub(crate) seconds: i64,
    /// When it should have been renewed, if it lasts longer than requested.
    pub(crate) warn_after: Option<i64>,
    pub(crate) id: String,
}

/// Writes a token.
pub(crate) fn issue(grant: &Grant<'_>) -> String {
    let meta = &grant.account["metadata"];
    let (namespace, name) = (meta.text("namespace"), meta.text("name"));
    let issued = grant.issued.as_second();
    let mut private = json!({
        "namespace": namespace,
        "serviceaccount": {"name": name, "uid": meta["uid"]},
    });
    for (key, name, uid) in &grant.bound {
        private[*key] = json!({"name": name});
        if !uid.is_empty() {
            private[*key]["uid"] = json!(uid);
        }
    }
    if let Some(after) = grant.warn_after {
        private["warnafter"] = json!(issued + after);
    }
    let claims = json!({
        "iss": ISSUER,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "aud": grant.audiences,
        "iat": issued,
        "nbf": issued,
        "exp": issued + grant.seconds,
        "jti": grant.id,
        CLAIMS: private,
    });
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!(
        "{}.{}.{}",
        encode(HEADER),
        encode(&claims.to_string()),
        encode("unsigned")
    )
}

/// The user of a token. `None` for a token that is not this server's, has expired, has another audience, or whose
/// account or bound object is gone.
pub(crate) fn authenticate(token: &str, view: &dyn View, now: Timestamp) -> Option<User> {
    let mut parts = token.split('.');
    let (header, claims) = (parts.next()?, parts.next()?);
    if URL_SAFE_NO_PAD.decode(header).ok()? != HEADER.as_bytes() {
        return None;
    }
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    let now = now.as_second();
    if claims.text("iss") != ISSUER
        || claims.number("exp")? <= now
        || claims.number("nbf")? > now
        || !claims.list("aud").iter().any(|audience| audience == ISSUER)
    {
        return None;
    }
    let private = &claims[CLAIMS];
    let namespace = private.text("namespace");
    for (key, plural, namespaced) in [
        ("serviceaccount", "serviceaccounts", true),
        ("pod", "pods", true),
        ("secret", "secrets", true),
        ("node", "nodes", false),
    ] {
        let Some(object) = private.field(key) else {
            continue;
        };
        // The token of a pod names the node for information only.
        if key == "node" && private.has("pod") {
            continue;
        }
        let resource = Resource::find("", "v1", plural)?;
        let found = view.get(
            resource,
            if namespaced { namespace } else { "" },
            object.text("name"),
        )?;
        if found["metadata"]["uid"] != object["uid"] {
            return None;
        }
    }
    let name = private["serviceaccount"].text("name");
    Some(User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".into(),
        ],
    })
}
