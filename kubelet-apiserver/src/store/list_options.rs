//! [`ListOptions`], and lists with revisions and pages.

use std::sync::Arc;

use serde_json::Value;

use super::page_token::PageToken;
use super::{Selection, Store, index, key_range, shown};
use crate::resource::Resource;
use crate::status_error::{Cause, StatusError};

/// The parameters of a list or a watch, as they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListOptions {
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: String,
    /// 0 for no limit.
    pub(crate) limit: usize,
    /// `continue`.
    pub(crate) token: String,
    pub(crate) watch: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) allow_watch_bookmarks: bool,
    pub(crate) timeout_seconds: Option<u64>,
}

/// A list, or a page of one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Listed {
    pub(crate) items: Vec<Arc<Value>>,
    /// The revision that it shows.
    pub(crate) revision: u64,
    /// The token of the next page; empty on the last.
    pub(crate) token: String,
    /// The number of objects after this page, if known.
    pub(crate) remaining: Option<usize>,
}

impl ListOptions {
    /// Rejects options that contradict each other.
    ///
    /// # Errors
    ///
    /// 422 `Invalid`.
    pub(crate) fn validate(&self) -> Result<(), StatusError> {
        let matching = self.resource_version_match.as_str();
        let mut causes = Vec::new();
        let mut forbid = |field: &str, why: &str| {
            causes.push(Cause {
                reason: "FieldValueForbidden",
                field: field.into(),
                message: format!("Forbidden: {why}"),
            });
        };
        if self.watch {
            if self.send_initial_events.is_some() && matching != "NotOlderThan" {
                forbid(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
            }
            if !matching.is_empty() && self.send_initial_events.is_none() {
                forbid(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
        } else {
            if !matching.is_empty() && self.resource_version.is_empty() {
                forbid(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if matching == "Exact" && self.resource_version == "0" {
                forbid(
                    "resourceVersionMatch",
                    r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
                );
            }
            if self.send_initial_events.is_some() {
                forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
            }
        }
        if !matching.is_empty() && !self.token.is_empty() {
            forbid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            );
        }
        let supported = if self.watch {
            r#""NotOlderThan""#
        } else {
            r#""Exact", "NotOlderThan", """#
        };
        let known = matches!(
            (matching, self.watch),
            ("" | "NotOlderThan", _) | ("Exact", false)
        );
        if !known {
            causes.push(Cause {
                reason: "FieldValueNotSupported",
                field: "resourceVersionMatch".into(),
                message: format!("Unsupported value: {matching:?}: supported values: {supported}"),
            });
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(StatusError::invalid(&LIST_OPTIONS, "", &causes))
    }

    /// `resourceVersion` as a number: 0 for none.
    ///
    /// # Errors
    ///
    /// 500, as from the API server, for an invalid number.
    pub(crate) fn revision(&self) -> Result<u64, StatusError> {
        parse_revision(&self.resource_version)
    }
}

/// The words for invalid options.
static LIST_OPTIONS: Resource = Resource {
    group: "meta.k8s.io",
    version: "v1",
    plural: "listoptions",
    singular: "listoptions",
    kind: "ListOptions",
    namespaced: false,
    short_names: &[],
    subresources: &[],
};

/// A `resourceVersion` as a number: 0 for an empty one.
///
/// # Errors
///
/// 500, as from the API server, for an invalid number.
pub(crate) fn parse_revision(text: &str) -> Result<u64, StatusError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let message = format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        );
        StatusError::new(500, "", message)
    })
}

impl Store {
    /// The objects of a resource that the options select.
    ///
    /// # Errors
    ///
    /// 400 for an invalid token, 410 for a revision that is no longer kept, 504 for one in the future.
    pub(crate) fn list(
        &self,
        resource: &Resource,
        selection: &Selection,
        options: &ListOptions,
    ) -> Result<Listed, StatusError> {
        let token = match options.token.as_str() {
            "" => None,
            token => Some(PageToken::decode(token)?),
        };
        let asked = options.revision()?;
        if token.is_some() && asked != 0 {
            return Err(StatusError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        self.reaches(asked)?;
        let exact = match &token {
            Some(token) => token.revision,
            None if options.resource_version_match == "Exact" => Some(asked),
            None if options.resource_version_match.is_empty() && options.limit > 0 && asked > 0 => {
                Some(asked)
            }
            None => None,
        };
        let Some(index) = index(resource) else {
            return Ok(Listed {
                items: Vec::new(),
                revision: self.revision,
                token: String::new(),
                remaining: None,
            });
        };
        let kind = &self.kinds[index];
        if exact.is_some_and(|revision| revision < kind.compacted) {
            return Err(expired(token));
        }
        let revision = exact.unwrap_or(self.revision);
        // Keys without the namespace, as in tokens.
        let below = match selection.namespace.as_str() {
            namespace if !namespace.is_empty() && resource.namespaced => format!("{namespace}/"),
            _ => String::new(),
        };
        let start = token.map(|token| format!("{below}{}", token.start));
        let range = key_range(resource, &selection.namespace, start);

        let of_node = selection
            .fields
            .required("spec.nodeName")
            .filter(|n| !n.is_empty());
        if let (Some(node), true, 0) = (of_node, revision == self.revision, options.limit) {
            let keys = kind.by_node.get(node).into_iter().flatten();
            let objects = keys.filter_map(|key| kind.objects.get(key));
            return Ok(Listed {
                items: objects
                    .filter(|o| selection.matches(resource, o))
                    .cloned()
                    .collect(),
                revision,
                token: String::new(),
                remaining: None,
            });
        }
        let snapshot;
        let objects: Box<dyn Iterator<Item = (&str, &Arc<Value>)>> = if revision == self.revision {
            let bounds = super::as_bounds(&range);
            let present = kind.objects.range::<str, _>(bounds);
            Box::new(present.map(|(key, object)| (key.as_str(), object)))
        } else {
            snapshot = kind.at(&range, revision);
            Box::new(snapshot.into_iter())
        };
        Ok(page(
            objects,
            resource,
            selection,
            options.limit,
            revision,
            &below,
        ))
    }

    /// Rejects a revision in the future.
    ///
    /// # Errors
    ///
    /// 504 `Timeout`.
    pub(crate) fn reaches(&self, revision: u64) -> Result<(), StatusError> {
        if revision <= self.revision {
            return Ok(());
        }
        let message = format!(
            "Timeout: Too large resource version: {revision}, current: {}",
            self.revision
        );
        Err(
            StatusError::new(504, "Timeout", message).with_details(serde_json::json!({
                "causes": [{"message": "Too large resource version", "reason": "ResourceVersionTooLarge"}],
                "retryAfterSeconds": 1,
            })),
        )
    }
}

fn page<'a>(
    objects: impl Iterator<Item = (&'a str, &'a Arc<Value>)>,
    resource: &Resource,
    selection: &Selection,
    limit: usize,
    revision: u64,
    below: &str,
) -> Listed {
    let mut listed = Listed {
        items: Vec::new(),
        revision,
        token: String::new(),
        remaining: None,
    };
    let mut objects = objects.peekable();
    while let Some((key, object)) = objects.next() {
        if selection.matches(resource, object) {
            listed.items.push(shown(resource, object));
        }
        if limit > 0 && listed.items.len() == limit && objects.peek().is_some() {
            let start = format!("{}\0", key.strip_prefix(below).unwrap_or(key));
            let revision = Some(revision);
            listed.token = PageToken { revision, start }.encode();
            listed.remaining = selection.is_everything().then(|| objects.count());
            break;
        }
    }
    listed
}

/// 410, with a token to continue from the present, if the request had a token.
fn expired(token: Option<PageToken>) -> StatusError {
    match token {
        None => StatusError::new(
            410,
            "Expired",
            "The resourceVersion for the provided list is too old.",
        ),
        Some(token) => {
            let revision = None;
            let token = PageToken { revision, ..token }.encode();
            StatusError::new(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                 without the continue parameter, or use the continue token in this response to retrieve the remainder of \
                 the results. Continuing with the provided token results in an inconsistent list - objects that were \
                 created, modified, or deleted between the time the first chunk was returned and now may show up in the \
                 list.",
            )
            .with_continue(token)
        }
    }
}
