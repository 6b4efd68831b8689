//! Service account tokens: issued for a `TokenRequest`, accepted as credentials.
//!
//! They look like the API server's tokens (JSON web tokens). A server in memory does not sign them, since a test needs no
//! secret. A server with a storage does, if it has an authority.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::objects::Fields;
use super::request::{User, View};
use super::resource::Resource;

/// The issuer of tokens, and their default audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";
/// The error for a token that is not this server's.
pub(crate) const INVALID: &str = "invalid bearer token";
/// The signature where there is no key.
pub(crate) const UNSIGNED: &str = "unsigned";
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
pub(crate) fn issue(grant: &Grant<'_>, view: &dyn View) -> String {
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
    let signed = format!("{}.{}", encode(HEADER), encode(&claims.to_string()));
    let signature = encode(&view.token_signature(&signed));
    format!("{signed}.{signature}")
}

/// The owner of a token.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) user: User,
    /// Empty for a user who has none.
    pub(crate) uid: String,
    pub(crate) extra: Vec<(&'static str, String)>,
    /// The audiences that were asked for and that the token is for.
    pub(crate) audiences: Vec<String>,
}

impl Identity {
    /// The owner of a token for this server.
    pub(crate) fn of(user: User) -> Self {
        Identity {
            user,
            uid: String::new(),
            extra: Vec::new(),
            audiences: vec![ISSUER.to_owned()],
        }
    }

    /// Leaves of the audiences those that were asked for. `None` if there are none.
    pub(crate) fn filter(mut self, asked: &[&str]) -> Option<Self> {
        self.audiences
            .retain(|audience| asked.contains(&audience.as_str()));
        (!self.audiences.is_empty()).then_some(self)
    }
}

/// The owner of a service account's token.
///
/// # Errors
///
/// The token is not this server's, has expired, has none of these audiences, or its account or bound object is gone.
pub(crate) fn authenticate(
    token: &str,
    audiences: &[&str],
    view: &dyn View,
    now: Timestamp,
) -> Result<Identity, String> {
    let claims = claims(token, view).ok_or(INVALID)?;
    let own: Vec<&str> = claims.list("aud").iter().filter_map(Value::as_str).collect();
    if !own.iter().any(|audience| audiences.contains(audience)) {
        let (own, asked) = (quoted(&own), quoted(audiences));
        return Err(refused(&format!(
            "token audiences {own} is invalid for the target audiences {asked}"
        )));
    }
    let time = |claim: &str| claims.number(claim).ok_or(INVALID);
    if time("exp")? <= now.as_second() {
        return Err(refused("service account token has expired"));
    }
    if time("nbf")? > now.as_second() {
        return Err(refused("service account token is not valid yet"));
    }
    let private = &claims[CLAIMS];
    check_bound(private, view).map_err(|why| refused(&why))?;
    let namespace = private.text("namespace");
    let user = User {
        name: format!(
            "system:serviceaccount:{namespace}:{}",
            private["serviceaccount"].text("name")
        ),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".into(),
        ],
    };
    let asked = own.into_iter().filter(|audience| audiences.contains(audience));
    Ok(Identity {
        user,
        uid: private["serviceaccount"].text("uid").to_owned(),
        extra: extra(&claims),
        audiences: asked.map(str::to_owned).collect(),
    })
}

/// The claims of a token that this server issued.
fn claims(token: &str, view: &dyn View) -> Option<Value> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    if URL_SAFE_NO_PAD.decode(header).ok()? != HEADER.as_bytes() {
        return None;
    }
    let expected = view.token_signature(signed);
    if expected != UNSIGNED && !same(&URL_SAFE_NO_PAD.decode(signature).ok()?, expected.as_bytes()) {
        return None;
    }
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    (claims.text("iss") == ISSUER).then_some(claims)
}

/// Whether they are equal, in a time that does not depend on where they differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .fold(0, |differ, (one, other)| differ | (one ^ other))
            == 0
}

/// The account, and the object that the token is bound to, must still be there.
fn check_bound(private: &Value, view: &dyn View) -> Result<(), String> {
    let namespace = private.text("namespace");
    for (key, plural, namespaced) in [
        ("serviceaccount", "serviceaccounts", true),
        ("secret", "secrets", true),
        ("pod", "pods", true),
        ("node", "nodes", false),
    ] {
        let Some(object) = private.field(key) else {
            continue;
        };
        // The token of a pod names the node for information only.
        if key == "node" && private.has("pod") {
            continue;
        }
        let resource = Resource::find("", "v1", plural).ok_or(INVALID)?;
        let (namespace, name) = (if namespaced { namespace } else { "" }, object.text("name"));
        let Some(found) = view.get(resource, namespace, name) else {
            return Err(match key {
                "serviceaccount" => format!("serviceaccounts {name:?} not found"),
                _ => "service account token has been invalidated".into(),
            });
        };
        let (found, claimed) = (found["metadata"].text("uid"), object.text("uid"));
        if found != claimed {
            return Err(match key {
                "serviceaccount" => format!("service account UID ({found}) does not match claim ({claimed})"),
                key => {
                    format!("{key} UID ({found}) does not match service account {key} ref claim ({claimed})")
                }
            });
        }
    }
    Ok(())
}

/// What the token says beside its user (`UserInfo.Extra`).
fn extra(claims: &Value) -> Vec<(&'static str, String)> {
    let (pod, node) = (&claims[CLAIMS]["pod"], &claims[CLAIMS]["node"]);
    let id = match claims.text("jti") {
        "" => String::new(),
        id => format!("JTI={id}"),
    };
    let all = [
        ("authentication.kubernetes.io/credential-id", id),
        (
            "authentication.kubernetes.io/node-name",
            node.text("name").to_owned(),
        ),
        (
            "authentication.kubernetes.io/node-uid",
            node.text("uid").to_owned(),
        ),
        (
            "authentication.kubernetes.io/pod-name",
            pod.text("name").to_owned(),
        ),
        ("authentication.kubernetes.io/pod-uid", pod.text("uid").to_owned()),
    ];
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// The authenticators' errors, as the API server joins them.
fn refused(why: &str) -> String {
    format!("[{INVALID}, {why}]")
}

/// A list as Go's `%q` writes it.
fn quoted(list: &[&str]) -> String {
    let list: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", list.join(" "))
}
