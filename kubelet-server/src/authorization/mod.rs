//! Who may do what: the attributes of a request, and the authorizers.

mod attributes;
mod webhook;

use std::sync::Arc;

use async_trait::async_trait;

pub use self::attributes::{Attributes, StreamVerb};
pub use self::webhook::{SubjectAccessReviewer, WebhookAuthorizer};
use crate::BoxError;
use crate::authentication::UserInfo;

/// Decides whether a user may do something on the node's API (`authorizer.Authorizer`).
#[async_trait]
pub trait Authorizer: Send + Sync {
    /// Whether the user may do this.
    ///
    /// # Errors
    ///
    /// If it cannot be decided now. The request is answered with status 500.
    ///
    /// # Cancel safety
    ///
    /// The call is dropped when the client is gone.
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<bool, BoxError>;
}

/// Allows every request that was authenticated (`authorization.mode: AlwaysAllow`).
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysAllow;

#[async_trait]
impl Authorizer for AlwaysAllow {
    async fn authorize(&self, _: &UserInfo, _: &Attributes) -> Result<bool, BoxError> {
        Ok(true)
    }
}

/// Authorizes the requests to one node.
#[derive(Clone)]
pub struct Authorization {
    node_name: Arc<str>,
    authorizer: Arc<dyn Authorizer>,
    streams: StreamVerb,
}

kubelet_core::impl_debug!(Authorization: node_name, streams);

/// Why a request is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The user may not do it. The text is the kubelet's answer.
    Forbidden(String),
    /// It cannot be decided. The text is the kubelet's answer.
    Failed(String),
}

impl Authorization {
    /// Asks `authorizer` for each request to the node of this name.
    pub fn new(node_name: impl Into<Arc<str>>, authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            node_name: node_name.into(),
            authorizer,
            streams: StreamVerb::Create,
        }
    }

    /// Which verb exec, attach, port-forward and run need: `create` unless set here.
    #[must_use]
    pub fn stream_verb(mut self, verb: StreamVerb) -> Self {
        self.streams = verb;
        self
    }

    /// Whether the user may send this request. The finer subresource is asked for first, then `proxy`.
    pub(crate) async fn check(
        &self,
        user: &UserInfo,
        method: &http::Method,
        path: &str,
    ) -> Result<(), Refusal> {
        let all = attributes::of_request(&self.node_name, method, path, self.streams);
        for attributes in &all {
            match self.authorizer.authorize(user, attributes).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    let Attributes {
                        verb, subresource, ..
                    } = attributes;
                    tracing::error!(user = user.name, verb, subresource, %error, "Authorization error");
                    return Err(Refusal::Failed(format!(
                        "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource})",
                        user.name
                    )));
                }
            }
        }
        let verb = all.first().map_or("", |first| first.verb);
        let subresources: Vec<&str> = all.iter().map(|attributes| attributes.subresource).collect();
        tracing::debug!(user = user.name, verb, ?subresources, "Forbidden");
        Err(Refusal::Forbidden(format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            subresources.join(" ")
        )))
    }
}
