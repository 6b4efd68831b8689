//! Authorization: the Node authorizer, the RBAC rules that an agent meets, and `NodeRestriction`.

mod access;
mod grants;
mod node;
mod restriction;

use serde_json::Value;

pub(crate) use access::Access;
pub(crate) use grants::Grants;
pub(crate) use node::claims;

use super::request::{Attributes, User, View};
use super::status_error::StatusError;

/// The paths that the role `system:discovery` opens to every authenticated user.
const DISCOVERY: [&str; 11] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];
/// The paths that the role `system:public-info-viewer` opens to everybody.
const PUBLIC: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// Authorizes a request by its attributes alone, before its body is read.
///
/// # Errors
///
/// 403 `Forbidden`.
pub(crate) fn authorize(
    attributes: &Attributes,
    grants: &Grants,
    view: &dyn View,
) -> Result<(), StatusError> {
    let access = Access::of(attributes);
    match decide(&access, grants, view) {
        Ok(_) => Ok(()),
        Err(reason) => Err(forbidden(attributes, &access, &reason)),
    }
}

/// Whether a user may do something, and why; as an error, why there is no authorizer that allows it. Both reasons may
/// be empty.
///
/// Masters may do everything. Nodes may do what the Node authorizer allows. Users who bootstrap a node may create and
/// read certificate signing requests. Everybody may do what the default roles allow and what a test
/// [granted](crate::ApiServer::grant).
pub(crate) fn decide(access: &Access<'_>, grants: &Grants, view: &dyn View) -> Result<String, String> {
    if access.is_in("system:masters") {
        return Ok(String::new());
    }
    let reason = match node_name(access.user) {
        Some(node) => match node::authorize(node, access, view) {
            Ok(()) => return Ok(String::new()),
            Err(reason) => reason,
        },
        None => String::new(),
    };
    by_default_role(access)
        .or_else(|| grants.allow(access))
        .ok_or(reason)
}

/// The reason that RBAC gives for a permission.
fn bound(role: &str, kind: &str, subject: &str) -> String {
    format!("RBAC: allowed by ClusterRoleBinding {role:?} of ClusterRole {role:?} to {kind} {subject:?}")
}

/// The permissions of the roles that every cluster binds.
fn by_default_role(access: &Access<'_>) -> Option<String> {
    let group = |role: &str, group: &str| access.is_in(group).then(|| bound(role, "Group", group));
    let Some(path) = access.path else {
        return if is_bootstrap(access) {
            group("kubeadm:kubelet-bootstrap", "system:bootstrappers")
        } else if is_self_review(access) {
            group("system:basic-user", "system:authenticated")
        } else {
            None
        };
    };
    let is_one_of =
        |paths: &[&str]| access.verb == "get" && paths.iter().any(|rule| path_matches(rule, path));
    let discovery = || group("system:discovery", "system:authenticated").filter(|_| is_one_of(&DISCOVERY));
    let public = || {
        let role = "system:public-info-viewer";
        let everybody = group(role, "system:authenticated").or_else(|| group(role, "system:unauthenticated"));
        everybody.filter(|_| is_one_of(&PUBLIC))
    };
    discovery().or_else(public)
}

/// Whether a rule of `nonResourceURLs` covers a path.
fn path_matches(rule: &str, path: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => rule == path,
    }
}

/// Admission by `NodeRestriction`: what a node's kubelet may write. `objects::prepare_*` call it at its place in the
/// order.
///
/// `old` is `None` for a creation, `new` for a deletion.
///
/// # Errors
///
/// 403 `Forbidden`.
pub(crate) fn admit(
    attributes: &Attributes,
    old: Option<&Value>,
    new: Option<&Value>,
    view: &dyn View,
) -> Result<(), StatusError> {
    match node_name(&attributes.user) {
        Some(node) => restriction::admit(node, attributes, old, new, view),
        None => Ok(()),
    }
}

/// The node of a kubelet's user (`nodeidentifier`).
fn node_name(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix("system:node:")?;
    user.groups
        .iter()
        .any(|group| group == "system:nodes")
        .then_some(name)
}

/// The permissions of the role `system:node-bootstrapper`.
fn is_bootstrap(access: &Access<'_>) -> bool {
    access.resource == "certificatesigningrequests"
        && access.subresource.is_empty()
        && matches!(access.verb, "create" | "get" | "list" | "watch")
}

/// The permissions of the role `system:basic-user`, as far as this server has its resources.
fn is_self_review(access: &Access<'_>) -> bool {
    access.group == "authorization.k8s.io"
        && access.resource == "selfsubjectaccessreviews"
        && access.subresource.is_empty()
        && access.verb == "create"
}

fn forbidden(attributes: &Attributes, access: &Access<'_>, reason: &str) -> StatusError {
    let Access {
        user,
        verb,
        group,
        resource,
        subresource,
        namespace,
        name,
        ..
    } = access;
    let mut plural = (*resource).to_owned();
    if !subresource.is_empty() {
        plural = format!("{plural}/{subresource}");
    }
    let place = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    let colon = if reason.is_empty() { "" } else { ": " };
    let why = format!(
        "User {:?} cannot {verb} resource {plural:?} in API group {group:?} {place}{colon}{reason}",
        user.name
    );
    StatusError::forbidden(attributes.resource, name, &why)
}
