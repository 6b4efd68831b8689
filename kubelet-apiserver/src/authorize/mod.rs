//! Authorization: the Node authorizer, the RBAC rules that an agent meets, and `NodeRestriction`.

mod node;
mod restriction;

use std::borrow::Cow;

use serde_json::Value;

use super::request::{Attributes, User, View};
use super::status_error::StatusError;

/// Authorizes a request by its attributes alone, before its body is read.
///
/// Masters may do everything. Nodes may do what the Node authorizer allows. Users who bootstrap a node may create and
/// read certificate signing requests. There are no other roles.
///
/// # Errors
///
/// 403 `Forbidden`.
pub(crate) fn authorize(attributes: &Attributes, view: &dyn View) -> Result<(), StatusError> {
    let is_in = |group: &str| attributes.user.groups.iter().any(|own| own == group);
    if is_in("system:masters") {
        return Ok(());
    }
    let attributes = &*of_selected_name(attributes);
    let reason = match node_name(&attributes.user) {
        Some(node) => match node::authorize(node, attributes, view) {
            Ok(()) => return Ok(()),
            Err(reason) => reason,
        },
        None if is_in("system:bootstrappers") && is_bootstrap(attributes) => return Ok(()),
        None => String::new(),
    };
    Err(forbidden(attributes, &reason))
}

/// A collection request whose field selector names one object counts as a request for that object (`RequestInfo`).
fn of_selected_name(attributes: &Attributes) -> Cow<'_, Attributes> {
    let requirements = attributes.field_selector.split(',').map(str::trim);
    let mut names = requirements.filter_map(|requirement| requirement.strip_prefix("metadata.name="));
    match names.next() {
        Some(name) if attributes.name.is_empty() => Cow::Owned(Attributes {
            name: name.strip_prefix('=').unwrap_or(name).to_owned(),
            ..attributes.clone()
        }),
        _ => Cow::Borrowed(attributes),
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
fn is_bootstrap(attributes: &Attributes) -> bool {
    attributes.resource.plural == "certificatesigningrequests"
        && attributes.subresource.is_empty()
        && matches!(attributes.verb, "create" | "get" | "list" | "watch")
}

fn forbidden(attributes: &Attributes, reason: &str) -> StatusError {
    let Attributes {
        user,
        verb,
        resource,
        subresource,
        namespace,
        name,
        ..
    } = attributes;
    let mut plural = resource.plural.to_owned();
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
        "User {:?} cannot {verb} resource {plural:?} in API group {:?} {place}{colon}{reason}",
        user.name, resource.group
    );
    StatusError::forbidden(resource, name, &why)
}
