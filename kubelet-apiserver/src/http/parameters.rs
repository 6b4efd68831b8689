//! [`Parameters`]: the query parameters.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

use super::media;
use crate::objects::FieldValidation;
use crate::request::Attributes;
use crate::status_error::StatusError;
use crate::store::{FieldSelector, LabelSelector, ListOptions, Selection};
use crate::write::delete_options;

/// The parameters of a request. If one is given twice, the first counts.
#[derive(Debug)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    pub(super) fn of(query: Option<&str>) -> Self {
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            parameters
                .entry(name.into_owned())
                .or_insert_with(|| value.into_owned());
        }
        Parameters(parameters)
    }

    /// Empty if it is not given.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A parameter without a value is true.
    pub(super) fn is_true(&self, name: &str) -> bool {
        is_true(self.0.get(name))
    }

    pub(super) fn field_validation(&self) -> Result<FieldValidation, StatusError> {
        match self.get("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Strict" => Ok(FieldValidation::Strict),
            "Ignore" => Ok(FieldValidation::Ignore),
            other => Err(StatusError::bad_request(format!(
                "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
            ))),
        }
    }

    pub(super) fn list_options(&self) -> Result<ListOptions, StatusError> {
        let number = |name: &str| match self.get(name) {
            "" => Ok(None),
            text => text.parse::<u64>().map(Some).map_err(|_| {
                StatusError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        };
        let initial = self.0.get("sendInitialEvents");
        Ok(ListOptions {
            resource_version: self.get("resourceVersion").to_owned(),
            resource_version_match: self.get("resourceVersionMatch").to_owned(),
            limit: number("limit")?
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(0),
            token: self.get("continue").to_owned(),
            watch: self.is_true("watch"),
            send_initial_events: initial.map(|_| is_true(initial)),
            allow_watch_bookmarks: self.is_true("allowWatchBookmarks"),
            timeout_seconds: number("timeoutSeconds")?,
        })
    }

    pub(super) fn selection(&self, attributes: &Attributes) -> Result<Selection, StatusError> {
        let labels = LabelSelector::parse(self.get("labelSelector"))?;
        let fields = FieldSelector::parse(attributes.resource, &attributes.field_selector)?;
        let fields = match attributes.name.as_str() {
            "" => fields,
            name => fields.and_name(name),
        };
        Ok(Selection {
            namespace: attributes.namespace.clone(),
            labels,
            fields,
        })
    }

    /// The `DeleteOptions` of the body, or of the parameters if there is no body.
    pub(super) fn delete_options(&self, content_type: &str, body: Bytes) -> Result<Value, StatusError> {
        let body = if body.is_empty() {
            body
        } else {
            media::json_body(content_type, body)?
        };
        let mut options = delete_options(&body)?;
        if body.is_empty() {
            if let Ok(seconds) = self.get("gracePeriodSeconds").parse::<i64>() {
                options["gracePeriodSeconds"] = seconds.into();
            }
            let policy = self.get("propagationPolicy");
            if !policy.is_empty() {
                options["propagationPolicy"] = policy.into();
            }
        }
        Ok(options)
    }
}

fn is_true(parameter: Option<&String>) -> bool {
    parameter.is_some_and(|value| !matches!(value.as_str(), "false" | "0"))
}
