//! Service accounts.

use serde_json::{Value, json};

use super::problems::Problems;
use super::value::Fields;
use super::{metadata, names};

/// Only the names of its secrets count.
pub(super) fn prepare(account: &mut Value) {
    for secret in account.list_mut("secrets") {
        *secret = json!({"name": secret["name"]});
    }
}

pub(super) fn validate(account: &Value, problems: &mut Problems) {
    metadata::validate(account, true, names::dns_subdomain, problems);
}

pub(super) fn validate_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    validate(new, problems);
}
