//! [`FieldSelector`]: `metadata.name=a,spec.nodeName!=b`.

use serde_json::Value;

use crate::objects;
use crate::resource::Resource;
use crate::status_error::StatusError;

/// Requirements on fields, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    field: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Parses a selector for the objects of a resource.
    ///
    /// # Errors
    ///
    /// 400 for an invalid selector, or a field that the resource does not support.
    pub(crate) fn parse(resource: &Resource, text: &str) -> Result<Self, StatusError> {
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let (field, equal, value) = split_term(term).ok_or_else(|| {
                StatusError::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'"))
            })?;
            objects::check_field_label(resource, field)?;
            requirements.push(Requirement {
                field: field.to_owned(),
                equal,
                value: unescape(value),
            });
        }
        Ok(FieldSelector { requirements })
    }

    /// Adds the requirement of one object's name.
    pub(crate) fn and_name(mut self, name: &str) -> Self {
        self.requirements.push(Requirement {
            field: "metadata.name".into(),
            equal: true,
            value: name.to_owned(),
        });
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The value that a field must have, if there is one.
    pub(crate) fn required(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|r| r.equal && r.field == field)
            .map(|r| r.value.as_str())
    }

    pub(crate) fn matches(&self, resource: &Resource, object: &Value) -> bool {
        self.requirements
            .iter()
            .all(|r| (objects::selectable_field(resource, object, &r.field) == r.value) == r.equal)
    }
}

/// Terms between commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// The field, whether it is to be equal, and the value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = term[at..].strip_prefix(operator) {
                return Some((&term[..at], equal, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods() -> &'static Resource {
        Resource::find("", "v1", "pods").unwrap()
    }

    #[test]
    fn selects_by_fields() {
        let pod = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "one"}});
        for (selector, selects) in [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==a", true),
            ("metadata.name!=a", false),
            ("metadata.name=a,spec.nodeName=one", true),
            ("metadata.name=a,spec.nodeName=two", false),
            ("spec.nodeName=", false),
            ("spec.nodeName!=", true),
            ("metadata.name=\\a", true),
        ] {
            let selector = FieldSelector::parse(pods(), selector).unwrap();
            assert_eq!(selector.matches(pods(), &pod), selects, "{selector:?}");
        }
    }

    #[test]
    fn refuses_what_is_no_selector() {
        assert_eq!(
            FieldSelector::parse(pods(), "metadata.name").unwrap_err().code,
            400
        );
    }
}
