//! [`ApiCall`]: what is kept of each request for objects.

use std::fmt;

use k8s_openapi::jiff::Timestamp;

/// What a request does, as the API server's authorizers name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Watches a collection or an object.
    Watch,
    /// Makes an object, or posts to a sub-resource.
    Create,
    /// Replaces an object (`PUT`).
    Update,
    /// Changes an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes what a selector picks.
    DeleteCollection,
}

impl Verb {
    /// As authorizers name it: `deletecollection`.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it only looks. Such requests are recorded where that is asked for.
    pub fn only_looks(self) -> bool {
        matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request that the server got: `patch pods/status default/web`, and with `{:#}` also who made it and how it was
/// answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiCall {
    /// Who asked.
    pub user: String,
    /// For what.
    pub verb: Verb,
    /// Of which resource or sub-resource: `pods`, `pods/status`.
    pub resource: String,
    /// In which namespace; empty for none, or for all.
    pub namespace: String,
    /// Of which object; empty for a collection. What is created goes by its name, where it has one.
    pub name: String,
    /// The field selector of a collection: `spec.nodeName=node-1`.
    pub field_selector: String,
    /// When it came.
    pub at: Timestamp,
    /// The HTTP status of the answer; `None` before it, or when the connection broke or the caller gave up.
    pub status: Option<u16>,
}

impl fmt::Display for ApiCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => {}
            ("", name) => write!(f, " {name}")?,
            (namespace, "") => write!(f, " {namespace}/")?,
            (namespace, name) => write!(f, " {namespace}/{name}")?,
        }
        if !f.alternate() {
            return Ok(());
        }
        write!(f, " by {}", self.user)?;
        match self.status {
            None => f.write_str(": no answer"),
            Some(status) => write!(f, ": {status}"),
        }
    }
}
