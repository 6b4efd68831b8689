//! [`StatusError`]: an error in the API server's words.

use serde_json::{Value, json};

use super::resource::Resource;

/// A `Status` of `status: Failure`.
///
/// Codes, reasons and messages are exactly the API server's.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub(crate) struct StatusError {
    /// The HTTP status.
    pub(crate) code: u16,
    /// `Status.reason`: `NotFound`, `AlreadyExists`, `Conflict`, `Invalid`…; may be empty.
    pub(crate) reason: &'static str,
    /// `Status.message`.
    pub(crate) message: String,
    /// `Status.details`, where there are any.
    pub(crate) details: Option<Value>,
    /// `Status.metadata.continue`: a token to continue a list from the present.
    pub(crate) token: Option<String>,
}

/// One field of an `Invalid` object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldValueForbidden`…
    pub(crate) reason: &'static str,
    /// The path: `spec.containers[0].name`.
    pub(crate) field: String,
    /// The problem: `Invalid value: "x": must be …`.
    pub(crate) message: String,
}

impl StatusError {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        StatusError {
            code,
            reason,
            message: message.into(),
            details: None,
            token: None,
        }
    }

    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.token = Some(token);
        self
    }

    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// 404 `NotFound` for one object.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} not found", resource.qualified());
        Self::new(404, "NotFound", message).with_details(resource.details(name))
    }

    /// 409 `AlreadyExists` for one object.
    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.qualified());
        Self::new(409, "AlreadyExists", message).with_details(resource.details(name))
    }

    /// 409 `Conflict`: a resource version or precondition that no longer holds.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            resource.qualified()
        );
        Self::new(409, "Conflict", message).with_details(resource.details(name))
    }

    /// 403 `Forbidden`; `why` follows the resource and the name.
    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() {
            resource.qualified()
        } else {
            format!("{} {name:?}", resource.qualified())
        };
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {why}"))
            .with_details(resource.details(name))
    }

    /// 422 `Invalid` with every field that is wrong.
    pub(crate) fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        // The message has equal problems once; the causes have all of them.
        let mut messages: Vec<String> = Vec::new();
        for cause in causes {
            let one = format!("{}: {}", cause.field, cause.message);
            if !messages.contains(&one) {
                messages.push(one);
            }
        }
        let list = if messages.len() == 1 {
            messages.concat()
        } else {
            format!("[{}]", messages.join(", "))
        };
        let causes: Vec<Value> = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        let mut details = json!({"name": name, "kind": resource.kind, "causes": causes});
        if !resource.group.is_empty() {
            details["group"] = json!(resource.group);
        }
        Self::new(
            422,
            "Invalid",
            format!("{} {name:?} is invalid: {list}", resource.qualified_kind()),
        )
        .with_details(details)
    }

    /// 400 `BadRequest`.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// The `Status` object of the response's body.
    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(token) = &self.token {
            status["metadata"] = json!({"continue": token});
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
