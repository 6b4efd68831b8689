//! The users of the recording, and what each may do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_server::authentication::{TokenCache, TokenReviewer};
use kubelet_server::authorization::{Attributes, Authorizer};
use kubelet_server::{Authentication, BoxError, UserInfo};

/// Knows each user of the recording by the token `NAME`.
pub(crate) struct Users;

#[async_trait]
impl TokenReviewer for Users {
    async fn review(&self, token: &str) -> Result<Option<UserInfo>, BoxError> {
        let name = match token {
            "bad-token" => return Ok(None),
            "admin" => "kubernetes-admin".to_owned(),
            "node1" => "system:node:node1".to_owned(),
            account => format!("system:serviceaccount:srv:{account}"),
        };
        Ok(Some(UserInfo {
            name,
            ..UserInfo::default()
        }))
    }
}

#[async_trait]
impl Authorizer for Users {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<bool, BoxError> {
        let (verb, subresource) = (attributes.verb, attributes.subresource);
        let short = user.name.rsplit(':').next().unwrap_or_default();
        Ok(match short {
            "kubernetes-admin" => true,
            "proxy-all" => subresource == "proxy",
            "proxy-get" => (verb, subresource) == ("get", "proxy"),
            "checkpoint" => (verb, subresource) == ("create", "checkpoint"),
            "pods" | "log" | "metrics" | "stats" | "healthz" | "configz" => {
                (verb, subresource) == ("get", short)
            }
            _ => false,
        })
    }
}

/// Tokens and nothing else.
pub(crate) fn authentication() -> Authentication {
    Authentication::none().tokens(TokenCache::new(Arc::new(Users), Duration::from_secs(120)))
}

/// The header that a user of the recording sends.
pub(crate) fn credentials(user: &str) -> Option<String> {
    match user {
        "anonymous" => None,
        "basic" => Some("Basic YWRtaW46YWRtaW4=".into()),
        user => Some(format!("Bearer {user}")),
    }
}

/// Some flags.
pub(crate) fn flags() -> BTreeMap<String, String> {
    [
        ("address".to_owned(), "0.0.0.0".to_owned()),
        ("v".to_owned(), "0".to_owned()),
    ]
    .into()
}
