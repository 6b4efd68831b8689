//! [`Access`]: the question that authorizers answer.

use std::borrow::Cow;

use crate::request::{Attributes, User};

/// What a user wants to do. Unlike [`Attributes`], it may name a resource that this server does not serve.
#[derive(Clone, Debug)]
pub(crate) struct Access<'a> {
    pub(crate) user: &'a User,
    pub(crate) verb: &'a str,
    /// The path, if the request is not for a resource.
    pub(crate) path: Option<&'a str>,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: Cow<'a, str>,
    pub(crate) field_selector: &'a str,
}

impl<'a> Access<'a> {
    /// The access that a request needs.
    pub(super) fn of(attributes: &'a Attributes) -> Self {
        Access {
            user: &attributes.user,
            verb: attributes.verb,
            path: None,
            group: attributes.resource.group,
            resource: attributes.resource.plural,
            subresource: attributes.subresource,
            namespace: &attributes.namespace,
            name: Cow::Borrowed(&attributes.name),
            field_selector: &attributes.field_selector,
        }
        .of_selected_name()
    }

    /// A collection request whose field selector names one object counts as a request for that object (`RequestInfo`).
    fn of_selected_name(mut self) -> Self {
        let requirements = self.field_selector.split(',').map(str::trim);
        let mut names = requirements.filter_map(|requirement| requirement.strip_prefix("metadata.name="));
        if let Some(name) = names.next().filter(|_| self.name.is_empty()) {
            self.name = Cow::Borrowed(name.strip_prefix('=').unwrap_or(name));
        }
        self
    }

    pub(super) fn is_in(&self, group: &str) -> bool {
        self.user.groups.iter().any(|own| own == group)
    }
}
