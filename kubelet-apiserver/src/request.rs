//! A request after routing and authentication.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::resource::Resource;

/// A user: the API server's `user.Info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// `system:admin`, `system:node:<name>`, `system:serviceaccount:<namespace>:<name>`…
    pub name: String,
    /// `system:masters`, `system:nodes`…
    pub groups: Vec<String>,
}

impl User {
    /// The administrator, with all rights.
    pub fn admin() -> Self {
        User {
            name: "system:admin".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
        }
    }

    /// The user of a bootstrap token, who may request a node's first certificate.
    pub fn bootstrapper(token_id: &str) -> Self {
        User {
            name: format!("system:bootstrap:{token_id}"),
            groups: vec!["system:bootstrappers".into(), "system:authenticated".into()],
        }
    }

    /// The kubelet of a node. The Node authorizer and `NodeRestriction` apply.
    pub fn node(name: &str) -> Self {
        User {
            name: format!("system:node:{name}"),
            groups: vec!["system:nodes".into(), "system:authenticated".into()],
        }
    }
}

/// The attributes of a request, as the API server's authorizers see them.
#[derive(Debug, Clone)]
pub(crate) struct Attributes {
    pub(crate) user: User,
    /// `get list watch create update patch delete deletecollection`.
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static Resource,
    /// Empty for the object itself.
    pub(crate) subresource: &'static str,
    /// Empty for cluster-wide requests.
    pub(crate) namespace: String,
    /// Empty for collections.
    pub(crate) name: String,
    pub(crate) field_selector: String,
    /// `fieldManager`, or the name derived from the user agent.
    pub(crate) field_manager: String,
    /// `dryRun=All`.
    pub(crate) dry_run: bool,
    /// When the request came, on the server's clock.
    pub(crate) now: Timestamp,
}

/// Read access to the store, for authorizers and admission.
pub(crate) trait View {
    fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// All objects of a resource, in one namespace or (if empty) in all.
    fn list(&self, resource: &Resource, namespace: &str) -> Vec<Arc<Value>>;

    /// The signature of a service account's token.
    fn token_signature(&self, signed: &str) -> String;
}
