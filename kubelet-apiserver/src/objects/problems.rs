//! Fields and their problems, in the API server's words (`field.Path`, `field.ErrorList`).

pub(super) use kubelet_core::FieldPath as Field;
use serde_json::Value;

use super::super::status_error::Cause;

/// The problems of an object.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Cause>);

impl Problems {
    pub(super) fn required(&mut self, field: &Field, why: &str) {
        self.push(
            "FieldValueRequired",
            field,
            with_detail("Required value".into(), why),
        );
    }

    pub(super) fn forbidden(&mut self, field: &Field, why: &str) {
        self.push("FieldValueForbidden", field, with_detail("Forbidden".into(), why));
    }

    pub(super) fn invalid(&mut self, field: &Field, value: impl Into<Value>, why: &str) {
        let message = with_detail(format!("Invalid value: {}", value.into()), why);
        self.push("FieldValueInvalid", field, message);
    }

    pub(super) fn duplicate(&mut self, field: &Field, value: impl Into<Value>) {
        let message = format!("Duplicate value: {}", value.into());
        self.push("FieldValueDuplicate", field, message);
    }

    pub(super) fn not_found(&mut self, field: &Field, value: impl Into<Value>) {
        self.push(
            "FieldValueNotFound",
            field,
            format!("Not found: {}", value.into()),
        );
    }

    pub(super) fn too_long(&mut self, field: &Field, most: usize) {
        let message = format!("Too long: may not be more than {most} bytes");
        self.push("FieldValueTooLong", field, message);
    }

    pub(super) fn too_many(&mut self, field: &Field, count: usize, most: usize) {
        let message = format!("Too many: {count}: must have at most {most} items");
        self.push("FieldValueTooMany", field, message);
    }

    pub(super) fn not_supported(&mut self, field: &Field, value: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message = format!(
            "Unsupported value: {value:?}: supported values: {}",
            supported.join(", ")
        );
        self.push("FieldValueNotSupported", field, message);
    }

    /// Adds a problem unless the value is one of `supported`, which must be sorted as the API server sorts it.
    pub(super) fn unless_one_of(&mut self, field: &Field, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            self.not_supported(field, value, supported);
        }
    }

    /// Adds the problems that a check of the value's form returns.
    pub(super) fn unless_formed(&mut self, field: &Field, value: &str, form: fn(&str) -> Vec<String>) {
        for why in form(value) {
            self.invalid(field, value, &why);
        }
    }

    /// Adds a problem unless the number is within these bounds.
    pub(super) fn unless_within(&mut self, field: &Field, value: i64, least: i64, most: i64) {
        if !(least..=most).contains(&value) {
            let why = format!("must be between {least} and {most}, inclusive");
            self.invalid(field, value, &why);
        }
    }

    pub(super) fn if_negative(&mut self, field: &Field, value: i64) {
        if value < 0 {
            self.invalid(field, value, "must be greater than or equal to 0");
        }
    }

    /// Adds a problem if the two differ.
    pub(super) fn unless_same(&mut self, field: &Field, new: &Value, old: &Value) {
        if new != old {
            self.invalid(field, new.clone(), "field is immutable");
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn into_causes(self) -> Vec<Cause> {
        self.0
    }

    fn push(&mut self, reason: &'static str, field: &Field, message: String) {
        self.0.push(Cause {
            reason,
            field: field.to_string(),
            message,
        });
    }
}

fn with_detail(message: String, why: &str) -> String {
    if why.is_empty() {
        message
    } else {
        format!("{message}: {why}")
    }
}
