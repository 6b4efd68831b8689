//! [`Selection`]: the objects that a list or a watch selects.

use serde_json::Value;

use super::{FieldSelector, LabelSelector, twins};
use crate::resource::Resource;

/// A namespace, labels and fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Empty for all.
    pub(crate) namespace: String,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

/// The index of watches by what they select.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Interest {
    All,
    /// `metadata.name=`, with the namespace, if it is asked for.
    Name(String),
    /// `spec.nodeName=`.
    Node(String),
}

impl Selection {
    /// Whether a stored object is selected, in the form of this resource.
    pub(crate) fn matches(&self, resource: &Resource, object: &Value) -> bool {
        let object = &*twins::seen(resource, object);
        (self.namespace.is_empty() || object["metadata"]["namespace"] == self.namespace.as_str())
            && self.labels.matches(&object["metadata"]["labels"])
            && self.fields.matches(resource, object)
    }

    /// Whether all objects of the namespace are selected.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The narrowest index that covers the selection.
    pub(super) fn interest(&self) -> Interest {
        if let Some(name) = self.fields.required("metadata.name") {
            Interest::Name(name.to_owned())
        } else if let Some(node) = self.fields.required("spec.nodeName").filter(|n| !n.is_empty()) {
            Interest::Node(node.to_owned())
        } else {
            Interest::All
        }
    }
}
