//! The fields that a kind's strategy resets, so that their sender does not own them.

use super::super::resource::Resource;
use super::field_set::{Element, FieldSet};

/// The fields that a request can change.
pub(super) enum Reset {
    /// All but these and what is below them.
    Except(FieldSet),
    /// Only these and what is below them; `*` stands for any element.
    Only(&'static [&'static [&'static str]]),
}

impl Reset {
    pub(super) fn of(resource: &Resource, subresource: &str) -> Self {
        let except: &[&[&str]] = match (resource.plural, subresource) {
            ("pods", "status") => &[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ],
            ("pods", "ephemeralcontainers") => return Reset::Only(&[&["spec", "ephemeralContainers"]]),
            ("pods", "resize") => {
                return Reset::Only(&[
                    &["spec", "containers", "*", "resources"],
                    &["spec", "containers", "*", "resizePolicy"],
                    &["spec", "initContainers", "*", "resources"],
                    &["spec", "initContainers", "*", "resizePolicy"],
                ]);
            }
            ("certificatesigningrequests", "") => &[&["spec"], &["status"]],
            ("certificatesigningrequests", "status") => &[&["spec"], &["status", "conditions"]],
            ("certificatesigningrequests", "approval") => &[&["spec"], &["status", "certificate"]],
            ("nodes" | "namespaces" | "services", "status") => &[&["spec"]],
            ("pods" | "nodes" | "namespaces" | "services", "") => &[&["status"]],
            _ => &[],
        };
        Reset::Except(FieldSet::of(except))
    }

    /// The rest of a set.
    pub(super) fn filter(&self, set: &FieldSet) -> FieldSet {
        match self {
            Reset::Except(reset) => set.without(reset),
            Reset::Only(paths) => matching(set, paths),
        }
    }
}

fn matching(set: &FieldSet, paths: &[&[&str]]) -> FieldSet {
    let mut left = FieldSet::default();
    for (element, child) in &set.children {
        let below: Vec<&[&str]> = paths
            .iter()
            .filter_map(|path| match path {
                [step, rest @ ..] if *step == "*" || *element == Element::field(step) => Some(rest),
                _ => None,
            })
            .collect();
        if below.is_empty() {
            continue;
        }
        let mut kept = if below.iter().any(|rest| rest.is_empty()) {
            child.clone()
        } else {
            matching(child, &below)
        };
        // The parents of a match are part of it.
        kept.member = child.member;
        left.put(element.clone(), kept);
    }
    left
}
