//! `SubjectAccessReview` and `SelfSubjectAccessReview`: whether a user may do something
//! (`pkg/registry/authorization`).

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::authorize::{self, Access};
use crate::objects::Fields;
use crate::request::{Attributes, User};
use crate::server::Shared;
use crate::status_error::{Cause, StatusError};

/// Fills in the status of a review.
pub(super) fn review(
    shared: &Shared,
    attributes: &Attributes,
    mut review: Value,
) -> Result<Value, StatusError> {
    let spec = &review["spec"];
    let of_self = attributes.resource.kind == "SelfSubjectAccessReview";
    let causes = problems(&review, of_self);
    if !causes.is_empty() {
        return Err(StatusError::invalid(attributes.resource, "", &causes));
    }
    let user = if of_self {
        attributes.user.clone()
    } else {
        let groups = spec.list("groups").iter().filter_map(Value::as_str);
        User {
            name: spec.text("user").to_owned(),
            groups: groups.map(str::to_owned).collect(),
        }
    };
    let selector = field_selector(&spec["resourceAttributes"]["fieldSelector"]);
    let access = access(&user, spec, &selector);
    let (allowed, reason) = match authorize::decide(&access, &shared.grants, shared) {
        Ok(reason) => (true, reason),
        Err(reason) => (false, reason),
    };
    review["status"] = json!({"allowed": allowed});
    if !reason.is_empty() {
        review["status"]["reason"] = json!(reason);
    }
    Ok(review)
}

/// What the review asks.
fn access<'a>(user: &'a User, spec: &'a Value, selector: &'a str) -> Access<'a> {
    let path = spec.field("nonResourceAttributes");
    let asked = path.unwrap_or(&spec["resourceAttributes"]);
    Access {
        user,
        verb: asked.text("verb"),
        path: path.map(|path| path.text("path")),
        group: asked.text("group"),
        resource: asked.text("resource"),
        subresource: asked.text("subresource"),
        namespace: asked.text("namespace"),
        name: Cow::Borrowed(asked.text("name")),
        field_selector: selector,
    }
}

/// `ValidateSubjectAccessReview`, without the requirements of selectors.
fn problems(review: &Value, of_self: bool) -> Vec<Cause> {
    let spec = &review["spec"];
    let mut causes = Vec::new();
    let mut invalid = |field: &str, value: &str, why: &str| {
        causes.push(Cause {
            reason: "FieldValueInvalid",
            field: field.to_owned(),
            message: format!("Invalid value: {value}: {why}"),
        });
    };
    match (
        spec.field("resourceAttributes"),
        spec.field("nonResourceAttributes"),
    ) {
        (Some(_), Some(path)) => {
            let why = "cannot be specified in combination with resourceAttributes";
            invalid("spec.nonResourceAttributes", &path.to_string(), why);
        }
        (None, None) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            invalid("spec.resourceAttributes", "null", why);
        }
        _ => {}
    }
    if !of_self && spec.text("user").is_empty() && spec.list("groups").is_empty() {
        let why = "at least one of user or group must be specified";
        invalid("spec.user", "\"\"", why);
    }
    let metadata = review["metadata"].as_object();
    let mut given = metadata
        .into_iter()
        .flatten()
        .filter(|(key, value)| key.as_str() != "managedFields" && !value.is_null());
    if given.next().is_some() {
        invalid("metadata", &review["metadata"].to_string(), "must be empty");
    }
    causes
}

/// The field selector of a review as a request would have it: `a=b,c!=d`.
fn field_selector(selector: &Value) -> String {
    let requirements = selector.list("requirements");
    if requirements.is_empty() {
        return selector.text("rawSelector").to_owned();
    }
    // Requirements that authorizers do not understand are left out, which asks for more.
    let requirements: Vec<String> = requirements
        .iter()
        .filter_map(
            |requirement| match (requirement.text("operator"), requirement.list("values")) {
                ("In", [value]) => Some(format!("{}={}", requirement.text("key"), value.as_str()?)),
                ("NotIn", [value]) => Some(format!("{}!={}", requirement.text("key"), value.as_str()?)),
                _ => None,
            },
        )
        .collect();
    requirements.join(",")
}
