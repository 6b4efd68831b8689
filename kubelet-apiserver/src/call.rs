//! [`ApiCall`]: the record of a request.

use std::fmt;

use k8s_openapi::jiff::Timestamp;

/// The verb of a request, as the API server's authorizers know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Watches a collection or an object.
    Watch,
    /// Creates an object, or posts to a sub-resource.
    Create,
    /// Replaces an object (`PUT`).
    Update,
    /// Patches an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes the objects of a collection.
    DeleteCollection,
}

impl Verb {
    /// The authorizers' name: `deletecollection`.
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

    /// Whether the request only reads. The server records reads only with
    /// [`record_reads`](crate::ApiServerBuilder::record_reads).
    pub fn only_looks(self) -> bool {
        matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request that the server received. It prints as `patch pods/status default/web`; `{:#}` adds the user and the
/// response code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiCall {
    /// The user.
    pub user: String,
    /// The verb.
    pub verb: Verb,
    /// The resource or sub-resource: `pods`, `pods/status`.
    pub resource: String,
    /// The namespace; empty for kinds without namespaces and for all namespaces.
    pub namespace: String,
    /// The name; empty for a collection. For a create it is the name in the body, if there is one.
    pub name: String,
    /// The field selector of a collection: `spec.nodeName=node-1`.
    pub field_selector: String,
    /// When the request arrived.
    pub at: Timestamp,
    /// The HTTP status of the response. `None` until there is a response, or if the connection broke or the client
    /// gave up.
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
