//! `TokenReview`: whose token this is (`pkg/registry/authentication/tokenreview`).

use serde_json::{Map, Value, json};

use crate::objects::Fields;
use crate::server::Shared;
use crate::status_error::StatusError;
use crate::tokens::{ISSUER, Identity};

/// Fills in the status of a review.
pub(super) fn review(shared: &Shared, mut review: Value) -> Result<Value, StatusError> {
    let spec = &review["spec"];
    let token = spec.text("token");
    if token.is_empty() {
        let why = "token is required for TokenReview in authentication";
        return Err(StatusError::bad_request(why));
    }
    let mut audiences: Vec<&str> = spec.list("audiences").iter().filter_map(Value::as_str).collect();
    if audiences.is_empty() {
        audiences.push(ISSUER);
    }
    review["status"] = match shared.authenticate(token, &audiences) {
        Ok(identity) => authenticated(&identity),
        Err(why) => json!({"user": {}, "error": why}),
    };
    Ok(review)
}

fn authenticated(identity: &Identity) -> Value {
    let mut user = json!({"username": identity.user.name, "groups": identity.user.groups});
    if !identity.uid.is_empty() {
        user["uid"] = json!(identity.uid);
    }
    let extra = identity
        .extra
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!([value])));
    let extra: Map<String, Value> = extra.collect();
    if !extra.is_empty() {
        user["extra"] = Value::Object(extra);
    }
    json!({"authenticated": true, "user": user, "audiences": identity.audiences})
}
